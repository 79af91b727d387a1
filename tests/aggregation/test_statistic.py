"""Each statistic is a sum over teachers, and one teacher moves it at most by the distance that is paid for."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from teacher_student.aggregation.scores import BoundedGradients, BoundedScores
from teacher_student.aggregation.soft_label import Histograms
from teacher_student.aggregation.statistic import Statistic
from teacher_student.aggregation.votes import Votes
from teacher_student.privacy import calibrate
from teacher_student.privacy.gaussian import discrete_gaussian_mu

QUERIES = 2
SCORES = (0.0, 0.2, 0.25, 0.34, 0.5, 0.8, 1.0, math.nan, math.inf, -7.0)
VECTORS = (0.0, 0.3, -1.0, 1e9, -1e9, math.nan)
CASES = {
    "votes": (Votes(3, 2), [np.array(vote) for vote in itertools.product((-1, 0, 1, 2), repeat=QUERIES)]),
    "votes of one class": (Votes(1, 2), [np.array(vote) for vote in itertools.product((-1, 0), repeat=QUERIES)]),
    "histograms": (Histograms(None, 2, 4), [np.array(given) for given in itertools.product(SCORES, repeat=QUERIES)]),
    "one-vs-rest": (
        Histograms(2, 2, 3),
        [np.array(given).reshape(QUERIES, 2) for given in itertools.product((0.2, 0.6, math.nan), repeat=2 * QUERIES)],
    ),
    "scores": (
        BoundedScores(2, 2, QUERIES, 1.0),
        [np.array(given).reshape(QUERIES, 2) for given in itertools.product(VECTORS, repeat=2 * QUERIES)],
    ),
}
"""Statistics of two teachers, and everything (of some values) that one of them may say about all queries."""


def rows_of(statistic: Statistic, said: list[np.ndarray]) -> np.ndarray:
    """Return the statistic of what some teachers say, added one teacher at a time."""
    table = statistic.empty(QUERIES)
    for one in said:
        statistic.add(table, one[:, np.newaxis])
    return table.astype(np.int64)


@pytest.mark.parametrize("name", CASES)
def test_one_teacher_moves_it_no_further_than_it_says(name: str) -> None:
    """Largest distance over all pairs of what one teacher may say, including nothing."""
    statistic, possible = CASES[name]
    rows = np.unique([rows_of(statistic, [said]).ravel() for said in possible] + [statistic.empty(QUERIES).ravel()], axis=0)
    moved = ((rows[:, np.newaxis] - rows[np.newaxis]) ** 2).sum(axis=2)
    assert moved.max() <= statistic.squared_distance * QUERIES
    assert moved.max() >= 0.98 * statistic.squared_distance * QUERIES  # and the claim is tight


@pytest.mark.parametrize("name", CASES)
def test_it_is_a_sum_over_teachers(name: str) -> None:
    statistic, possible = CASES[name]
    first, second = possible[1], possible[-1]
    together = statistic.empty(QUERIES)
    statistic.add(together, np.stack([first, second], axis=1))
    assert np.array_equal(together, rows_of(statistic, [first, second]))
    if isinstance(statistic, Votes):
        assert np.array_equal(statistic.check(np.stack([first, second], axis=1), None), together)
    elif isinstance(statistic, Histograms):
        assert np.array_equal(statistic.check(np.stack([first, second], axis=1)), together)
    else:
        assert np.array_equal(statistic.check(together), together)


@pytest.mark.parametrize(
    ("statistic", "mechanism", "options"),
    [
        (Votes(3, 9), "noisy_fraction", {}),
        (BoundedScores(3, 9, 5, 1.0), "noisy_scores", {}),
        (BoundedGradients(3, 9, 5, 1.0), "noisy_scores", {"steps": 64**2}),
    ],
)
def test_sums_are_paid_for_by_this_distance(statistic: Statistic, mechanism: str, options: dict[str, int]) -> None:
    spec = calibrate(mechanism, epsilon=1.0, delta=1e-5, num_queries=5, num_classes=3, **options)
    assert spec.mu == pytest.approx(math.sqrt(5 * statistic.squared_distance) * discrete_gaussian_mu(spec.scale), rel=1e-9)
