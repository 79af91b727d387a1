"""Names of a package that are imported when they are first used: who labels predictions need not wait for torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def exported(
    package: str, homes: Mapping[str, str], names: Sequence[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__`.

    Args:
        package: its `__name__`.
        homes: for each name that is imported when it is used, the module below the package that has it.
        names: all public names, its `__all__`.

    >>> find, listing = exported("teacher_student", {"Certificate": "privacy.certificate"}, ["Certificate", "label"])
    >>> find("Certificate").__name__, listing()
    ('Certificate', ['Certificate', 'label'])
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return find, lambda: list(names)
