"""Experiments that compare the theorems with measurements: teachers, votes, private labels, student, log-log slopes.

This package has no mechanism. An experiment takes a `release`: a function from vote counts (m, 2) and a cutoff to labels (m,),
which scripts and notebooks make from a calibrated mechanism. Two tasks, both with known truth, so that errors are exact:

- *thresholds*: x uniform on [0, 1], y = 1 iff x >= 1/2, each label flipped with probability `noise` (V = 1).
- *halfspaces*: x standard normal in V dimensions, y = 1 iff x_1 >= 0, flipped likewise (through the origin: dimension V).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from research.theory.learners import fit_consistent_thresholds, fit_logistic, fit_separating, fit_thresholds
from teacher_student.arguments import ArgumentError, Floats, Integers, numbers_array

Release = Callable[[Integers, int], Integers]
"""(vote counts (m, 2), cutoff) -> labels (m,): 0, 1, or negative where not answered."""

VALUES_AT_ONCE = 4_000_000
"""Teachers are trained in blocks of about this many feature values."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A binary task with a known best hypothesis.

    Attributes:
        draw: (r, n, generator) -> features (r, n, d) and labels (r, n), noise included.
        truth: features (..., d) -> labels of the best hypothesis.
        fit: (features, labels) -> hypotheses (r, p), one row per dataset.
        fit_student: the same for a student, whose labels are never clean: an empirical minimiser or logistic regression.
        ones: (hypotheses (r, p), features (m, d)) -> how many of them say 1, shape (m,).
        distance: hypotheses (r, p) -> probability of disagreeing with the best one, exactly.
        dimension: V.
        noise: probability of a flipped label: the least error in the class.
    """

    draw: Callable[[int, int, np.random.Generator], tuple[Floats, Integers]]
    truth: Callable[[Floats], Integers]
    fit: Callable[[Floats, Integers], Floats]
    fit_student: Callable[[Floats, Integers], Floats]
    ones: Callable[[Floats, Floats], Integers]
    distance: Callable[[Floats], Floats]
    dimension: int
    noise: float


def thresholds(noise: float = 0.0) -> Task:
    """Return the task of a threshold on the line; teachers are empirical minimisers."""
    fit = fit_thresholds if noise else fit_consistent_thresholds
    return Task(
        draw=lambda sets, size, generator: _draw(generator.random((sets, size, 1)), _above_half, noise, generator),
        truth=_above_half,
        fit=lambda features, labels: fit(features[..., 0], labels)[:, None],
        fit_student=lambda features, labels: fit_thresholds(features[..., 0], labels)[:, None],
        ones=lambda hypotheses, features: np.searchsorted(np.sort(hypotheses[:, 0]), features[:, 0], side="right"),
        distance=lambda hypotheses: np.abs(np.clip(hypotheses[:, 0], 0, 1) - 0.5),
        dimension=1,
        noise=noise,
    )


def halfspaces(dimension: int, noise: float = 0.0) -> Task:
    """Return the task of a halfspace; teachers separate (no noise) or fit logistic regression (noise)."""
    return Task(
        draw=lambda sets, size, generator: _draw(
            generator.standard_normal((sets, size, dimension)), _first_positive, noise, generator
        ),
        truth=_first_positive,
        fit=fit_logistic if noise else fit_separating,
        fit_student=fit_logistic,
        ones=_count_positive,
        distance=_angle_share,
        dimension=dimension,
        noise=noise,
    )


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one run of the experiment measured. All rates are shares; labels are compared with the best hypothesis.

    Attributes:
        labels_error: queries answered wrongly or not at all.
        abstained: queries not answered.
        halted: whether the cutoff was reached.
        student_error: error of the student above the best hypothesis, exactly.
        worst_teacher: largest error of a teacher above the best hypothesis.
        disputed: share of queries on which more than a third of the teachers err.
    """

    labels_error: float
    abstained: float
    halted: bool
    student_error: float
    worst_teacher: float
    disputed: float


