"""Ways to learn from points with and without a label, one file each, behind one interface: `interface.Method`.

Every module of this folder is imported here; the methods in it are known by their names from then on.
"""

import importlib
import pkgutil

from teacher_student.student.methods.interface import METHODS, Labeled, Learning, Method

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["METHODS", "Labeled", "Learning", "Method"]
