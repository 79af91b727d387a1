"""Private teacher-student learning.

Teachers learn from disjoint shards of private data and vote on public, unlabeled points; a stability mechanism releases
the labels that they agree on; a student learns from those labels alone and can be published. After "Model-Agnostic Private
Learning via Stability" (Bassily, Thakkar, Thakurta 2018, arXiv:1803.05101).

Names are loaded when first used, so that `import teacher_student` stays fast and `label` needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from teacher_student.arguments import ArgumentError
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.version import __version__

if TYPE_CHECKING:
    from teacher_student.aggregation import (
        FractionRelease,
        FractionSession,
        LabelSession,
        Release,
        SoftLabelSession,
        SoftRelease,
        label,
        label_fractions,
        label_soft,
    )
    from teacher_student.pipeline import load_student
    from teacher_student.privacy import Certificate
    from teacher_student.privacy.planner import plan

_HOMES = {
    "label": "teacher_student.aggregation",
    "LabelSession": "teacher_student.aggregation",
    "Release": "teacher_student.aggregation",
    "SoftLabelSession": "teacher_student.aggregation",
    "SoftRelease": "teacher_student.aggregation",
    "FractionRelease": "teacher_student.aggregation",
    "FractionSession": "teacher_student.aggregation",
    "label_fractions": "teacher_student.aggregation",
    "label_soft": "teacher_student.aggregation",
    "Certificate": "teacher_student.privacy",
    "load_student": "teacher_student.pipeline",
    "plan": "teacher_student.privacy.planner",
}

__all__ = [
    "ABSTAIN",
    "HALTED",
    "ArgumentError",
    "Certificate",
    "FractionRelease",
    "FractionSession",
    "LabelSession",
    "Release",
    "SoftLabelSession",
    "SoftRelease",
    "__version__",
    "label",
    "label_fractions",
    "label_soft",
    "load_student",
    "plan",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
