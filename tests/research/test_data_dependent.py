"""The data-dependent diagnostic: the published figure, and the theorem against exact divergences."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from research.data_dependent import ORDERS, diagnose, theorem_6
from teacher_student.arguments import ArgumentError

VOTES = Path(__file__).parents[3] / "shared" / "data" / "pate2018_votes" / "mnist_250_teachers.votes.csv.gz"


@pytest.mark.skipif(not VOTES.exists(), reason="the published votes are not beside the repository")
def test_published_mnist_votes() -> None:
    """The first 640 rows; the paper prints 1.97 and 286 for its own order of the queries."""
    counts = np.loadtxt(VOTES, delimiter=",", max_rows=640)
    found = diagnose(counts, delta=1e-5, query_scale=40, threshold=200, threshold_scale=150)
    assert found.epsilon == pytest.approx(1.999, abs=5e-4)
    assert found.order == 14
    assert found.expected_answers == pytest.approx(282.7, abs=0.05)


def exact_test_rdp(margin: float, moved: float, sigma: float, order: float) -> float:
    """Renyi divergence of the threshold test's one bit between a count `margin` below and one `moved` away, by its definition."""
    log_p = [float(special.log_ndtr(s * margin / sigma)) for s in (1, -1)]
    log_q = [float(special.log_ndtr(s * (margin + moved) / sigma)) for s in (1, -1)]
    terms = [order * p + (1 - order) * q for p, q in zip(log_p, log_q, strict=True)]
    return float(special.logsumexp(terms)) / (order - 1)


def worst_ratio(variance: float, sigma: float) -> float:
    worst = 0.0
    for margin in np.linspace(-6 * sigma, 6 * sigma, 61):
        log_q = np.array([min(special.log_ndtr(margin / sigma), special.log_ndtr(-margin / sigma))])
        bound = theorem_6(log_q, variance)[0]
        for moved in (-1.0, 1.0):
            exact = np.array([exact_test_rdp(float(margin), moved, sigma, float(order)) for order in ORDERS[:40]])
            worst = max(worst, float((exact / bound[:40]).max()))
    return worst


def test_the_theorem_bounds_the_exact_divergence_of_a_test() -> None:
    assert worst_ratio(2 * 15.0**2, 15.0) <= 1


def test_a_variance_twice_too_large_is_caught() -> None:
    assert worst_ratio(4 * 15.0**2, 15.0) > 1


def test_never_above_the_data_independent_cost() -> None:
    log_q = np.log(np.geomspace(1e-300, 0.5, 50))
    bound = theorem_6(log_q, 1600.0)
    assert (bound <= ORDERS / 1600).all()
    assert (bound >= 0).all()
    assert (np.diff(bound, axis=0) >= -1e-15).all()


def test_clear_votes_cost_less_than_ties_and_nothing_is_releasable() -> None:
    clear, tied = (diagnose([row] * 50, delta=1e-5, query_scale=40.0) for row in ([250, 0], [125, 125]))
    assert clear.epsilon < tied.epsilon
    assert clear.releasable is False
    assert diagnose([[9], [3]], delta=1e-5, query_scale=1.0).epsilon == pytest.approx(math.log(1e5) / (ORDERS[-1] - 1))


def test_bad_input() -> None:
    with pytest.raises(ArgumentError, match="threshold_scale must be given with threshold"):
        diagnose([[1, 2]], delta=1e-5, query_scale=1.0, threshold=3)
    with pytest.raises(ArgumentError, match="delta must lie strictly"):
        diagnose([[1, 2]], delta=0.0, query_scale=1.0)
    with pytest.raises(ArgumentError, match="counts must not be negative"):
        diagnose([[1, -2]], delta=1e-5, query_scale=1.0)
