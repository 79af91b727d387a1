"""Private teacher-student learning.

Teachers learn from disjoint shards of private data and vote on public, unlabeled points; a stability mechanism releases
the labels that they agree on; a student learns from those labels alone and can be published. After "Model-Agnostic Private
Learning via Stability" (Bassily, Thakkar, Thakurta 2018, arXiv:1803.05101).

Names are loaded when first used, so that `import teacher_student` stays fast and `label` needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teacher_student.arguments import ArgumentError, PrivacyWarning
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.lazy import accept_old_names, exported
from teacher_student.version import __version__

if TYPE_CHECKING:
    from teacher_student.aggregation import (
        FractionRelease,
        FractionSession,
        LabelSession,
        Release,
        ScoreRelease,
        ScoreSession,
        SoftLabelSession,
        SoftRelease,
        average_scores,
        label,
        label_fractions,
        label_soft,
        load_release,
    )
    from teacher_student.app.estimator import PrivateClassifier
    from teacher_student.pipeline import load_student
    from teacher_student.planning import plan, plan_records
    from teacher_student.privacy import Certificate

_HOMES = {
    "label": "aggregation",
    "LabelSession": "aggregation",
    "Release": "aggregation",
    "SoftLabelSession": "aggregation",
    "SoftRelease": "aggregation",
    "ScoreRelease": "aggregation",
    "ScoreSession": "aggregation",
    "average_scores": "aggregation",
    "FractionRelease": "aggregation",
    "FractionSession": "aggregation",
    "label_fractions": "aggregation",
    "label_soft": "aggregation",
    "load_release": "aggregation",
    "Certificate": "privacy",
    "PrivateClassifier": "app.estimator",
    "load_student": "pipeline",
    "plan": "planning",
    "plan_records": "planning",
}

__all__ = [
    "ABSTAIN",
    "HALTED",
    "ArgumentError",
    "Certificate",
    "FractionRelease",
    "FractionSession",
    "LabelSession",
    "PrivacyWarning",
    "PrivateClassifier",
    "Release",
    "ScoreRelease",
    "ScoreSession",
    "SoftLabelSession",
    "SoftRelease",
    "__version__",
    "average_scores",
    "label",
    "label_fractions",
    "label_soft",
    "load_release",
    "load_student",
    "plan",
    "plan_records",
]

__getattr__, __dir__ = exported(__name__, _HOMES, __all__)
accept_old_names()
