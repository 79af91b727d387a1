"""Ways to learn from points with and without a label, behind one interface: `interface.Method`.

Every module of this folder is imported here, which registers its methods by their names.
"""

import importlib
import pkgutil

from teacher_student.student.methods.interface import METHODS, Labeled, Learning, Method

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["METHODS", "Labeled", "Learning", "Method"]
