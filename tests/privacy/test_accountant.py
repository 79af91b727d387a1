"""The contract that every mechanism's cost must satisfy under composition, and the routes of the accountant."""

from __future__ import annotations

import itertools
import math
from abc import ABC
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from teacher_student.arguments import ArgumentError
from teacher_student.privacy import (
    MECHANISMS,
    Composition,
    ConfidentGNMax,
    Exponential,
    GNMax,
    LNMax,
    Parameters,
    Stability,
    StabilityLaplace,
    StabilityPaper,
    StabilityRedraw,
    calibrate,
)
from teacher_student.privacy.accountant import INTERVAL, _loss_masses
from teacher_student.privacy.gaussian import gaussian_epsilon
from teacher_student.privacy.registry import LABELS

DELTA = 1e-5


class CostContract(ABC):
    """What the cost of any mechanism must satisfy. `parameters` is a session that costs about epsilon 1 at DELTA."""

    parameters: Parameters

    def test_nothing_costs_nothing(self) -> None:
        for nothing in (Composition(), Composition().add(self.parameters, 0)):
            assert nothing.epsilon(DELTA) == 0
            assert nothing.delta(0.0) == 0

    def test_one_costs_what_it_says(self) -> None:
        one = Composition().add(self.parameters)
        assert 0 < one.epsilon(DELTA) <= self.parameters.epsilon(DELTA) * (1 + 1e-9)
        assert one.delta(1.0) <= self.parameters.delta(1.0) * (1 + 1e-9)

    def test_count_is_repetition(self) -> None:
        counted = Composition().add(self.parameters, 3)
        repeated = Composition().add(self.parameters).add(self.parameters).add(self.parameters)
        for delta in (DELTA, 1e-3):
            assert counted.epsilon(delta) == pytest.approx(repeated.epsilon(delta), rel=1e-9)
        assert counted.delta(2.0) == pytest.approx(repeated.delta(2.0), rel=1e-6)

    def test_order_does_not_matter(self) -> None:
        other = GNMax(scale=Fraction(50), max_answers=10)
        before, after = Composition().add(other).add(self.parameters), Composition().add(self.parameters).add(other)
        assert before.epsilon(DELTA) == pytest.approx(after.epsilon(DELTA), rel=1e-9)

    def test_more_sessions_cost_more_but_less_than_their_sum(self) -> None:
        epsilons = [Composition().add(self.parameters, count).epsilon(1e-4) for count in (1, 2, 4, 8)]
        assert all(a < b for a, b in itertools.pairwise(epsilons))
        assert epsilons[-1] < 8 * self.parameters.epsilon(
            self.parameters.release_delta + (1e-4 - self.parameters.release_delta) / 8
        )

    def test_monotone_in_delta_and_epsilon(self) -> None:
        for composition in (Composition().add(self.parameters), Composition().add(self.parameters, 3)):
            smallest = composition.release_delta * 1.01 + 1e-9
            epsilons = [composition.epsilon(float(delta)) for delta in np.geomspace(smallest, 0.1, 12)]
            assert all(a >= b for a, b in itertools.pairwise(epsilons))
            deltas = [composition.delta(float(epsilon)) for epsilon in np.linspace(0, 5, 12)]
            assert all(a >= b for a, b in itertools.pairwise(deltas))

    def test_delta_and_epsilon_agree(self) -> None:
        for composition in (Composition().add(self.parameters), Composition().add(self.parameters, 3)):
            epsilon = composition.epsilon(1e-4)
            assert composition.delta(epsilon * (1 + 1e-6)) <= 1e-4 * (1 + 1e-4)

    def test_a_delta_below_the_failure_event_is_out_of_reach(self) -> None:
        composition = Composition().add(self.parameters, 3)
        if composition.release_delta > 0:
            assert composition.epsilon(composition.release_delta) == math.inf
            assert composition.delta(1e6) >= composition.release_delta

    def test_the_renyi_bound_is_positive_and_rises_with_the_order(self) -> None:
        orders = np.array([1.1, 1.5, 2.0, 4.0, 16.0, 64.0])
        bounds = self.parameters.rdp(orders)
        if bounds is not None:
            assert (np.diff(bounds) >= -1e-12).all()
            assert (bounds > 0).all()

    def test_the_record_names_every_number(self) -> None:
        (entry,) = Composition().add(self.parameters, 2).to_list()
        assert entry == {"count": 2, "parameters": self.parameters.to_dict()}


