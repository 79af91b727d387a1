"""The costs of noisy fractions and scores: never less than the exact divergence of sums, and mutants that cost too little."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from teacher_student import ArgumentError
from teacher_student.privacy import Composition, GNMax, NoisyFraction, NoisyScores, calibrate, parameters_from_dict
from teacher_student.privacy.gaussian import discrete_gaussian_mu, gaussian_delta


def law(scale: float, shift: int, reach: int):
    grid = np.arange(-reach, reach + 1)
    weights = np.exp(-(((grid - shift) / scale) ** 2) / 2)
    return weights / weights.sum()


def divergence(scale: float, moves: tuple[int, ...], epsilon: float) -> float:
    """Return the exact hockey-stick divergence of sums that move by `moves`, up to mass beyond 12 scales."""
    reach = int(12 * scale) + max(map(abs, moves)) + 2
    p = q = np.ones(())
    for move in moves:
        p, q = np.multiply.outer(p, law(scale, 0, reach)), np.multiply.outer(q, law(scale, move, reach))
    return float(np.maximum(p - np.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize(("scale", "classes"), itertools.product((1.5, 4.0, 11.0), (1, 2, 5)))
def test_claim_covers_the_exact_divergence(scale, classes):
    parameters = NoisyFraction(num_classes=classes, max_answers=1, scale=Fraction(scale))
    for epsilon in (0.0, 0.2, 0.7, 1.5):
        assert divergence(scale, (1, -1)[:classes], epsilon) <= parameters.delta(epsilon) * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("scale", [1.5, 4.0, 11.0])
def test_a_mutant_that_pays_for_one_count_is_caught(scale):
    cheap = NoisyFraction(num_classes=1, max_answers=1, scale=Fraction(scale))
    assert any(divergence(scale, (1, -1), epsilon) > cheap.delta(epsilon) * 1.01 for epsilon in (0.0, 0.2, 0.7))


@pytest.mark.parametrize("scale", [4.0, 11.0])
def test_a_mutant_with_less_noise_is_caught(scale):
    claimed = NoisyFraction(num_classes=2, max_answers=1, scale=Fraction(scale))
    assert any(divergence(0.7 * scale, (1, -1), epsilon) > claimed.delta(epsilon) * 1.01 for epsilon in (0.0, 0.2, 0.7))


def test_costs_what_gnmax_costs():
    fractions = NoisyFraction(num_classes=3, max_answers=70, scale=Fraction(50))
    assert fractions.epsilon(1e-5) == GNMax(scale=Fraction(50), max_answers=70).epsilon(1e-5)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("mechanism", ["noisy_fraction", "noisy_scores"])
def test_calibration_spends_the_whole_budget(mechanism, epsilon):
    found = calibrate(mechanism, epsilon=epsilon, delta=1e-5, num_queries=1000, num_classes=2)
    assert 0.99 * epsilon < found.epsilon(1e-5) <= epsilon
    assert parameters_from_dict(found.to_dict()) == found
    smaller = dataclasses.replace(found, scale=found.scale - Fraction(1, 256))
    assert smaller.epsilon(1e-5) > epsilon * (1 - 1e-6)


def test_every_size_of_scores_costs():
    found = calibrate("noisy_scores", epsilon=1.0, delta=1e-5, num_queries=1000, num_classes=2)
    for changes in ({"max_answers": 2000}, {"num_classes": 4}, {"steps": 128}):
        assert dataclasses.replace(found, **changes).epsilon(1e-5) > 1.3


def test_fractions_compose():
    parameters = calibrate("noisy_fraction", epsilon=1.0, delta=1e-5, num_queries=10, num_classes=4)
    twice = Composition().add(parameters).add(parameters)
    assert parameters.epsilon(1e-5) < twice.epsilon(1e-5) < 2 * parameters.epsilon(5e-6)


def moved_counts(few: int, queries: int, classes: int) -> int:
    """Return the most counts that move, over all pairs of what one teacher may say: a class or nothing on each query."""
    says = [vote for vote in itertools.product(range(-1, classes), repeat=queries) if sum(label >= 0 for label in vote) <= few]
    tables = [np.array([[label == column for column in range(classes)] for label in vote]) for vote in says]
    return max(int((one != other).sum()) for one, other in itertools.product(tables, repeat=2))


@pytest.mark.parametrize(("few", "queries", "classes"), [(1, 4, 2), (2, 4, 2), (1, 3, 1), (2, 3, 1), (3, 3, 2), (2, 2, 3)])
def test_few_votes_pay_for_every_count_that_may_move(few, queries, classes):
    """Exhaustively. The mutant that pays for the votes after a change but not for those before pays for half."""
    scale = Fraction(20)
    paid = NoisyFraction(num_classes=classes, max_answers=queries, votes_per_teacher=few, scale=scale).mu
    one_count = NoisyFraction(num_classes=1, max_answers=1, scale=scale).mu
    assert paid**2 == pytest.approx(moved_counts(few, queries, classes) * one_count**2)


def test_few_votes_need_less_noise():
    few, every = (
        calibrate("noisy_fraction", epsilon=2.0, delta=1e-5, num_queries=400, num_classes=10, votes_per_teacher=votes)
        for votes in (4, None)
    )
    assert float(every.scale) == pytest.approx(10 * float(few.scale), rel=0.01)
    assert few.epsilon(1e-5) <= 2.0


def test_files_without_the_cap_are_those_of_earlier_versions():
    """An absent cap is the more expensive reading, so leaving the field out cannot hide anything."""
    plain = NoisyFraction(num_classes=2, max_answers=5, scale=Fraction(9))
    assert "votes_per_teacher" not in plain.to_dict()
    few = dataclasses.replace(plain, votes_per_teacher=2)
    assert parameters_from_dict(few.to_dict()) == few
    hidden = {name: value for name, value in few.to_dict().items() if name != "votes_per_teacher"}
    assert parameters_from_dict(hidden).epsilon(1e-5) > few.epsilon(1e-5)


@pytest.mark.parametrize(("scale", "moves"), itertools.product((1.0, 2.5, 6.0), ((2,), (5,), (1, -2), (3, 1), (-2, -2))))
def test_a_move_costs_its_length(scale, moves):
    mu = math.sqrt(sum(move * move for move in moves)) * discrete_gaussian_mu(Fraction(scale))
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        assert divergence(scale, moves, epsilon) <= gaussian_delta(mu, epsilon) * (1 + 1e-9) + 1e-14


def vectors(squared_norm: int, entries: int):
    most = math.isqrt(squared_norm)
    every = itertools.product(range(-most, most + 1), repeat=entries)
    return [np.array(vector) for vector in every if np.dot(vector, vector) <= squared_norm]


@pytest.mark.parametrize(("steps", "entries"), [(1, 1), (2, 1), (1, 2), (2, 2), (3, 2), (1, 3)])
def test_one_teacher_moves_no_more_than_is_paid(steps, entries):
    """Exhaustively, over all pairs of vectors; a vector and its opposite attain the bound."""
    parameters = NoisyScores(num_classes=1, max_answers=entries, steps=steps, scale=Fraction(20))
    assert parameters.squared_norm == steps**2 * entries
    said = vectors(parameters.squared_norm, entries)
    moved = max(int(np.dot(one - other, one - other)) for one, other in itertools.product(said, repeat=2))
    assert moved == pytest.approx((parameters.mu / discrete_gaussian_mu(Fraction(20))) ** 2)


def test_a_mutant_that_pays_for_the_vector_after_the_change_only_is_caught():
    """It assumes |a - b|^2 <= squared_norm, as if the teacher had said nothing before."""
    squared_norm, scale = 9, Fraction(5)
    cheap = math.sqrt(squared_norm) * discrete_gaussian_mu(scale)
    assert any(divergence(5.0, (6,), epsilon) > 1.01 * gaussian_delta(cheap, epsilon) for epsilon in (0.0, 0.5, 1.0))


@pytest.mark.parametrize(
    ("mechanism", "options", "message"),
    [
        ("noisy_fraction", {"num_queries": 10}, "num_classes"),
        ("noisy_fraction", {"num_queries": 0, "num_classes": 2}, "num_queries"),
        ("noisy_fraction", {"num_classes": 2}, "num_queries"),
        ("noisy_fraction", {"num_queries": 10, "num_classes": 2, "threshold": 3}, "threshold"),
        ("noisy_fraction", {"num_queries": 10, "num_classes": 2, "votes_per_teacher": 0}, "votes_per_teacher"),
        ("noisy_scores", {"num_queries": 10}, "num_classes"),
        ("noisy_scores", {"num_classes": 2}, "num_queries"),
        ("noisy_scores", {"num_queries": 10, "num_classes": 2, "steps": 0}, "steps"),
        ("noisy_scores", {"num_queries": 10_000_000, "num_classes": 1_000_000}, "squared_norm"),
    ],
)
def test_bad_requests(mechanism, options, message):
    with pytest.raises(ArgumentError, match=message):
        calibrate(mechanism, epsilon=1.0, delta=1e-5, **options)
