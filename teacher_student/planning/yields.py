"""What a mechanism with given parameters answers: from public sizes and an assumed vote, never from data.

A query's gap is its plurality's lead over the runner-up, in votes. `correct` is the probability that a query of a given gap gets
its plurality's label. `expected` models a stream in which each query independently is *unstable* (a tie of two classes) with
probability u and otherwise *clear*, with one and the same large gap, and returns the expected number of answers before the
session halts. With c the probability that a query is refused, and at most T refusals among at most m queries (Wald's identity):

    E[refusals] = E[min(T, Bin(m, c))] = c E[asked],        E[answers] = (1 - c) E[asked].

The noisy maxima are computed as if their integer noise were continuous, which is off by about the square of 1 / scale; costs are
never computed here.

Where teachers were trained on public or synthetic data that resemble the private ones, their votes say more than two numbers:
`PublicVotes` takes each of their rows as one query, and the private queries as drawn from these rows. Private votes must not go
in: whatever is chosen by looking at them has to be paid for (`privacy.selection`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from teacher_student.arguments import ArgumentError, Integers, vote_counts, whole_numbers
from teacher_student.privacy.parameters import LabelSpec

MOST_ROWS = 1000
"""Rows of public votes that are looked at, evenly spaced; expectations need no more."""


class Yield(NamedTuple):
    """Labels expected before the session halts.

    Attributes:
        answers: all of them.
        agreeing: those that are the plurality's.
        right: those that are the true class; NaN where that is not known.
    """

    answers: float
    agreeing: float
    right: float = math.nan


def correct(parameters: LabelSpec, gap: float, *, num_teachers: int, num_classes: int) -> float:
    """Return the probability that a query whose plurality leads by `gap` votes gets the plurality's label.

    All other classes are taken to tie behind the first, which is the worst case for the noisy maxima.
    """
    counts, times = _clear(gap, num_teachers, num_classes)
    return float(parameters.first_answer(np.array([counts]), np.array([times]))[0, 0])


def smallest_gap(parameters: LabelSpec, *, failure: float, num_teachers: int, num_classes: int) -> int:
    """Return the smallest gap at which a query gets its plurality's label with probability at least 1 - failure.

    It may be more than num_teachers: then not even a unanimous vote does, and that many teachers would be needed.
    """

    def suffices(gap: int) -> bool:
        teachers = max(num_teachers, gap)
        return correct(parameters, gap, num_teachers=teachers, num_classes=num_classes) >= 1 - failure

    high = 1
    while not suffices(high):
        high *= 2
        if high > 1 << 40:
            raise ArgumentError(f"failure must be reachable by some gap, got {failure}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def expected(
    parameters: LabelSpec, *, unstable: float, clear_gap: float, num_queries: int, num_teachers: int, num_classes: int
) -> Yield:
    """Return the expected answers to `num_queries` queries, a share `unstable` of them ties of two classes.

    Args:
        parameters: of any mechanism.
        unstable: probability that a query is a tie.
        clear_gap: gap of all other queries.
        num_queries: queries that wait for an answer.
        num_teachers: votes of each query.
        num_classes: classes.
    """
    (clear, clear_times), (tie, tie_times) = _clear(clear_gap, num_teachers, num_classes), _tie(num_teachers)
    weights = np.array([1 - unstable, unstable])
    found = parameters.expected_labels(np.array([clear, tie]), weights, num_queries, np.array([clear_times, tie_times]))
    return Yield(found.answers, min(found.answers, float(found.labels[:, 0].sum())))  # but for the last digit


class PublicVotes:
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
            self.truth = _checked_truth(truth, table)[rows]

    @property
    def num_classes(self) -> int:
        """Columns of the votes."""
        return int(self.counts.shape[1])

    def expected(self, parameters: LabelSpec, num_queries: int) -> Yield:
        """Return what a session with `parameters` would answer of `num_queries` queries like these."""
        rows = len(self.counts)
        found = parameters.expected_labels(self.counts.astype(np.float64), np.full(rows, 1 / rows), num_queries)
        agreeing = float(found.labels[np.arange(rows), self.plurality].sum())
        right = math.nan if self.truth is None else float(found.labels[np.arange(rows), self.truth].sum())
        return Yield(found.answers, agreeing, right)


def _clear(gap: float, num_teachers: int, num_classes: int) -> tuple[list[float], list[float]]:
    """Return votes of the plurality and of each other class, and how many classes those are."""
    rest = (num_teachers - gap) / num_classes
    return [gap + rest, rest], [1.0, num_classes - 1.0]


def _tie(num_teachers: int) -> tuple[list[float], list[float]]:
    """Return the votes of two classes that share the teachers; the others have none, and are left out."""
    return [num_teachers / 2, num_teachers / 2], [1.0, 1.0]


def _checked_truth(truth: object, counts: Integers) -> Integers:
    """Return `truth` as a class for each row of `counts`."""
    classes = whole_numbers("truth", truth).ravel()
    if len(classes) != len(counts) or not np.isin(classes, np.arange(counts.shape[1])).all():
        raise ArgumentError(f"truth must hold a class below {counts.shape[1]} for each of {len(counts)} rows, got {len(classes)}")
    return classes
