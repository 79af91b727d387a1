"""A student that is corrected: its logits move by what the teachers say it should believe more.

Not in the paper: gradient boosting (Friedman 2001) whose gradients are votes. On a point with shares f(c) of votes for "believe c
more", logit c is to become itself plus step / 2 * (C f(c) - 1); for two classes the log-odds move by step * (2 f(1) - 1). The
student is fitted to those logits by least squares, weighted by the curvature of cross-entropy: the variance of what is missing,
over classes drawn from what it said before. The loss is quadratic in the shares and its minimiser linear, so noise that is zero
on average moves it by zero on average, and shares outside [0, 1] are as good as others.
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

from teacher_student.arguments import positive_integer, positive_number
from teacher_student.student.augmentations import Views, views_of
from teacher_student.student.fitting import LARGEST_SEED, check_points, fit_once, quiet
from teacher_student.student.label_noise import KnownNoise, LabelNoise
from teacher_student.student.methods import Method
from teacher_student.student.methods.interface import Labeled, Networks
from teacher_student.student.module import Report, Student
from teacher_student.student.settings import StudentSettings
from teacher_student.student.targets import Targets


class Correction(Method):
    """Weighted least squares to moved logits.

    Args:
        settings: how the student learns.
        noise: of labels; not used.
        views: of the points.
        before: the network to correct.
        step: how far.
    """

    uses_unlabeled = False

    def __init__(self, settings: StudentSettings, noise: KnownNoise, views: Views, before: nn.Module, step: float) -> None:
        super().__init__(settings, noise, views)
        self.before = before.requires_grad_(requires_grad=False)
        self.step = step

    def labeled_loss(self, networks: Networks, labeled: Labeled) -> Tensor:
        """Return the weighted mean of the variance of what is missing; `labeled.probabilities` are shares of votes."""
        before = self.before.eval()(labeled.features)
        wanted = before + self.step / 2 * (before.shape[1] * labeled.probabilities - 1)
        missing = networks.student(labeled.features) - wanted
        believed = before.softmax(dim=1)
        variance = (believed * (missing - (believed * missing).sum(1, keepdim=True)).square()).sum(1)
        return (variance * labeled.weights).sum() / labeled.weights.sum().clamp_min(1)


def correct_student(
    before: nn.Module,
    features: npt.NDArray[np.float32],
    shares: Targets,
    settings: StudentSettings,
    *,
    step: float,
    seed: int = 0,
    trainer_options: Mapping[str, Any] | None = None,
    report: Report | None = None,
) -> Student:
    """Return a student that starts where `before` is and moves its logits by the shares of votes.

    Args:
        before: the network to correct; it is left as it is.
        features: (num_queries, *shape) public features.
        shares: of votes for believing each class more; any numbers that sum to 1 in each row.
        settings: how to learn; without prior and smoothing, which would pull back to no belief.
        step: how far the logits of a point move apart where all teachers agree, above 0.
        seed: of batch order; not secret.
        trainer_options: passed to `lightning.Trainer`.
        report: called with (epochs done, loss) after every epoch.
    """
    distance = positive_number("step", step)
    check_points(features, shares)
    positive_integer("seed", seed, minimum=0, maximum=LARGEST_SEED)
    plain = dataclasses.replace(settings, method="supervised", prior_precision=0.0, weight_decay=0.0)
    points, kept = torch.as_tensor(features), copy.deepcopy(before).train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        noise = LabelNoise(0.0, shares.probabilities.shape[1])
        method = Correction(plain, noise, views_of(points, plain.augmentation), kept, distance)
        network = copy.deepcopy(before).requires_grad_().train()
        return fit_once(network, method, points, shares, plain, quiet(trainer_options), report).eval()
