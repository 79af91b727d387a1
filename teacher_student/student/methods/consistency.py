"""Methods that hold the student on unlabeled points to a guess: its own, that on another view, or that of its average."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional as F

from teacher_student.arguments import fraction_of_one
from teacher_student.student.methods.interface import Learning, Method


@dataclasses.dataclass(frozen=True, kw_only=True)
class PseudoLabel(Method):
    """A confident guess is the point's label in this step (Lee, "Pseudo-Label", ICML 2013 workshop).

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixMatch(PseudoLabel):
    """A confident guess about the weak view labels the strong one (Sohn et al., NeurIPS 2020, arXiv:2001.07685)."""

    name = "fixmatch"

    def unlabeled_loss(self, learning: Learning, unlabeled: Tensor) -> Tensor:
        """Return the cross-entropy of strong views against confident guesses about weak ones."""
        with torch.no_grad():
            guesses = learning.student(learning.views.weak(unlabeled))
        return confident_loss(guesses, learning.student(learning.views.strong(unlabeled)), self.confidence)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanTeacher(Method):
    """The student on the strong view agrees with its average on the weak one (Tarvainen and Valpola, NeurIPS 2017).

    The average is the student's own (`average_decay`): it moves after every step, and it is published.
    """

    name = "mean_teacher"
    needs_average = True

    def unlabeled_loss(self, learning: Learning, unlabeled: Tensor) -> Tensor:
        """Return the mean squared distance between the two predictions."""
        assert learning.average is not None  # the settings give it one
        with torch.no_grad():
            wanted = F.softmax(learning.average(learning.views.weak(unlabeled)), dim=-1)
        got = F.softmax(learning.student(learning.views.strong(unlabeled)), dim=-1)
        return (got - wanted).square().sum(dim=-1).mean()


def confident_loss(guesses: Tensor, logits: Tensor, confidence: float) -> Tensor:
    """Return the cross-entropy of `logits` against confident guesses.

    Args:
        guesses: (batch, num_classes) logits; no gradient flows through them.
        logits: (batch, num_classes), fitted to the guesses.
        confidence: smallest probability at which a guess counts.

    Returns:
        Scalar: summed over the confident guesses, divided by the whole batch, so that an unsure student is pulled less.
    """
    probabilities, classes = F.softmax(guesses.detach(), dim=-1).max(dim=-1)
    losses = F.cross_entropy(logits, classes, reduction="none")
    return torch.where(probabilities >= confidence, losses, torch.zeros_like(losses)).mean()
