"""The textbook inequalities: hand-computed values, and learners that stay below them as often as stated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from research.theory import (
    agnostic_error,
    agnostic_sample_size,
    realizable_error,
    realizable_sample_size,
    threshold_error,
    uniform_deviation,
)
from research.theory.experiments import halfspaces, thresholds
from research.theory.pac import log_growth
from teacher_student import ArgumentError


def test_growth_function_by_hand():
    assert log_growth(5, 2) == pytest.approx(math.log(1 + 5 + 10))
    assert log_growth(3, 7) == pytest.approx(3 * math.log(2))
    assert log_growth(10**9, 1) == pytest.approx(math.log(10**9 + 1))


def test_realizable_error_by_hand():
    # 2 * (201 points on a line) * 2^(-a * 100 / 2) = 0.1
    assert realizable_error(100, 1, 0.1) == pytest.approx(2 * math.log2(2 * 201 / 0.1) / 100)
    size = realizable_sample_size(0.1, 0.05, 1)
    assert realizable_error(size, 1, 0.05) <= 0.1 < realizable_error(size - 1, 1, 0.05)
    assert threshold_error(100, 0.1) == pytest.approx(math.log(20) / 100)


def test_agnostic_error_by_hand():
    root = math.sqrt(8 * math.log(101) / 100)
    assert uniform_deviation(100, 1, 0.1) == pytest.approx(root + math.sqrt(math.log(20) / 200))
    assert agnostic_error(100, 1, 0.1) == pytest.approx(root + 2 * math.sqrt(math.log(20) / 200))
    size = agnostic_sample_size(0.2, 0.05, 3)
    assert agnostic_error(size, 3, 0.05) <= 0.2 < agnostic_error(size - 1, 3, 0.05)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_threshold_learners_stay_below_the_bounds(noise):
    task, generator = thresholds(noise), np.random.default_rng(5)
    excess = task.distance(task.fit(*task.draw(3000, 400, generator))) * (1 - 2 * noise)
    bound = agnostic_error(400, 1, 0.1) if noise else threshold_error(400, 0.1)
    assert (excess <= bound).mean() >= 0.9
    if not noise:
        assert threshold_error(400, 0.1) < realizable_error(400, 1, 0.1)
        assert (excess <= threshold_error(400, 0.1) / 4).mean() < 0.9  # the bound is not empty


def test_halfspace_learners_stay_below_the_realizable_bound():
    task, generator = halfspaces(3), np.random.default_rng(6)
    features, labels = task.draw(300, 200, generator)
    weights = task.fit(features, labels)
    assert ((np.einsum("rnd,rd->rn", features, weights) > 0) == labels).all(axis=1).mean() > 0.99  # consistent, as the bound asks
    assert (task.distance(weights) <= realizable_error(200, 3, 0.1)).mean() >= 0.9


def test_uniform_deviation_holds_for_all_thresholds_at_once():
    generator = np.random.default_rng(7)
    points = np.sort(generator.random((2000, 200)), axis=1)
    ranks = np.arange(1, 201) / 200
    deviation = np.maximum(np.abs(ranks - points), np.abs(ranks - 1 / 200 - points)).max(axis=1)
    assert (deviation <= uniform_deviation(200, 1, 0.1)).mean() >= 0.9


def test_bad_input_is_one_clear_line():
    with pytest.raises(ArgumentError, match="vc_dimension must be an integer from 1 to 10000000, got 0"):
        realizable_sample_size(0.1, 0.1, 0)
    with pytest.raises(ArgumentError, match="alpha must lie strictly between 0 and 1"):
        agnostic_sample_size(1.2, 0.1, 3)
