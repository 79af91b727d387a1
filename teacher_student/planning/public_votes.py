"""What a mechanism would answer on a stand-in: votes that are public, because the data behind them are public or made up.

`yields` models a stream by two numbers, a clear gap and a share of ties. Where teachers were trained on public or synthetic data
that resemble the private ones, their votes say more: each row is one query, and the private queries are taken to be drawn from
these rows. Private votes must not go in: whatever is chosen by looking at them has to be paid for (`selection`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import special

from teacher_student.arguments import ArgumentError, Floats, Integers, vote_counts, whole_numbers
from teacher_student.planning.yields import expected_minimum, threshold_noise
from teacher_student.privacy.distributions import log_refusal
from teacher_student.privacy.noisy_max import ConfidentGNMax, Exponential, LNMax, NoisyMaxParameters
from teacher_student.privacy.parameters import Parameters
from teacher_student.privacy.threshold import ThresholdParameters

MOST_ROWS = 1000
"""Rows of a stand-in that are looked at, evenly spaced; expectations need no more."""

_NORMAL: Floats = special.ndtri((np.arange(1, 65) - 0.5) / 64)
_UNIT: Floats = (np.arange(1, 65) - 0.5) / 64


class Outlook(NamedTuple):
    """Labels expected, those of them that are the plurality's, and those that are right (NaN where the truth is not given)."""

    answers: float
    agreeing: float
    right: float


class StandIn:
    """Public votes that stand in for private ones.

    Args:
        counts: (rows, num_classes) votes per class.
        truth: (rows,) true classes, or None.

    Raises:
        ArgumentError: no table of votes, fewer than two classes, or a truth of another length or with other classes.
    """

    def __init__(self, counts: object, truth: object = None) -> None:
        table = vote_counts("standin", counts).astype(np.int64)
        if table.shape[1] < 2:
            raise ArgumentError(f"standin must have a column for each of two or more classes, got {table.shape[1]}")
        self.num_teachers = max(1, int(table.sum(axis=1).max()))
        rows = np.unique(np.linspace(0, len(table) - 1, min(len(table), MOST_ROWS)).astype(np.int64))
        self.counts = table[rows]
        self.plurality = self.counts.argmax(axis=1)
        self.right = np.full(len(rows), math.nan)
        self.truth: Integers | None = None
        if truth is not None:
            self.truth = check_truth(truth, table)[rows]
            self.right = (self.plurality == self.truth).astype(np.float64)

    @property
    def num_classes(self) -> int:
        """Columns of the votes."""
        return int(self.counts.shape[1])

    def outlook(self, parameters: Parameters, num_queries: int) -> Outlook:
        """Return what a session with `parameters` would answer of `num_queries` queries like these."""
        if isinstance(parameters, ThresholdParameters):
            return self._until_cutoff(parameters, num_queries)
        assert isinstance(parameters, NoisyMaxParameters)
        passed = np.ones(len(self.counts))
        if isinstance(parameters, ConfidentGNMax):
            passed = special.ndtr((self.counts.max(axis=1) - parameters.threshold) / float(parameters.threshold_scale))
        wins, everyone = self._wins(parameters), np.arange(len(self.counts))
        asked = min(num_queries, parameters.max_asked)
        share = float(passed.mean())
        answers = float(expected_minimum(parameters.max_answers, asked, np.array([share]))[0])
        each = answers / max(share, 1e-300) / len(passed)
        right = math.nan if self.truth is None else each * float(passed @ wins[everyone, self.truth])
        return Outlook(answers, each * float(passed @ wins[everyone, self.plurality]), right)

    def _until_cutoff(self, parameters: ThresholdParameters, num_queries: int) -> Outlook:
        """Refusals end the session (see `yields`); an answer is always the plurality's."""
        support, mass = threshold_noise(parameters.threshold_noise, parameters.threshold_scale)
        ordered = np.sort(self.counts, axis=1)
        distance = np.maximum(0, -(-(ordered[:, -1] - ordered[:, -2]) // 2) - 1)
        levels, place, rows = np.unique(distance, return_inverse=True, return_counts=True)
        short = levels[:, np.newaxis] - parameters.threshold - support
        refused = np.exp(log_refusal(parameters.query_noise, short, parameters.query_scale))
        if parameters.redraw:
            refused, mass = refused @ mass[:, np.newaxis], np.ones(1)
        weight = rows / len(distance)
        unanswered = np.clip(weight @ refused, 1e-15, 1)
        asked = expected_minimum(parameters.cutoff, num_queries, unanswered) / unanswered
        answers = float(mass @ (asked * (1 - unanswered)))
        right = weight * np.bincount(place, weights=self.right) / rows
        return Outlook(answers, answers, float(mass @ (asked * (right @ (1 - refused)))))

    def _wins(self, parameters: NoisyMaxParameters) -> Floats:
        """Return (rows, num_classes) probabilities that a class has the largest noisy count."""
        fields = parameters.to_dict()
        scaled = self.counts / float(fields["scale"] if "scale" in fields else fields["query_scale"])
        if isinstance(parameters, Exponential):
            return np.asarray(special.softmax(scaled, axis=1))
        laplace = isinstance(parameters, LNMax)
        noise = np.where(_UNIT < 0.5, np.log(2 * _UNIT), -np.log(2 * (1 - _UNIT))) if laplace else _NORMAL
        found = np.empty(scaled.shape)
        for label in range(self.num_classes):
            behind = noise[:, np.newaxis, np.newaxis] + scaled[:, [label]] - np.delete(scaled, label, axis=1)
            below = _laplace_below(behind) if laplace else special.ndtr(behind)
            found[:, label] = below.prod(axis=2).mean(axis=0)
        return found


def check_truth(truth: object, counts: Integers) -> Integers:
    """Return `truth` as a class for each row of `counts`."""
    classes = whole_numbers("truth", truth).ravel()
    if len(classes) != len(counts) or not np.isin(classes, np.arange(counts.shape[1])).all():
        raise ArgumentError(f"truth must hold a class below {counts.shape[1]} for each of {len(counts)} rows, got {len(classes)}")
    return classes


def _laplace_below(value: Floats) -> Floats:
    return np.where(value < 0, np.exp(np.minimum(value, 0)) / 2, 1 - np.exp(-np.maximum(value, 0)) / 2)