def run_task(
    task: Task,
    *,
    examples_per_teacher: int,
    num_teachers: int,
    num_queries: int,
    cutoff: int,
    release: Release,
    generator: np.random.Generator,
) -> Outcome:
    """Train k teachers on fresh records, label m fresh points privately, train a student on the answers: A_PPAC once.

    An unanswered point gets a uniformly random label, as the paper says without loss of generality.
    """
    queries = task.draw(1, num_queries, generator)[0][0]
    counts, worst = _vote(task, queries, num_teachers, examples_per_teacher, generator)
    labels, truth = np.asarray(release(counts, cutoff)), task.truth(queries)
    answered = labels >= 0
    completed = np.where(answered, labels, generator.integers(2, size=num_queries))
    student = task.fit_student(queries[None], completed[None])
    return Outcome(
        labels_error=float(np.mean(labels != truth)),
        abstained=float(1 - answered.mean()),
        halted=bool((~answered).sum() >= cutoff),
        student_error=float(task.distance(student)[0]) * (1 - 2 * task.noise),
        worst_teacher=worst * (1 - 2 * task.noise),
        disputed=float(np.mean(counts[np.arange(num_queries), 1 - truth] > num_teachers / 3)),
    )


@dataclasses.dataclass(frozen=True)
class Slope:
    """Least-squares slope of ln y against ln x, with its 95 % interval (none for two points)."""

    slope: float
    lower: float
    upper: float
    intercept: float


def loglog_slope(sizes: Sequence[float], values: Sequence[float]) -> Slope:
    """Fit y = e^intercept x^slope.

    >>> round(loglog_slope([1, 10, 100], [5.0, 0.5, 0.05]).slope, 6)
    -1.0
    """
    points = [numbers_array(name, given, dimensions=1) for name, given in (("sizes", sizes), ("values", values))]
    if any(not (numbers > 0).all() or not np.isfinite(numbers).all() for numbers in points) or len(points[0]) != len(points[1]):
        raise ArgumentError("sizes and values must be as many positive numbers each")
    if len(np.unique(points[0])) < 2:
        raise ArgumentError("sizes must hold at least two different numbers")
    fit = stats.linregress(np.log(points[0]), np.log(points[1]))
    reach = stats.t.ppf(0.975, len(sizes) - 2) * fit.stderr if len(sizes) > 2 else np.nan
    return Slope(float(fit.slope), float(fit.slope - reach), float(fit.slope + reach), float(fit.intercept))


def _vote(
    task: Task, queries: Floats, num_teachers: int, examples: int, generator: np.random.Generator
) -> tuple[Integers, float]:
    """Train the teachers block by block, each on fresh records; return the counts (m, 2) and the worst teacher's distance."""
    ones, worst = np.zeros(len(queries), dtype=np.int64), 0.0
    block = max(1, VALUES_AT_ONCE // (examples * task.dimension))
    for first in range(0, num_teachers, block):
        hypotheses = task.fit(*task.draw(min(block, num_teachers - first), examples, generator))
        worst = max(worst, float(task.distance(hypotheses).max()))
        ones += task.ones(hypotheses, queries)
    return np.stack([num_teachers - ones, ones], axis=1), worst


def _draw(
    features: Floats, truth: Callable[[Floats], Integers], noise: float, generator: np.random.Generator
) -> tuple[Floats, Integers]:
    labels = truth(features)
    return features, np.where(generator.random(labels.shape) < noise, 1 - labels, labels) if noise else labels


def _above_half(features: Floats) -> Integers:
    return (features[..., 0] >= 0.5).astype(np.int64)


def _first_positive(features: Floats) -> Integers:
    return (features[..., 0] >= 0).astype(np.int64)


def _count_positive(weights: Floats, features: Floats) -> Integers:
    parts = [weights[first : first + 256] for first in range(0, len(weights), 256)]
    return np.sum([np.count_nonzero(features @ part.T >= 0, axis=1) for part in parts], axis=0)


def _angle_share(weights: Floats) -> Floats:
    cosine = weights[:, 0] / np.maximum(np.linalg.norm(weights, axis=1), 1e-300)
    return np.arccos(np.clip(cosine, -1, 1)) / np.pi
