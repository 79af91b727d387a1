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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_queries": 10}, "num_classes"),
        ({"num_queries": 0, "num_classes": 2}, "num_queries"),
        ({"num_classes": 2}, "num_queries"),
        ({"num_queries": 10, "num_classes": 2, "threshold": 3}, "threshold"),
    ],
)
def test_bad_requests(options, message):
    with pytest.raises(ArgumentError, match=message):
        calibrate("noisy_fraction", epsilon=1.0, delta=1e-5, **options)
