"""How the student learns: the settings, checked before anything is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from teacher_student.arguments import ArgumentError, choice, finite_number, fraction_of_one, positive_integer, positive_number
from teacher_student.student.augmentations import Augmentation
from teacher_student.student.label_noise import checked_label_noise
from teacher_student.student.methods import METHODS
from teacher_student.student.noisy_maximum import NoisyMaximum
from teacher_student.student.targets import UNANSWERED

MEAN_TEACHER_DECAY = 0.99
"""Of the average that a mean teacher is, where the settings keep none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudentSettings:
    """How the student learns. All are public constants.

    Attributes:
        unanswered: what a paid non-answer becomes, one of `targets.UNANSWERED`.
        epochs: passes over the points that it learns from; where unlabeled ones come beside labeled ones, over the
            longer of the two.
        batch_size: labeled points per step, and unlabeled ones beside them.
        learning_rate: peak rate of AdamW, under a short warm-up and a cosine decay.
        weight_decay: decoupled weight decay.
        prior_precision: precision of a Gaussian prior on the weights (not the biases): the loss gains this times half the
            squared weights, divided by the number of targets. The right strength then does not depend on how many were answered.
        label_smoothing: probability mass that is spread over all classes.
        average_decay: decay of the running average of the weights that is kept in the end; 0 keeps the last weights, and
            is `MEAN_TEACHER_DECAY` for a mean teacher, which cannot do without.
        label_noise: public belief how often a released label is not the point's class: a probability, or (num_classes,
            num_classes) rows of probabilities (see `label_noise.LabelNoise`). 0 takes labels at their word. "mechanism" takes the
            noise of the mechanism that answers in the run, elsewhere a `NoisyMaximum` says it: the student learns vote shares.
        propagation: how much the targets of a point's neighbours count beside its own, before anything is learned (see
            `propagation`); every point then has a label. 0 leaves targets as they are.
        propagation_neighbours: of each point among the public ones.
        method: what is learned from unlabeled points, one of `methods.METHODS`.
        unlabeled_weight: weight of the unlabeled points' loss beside the labeled points'.
        ramp_up: share of the steps during which that weight rises from 0.
        confidence: pseudo_label, self_training, fixmatch: a guess counts where its probability is at least this.
        rounds: self_training: fits, each but the first on the guesses of the one before.
        temperature: mixmatch: guesses are raised to the power 1 / temperature; below 1 sharpens them.
        mixing: mixmatch: both parameters of the Beta distribution from which mixing shares are drawn.
        radius: virtual_adversarial: length of a perturbation, as root mean square over the features, each in standard deviations.
        entropy_weight: virtual_adversarial: weight of the predictions' entropy beside the perturbations' effect.
        augmentation: weak and strong views of a point; labeled points are always seen in their weak view.
    """

    unanswered: str = "uniform"
    epochs: int = 30
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    prior_precision: float = 0.0
    label_smoothing: float = 0.0
    average_decay: float = 0.0
    label_noise: float | Sequence[Sequence[float]] | str | NoisyMaximum = 0.0
    propagation: float = 0.0
    propagation_neighbours: int = 5
    method: str = "supervised"
    unlabeled_weight: float = 1.0
    ramp_up: float = 0.0
    confidence: float = 0.95
    rounds: int = 3
    temperature: float = 0.5
    mixing: float = 0.75
    radius: float = 0.2
    entropy_weight: float = 0.0
    augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        choice("student.settings.unanswered", self.unanswered, UNANSWERED)
        choice("student.settings.method", self.method, METHODS)
        for name in ("epochs", "batch_size", "rounds", "propagation_neighbours"):
            positive_integer(f"student.settings.{name}", getattr(self, name))
        for name in ("learning_rate", "temperature", "mixing", "radius"):
            positive_number(f"student.settings.{name}", getattr(self, name))
        for name in ("weight_decay", "prior_precision", "propagation", "unlabeled_weight", "entropy_weight"):
            _at_least_zero(f"student.settings.{name}", getattr(self, name))
        for name in ("label_smoothing", "average_decay", "confidence", "ramp_up"):
            fraction_of_one(f"student.settings.{name}", getattr(self, name))
        object.__setattr__(self, "label_noise", checked_label_noise("student.settings.label_noise", self.label_noise))
        if self.propagation > 0 and self.label_noise != 0:
            raise ArgumentError(f"student.settings.label_noise must be 0 where labels are propagated, got {self.label_noise}")
        if self.method == "mean_teacher" and self.average_decay == 0:
            object.__setattr__(self, "average_decay", MEAN_TEACHER_DECAY)


def _at_least_zero(name: str, value: object) -> float:
    number = finite_number(name, value)
    return number if number == 0 else positive_number(name, value)
