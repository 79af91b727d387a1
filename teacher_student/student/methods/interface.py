"""What every way of learning from unlabeled points is: the losses of a labeled batch and of an unlabeled one beside it.

All of it is post-processing: a method sees public features, what was released about them, and the student.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from teacher_student.student.augmentations import Views
from teacher_student.student.label_noise import KnownNoise
from teacher_student.student.targets import Targets

if TYPE_CHECKING:  # the settings import the methods, to know their names
    from teacher_student.student.settings import StudentSettings


class Labeled(NamedTuple):
    """A batch of points with targets.

    Attributes:
        features: (batch, *shape).
        probabilities: (batch, num_classes), any numbers: the loss is linear in them.
        weights: (batch,) at least 0.
    """

    features: Tensor
    probabilities: Tensor
    weights: Tensor


class Networks(NamedTuple):
    """The network that learns, and the running average of its weights if one is kept."""

    student: nn.Module
    average: nn.Module | None


class Method(nn.Module):
    """A way to learn. Most override `unlabeled_loss` alone; `losses` where labeled and unlabeled points mix.

    Args:
        settings: how the student learns.
        noise: of the released labels.
        views: of the public points.
    """

    uses_unlabeled = True
    """Whether a batch of unlabeled points is drawn beside each labeled one."""

    def __init__(self, settings: StudentSettings, noise: KnownNoise, views: Views) -> None:
        super().__init__()
        self.settings = settings
        self.noise = noise
        self.views = views

    def losses(self, networks: Networks, labeled: Labeled, unlabeled: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scalar losses of (batch, ...) labeled and of (other batch, *shape) unlabeled points."""
        return self.labeled_loss(networks, labeled), self.unlabeled_loss(networks, unlabeled)

    def labeled_loss(self, networks: Networks, labeled: Labeled) -> Tensor:
        """Return the weighted mean cross-entropy of the targets, under the noise of labels."""
        return self.cross_entropy(networks.student(self.views.weak(labeled.features)), labeled)

    def unlabeled_loss(self, networks: Networks, unlabeled: Tensor) -> Tensor:
        """Return what the student is to be held to on (batch, *shape) points without a target."""
        raise NotImplementedError

    def cross_entropy(self, logits: Tensor, labeled: Labeled) -> Tensor:
        """Return the weighted mean cross-entropy of targets against (batch, num_classes) logits of what noise is put on."""
        smoothing = self.settings.label_smoothing
        losses = F.cross_entropy(self.noise(logits), labeled.probabilities, reduction="none", label_smoothing=smoothing)
        return (losses * labeled.weights).sum() / labeled.weights.sum().clamp_min(1)

    @property
    def rounds(self) -> int:
        """Fits from the start, each on the targets that `next_targets` makes of the fit before."""
        return 1

    def next_targets(self, targets: Targets, probabilities: Tensor) -> Targets:
        """Return the targets of the next round.

        Args:
            targets: what was released.
            probabilities: (num_queries, num_classes), what the student of this round says.
        """
        raise NotImplementedError


def confident_loss(guesses: Tensor, logits: Tensor, confidence: float) -> Tensor:
    """Return the cross-entropy of `logits` against confident guesses.

    Args:
        guesses: (batch, num_classes) logits; no gradient flows through them.
        logits: (batch, num_classes) that are held to them.
        confidence: smallest probability at which a guess counts.

    Returns:
        Scalar: summed over the confident guesses, divided by the whole batch, so that an unsure student is pulled less.
    """
    probabilities, classes = F.softmax(guesses.detach(), dim=-1).max(dim=-1)
    losses = F.cross_entropy(logits, classes, reduction="none")
    return torch.where(probabilities >= confidence, losses, torch.zeros_like(losses)).mean()
