"""The best of several private runs: the cost is the theorem's, holds for the exact law, and the cost of one run does not."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_repeat_and_select
from scipy import special

from teacher_student.arguments import ArgumentError
from teacher_student.privacy import Certificate, Exponential, GNMax, PrivateSelection, calibrate, calibrate_selection
from teacher_student.privacy.calibration import parameters_from_dict
from teacher_student.privacy.rdp import ORDERS

SESSIONS = [
    calibrate("stability", epsilon=0.5, delta=1e-6, cutoff=20),
    calibrate("gnmax", epsilon=0.5, delta=1e-6, num_queries=100),
    calibrate("exponential", epsilon=0.5, delta=1e-6, num_queries=50),
]


@pytest.mark.parametrize("repetitions", [2, 5, 100])
@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.mechanism)
def test_the_bound_is_that_of_dp_accounting(session, repetitions):
    """Theirs is made monotone in the order afterwards, which is valid, and finds gamma by bisection."""
    ours = PrivateSelection(session=session, repetitions=repetitions).rdp(ORDERS)
    theirs = _compute_rdp_repeat_and_select(ORDERS.tolist(), session.rdp(ORDERS).tolist(), repetitions, 1)
    assert np.allclose(np.minimum.accumulate(ours[::-1])[::-1], theirs, rtol=1e-6)


def best_of(law: np.ndarray, repetitions: int) -> np.ndarray:
    """Exact law of the largest of a geometric number of draws: P(best <= y) = f(P(one <= y)), f its generating function."""
    stop, below = 1 / repetitions, np.cumsum(law)
    cumulative = stop * below / (1 - (1 - stop) * below)
    return np.diff(cumulative, prepend=0.0)


def hockey_stick(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return max(np.maximum(one - math.exp(epsilon) * other, 0).sum(), np.maximum(other - math.exp(epsilon) * one, 0).sum())


@pytest.mark.parametrize("repetitions", [8, 30])
def test_no_neighbours_are_further_apart_than_is_claimed_and_one_runs_cost_is_not_enough(repetitions):
    """One answer of the exponential mechanism, three classes in the order of a public score: everything is exact."""
    selection = PrivateSelection(session=Exponential(scale=Fraction(2), max_answers=1), repetitions=repetitions)
    one_run, best_run = [], []
    for counts in itertools.product(range(0, 10, 2), repeat=3):
        for gains, loses in itertools.permutations(range(3), 2):
            moved = np.eye(3)[gains] - np.eye(3)[loses]
            laws = [special.softmax(table / 2) for table in (np.array(counts), counts + moved)]
            one_run.append(laws)
            best_run.append([best_of(law, repetitions) for law in laws])
    for epsilon in (0.2, 0.5, 0.9, 1.2):
        assert max(hockey_stick(*pair, epsilon) for pair in best_run) <= selection.delta(epsilon)
    assert max(hockey_stick(*pair, 1.0) for pair in one_run) < 1e-12  # one run is 1-DP,
    assert max(hockey_stick(*pair, 1.0) for pair in best_run) > 1e-3  # the best of several is not


def test_failure_events_are_counted_for_each_expected_run():
    session = SESSIONS[0]
    selection = PrivateSelection(session=session, repetitions=7)
    assert session.release_delta > 0
    assert selection.release_delta == 7 * session.release_delta
    assert selection.epsilon(selection.release_delta) == math.inf
    assert selection.delta(1e6) >= selection.release_delta


@pytest.mark.parametrize("mechanism", ["stability", "gnmax"])
def test_calibration_keeps_to_the_budget_and_uses_it(mechanism):
    options = {"cutoff": 20} if mechanism == "stability" else {"num_queries": 100}
    found = calibrate_selection(mechanism, epsilon=1.0, delta=1e-5, repetitions=4, **options)
    assert 0.98 < found.epsilon(1e-5) <= 1
    assert found.delta(1.0) <= 1e-5
    assert found.session.epsilon(1e-6) < 1


def test_more_repetitions_leave_less_for_each_session():
    few, many = (
        calibrate_selection("gnmax", epsilon=1.0, delta=1e-5, repetitions=repetitions, num_queries=100) for repetitions in (4, 40)
    )
    assert many.session.epsilon(1e-6) < few.session.epsilon(1e-6)


def test_a_certificate_recomputes_and_rejects_fewer_repetitions():
    selection = calibrate_selection("gnmax", epsilon=1.0, delta=1e-5, repetitions=8, num_queries=100)
    certificate = Certificate(
        epsilon=1.0,
        delta=1e-5,
        mechanism="private_selection",
        parameters=selection,
        private=True,
        neighbours="add_remove",
        used={"paid": 100},
    )
    text = certificate.to_json()
    assert Certificate.from_json(text).parameters == selection
    assert Certificate.from_json(text).verify() <= 1.0
    fields = json.loads(text)
    fields["parameters"]["repetitions"] = 30  # more runs cost more
    with pytest.raises(ArgumentError, match="epsilon must be at least"):
        Certificate.from_json(json.dumps(fields)).verify()
    fields["parameters"]["repetitions"], fields["used"]["paid"] = 8, 101
    with pytest.raises(ArgumentError, match="paid must be a whole number of at most the max_answers 100"):
        Certificate.from_json(json.dumps(fields)).verify()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"repetitions": 1}, "repetitions must be an integer from 2 to 10000, got 1"),
        ({"repetitions": 2.5}, "repetitions must be an integer from 2 to 10000, got 2.5"),
        ({"session": {"mechanism": "private_selection"}}, "session must be the parameters of one mechanism"),
        ({"session": None}, "parameters must be a mapping, got None"),
        ({"session": {"mechanism": "gnmax", "scale": math.inf, "max_answers": 1}}, "parameters must be finite"),
    ],
)
def test_foreign_parameters_are_refused(changed, says):
    good = PrivateSelection(session=GNMax(scale=Fraction(90), max_answers=100), repetitions=3).to_dict()
    assert parameters_from_dict(good).repetitions == 3
    with pytest.raises(ArgumentError, match=says):
        parameters_from_dict({**good, **changed})


def test_a_budget_that_is_too_small_is_refused():
    with pytest.raises(ArgumentError, match="epsilon must be"):
        calibrate_selection("gnmax", epsilon=1e-3, delta=1e-9, repetitions=5000, num_queries=10)
