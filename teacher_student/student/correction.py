"""A student that is corrected: its logits move by what the teachers say it should believe more.

Not in the paper: gradient boosting (Friedman 2001) whose gradients come from the teachers, `ByVotes` or `ByScores`. Either loss
is quadratic in the student's logits and linear in what was released, so noise that is zero on average moves its minimiser by zero
on average, and shares outside [0, 1] are as good as others.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from teacher_student.arguments import ArgumentError, finite_number, positive_integer, positive_number
from teacher_student.student.augmentations import views_of
from teacher_student.student.fitting import LARGEST_SEED, check_points, fit_once, quiet
from teacher_student.student.label_noise import LabelNoise
from teacher_student.student.methods import Labeled, Learning, Method
from teacher_student.student.module import Report, Student
from teacher_student.student.settings import StudentSettings
from teacher_student.student.targets import Targets


@dataclasses.dataclass(frozen=True)
class ByVotes:
    """Released are shares of votes for believing a class more; they say in which direction, not how far.

    On a point with shares f(c), logit c is to become itself plus step / 2 * (C f(c) - 1); for two classes the log-odds move by
    step * (2 f(1) - 1). The student is fitted to those logits by least squares, weighted by the curvature of cross-entropy: the
    variance of what is missing, over classes drawn from what it said before.

    Args:
        step: how far the logits of a point move apart where all teachers agree, above 0.
    """

    step: float

    def __post_init__(self) -> None:
        positive_number("step", self.step)

    def losses(self, before: Tensor, now: Tensor, shares: Tensor) -> Tensor:
        """Return (batch,) losses of (batch, num_classes) logits now, given those before and the shares."""
        wanted = before + self.step / 2 * (before.shape[1] * shares - 1)
        return _variance(before, now - wanted)


@dataclasses.dataclass(frozen=True)
class ByScores:
    """Released are mean scores, which say how much is missing: of 1(y = c) - p(c | x), whose mean makes Newton's step.

    On a point with mean scores h(c), the logits move by the D that minimise

        1/2 Var(D) + shrinkage/2 |D - mean D|^2 - step <h, D>,        Var over classes drawn from what the student said before.

    The shrinkage keeps points on which the student is sure, whose variance is nearly 0, from running away.

    Args:
        step: what a score of 1 says is missing in probability, above 0.
        shrinkage: what a move costs where the student is sure, at least 0; 1/4 is what it costs where it is undecided.
    """

    step: float
    shrinkage: float

    def __post_init__(self) -> None:
        positive_number("step", self.step)
        if finite_number("shrinkage", self.shrinkage) < 0:
            raise ArgumentError(f"shrinkage must be at least 0, got {self.shrinkage}")

    def losses(self, before: Tensor, now: Tensor, scores: Tensor) -> Tensor:
        """Return (batch,) losses of (batch, num_classes) logits now, given those before and the mean scores."""
        moved = now - before
        moved = moved - moved.mean(dim=1, keepdim=True)
        cost = _variance(before, moved) / 2 + self.shrinkage / 2 * moved.square().sum(1)
        return cost - self.step * (scores * moved).sum(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Correction(Method):
    """How a student moves from what it was.

    Attributes:
        before: the network to correct, frozen.
        by: what its move is made of.
    """

    uses_unlabeled = False
    before: nn.Module
    by: ByVotes | ByScores

    def labeled_loss(self, learning: Learning, labeled: Labeled) -> Tensor:
        """Return the weighted mean of the points' losses; `labeled.probabilities` are what was released about them."""
        before = self.before.to(labeled.features.device).eval()(labeled.features)
        losses = self.by.losses(before, learning.student(labeled.features), labeled.probabilities)
        return (losses * labeled.weights).sum() / labeled.weights.sum().clamp_min(1)


def _variance(before: Tensor, values: Tensor) -> Tensor:
    """Return (batch,) the variance of values (batch, num_classes) over classes drawn from what the student said before."""
    believed = before.softmax(dim=1)
    return (believed * (values - (believed * values).sum(1, keepdim=True)).square()).sum(1)


def correct_student(
    before: nn.Module,
    features: npt.NDArray[np.float32],
    released: Targets,
    settings: StudentSettings,
    by: ByVotes | ByScores,
    *,
    seed: int = 0,
    trainer_options: Mapping[str, Any] | None = None,
    report: Report | None = None,
) -> Student:
    """Return a student that starts where `before` is and moves its logits by what was released.

    Args:
        before: the network to correct; it is left as it is.
        features: (num_queries, *shape) public features.
        released: as `probabilities`, shares of votes (any numbers that sum to 1 in each row) or mean scores (any numbers).
        settings: how to learn; without prior and decay, which would pull back to no belief.
        by: what was released, and how far it moves the student.
        seed: of batch order; not secret.
        trainer_options: passed to `lightning.Trainer`.
        report: called with (epochs done, loss) after every epoch.
    """
    if not isinstance(by, ByVotes | ByScores):
        raise ArgumentError(f"by must be ByVotes(step) or ByScores(step, shrinkage), got {by!r}")
    check_points(features, released)
    positive_integer("seed", seed, minimum=0, maximum=LARGEST_SEED)
    points, kept = torch.as_tensor(features), copy.deepcopy(before).requires_grad_(requires_grad=False)
    correction = Correction(before=kept, by=by)
    plain = dataclasses.replace(settings, method=correction, prior_precision=0.0, weight_decay=0.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        noise = LabelNoise(0.0, released.probabilities.shape[1])
        views = views_of(points, plain.augmentation)
        network = copy.deepcopy(before).requires_grad_().train()
        return fit_once(network, points, released, plain, noise, views, quiet(trainer_options), report).eval()
