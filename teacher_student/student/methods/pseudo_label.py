"""Pseudo-labels: the student's own confident guesses, made anew in every step (Lee, "Pseudo-Label", ICML 2013 workshop)."""

from __future__ import annotations

from torch import Tensor

from teacher_student.student.methods.interface import Method, Networks, confident_loss


class PseudoLabel(Method):
    """A guess of at least `confidence` is the point's label in this step."""

    def unlabeled_loss(self, networks: Networks, unlabeled: Tensor) -> Tensor:
        """Return the cross-entropy of confident predictions against themselves."""
        logits = networks.student(unlabeled)
        return confident_loss(logits, logits, self.settings.confidence)