class TestStability(CostContract):
    parameters = Stability(threshold_scale=Fraction(8), query_scale=Fraction(30), threshold=33, cutoff=15)


class TestStabilityLaplace(CostContract):
    parameters = StabilityLaplace(threshold_scale=Fraction(8), query_scale=Fraction(30), threshold=480, cutoff=6)


class TestStabilityRedraw(CostContract):
    parameters = StabilityRedraw(threshold_scale=Fraction(25), query_scale=Fraction(50), threshold=800, cutoff=10)


class TestStabilityPaper(CostContract):
    parameters = StabilityPaper(
        threshold_scale=Fraction(200), query_scale=Fraction(400), threshold=9000, cutoff=10, num_queries=1000
    )


class TestGNMax(CostContract):
    parameters = GNMax(scale=Fraction(60), max_answers=100)


class TestConfidentGNMax(CostContract):
    parameters = ConfidentGNMax(
        threshold=150, threshold_scale=Fraction(80), query_scale=Fraction(80), num_queries=200, max_answers=80
    )


class TestLNMax(CostContract):
    parameters = LNMax(scale=Fraction(60), max_answers=100)


class TestExponential(CostContract):
    parameters = Exponential(scale=Fraction(45), max_answers=100)


CONTRACTS = (
    TestStability,
    TestStabilityLaplace,
    TestStabilityRedraw,
    TestStabilityPaper,
    TestGNMax,
    TestConfidentGNMax,
    TestLNMax,
    TestExponential,
)


def others() -> list[str]:
    return sorted(set(MECHANISMS) - {contract.parameters.mechanism for contract in CONTRACTS})


@pytest.mark.parametrize("check", [name for name in vars(CostContract) if name.startswith("test_")])
@pytest.mark.parametrize("mechanism", others())
def test_every_other_mechanism_is_under_the_contract(mechanism: str, check: str) -> None:
    options = LABELS[mechanism].audit_options(100, None)
    contract = type("Contract", (CostContract,), {"parameters": calibrate(mechanism, epsilon=1.0, delta=DELTA, **options)})
    getattr(contract(), check)()


# A mechanism that breaks the contract is caught.


class Forgetful(GNMax):
    """Mutant: a cost that does not count its answers."""

    @property
    def mu(self) -> float:
        return GNMax(scale=self.scale, max_answers=1).mu


def test_a_cost_that_forgets_its_count_is_caught() -> None:
    one, hundred = (Forgetful(scale=Fraction(60), max_answers=answers) for answers in (1, 100))
    assert hundred.epsilon(DELTA) == one.epsilon(DELTA)
    with pytest.raises(AssertionError):
        count_of_answers_composes(hundred, one)


def count_of_answers_composes(hundred: Parameters, one: Parameters) -> None:
    assert hundred.epsilon(DELTA) == pytest.approx(Composition().add(one, 100).epsilon(DELTA), rel=1e-9)


@pytest.mark.parametrize("kind", [GNMax, LNMax, Exponential])
def test_a_session_of_a_hundred_answers_costs_a_hundred_sessions_of_one(kind: Any) -> None:
    count_of_answers_composes(kind(scale=Fraction(60), max_answers=100), kind(scale=Fraction(60), max_answers=1))


# Routes.


def route_names(*parts: Parameters) -> set[str]:
    composition = Composition(tuple((part, 1) for part in parts))
    return {route.name for route in composition.routes}


def test_every_route_that_the_parts_allow_is_tried() -> None:
    gnmax, lnmax, stability = TestGNMax.parameters, TestLNMax.parameters, TestStability.parameters
    assert route_names(gnmax) == {"single", "gaussian", "renyi", "basic"}
    assert route_names(gnmax, TestConfidentGNMax.parameters) == {"gaussian", "renyi", "basic"}
    assert route_names(lnmax, lnmax) == {"pure", "renyi", "basic"}
    assert route_names(gnmax, lnmax, TestStabilityRedraw.parameters) == {"distribution", "renyi", "basic"}
    assert route_names(gnmax, stability) == {"renyi", "basic"}


