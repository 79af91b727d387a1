"""Learning from labels alone: those that were released, and in self-training the student's own confident ones."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional as F

from teacher_student.arguments import fraction_of_one, positive_integer
from teacher_student.student.label_noise import KnownNoise
from teacher_student.student.methods.interface import Method
from teacher_student.student.targets import Targets


@dataclasses.dataclass(frozen=True, kw_only=True)
class Supervised(Method):
    """Weighted soft-label cross-entropy; unlabeled points are not used."""

    name = "supervised"
    uses_unlabeled = semi_supervised = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfTraining(Supervised):
    """Fit, label the confident unlabeled points, fit again from the start (Yarowsky 1995; Xie et al., CVPR 2020).

    Unlike with pseudo-labels within a fit, a wrong guess of an early step does not reinforce itself.

    Attributes:
        confidence: a guess counts where its probability is at least this.
        rounds: number of fits.
    """

    name = "self_training"
    semi_supervised = True
    confidence: float = 0.95
    rounds: int = 3

    def __post_init__(self) -> None:
        fraction_of_one("student.settings.method.confidence", self.confidence)
        positive_integer("student.settings.method.rounds", self.rounds)

    @property
    def num_fits(self) -> int:
        """`rounds`."""
        return self.rounds

    def next_targets(self, targets: Targets, probabilities: Tensor, noise: KnownNoise, weight: float) -> Targets:
        """Return the released targets and the confident guesses; guesses are of clean classes, so label noise is put on them."""
        confident, classes = probabilities.max(dim=1)
        guessed = torch.as_tensor(targets.unlabeled) & (confident >= self.confidence)
        guesses = noise.released(F.one_hot(classes, probabilities.shape[1]).to(probabilities.dtype))
        taken = torch.where(guessed[:, None], guesses, torch.as_tensor(targets.probabilities))
        weights = torch.where(guessed, weight, torch.as_tensor(targets.weights))
        return dataclasses.replace(targets, probabilities=taken.numpy(), weights=weights.numpy())
