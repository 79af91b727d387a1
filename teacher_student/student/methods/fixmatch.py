"""FixMatch: a confident guess about the weak view labels the strong one (Sohn et al., NeurIPS 2020, arXiv:2001.07685)."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from teacher_student.arguments import fraction_of_one
from teacher_student.student.methods.interface import Learning, Method, confident_loss


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixMatch(Method):
    """Consistency between two views, where the student is sure.

    Attributes:
        confidence: a guess counts where its probability is at least this.
    """

    name = "fixmatch"
    confidence: float = 0.95

    def __post_init__(self) -> None:
        fraction_of_one("student.settings.method.confidence", self.confidence)

    def unlabeled_loss(self, learning: Learning, unlabeled: Tensor) -> Tensor:
        """Return the cross-entropy of strong views against confident guesses about weak ones."""
        with torch.no_grad():
            guesses = learning.student(learning.views.weak(unlabeled))
        return confident_loss(guesses, learning.student(learning.views.strong(unlabeled)), self.confidence)
