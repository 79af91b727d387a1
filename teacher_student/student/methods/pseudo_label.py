"""Pseudo-labels: the student's own confident guesses, made anew in every step (Lee, "Pseudo-Label", ICML 2013 workshop)."""

from __future__ import annotations

import dataclasses

from torch import Tensor

from teacher_student.arguments import fraction_of_one
from teacher_student.student.methods.interface import Learning, Method, confident_loss


@dataclasses.dataclass(frozen=True, kw_only=True)
class PseudoLabel(Method):
    """A confident guess is the point's label in this step.

    Attributes:
        confidence: a guess counts where its probability is at least this.
    """

    name = "pseudo_label"
    confidence: float = 0.95

    def __post_init__(self) -> None:
        fraction_of_one("student.settings.method.confidence", self.confidence)

    def unlabeled_loss(self, learning: Learning, unlabeled: Tensor) -> Tensor:
        """Return the cross-entropy of confident predictions against themselves."""
        logits = learning.student(unlabeled)
        return confident_loss(logits, logits, self.confidence)
