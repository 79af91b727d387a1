"""The cost of noisy scores: never less than the exact divergence of sums that move by several steps, and cheap twins."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from teacher_student import ArgumentError
from teacher_student.privacy import NoisyScores, calibrate, parameters_from_dict
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
    """Exhaustively, over all pairs of what it may say; for a vector and its opposite nothing less will do."""
    parameters = NoisyScores(num_classes=1, max_answers=entries, steps=steps, scale=Fraction(20))
    assert parameters.squared_norm == steps**2 * entries
    said = vectors(parameters.squared_norm, entries)
    moved = max(int(np.dot(one - other, one - other)) for one, other in itertools.product(said, repeat=2))
    assert moved == pytest.approx((parameters.mu / discrete_gaussian_mu(Fraction(20))) ** 2)


def test_a_twin_that_pays_for_the_vector_after_the_change_only_is_caught():
    """It takes |a - b|^2 <= squared_norm, as if the teacher had said nothing before."""
    squared_norm, scale = 9, Fraction(5)
    cheap = math.sqrt(squared_norm) * discrete_gaussian_mu(scale)
    assert any(divergence(5.0, (6,), epsilon) > 1.01 * gaussian_delta(cheap, epsilon) for epsilon in (0.0, 0.5, 1.0))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_calibration_spends_what_is_given_and_hardly_less(epsilon):
    found = calibrate("noisy_scores", epsilon=epsilon, delta=1e-5, num_queries=1000, num_classes=2)
    assert 0.999 * epsilon < found.epsilon(1e-5) <= epsilon
    assert parameters_from_dict(found.to_dict()) == found
    for changes in ({"max_answers": 2000}, {"num_classes": 4}, {"steps": 128}):
        assert dataclasses.replace(found, **changes).epsilon(1e-5) > 1.3 * epsilon


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_queries": 10}, "num_classes"),
        ({"num_classes": 2}, "num_queries"),
        ({"num_queries": 10, "num_classes": 2, "steps": 0}, "steps"),
        ({"num_queries": 10_000_000, "num_classes": 1_000_000}, "squared_norm"),
    ],
)
def test_bad_requests(options, message):
    with pytest.raises(ArgumentError, match=message):
        calibrate("noisy_scores", epsilon=1.0, delta=1e-5, **options)
