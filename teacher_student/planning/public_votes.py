"""What a mechanism would answer on a stand-in: votes that are public, because the data behind them are public or made up.

`yields` models a stream by two numbers, a clear gap and a share of ties. Where teachers were trained on public or synthetic data
that resemble the private ones, their votes say more: each row is one query, and the private queries are taken to be drawn from
these rows. Private votes must not go in: whatever is chosen by looking at them has to be paid for (`selection`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from teacher_student.arguments import ArgumentError, Integers, vote_counts, whole_numbers
from teacher_student.privacy.parameters import LabelSpec

MOST_ROWS = 1000
"""Rows of a stand-in that are looked at, evenly spaced; expectations need no more."""


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
        self.truth: Integers | None = None
        if truth is not None:
            self.truth = check_truth(truth, table)[rows]

    @property
    def num_classes(self) -> int:
        """Columns of the votes."""
        return int(self.counts.shape[1])

    def outlook(self, parameters: LabelSpec, num_queries: int) -> Outlook:
        """Return what a session with `parameters` would answer of `num_queries` queries like these."""
        rows = len(self.counts)
        found = parameters.expected_labels(self.counts.astype(np.float64), np.full(rows, 1 / rows), num_queries)
        agreeing = float(found.labels[np.arange(rows), self.plurality].sum())
        right = math.nan if self.truth is None else float(found.labels[np.arange(rows), self.truth].sum())
        return Outlook(found.answers, agreeing, right)


def check_truth(truth: object, counts: Integers) -> Integers:
    """Return `truth` as a class for each row of `counts`."""
    classes = whole_numbers("truth", truth).ravel()
    if len(classes) != len(counts) or not np.isin(classes, np.arange(counts.shape[1])).all():
        raise ArgumentError(f"truth must hold a class below {counts.shape[1]} for each of {len(counts)} rows, got {len(classes)}")
    return classes