def test_gaussian_route_is_exact() -> None:
    gnmax, confident = TestGNMax.parameters, TestConfidentGNMax.parameters
    both = Composition().add(gnmax, 2).add(confident)
    assert both.epsilon(DELTA) == gaussian_epsilon(math.sqrt(2 * gnmax.mu**2 + confident.mu**2), DELTA)


def test_distribution_route_agrees_with_the_exact_ones() -> None:
    """A part that costs next to nothing forces this route; the cost then changes only by rounding."""
    for parameters in (TestGNMax.parameters, TestLNMax.parameters):
        next_to_nothing = LNMax(scale=Fraction(10**7), max_answers=1)
        mixed, alone = Composition().add(parameters).add(next_to_nothing), Composition().add(parameters)
        (route,) = [route for route in mixed.routes if route.name == "distribution"]
        assert alone.epsilon(DELTA) <= route.epsilon(DELTA) <= alone.epsilon(DELTA) + 5e-3


def test_distribution_route_is_sharper_than_renyi() -> None:
    mixed = Composition().add(TestGNMax.parameters).add(TestLNMax.parameters)
    epsilons = {route.name: route.epsilon(DELTA) for route in mixed.routes}
    assert epsilons["distribution"] < epsilons["renyi"] < epsilons["basic"]
    assert mixed.epsilon(DELTA) == epsilons["distribution"]


def test_failure_probabilities_add() -> None:
    stability = TestStability.parameters
    assert Composition().add(stability, 4).release_delta == pytest.approx(4 * stability.release_delta)


@pytest.mark.parametrize(
    ("parameters", "count", "words"),
    [
        ("gnmax", 1, "parameters must be those of a mechanism whose cost is known"),
        (None, 1, "parameters must be those of a mechanism whose cost is known"),
        (TestGNMax.parameters, -1, "count must be an integer from 0 to 20000000, got -1"),
        (LNMax(scale=Fraction(1), max_answers=10**6), 2000, "count must leave at most 20000000 pure answers to be composed"),
        (TestGNMax.parameters, 10**400, "count must be an integer from 0 to 20000000"),
        (TestGNMax.parameters, 1.5, "count must be an integer from 0 to 20000000, got 1.5"),
    ],
)
def test_unknown_parts_are_refused(parameters: Any, count: Any, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Composition().add(parameters, count)
    assert words in str(caught.value)


def test_bad_epsilon_and_delta() -> None:
    composition = Composition().add(TestGNMax.parameters)
    with pytest.raises(ArgumentError, match="delta must lie strictly between 0 and 1"):
        composition.epsilon(0.0)
    with pytest.raises(ArgumentError, match="epsilon must be a number above 0"):
        composition.delta(-1.0)


@pytest.mark.parametrize("times", [1000, 10**6])
def test_masses_of_a_loss_are_raised_by_what_their_logarithms_lose(times: int) -> None:
    """They are probabilities, rounded up, so their sum is at least 1."""
    loss = 1e-3
    masses, failure = _loss_masses(loss, times)
    places = np.array(sorted(masses))
    exact = stats.binom.pmf((times - places * INTERVAL / loss) / 2, times, special.expit(-loss))
    found = np.array([masses[place] for place in places])
    assert (found >= exact * (1 - 1e-12)).all() or times > 1000  # scipy's own digits end there
    assert 1 <= found.sum() + failure <= 1 + 1e-7


def test_a_bound_that_is_not_a_number_bounds_nothing() -> None:
    class Broken(GNMax):
        """Mutant: its cost cannot be computed."""

        def delta(self, epsilon: float) -> float:
            return math.nan * epsilon

        @property
        def mu(self) -> float:
            return math.nan

    broken = Composition().add(Broken(scale=Fraction(60), max_answers=100))
    assert broken.delta(1.0) == 1.0
    assert broken.epsilon(DELTA) == math.inf
