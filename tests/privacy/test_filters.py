"""Budgets for releases chosen one after the other: whatever a filter admits stays within them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special

from teacher_student.arguments import ArgumentError
from teacher_student.privacy import (
    FILTERS,
    MECHANISMS,
    BasicFilter,
    Claim,
    Composition,
    GaussianFilter,
    GNMax,
    LNMax,
    RenyiFilter,
    calibrate,
    make_filter,
)
from teacher_student.privacy.filters import RELEASE_SHARE

FIRST = LNMax(max_answers=20, scale=Fraction(50))
LATER = [
    LNMax(max_answers=answers, scale=Fraction(round(256 * scale), 256))
    for answers, scale in ((1, 1.258), (3, 3.574), (10, 8.664), (30, 15.69), (100, 29.10), (500, 65.20))
]


def losses(parameters: LNMax) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of the privacy loss, and their probabilities under D, of the worst mechanism with these parameters."""
    loss, times = parameters.pure_parts
    wrong = np.arange(times + 1)
    log_choose = special.gammaln(times + 1) - special.gammaln(wrong + 1) - special.gammaln(times - wrong + 1)
    mass = np.exp(log_choose - wrong * np.logaddexp(0, loss) - (times - wrong) * np.logaddexp(0, -loss))
    return (times - 2 * wrong) * loss, mass


def true_delta(later: list[LNMax], epsilon: float) -> float:
    """Return the delta at `epsilon` of FIRST and then that one of `later`, or none, which is worst given what FIRST released."""
    seen, weights = losses(FIRST)
    alone = np.maximum(0, -np.expm1(epsilon - seen))
    worst = [alone]
    for parameters in later:
        values, mass = losses(parameters)
        worst.append(np.maximum(0, -np.expm1(epsilon - seen[:, np.newaxis] - values)) @ mass)
    return float(weights @ np.max(worst, axis=0))


def claim(parameters: LNMax) -> Claim:
    """What a session of these parameters is best charged with: the epsilon of a tenth of the delta, and that delta."""
    return Claim(parameters, parameters.epsilon(1e-6), 1e-6)


def test_the_smallest_bound_so_far_is_not_a_budget() -> None:
    """Mutant: it admits each of the six after FIRST, and the choice among them then costs two and a half times delta."""
    for parameters in LATER:
        assert Composition().add(FIRST).add(parameters).delta(2.0) <= 9.7e-6
    assert true_delta(LATER, 2.0) == pytest.approx(2.44e-5, rel=0.01)


@pytest.mark.parametrize("name", FILTERS)
def test_what_a_filter_admits_keeps_the_budget_however_it_is_chosen(name: str) -> None:
    for epsilon in (1.0, 2.0, 4.0):
        budget = make_filter(name, epsilon, 9.7e-6)
        admitted = [parameters for parameters in LATER if budget.admits([claim(FIRST), claim(parameters)])]
        assert true_delta(admitted, epsilon) <= 9.7e-6
        if epsilon == 4 and name != "gaussian":  # pure mechanisms have no mu
            assert admitted


def gaussian(answers: int) -> Claim:
    parameters = GNMax(max_answers=answers, scale=Fraction(100))
    return Claim(parameters, parameters.epsilon(1e-7), 1e-7)


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_is_below_the_exact_cost_of_a_fixed_list(name: str) -> None:
    """As many sessions as it admits, all alike: their exact cost is within the budget, and at Gaussian noise not far below."""
    budget = make_filter(name, 2.0, 1e-5)
    count = next(count for count in range(1, 200) if not budget.admits([gaussian(50)] * count)) - 1
    exact = Composition().add(gaussian(50).parameters, count).epsilon(1e-5)
    assert exact <= 2.0
    assert exact >= {"basic": 0.4, "renyi": 1.75, "gaussian": 1.9}[name]


def test_the_order_depends_on_nothing_but_the_budget() -> None:
    budget = RenyiFilter(1.0, 1e-5)
    before = budget.order
    budget.spent([gaussian(3), gaussian(4)])
    assert budget.order == before == RenyiFilter(1.0, 1e-5).order


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_can_be_paid_under_basic_and_renyi(mechanism: str) -> None:
    wanted = {"epsilon": 0.2, "delta": 1e-6, "cutoff": 9, "num_queries": 100}
    parameters = calibrate(mechanism, **wanted, **({"threshold": 9} if mechanism == "confident_gnmax" else {}))
    made = [Claim(parameters, 0.2, 1e-6)]
    for kind in (BasicFilter, RenyiFilter):
        assert 0 < kind(2.0, 1e-5).spent(made) < 1
        assert kind(2.0, 1e-5).spent(2 * made) == pytest.approx(2 * kind(2.0, 1e-5).spent(made))
    assert GaussianFilter(2.0, 1e-5).admits(made) == (parameters.mu is not None)


def test_failure_events_have_a_share_of_their_own() -> None:
    parameters = calibrate("stability", epsilon=1e-2, delta=1e-6, cutoff=2)
    most = math.floor(RELEASE_SHARE * 1e-5 / parameters.release_delta)
    budget = RenyiFilter(20.0, 1e-5)
    assert budget.admits([Claim(parameters, 1e-2, 1e-6)] * most)
    assert not budget.admits([Claim(parameters, 1e-2, 1e-6)] * (most + 1))


def test_decimals_add_up_and_nan_is_refused() -> None:
    third = Claim(FIRST, 0.4, 1e-6)
    assert BasicFilter(1.2, 3e-6).admits([third] * 3)
    assert not BasicFilter(1.2, 3e-6).admits([third] * 4)
    assert not BasicFilter(1.2, 1e-5).admits([Claim(FIRST, math.nan, 1e-6)])
    assert not BasicFilter(1.2, 1e-5).admits([Claim(FIRST, 0.1, math.nan)])
    assert not RenyiFilter(1e3, 1e-5).admits([Claim(GNMax(max_answers=10**7, scale=Fraction(1, 256)), 1.0, 1e-6)])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("sum", 1.0, 1e-5), "filter must be one of basic, gaussian, renyi; got 'sum'"),
        (("basic", 0.0, 1e-5), "epsilon must be a number above 0"),
        (("basic", math.nan, 1e-5), "epsilon must be a number above 0"),
        (("renyi", 1.0, 1.0), "delta must lie strictly between 0 and 1"),
    ],
)
def test_bad_budgets_are_refused(given: tuple[str, float, float], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make_filter(*given)


def test_a_budget_that_pays_for_nothing_is_refused() -> None:
    with pytest.raises(ArgumentError, match="epsilon must be larger for the renyi filter at delta 1e-05, got 1e-05"):
        RenyiFilter(1e-5, 1e-5).spent([claim(FIRST)])
