"""The planner: expectations against simulated sessions, choices, and the printed plan."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.labels import HALTED
from teacher_student.mechanisms import GeneratorNoise, build_mechanism
from teacher_student.planning.report import plan
from teacher_student.planning.request import Request, choose_cutoff, choose_parameters
from teacher_student.privacy import (
    MECHANISMS,
    ConfidentGNMax,
    Exponential,
    GNMax,
    LNMax,
    Parameters,
    Stability,
    StabilityRedraw,
)
from teacher_student.privacy.winning import expected_minimum

SIZES: dict[str, Any] = {"num_teachers": 400, "num_queries": 1000, "epsilon": 1.0, "delta": 1e-5}

SESSIONS: list[Parameters] = [
    Stability(threshold_scale=Fraction(8), query_scale=Fraction(15), threshold=33, cutoff=6),
    StabilityRedraw(threshold_scale=Fraction(5), query_scale=Fraction(10), threshold=60, cutoff=4),
    GNMax(scale=Fraction(90), max_answers=100),
    ConfidentGNMax(threshold=250, threshold_scale=Fraction(60), query_scale=Fraction(90), num_queries=180, max_answers=100),
    LNMax(scale=Fraction(60), max_answers=100),
    Exponential(scale=Fraction(60), max_answers=100),
]


def simulate(parameters: Parameters, unstable: float, gap: int, num_teachers: int, num_queries: int, runs: int) -> np.ndarray:
    """Answers and agreeing answers of `runs` sessions: shape (runs, 2)."""
    generator = np.random.default_rng(5)
    noise, mechanism = GeneratorNoise(generator), build_mechanism(parameters)
    clear = [(num_teachers + gap) // 2, (num_teachers - gap) // 2]
    found = []
    for _ in range(runs):
        tied = generator.random(num_queries) < unstable
        counts = np.where(tied[:, None], num_teachers // 2, clear)
        labels, _ = mechanism.answer(counts, mechanism.start(noise), noise)
        found.append([(labels >= 0).sum(), (labels == 0).sum()])
    return np.array(found)


@pytest.mark.parametrize("parameters", SESSIONS, ids=lambda p: p.mechanism)
@pytest.mark.parametrize(("unstable", "gap"), [(0.05, 360), (0.3, 360), (0.05, 260)])
def test_expected_answers_are_those_of_simulated_sessions(parameters: Parameters, unstable: float, gap: int) -> None:
    """Within five standard errors of 200 sessions and 2 % (resampled thresholds are treated as independent of each other)."""
    found = simulate(parameters, unstable, gap, 400, 250, 200)
    request = Request(num_teachers=400, num_queries=250, epsilon=1.0, delta=1e-5, clear_share=gap / 400)
    wanted = request.expected(parameters, unstable)[:2]
    error = 5 * found.std(axis=0) / math.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0) - wanted) <= error + 0.02 * np.array(wanted) + 0.05)


@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("parameters", [SESSIONS[0], SESSIONS[2], SESSIONS[4], SESSIONS[5]], ids=lambda p: p.mechanism)
def test_smallest_gap_is_answered_as_often_as_it_says(parameters: Parameters, num_classes: int) -> None:
    request = Request(num_teachers=1000, num_queries=1, epsilon=1.0, delta=1e-5, failure=0.1, num_classes=num_classes)
    gap = request.smallest_gap(parameters)
    noise, mechanism = GeneratorNoise(np.random.default_rng(6)), build_mechanism(parameters)
    counts = np.array([[gap + 10, *[10] * (num_classes - 1)]])
    rows = np.repeat(counts, 4, axis=0)
    right = [(mechanism.answer(rows[:1], mechanism.start(noise), noise)[0] == 0).all() for _ in range(1500)]
    assert 0.9 - 0.04 < np.mean(right) < 0.9 + 0.05
    assert request.correct(parameters, gap) >= 0.9
    assert request.correct(parameters, gap - 2) < 0.9


def test_expected_minimum_by_summation() -> None:
    chance, trials = 0.3, 7
    mass = [math.comb(trials, n) * chance**n * (1 - chance) ** (trials - n) for n in range(trials + 1)]
    for most in (1, 3, 7, 9):
        wanted = sum(min(most, n) * weight for n, weight in enumerate(mass))
        assert expected_minimum(most, trials, np.array([chance]))[0] == pytest.approx(wanted)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_chosen_parameters_keep_to_the_request(mechanism: str) -> None:
    request = Request(**SIZES)
    parameters = choose_parameters(mechanism, request)
    assert parameters.epsilon(request.delta) <= request.epsilon
    if mechanism in ("gnmax", "lnmax", "exponential"):
        assert request.smallest_gap(parameters) <= request.clear_gap


def test_a_chosen_cutoff_beats_its_neighbours_far_off() -> None:
    request = Request(**SIZES)
    chosen = choose_cutoff("stability", request)
    worth = {cutoff: request.worth(request.calibrate("stability", cutoff=cutoff)) for cutoff in (1, chosen, 4 * chosen)}
    assert max(worth, key=lambda cutoff: worth[cutoff]) == chosen


def test_a_guess_of_few_unstable_queries_chooses_a_smaller_cutoff() -> None:
    sizes = {**SIZES, "num_queries": 300}
    few, many = (choose_cutoff("stability", Request(**sizes, shares=(share,))) for share in (0.002, 0.3))
    assert few < many
    assert choose_cutoff("gnmax", Request(**SIZES)) == choose_parameters("gnmax", Request(**SIZES)).to_dict()["max_answers"]


@pytest.fixture(scope="module")
def whole() -> Any:
    return plan(**SIZES)


def test_a_plan_has_a_row_for_each_mechanism(whole: Any) -> None:
    assert {row.mechanism for row in whole.table} | set(whole.infeasible) == set(MECHANISMS)
    for row in whole.table:
        assert row.parameters.epsilon(1e-5) <= 1.0
        assert list(row.expected_answers) == [0.001, 0.01, 0.1, 0.3]
        assert all(0 <= row.expected_agreeing[share] <= row.expected_answers[share] <= 1000 for share in row.expected_answers)


def test_a_plan_in_words(whole: Any) -> None:
    text = str(whole)
    assert "400 teachers, 1,000 queries, 2 classes, epsilon 1, delta 1e-05" in text
    assert all(row.mechanism in text for row in whole.table)
    assert "(too many)" in text  # the printed calibration needs more teachers than there are
    best = whole.best(0.001)
    assert f"If the teachers are split on 0.1% of the queries, take {best.mechanism}:" in whole.recommendation
    assert max(map(len, text.splitlines())) < 160


def test_with_rare_unstable_queries_stability_is_taken_and_with_many_a_noisy_maximum() -> None:
    found = plan(2000, 10_000, 1.0, 1e-5, mechanisms=["stability", "gnmax"], failure=0.001, shares=[0.01, 0.3])
    assert found.best(0.01).mechanism == "stability"  # type: ignore[union-attr]
    assert found.best(0.3).mechanism == "gnmax"  # type: ignore[union-attr]


def test_nothing_useful_is_said_plainly_with_the_teachers_needed() -> None:
    found = plan(num_teachers=10, num_queries=100, epsilon=0.5, delta=1e-6, mechanisms=["gnmax", "stability"])
    assert found.recommendation.startswith("Nothing useful is possible with 10 teachers at epsilon 0.5, delta 1e-06")
    needed = {row.mechanism: row.teachers_needed for row in found.table}
    assert f"gnmax {needed['gnmax']:,}, stability {needed['stability']:,}" in found.recommendation
    enough = plan(num_teachers=needed["gnmax"], num_queries=100, epsilon=0.5, delta=1e-6, mechanisms=["gnmax"], clear_share=1.0)
    assert "take gnmax: about 1 of 100 labels" in enough.recommendation


def test_given_cutoffs_make_a_row_each() -> None:
    found = plan(**SIZES, mechanisms=["stability", "gnmax"], cutoffs=[2, 5])
    assert [row.limit for row in found.table[:2]] == ["2 abstentions", "5 abstentions"]
    assert len(found.table) == 3


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"num_teachers": 0}, "num_teachers must be a positive integer, got 0"),
        ({"num_queries": 2.5}, "num_queries must be a positive integer, got 2.5"),
        ({"epsilon": -1}, "epsilon must be a number above 0, got -1"),
        ({"delta": 1}, "delta must lie strictly between 0 and 1, got 1"),
        ({"failure": 0}, "failure must lie strictly between 0 and 1, got 0"),
        ({"num_classes": 1}, "num_classes must be an integer of at least 2, got 1"),
        ({"clear_share": 0}, "clear_share must be above 0, got 0"),
        ({"shares": []}, "shares must hold at least one share"),
        ({"shares": [2.0]}, "shares must lie between 0 and 1, got 2.0"),
        ({"mechanisms": ["gmax"]}, "mechanism must be one of"),
        ({"cutoffs": [0], "mechanisms": ["stability"]}, "cutoffs must be a positive integer, got 0"),
    ],
)
def test_bad_sizes_get_one_clear_line(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        plan(**{**SIZES, **changed})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_plan_is_a_function_of_public_sizes() -> None:
    """The same sizes give the same plan."""
    sizes = {**SIZES, "mechanisms": ["gnmax"]}
    assert str(plan(**sizes)) == str(plan(**sizes))
    assert HALTED not in plan(**sizes).table[0].expected_answers
