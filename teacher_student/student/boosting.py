"""Boosting: the student's logits move by what the teachers say it should believe more.

Not in the paper: gradient boosting (Friedman 2001) whose gradients come from the teachers, as votes (`VoteStep`) or as scores
(`NewtonStep`). Either loss is quadratic in the student's logits and linear in the released values, so noise of mean zero moves
its minimiser by zero on average, and shares outside [0, 1] may be used as they are.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from teacher_student.arguments import ArgumentError, number_at_least_zero, positive_number
from teacher_student.student.fitting import fit_student
from teacher_student.student.methods import Labeled, Learning, Method
from teacher_student.student.module import Report, Student
from teacher_student.student.settings import StudentSettings
from teacher_student.student.targets import Targets


@dataclasses.dataclass(frozen=True)
class VoteStep:
    """A step along released shares of votes for believing a class more; they give its direction, not its length.

    On a point with shares f(c), the target of logit c is its old value plus step / 2 * (C f(c) - 1); for two classes the log-odds
    move by step * (2 f(1) - 1). The student is fitted to these targets by least squares, weighted by the curvature of
    cross-entropy: the variance of the residuals over classes drawn from the old prediction.

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
class NewtonStep:
    """A Newton step by released mean scores, which estimate the gradient: the mean of 1(y = c) - p(c | x).

    On a point with mean scores h(c), the logits move by the D that minimises

        1/2 Var(D) + shrinkage/2 |D - mean D|^2 - step <h, D>,        Var over classes drawn from the old prediction.

    The shrinkage bounds the step on points where the student is sure, whose variance is nearly 0.

    Args:
        step: the gap in probability that a score of 1 stands for, above 0.
        shrinkage: curvature added where the student is sure, at least 0; 1/4 is the curvature where it is undecided.
    """

    step: float
    shrinkage: float

    def __post_init__(self) -> None:
        positive_number("step", self.step)
        number_at_least_zero("shrinkage", self.shrinkage)

    def losses(self, before: Tensor, now: Tensor, scores: Tensor) -> Tensor:
        """Return (batch,) losses of (batch, num_classes) logits now, given those before and the mean scores."""
        moved = now - before
        moved = moved - moved.mean(dim=1, keepdim=True)
        cost = _variance(before, moved) / 2 + self.shrinkage / 2 * moved.square().sum(1)
        return cost - self.step * (scores * moved).sum(1)


BoostingStep = VoteStep | NewtonStep


def _variance(before: Tensor, values: Tensor) -> Tensor:
    """Return (batch,) variances of values (batch, num_classes) over classes drawn from the old prediction."""
    believed = before.softmax(dim=1)
    return (believed * (values - (believed * values).sum(1, keepdim=True)).square()).sum(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Boosting(Method):
    """The loss of a boosting step from a frozen network `before`."""

    uses_unlabeled = semi_supervised = False
    before: nn.Module
    by: BoostingStep

    def labeled_loss(self, learning: Learning, labeled: Labeled) -> Tensor:
        """Return the weighted mean of the points' losses; `labeled.probabilities` are the released values."""
        before = self.before.to(labeled.features.device).eval()(labeled.features)
        losses = self.by.losses(before, learning.student(labeled.features), labeled.probabilities)
        return (losses * labeled.weights).sum() / labeled.weights.sum().clamp_min(1)


def boost_student(
    before: nn.Module,
    features: npt.NDArray[np.float32],
    released: Targets,
    settings: StudentSettings,
    by: BoostingStep,
    *,
    seed: int = 0,
    trainer_options: Mapping[str, Any] | None = None,
    report: Report | None = None,
) -> Student:
    """Return a student that starts from `before` and takes one boosting step.

    Args:
        before: the network to start from; it is not changed.
        features: (num_queries, *shape) public features.
        released: as `probabilities`, shares of votes (any numbers that sum to 1 in each row) or mean scores (any numbers).
        settings: how to learn; prior and weight decay, which would pull logits to 0, and noise and propagation are not used.
        by: the kind of step.
        seed: of batch order; not secret.
        trainer_options: passed to `lightning.Trainer`.
        report: called with (epochs done, loss) after every epoch.

    Raises:
        ArgumentError: not a step, no point with a target, or numbers that are not finite.
    """
    if not isinstance(by, BoostingStep):
        raise ArgumentError(f"by must be VoteStep(step) or NewtonStep(step, shrinkage), got {by!r}")
    method = Boosting(before=copy.deepcopy(before).requires_grad_(requires_grad=False), by=by)
    plain = dataclasses.replace(settings, method=method, prior_precision=0.0, weight_decay=0.0, label_noise=0.0, propagation=0.0)

    def start() -> nn.Module:
        return copy.deepcopy(before).requires_grad_().train()

    return fit_student(start, features, released, plain, seed=seed, trainer_options=trainer_options, report=report)
