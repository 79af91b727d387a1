"""Small reports, for tests of whole runs that are about something else: drawing and comparing take most of a small run's time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from teacher_student.monitoring import plots

_NONE: dict[str, Any] = {
    "_figure": lambda *_, **__: Figure(),
    "svg": lambda *_: "<svg></svg>",
    "pixels": lambda _: np.zeros((2, 2, 3), np.uint8),
}
"""In place of what `teacher_student.monitoring.plots` has under these names."""


@contextlib.contextmanager
def small_reports() -> Iterator[None]:
    """Make reports small within the block, such as a fixture that a module shares."""
    with pytest.MonkeyPatch.context() as patch:
        report_little(patch)
        yield


def report_little(patch: pytest.MonkeyPatch) -> None:
    """Write reports without their figures."""
    for name, instead in _NONE.items():
        patch.setattr(plots, name, instead)
