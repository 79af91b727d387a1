"""FreeMatch: the confidence that a guess needs follows the student's own (Wang et al., ICLR 2023, arXiv:2205.07246).

The thresholds of equations 5 to 8, from the present batch instead of a running mean over batches: no state, and no threshold to
choose. A class that the student rarely guesses has a lower threshold, so that it is not left behind.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional as F

from teacher_student.student.methods.interface import Learning, Method


@dataclasses.dataclass(frozen=True, kw_only=True)
class FreeMatch(Method):
    """Consistency between two views, where the student is at least as sure as on average, class by class."""

    name = "freematch"

    def unlabeled_loss(self, learning: Learning, unlabeled: Tensor) -> Tensor:
        """Return the cross-entropy of strong views against guesses about weak ones that pass their class's threshold."""
        with torch.no_grad():
            probabilities = F.softmax(learning.student(learning.views.weak(unlabeled)), dim=-1)
            sure, classes = probabilities.max(dim=-1)
            counted = sure >= class_thresholds(probabilities)[classes]
        losses = F.cross_entropy(learning.student(learning.views.strong(unlabeled)), classes, reduction="none")
        return torch.where(counted, losses, torch.zeros_like(losses)).mean()


def class_thresholds(probabilities: Tensor) -> Tensor:
    """Return (num_classes,) thresholds: the mean confidence, times each class's share of the most frequent class's mean.

    Args:
        probabilities: (batch, num_classes) predictions.

    >>> class_thresholds(torch.tensor([[0.9, 0.1], [0.7, 0.3]]))
    tensor([0.8000, 0.2000])
    """
    means = probabilities.mean(dim=0)
    return probabilities.max(dim=-1).values.mean() * means / means.max()
