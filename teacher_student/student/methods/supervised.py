"""Learning from the released labels alone."""

from __future__ import annotations

import dataclasses

from teacher_student.student.methods.interface import Method


@dataclasses.dataclass(frozen=True, kw_only=True)
class Supervised(Method):
    """Weighted soft-label cross-entropy; unlabeled points are left aside."""

    name = "supervised"
    uses_unlabeled = False
