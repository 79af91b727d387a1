"""Learning from the released labels alone."""

from __future__ import annotations

from teacher_student.student.methods.interface import Method


class Supervised(Method):
    """Weighted soft-label cross-entropy; unlabeled points are left aside."""

    uses_unlabeled = False
