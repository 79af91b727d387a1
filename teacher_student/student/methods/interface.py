"""The interface of student methods: the losses of a labeled batch and of an unlabeled one beside it.

All of it is post-processing: a method sees public features, what was released about them, and the student.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from teacher_student.student.augmentations import Views
from teacher_student.student.label_noise import KnownNoise
from teacher_student.student.targets import Targets

METHODS: dict[str, type[Method]] = {}
"""Every method by its name; a class that has a name is added when it is defined."""


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


class Learning(NamedTuple):
    """The context of a step.

    Attributes:
        student: the network that learns.
        average: the running average of its weights, if one is kept.
        noise: of the released labels.
        views: of the public points.
        label_smoothing: probability mass of a target that is spread over all classes.
    """

    student: nn.Module
    average: nn.Module | None
    noise: KnownNoise
    views: Views
    label_smoothing: float = 0.0

    def cross_entropy(self, logits: Tensor, labeled: Labeled) -> Tensor:
        """Return the weighted mean cross-entropy of targets, under the noise, against (batch, num_classes) logits."""
        smoothing = self.label_smoothing
        losses = F.cross_entropy(self.noise(logits), labeled.probabilities, reduction="none", label_smoothing=smoothing)
        return (losses * labeled.weights).sum() / labeled.weights.sum().clamp_min(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """A way to learn; its fields are its own settings. Most override `unlabeled_loss` alone, `losses` where points mix.

    Attributes:
        name: by which `StudentSettings.method` finds it.
        semi_supervised: whether it learns from unlabeled points.
        uses_unlabeled: whether a batch of unlabeled points is drawn beside each labeled one.
        needs_average: whether it needs a running average of the weights.
    """

    name: ClassVar[str]
    semi_supervised: ClassVar[bool] = True
    uses_unlabeled: ClassVar[bool] = True
    needs_average: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            METHODS[cls.name] = cls

    def losses(self, learning: Learning, labeled: Labeled, unlabeled: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scalar losses of (batch, ...) labeled and of (other batch, *shape) unlabeled points."""
        return self.labeled_loss(learning, labeled), self.unlabeled_loss(learning, unlabeled)

    def labeled_loss(self, learning: Learning, labeled: Labeled) -> Tensor:
        """Return the weighted mean cross-entropy of the targets, under the noise of labels."""
        return learning.cross_entropy(learning.student(learning.views.weak(labeled.features)), labeled)

    def unlabeled_loss(self, learning: Learning, unlabeled: Tensor) -> Tensor:
        """Return the loss on (batch, *shape) points without a target."""
        raise NotImplementedError

    @property
    def num_fits(self) -> int:
        """Number of fits from the start, each on the targets that `next_targets` makes of the previous one."""
        return 1

    def next_targets(self, targets: Targets, probabilities: Tensor, noise: KnownNoise, weight: float) -> Targets:
        """Return the targets of the next fit.

        Args:
            targets: what was released.
            probabilities: (num_queries, num_classes), the predictions of this fit.
            noise: of the released labels.
            weight: of a point without a released label, beside 1 for those with one.
        """
        raise NotImplementedError
