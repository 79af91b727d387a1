"""Mean teacher: the student agrees with the running average of its own weights (Tarvainen and Valpola, NeurIPS 2017).

The average is the student's own (`average_decay`): it moves after every step, and it is what is published.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional as F

from teacher_student.student.methods.interface import Learning, Method


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanTeacher(Method):
    """Consistency between the student on the strong view and its average on the weak one."""

    name = "mean_teacher"
    needs_average = True

    def unlabeled_loss(self, learning: Learning, unlabeled: Tensor) -> Tensor:
        """Return the mean squared distance between the two predictions."""
        assert learning.average is not None  # the settings give it one
        with torch.no_grad():
            wanted = F.softmax(learning.average(learning.views.weak(unlabeled)), dim=-1)
        got = F.softmax(learning.student(learning.views.strong(unlabeled)), dim=-1)
        return (got - wanted).square().sum(dim=-1).mean()
