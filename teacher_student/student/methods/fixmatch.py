"""FixMatch: a confident guess about the weak view labels the strong one (Sohn et al., NeurIPS 2020, arXiv:2001.07685)."""

from __future__ import annotations

import torch
from torch import Tensor

from teacher_student.student.methods.interface import Method, Networks, confident_loss


class FixMatch(Method):
    """Consistency between two views, where the student is at least `confidence` sure."""

    def unlabeled_loss(self, networks: Networks, unlabeled: Tensor) -> Tensor:
        """Return the cross-entropy of strong views against confident guesses about weak ones."""
        with torch.no_grad():
            guesses = networks.student(self.views.weak(unlabeled))
        return confident_loss(guesses, networks.student(self.views.strong(unlabeled)), self.settings.confidence)
