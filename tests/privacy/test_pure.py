"""Compositions of pure mechanisms: two ways to the same number, and the worst case reached by discrete Laplace noise."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import special

from teacher_student.arguments import ArgumentError
from teacher_student.privacy import LNMax, calibrate, pure
from teacher_student.privacy.pure import LARGEST_COUNT, bounded_range_rdp, pure_delta, pure_epsilon, pure_rdp

ORDERS = np.array([1.01, 1.5, 2.0, 5.0, 20.0, 100.0])


@pytest.mark.parametrize("count", [1, 2, 5, 9])
@pytest.mark.parametrize("epsilon", [0.0, 0.31, 1.3, 4.0])
def test_optimal_composition_is_that_of_randomised_responses(count: int, epsilon: float) -> None:
    loss = 0.47
    wrong = 1 / (1 + math.exp(loss))
    apart = 0.0
    for pattern in itertools.product([True, False], repeat=count):
        flips = sum(pattern)
        here = wrong**flips * (1 - wrong) ** (count - flips)
        there = (1 - wrong) ** flips * wrong ** (count - flips)
        apart += max(0.0, here - math.exp(epsilon) * there)
    assert pure_delta(loss, count, epsilon) == pytest.approx(apart, rel=1e-7, abs=1e-299)
    assert pure_delta(loss, count, epsilon) >= apart * (1 - 1e-12)


def sum_of_terms(loss: float, count: int, epsilon: float) -> float:
    """The terms of the theorem one by one. All are positive, so nothing cancels."""
    wrong = np.arange(count + 1)
    wrong = wrong[(count - 2 * wrong) * loss > epsilon]
    log_binomial = special.gammaln(count + 1) - special.gammaln(wrong + 1) - special.gammaln(count - wrong + 1)
    log_mass = log_binomial + (count - wrong) * loss - count * np.logaddexp(0, loss)
    return float(np.exp(special.logsumexp(log_mass + np.log(-np.expm1(epsilon - (count - 2 * wrong) * loss)))))


@pytest.mark.parametrize(
    ("loss", "count", "epsilon"),
    [
        (0.5, 1, 0.2),
        (0.1, 10, 0.3),
        (0.01, 2000, 1.0),
        (3.0, 4, 5.0),
        (0.0011, 10_000, 0.5),
        (0.03, 300, 1.0),
        (1e-3, 1_000_000, 4.0),
        (2.0, 40, 30.0),
    ],
)
def test_the_difference_of_tails_is_the_sum_of_terms(loss: float, count: int, epsilon: float) -> None:
    assert pure_delta(loss, count, epsilon) == pytest.approx(sum_of_terms(loss, count, epsilon), rel=3e-7)


@pytest.mark.parametrize("loss", [1e-12, 1e-9, 1e-6])
def test_no_digit_is_lost_to_the_side_of_a_smaller_delta(loss: float) -> None:
    """One answer of a tiny loss: the two tails agree in nearly all digits."""
    assert math.tanh(loss / 2) <= pure_delta(loss, 1, 0.0) <= math.tanh(loss / 2) * (1 + 2e-8) + 1e-15


def test_discrete_laplace_noise_moved_by_one_is_the_worst_case() -> None:
    scale, count = 3.0, 4
    support = np.arange(-120, 121)
    here = np.exp(-np.abs(support) / scale) * math.tanh(0.5 / scale)
    losses, mass = np.zeros(1), np.ones(1)
    loss = (np.abs(support - 1) - np.abs(support)) / scale
    assert np.allclose(np.abs(loss), 1 / scale)
    for _ in range(count):
        losses = np.add.outer(losses, [1 / scale, -1 / scale]).ravel()
        mass = np.multiply.outer(mass, [here[loss > 0].sum(), here[loss < 0].sum()]).ravel()
    for epsilon in (0.0, 0.4, 0.9, 1.3):
        exact = float((mass * np.maximum(0, -np.expm1(epsilon - losses))).sum())
        assert pure_delta(1 / scale, count, epsilon) == pytest.approx(exact, rel=1e-6)


def test_epsilon_inverts_delta() -> None:
    for count in (1, 7, 300, 10**7):
        loss = 0.3 / math.sqrt(count)
        epsilon = pure_epsilon(loss, count, 1e-5)
        assert pure_delta(loss, count, epsilon) <= 1e-5
        assert pure_delta(loss, count, epsilon * 0.999) > 1e-5
    assert pure_epsilon(1e-6, 1, 1e-3) == 0.0
    assert pure_delta(0.5, 3, 1.5) == 0.0


@pytest.mark.parametrize("width", [0.01, 0.4, 3.0])
def test_bounded_range_is_the_worst_of_two_points(width: float) -> None:
    """Brute force over where the interval of the loss lies."""
    t = np.linspace(0, width, 20_001)[1:-1]
    weight = (math.exp(width) - np.exp(t)) / math.expm1(width)
    for order in ORDERS:
        moments = weight * np.exp((order - 1) * t) + (1 - weight) * np.exp((order - 1) * (t - width))
        worst = math.log(moments.max()) / (order - 1)
        found = float(bounded_range_rdp(width, 1, [order])[0])
        assert worst <= found * (1 + 1e-9) + 1e-11
        assert found <= worst * (1 + 1e-6) + 2e-11


def test_bounded_range_is_below_randomised_response_and_above_nothing() -> None:
    bounded, pure = bounded_range_rdp(0.2, 10, ORDERS), pure_rdp(0.2, 10, ORDERS)
    assert (bounded > 0).all()
    assert (bounded < pure).all()
    assert (np.diff(bounded) > 0).all()
    assert pure_rdp(0.2, 1, [1e6])[0] == pytest.approx(0.2, rel=1e-3)
    assert pure_rdp(1000.0, 1, [2.0])[0] == pytest.approx(1000, rel=1e-3)


def binomial_delta(loss: float, count: int, epsilon: float) -> float:
    """The same difference of tails, to 40 digits: the terms from the largest down."""
    mp = pytest.importorskip("mpmath").mp.clone()
    mp.dps = 40
    most = math.ceil((count - epsilon / loss) / 2) - 1

    def tail(p: Any) -> Any:
        log_choose = mp.loggamma(count + 1) - mp.loggamma(most + 1) - mp.loggamma(count - most + 1)
        term, total = mp.exp(log_choose + most * mp.log(p) + (count - most) * mp.log(1 - p)), mp.mpf(0)
        for k in range(most, -1, -1):
            total += term
            term *= k * (1 - p) / (p * (count - k + 1))
            if term < total * mp.mpf(10) ** -25:
                break
        return total

    wrong = 1 / (1 + mp.exp(mp.mpf(loss)))
    return float(tail(wrong) - mp.exp(epsilon) * tail(1 - wrong))


@pytest.mark.parametrize(("count", "epsilon"), [(1000, 0.5), (1000, 1.5), (10**6, 0.5), (10**6, 1.5), (LARGEST_COUNT, 1.5)])
def test_the_slack_covers_the_lost_digits(count: int, epsilon: float) -> None:
    loss = 0.25 / math.sqrt(count)
    exact = binomial_delta(loss, count, epsilon)
    assert exact <= pure_delta(loss, count, epsilon) <= exact * (1 + 1e-6)


def test_more_answers_than_can_be_computed_are_refused() -> None:
    for count in (LARGEST_COUNT + 1, 2**31):
        with pytest.raises(ArgumentError, match="answers must be at most 20000000"):
            pure_delta(1e-9, count, 1.0)
        with pytest.raises(ArgumentError, match="answers must be at most 20000000"):
            pure_epsilon(1e-9, count, 1e-5)
    with pytest.raises(ArgumentError, match="max_answers must be an integer from 1 to 10000000"):
        LNMax(max_answers=2**30, scale=Fraction(1)).epsilon(1e-5)
    for mechanism in ("lnmax", "gnmax", "exponential"):
        with pytest.raises(ArgumentError, match="num_queries must be an integer from 1 to 10000000"):
            calibrate(mechanism, epsilon=1.0, delta=1e-5, num_queries=2**30)


def test_nan_is_a_certain_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pure.special, "bdtr", lambda *given: math.nan)
    assert pure_delta(0.1, 100, 1.0) == 1.0
    assert pure_epsilon(0.1, 100, 1e-5) == pytest.approx(10.0)  # plain composition: it needs no tail
