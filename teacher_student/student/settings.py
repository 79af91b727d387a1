"""The student's settings, checked before anything is trained."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import InitVar

from teacher_student.arguments import (
    ArgumentError,
    choice,
    fraction_of_one,
    number_at_least_zero,
    positive_integer,
    positive_number,
)
from teacher_student.student.augmentations import Augmentation
from teacher_student.student.label_noise import NoisyArgmaxLikelihood, checked_label_noise
from teacher_student.student.methods import METHODS, Method
from teacher_student.student.targets import UNANSWERED

AVERAGE_DECAY = 0.99
"""Decay of the running average for a method that needs one, where the settings give 0."""

OF_METHODS = ("confidence", "rounds", "temperature", "mixing", "radius", "entropy_weight")
"""Settings of methods that `StudentSettings` still accepts, in this version only."""

_METHOD = "student.settings.method"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudentSettings:
    """How the student learns. All are public constants.

    Attributes:
        unanswered: what a paid non-answer becomes, one of `targets.UNANSWERED`.
        epochs: passes over the labeled points, or over the unlabeled ones where these are used and are more.
        batch_size: labeled points per step, and unlabeled ones beside them.
        learning_rate: peak rate of AdamW, under a short warm-up and a cosine decay.
        weight_decay: decoupled weight decay.
        prior_precision: precision of a Gaussian prior on the weights (not the biases): the loss gains this times half the
            squared weights, divided by the number of targets. The right strength does not depend on how many were answered.
        label_smoothing: probability mass of a target that is spread over all classes.
        average_decay: decay of the running average of the weights, which is then the result; 0 keeps the last weights, and is
            `AVERAGE_DECAY` for a method that needs an average.
        label_noise: how often a released label is not the point's class: a probability, or (num_classes, num_classes) rows of
            probabilities (see `label_noise.TransitionMatrix`); 0 for never. "mechanism" takes the noise of the run's mechanism,
            and a `NoisyArgmaxLikelihood` states it outside of a run: the student then learns vote shares.
        propagation: weight of the targets of a point's neighbours beside its own (see `targets.propagate`). 0 leaves targets as
            they are.
        propagation_neighbours: neighbours of each point.
        propagation_share: share of the points that take a label from the propagation, the clearest first. The others stay
            unlabeled; `method` says what is learned from them.
        method: how to learn from unlabeled points: a `Method` with its own settings, or a name in `methods.METHODS`.
        unlabeled_weight: weight of the unlabeled points' loss beside the labeled points'.
        ramp_up: share of the steps during which that weight rises from 0.
        augmentation: weak and strong views of a point; labeled points are always seen in their weak view.
        confidence, rounds, temperature, mixing, radius, entropy_weight: settings of methods, accepted here in this version only.
    """

    unanswered: str = "uniform"
    epochs: int = 30
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    prior_precision: float = 0.0
    label_smoothing: float = 0.0
    average_decay: float = 0.0
    label_noise: float | Sequence[Sequence[float]] | str | NoisyArgmaxLikelihood = 0.0
    propagation: float = 0.0
    propagation_neighbours: int = 5
    propagation_share: float = 1.0
    method: Method | str = "supervised"
    unlabeled_weight: float = 1.0
    ramp_up: float = 0.0
    augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)
    confidence: InitVar[float | None] = None
    rounds: InitVar[int | None] = None
    temperature: InitVar[float | None] = None
    mixing: InitVar[float | None] = None
    radius: InitVar[float | None] = None
    entropy_weight: InitVar[float | None] = None

    def __post_init__(self, *of_method: float | None) -> None:
        choice("student.settings.unanswered", self.unanswered, UNANSWERED)
        given = {name: value for name, value in zip(OF_METHODS, of_method, strict=True) if value is not None}
        method = self.method if isinstance(self.method, Method) else METHODS[choice(_METHOD, self.method, METHODS)]()
        object.__setattr__(self, "method", _with_old_settings(method, given))
        for name in ("epochs", "batch_size", "propagation_neighbours"):
            positive_integer(f"student.settings.{name}", getattr(self, name))
        positive_number("student.settings.learning_rate", self.learning_rate)
        for name in ("weight_decay", "prior_precision", "propagation", "unlabeled_weight"):
            number_at_least_zero(f"student.settings.{name}", getattr(self, name))
        for name in ("label_smoothing", "average_decay", "ramp_up", "propagation_share"):
            fraction_of_one(f"student.settings.{name}", getattr(self, name))
        object.__setattr__(self, "label_noise", checked_label_noise(self.label_noise))
        if self.propagation > 0 and self.label_noise != 0:
            raise ArgumentError(f"student.settings.label_noise must be 0 where labels are propagated, got {self.label_noise}")
        if self.learning_method.needs_average and self.average_decay == 0:
            object.__setattr__(self, "average_decay", AVERAGE_DECAY)

    @property
    def learning_method(self) -> Method:
        """The method, with its own settings."""
        assert isinstance(self.method, Method)
        return self.method


def _with_old_settings(method: Method, given: dict[str, float]) -> Method:
    """Return the method with those of the old flat settings that it has, after one notice for all of them."""
    if not given:
        return method
    own = {field.name for field in dataclasses.fields(method)} & set(given)
    without = sorted(set(given) - own)
    ignored = f"; {method.name} has no {' and no '.join(without)}" if without else ""
    names = " and ".join(f"student.settings.{name}" for name in given)
    warnings.warn(
        f"{names} must be given as {_METHOD}.NAME of one method; the old name is accepted in this version only{ignored}",
        FutureWarning,
        stacklevel=4,
    )
    return dataclasses.replace(method, **{name: given[name] for name in own})
