"""The cost of noisy fractions: that of GNMax, never less than the exact divergence, and twins that cost too little."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest

from teacher_student import ArgumentError
from teacher_student.privacy import Composition, GNMax, NoisyFraction, calibrate, parameters_from_dict


def divergence(scale: float, moved: int, epsilon: float) -> float:
    """Return the exact hockey-stick divergence of one answer in which `moved` counts move by one, in opposite directions."""
    grid = np.arange(-int(12 * scale) - 2, int(12 * scale) + 3)
    law = np.exp(-((grid / scale) ** 2) / 2)
    law /= law.sum()
    up, down = np.append(law[1:], 0), np.insert(law[:-1], 0, 0)
    here = [law] * moved
    there = [up, down][:moved]
    p = here[0] if moved == 1 else np.multiply.outer(*here)
    q = there[0] if moved == 1 else np.multiply.outer(*there)
    return float(np.maximum(p - np.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize(("scale", "classes"), itertools.product((1.5, 4.0, 11.0), (1, 2, 5)))
def test_claim_covers_the_exact_divergence(scale, classes):
    parameters = NoisyFraction(num_classes=classes, max_answers=1, scale=Fraction(scale))
    for epsilon in (0.0, 0.2, 0.7, 1.5):
        assert divergence(scale, min(2, classes), epsilon) <= parameters.delta(epsilon) * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("scale", [1.5, 4.0, 11.0])
def test_a_twin_that_pays_for_one_count_is_caught(scale):
    cheap = NoisyFraction(num_classes=1, max_answers=1, scale=Fraction(scale))
    assert any(divergence(scale, 2, epsilon) > cheap.delta(epsilon) * 1.01 for epsilon in (0.0, 0.2, 0.7))


@pytest.mark.parametrize("scale", [4.0, 11.0])
def test_a_twin_with_less_noise_is_caught(scale):
    claimed = NoisyFraction(num_classes=2, max_answers=1, scale=Fraction(scale))
    assert any(divergence(0.7 * scale, 2, epsilon) > claimed.delta(epsilon) * 1.01 for epsilon in (0.0, 0.2, 0.7))


def test_costs_what_gnmax_costs():
    fractions = NoisyFraction(num_classes=3, max_answers=70, scale=Fraction(50))
    assert fractions.epsilon(1e-5) == GNMax(scale=Fraction(50), max_answers=70).epsilon(1e-5)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_calibration_spends_what_is_given_and_hardly_less(epsilon):
    found = calibrate("noisy_fraction", epsilon=epsilon, delta=1e-5, num_queries=1000, num_classes=2)
    assert 0.99 * epsilon < found.epsilon(1e-5) <= epsilon
    smaller = dataclasses.replace(found, scale=found.scale - Fraction(1, 256))
    assert smaller.epsilon(1e-5) > epsilon * (1 - 1e-6)


def test_composes_and_survives_json():
    parameters = calibrate("noisy_fraction", epsilon=1.0, delta=1e-5, num_queries=10, num_classes=4)
    assert parameters_from_dict(parameters.to_dict()) == parameters
    twice = Composition().add(parameters).add(parameters)
    assert parameters.epsilon(1e-5) < twice.epsilon(1e-5) < 2 * parameters.epsilon(5e-6)


def moved_counts(few: int, queries: int, classes: int) -> int:
    """Return the most counts that move, over all pairs of what one teacher may say: a class or nothing on each query."""
    says = [vote for vote in itertools.product(range(-1, classes), repeat=queries) if sum(label >= 0 for label in vote) <= few]
    tables = [np.array([[label == column for column in range(classes)] for label in vote]) for vote in says]
    return max(int((one != other).sum()) for one, other in itertools.product(tables, repeat=2))


@pytest.mark.parametrize(("few", "queries", "classes"), [(1, 4, 2), (2, 4, 2), (1, 3, 1), (2, 3, 1), (3, 3, 2), (2, 2, 3)])
def test_few_votes_pay_for_every_count_that_may_move(few, queries, classes):
    """Exhaustively. The twin that pays for the votes after a change, and not for those before, pays for half."""
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


def test_files_without_the_cap_are_those_of_before():
    """An absent cap is the dearer reading, so that a field left out can hide nothing."""
    plain = NoisyFraction(num_classes=2, max_answers=5, scale=Fraction(9))
    assert "votes_per_teacher" not in plain.to_dict()
    few = dataclasses.replace(plain, votes_per_teacher=2)
    assert parameters_from_dict(few.to_dict()) == few
    hidden = {name: value for name, value in few.to_dict().items() if name != "votes_per_teacher"}
    assert parameters_from_dict(hidden).epsilon(1e-5) > few.epsilon(1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_queries": 10}, "num_classes"),
        ({"num_queries": 0, "num_classes": 2}, "num_queries"),
        ({"num_classes": 2}, "num_queries"),
        ({"num_queries": 10, "num_classes": 2, "threshold": 3}, "threshold"),
        ({"num_queries": 10, "num_classes": 2, "votes_per_teacher": 0}, "votes_per_teacher"),
    ],
)
def test_bad_requests(options, message):
    with pytest.raises(ArgumentError, match=message):
        calibrate("noisy_fraction", epsilon=1.0, delta=1e-5, **options)
