"""Choosing teachers and mechanism on public stand-ins: expectations against simulated sessions, and the ranking."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from teacher_student.app import dispatch
from teacher_student.arguments import ArgumentError
from teacher_student.mechanisms import GeneratorNoise, build_mechanism
from teacher_student.planning.request import Request, choose_parameters
from teacher_student.planning.search import PublicVotes, choose
from teacher_student.privacy import ConfidentGNMax, Exponential, GNMax, LNMax, Parameters, Stability, StabilityRedraw

SESSIONS: list[Parameters] = [
    Stability(threshold_scale=Fraction(8), query_scale=Fraction(15), threshold=33, cutoff=6),
    StabilityRedraw(threshold_scale=Fraction(5), query_scale=Fraction(10), threshold=60, cutoff=4),
    GNMax(scale=Fraction(90), max_answers=100),
    ConfidentGNMax(threshold=250, threshold_scale=Fraction(60), query_scale=Fraction(90), num_queries=180, max_answers=100),
    LNMax(scale=Fraction(60), max_answers=100),
    Exponential(scale=Fraction(60), max_answers=100),
]


def votes(num_teachers: int, rows: int = 300, num_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Counts of teachers who are right with a probability that differs from query to query, and the truth."""
    generator = np.random.default_rng(seed)
    truth, sure = generator.integers(num_classes, size=rows), generator.beta(6, 1, size=rows)
    shares = np.full((rows, num_classes), 1.0) * ((1 - sure) / (num_classes - 1))[:, None]
    shares[np.arange(rows), truth] = sure
    return generator.multinomial(num_teachers, shares), truth


@pytest.mark.parametrize("mechanism", ["stability", "stability_redraw", "gnmax", "confident_gnmax", "exponential"])
def test_a_clear_gap_and_a_share_of_ties_are_two_rows_of_public_votes(mechanism: str) -> None:
    request = Request(num_teachers=400, num_queries=300, epsilon=2.0, delta=1e-5)
    parameters = choose_parameters(mechanism, request)
    modelled = request.expected(parameters, unstable=0.25)
    assert modelled[:2] == pytest.approx(PublicVotes([[380, 20]] * 3 + [[200, 200]]).expected(parameters, 300)[:2], rel=1e-6)


@pytest.mark.parametrize("parameters", SESSIONS, ids=lambda p: p.mechanism)
def test_outlooks_are_those_of_simulated_sessions(parameters: Parameters) -> None:
    """Queries drawn from the stand-in's rows; within five standard errors of 120 sessions and 3 %."""
    counts, truth = votes(400)
    generator = np.random.default_rng(5)
    noise, mechanism = GeneratorNoise(generator), build_mechanism(parameters)
    found = []
    for _ in range(120):
        rows = generator.integers(len(counts), size=250)
        labels, _ = mechanism.answer(counts[rows], mechanism.start(noise), noise)
        found.append([(labels >= 0).sum(), (labels == counts[rows].argmax(1)).sum(), (labels == truth[rows]).sum()])
    wanted = np.array(PublicVotes(counts, truth).expected(parameters, 250))
    error = 5 * np.std(found, axis=0) / math.sqrt(len(found))
    assert np.all(np.abs(np.mean(found, axis=0) - wanted) <= error + 0.03 * wanted + 0.05)


def test_every_choice_keeps_to_the_budget_and_the_best_comes_first() -> None:
    tables = [votes(number)[0] for number in (100, 600)]
    found = choose(tables, num_queries=300, epsilon=1.0, delta=1e-5, mechanisms=["stability", "gnmax", "exponential"])
    assert {choice.num_teachers for choice in found.ranked} == {100, 600}
    assert found.ranked[0].num_teachers == 600
    worth = [choice.worth for choice in found.ranked]
    assert worth == sorted(worth, reverse=True)
    for choice in found.ranked:
        assert choice.parameters.epsilon(1e-5) <= 1.0
        assert choice.outlook.agreeing >= 0.9 * choice.outlook.answers
    assert f"Take 600 teachers and {found.ranked[0].parameters.mechanism}" in str(found)


def test_the_truth_ranks_by_labels_that_are_right() -> None:
    """More teachers agree more, but here they agree on a wrong class for half of the queries."""
    few, truth = votes(300)
    many, _ = votes(900)
    many[::2] = np.roll(votes(900)[0][::2], 1, axis=1)
    options = {"num_queries": 100, "epsilon": 1.0, "delta": 1e-5, "mechanisms": ["gnmax"]}
    assert choose([few, many], **options).ranked[0].num_teachers == 900
    assert choose([few, many], truth=truth, **options).ranked[0].num_teachers == 300


def test_fewer_wrong_labels_are_bought_with_fewer_answers() -> None:
    table, _ = votes(200)
    options = {"num_queries": 2000, "epsilon": 1.0, "delta": 1e-5, "mechanisms": ["gnmax"]}
    strict, lax = (choose([table], wrong=wrong, **options).ranked[0].outlook for wrong in (0.05, 0.3))
    assert strict.answers < lax.answers
    assert strict.agreeing / strict.answers > lax.agreeing / lax.answers


def test_nothing_useful_is_said_plainly() -> None:
    found = choose([votes(5)[0]], num_queries=50, epsilon=0.1, delta=1e-6, mechanisms=["stability", "gnmax"])
    assert found.ranked == ()
    assert str(found).startswith("Nothing useful is possible")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"standins": []}, "standin must name at least one table of votes, got none"),
        ({"standins": [[[5], [4]]]}, "standin must have a column for each of two or more classes, got 1"),
        ({"standins": [[[5, -1]]]}, "standin must not be negative, got -1"),
        ({"truth": [0]}, "truth must hold a class below 2 for each of 2 rows, got 1"),
        ({"truth": [0, 2]}, "truth must hold a class below 2"),
        ({"num_queries": 0}, "num_queries must be a positive integer, got 0"),
        ({"wrong": 2}, "wrong must lie between 0 and 1, got 2"),
        ({"mechanisms": ["gmax"]}, "mechanism must be one of"),
        ({"epsilon": 0}, "epsilon must be a number above 0, got 0"),
    ],
)
def test_bad_input_gets_one_clear_line(changed, says) -> None:
    good = {"standins": [[[90, 10], [20, 80]]], "num_queries": 10, "epsilon": 1.0, "delta": 1e-5, "mechanisms": ["gnmax"]}
    with pytest.raises(ArgumentError, match=says) as caught:
        choose(**{**good, **changed})
    assert "\n" not in str(caught.value)


def test_the_command_reads_a_file_for_each_number_of_teachers(tmp_path, capsys) -> None:
    paths = []
    for number in (60, 200):
        paths.append(str(tmp_path / f"{number}.npy"))
        np.save(paths[-1], votes(number, rows=40)[0])
    assert dispatch(["plan", f"standin=[{','.join(paths)}]", "num_queries=20", "privacy.epsilon=2"]) == 0
    printed = capsys.readouterr().out
    assert "Take 200 teachers" in printed
    assert dispatch(["plan", "standin=missing.npy"]) == 2
    assert "missing.npy" in capsys.readouterr().err
