"""Theorems kstabUtil, spAcc, spAcc1 and utilitySubAgg: hand-computed values, and the stated events in simulation."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from research.theory import (
    distance_answered,
    num_teachers,
    online_release_distance,
    sparse_vector_margin,
    stability_test_distance,
)
from research.theory.release_utility import online_release_scale
from teacher_student import ArgumentError

RUNS = 4000


def share_answered(margin: float, scale: float, num_queries: int, cutoff: int, generator: np.random.Generator) -> float:
    """Share of sessions that answer all queries at `margin` above the threshold, T - 1 others abstaining in between.

    The other queries end a run each: the session then draws `cutoff` thresholds, one for each run of stable queries.
    """
    thresholds = generator.laplace(scale=scale, size=(RUNS, cutoff))
    run = np.sort(generator.integers(cutoff, size=(RUNS, num_queries)), axis=1)
    noise = generator.laplace(scale=2 * scale, size=(RUNS, num_queries))
    return float((margin + noise > np.take_along_axis(thresholds, run, axis=1)).all(axis=1).mean())


def test_distance_of_the_single_test_by_hand_and_in_simulation():
    bound = stability_test_distance(2.0, 1e-3, 0.1)
    assert bound.value == pytest.approx((math.log(1000) + math.log(10)) / 2)
    assert bound.sharp == pytest.approx((math.log(1000) + math.log(5)) / 2)
    noise = np.random.default_rng(0).laplace(scale=0.5, size=200_000)
    threshold = math.log(1000) / 2
    assert (bound.value + noise > threshold).mean() >= 0.9
    assert (bound.sharp + noise > threshold).mean() == pytest.approx(0.9, abs=0.004)  # exactly beta: nothing is left to gain


def test_sparse_vector_margin_by_hand_and_in_simulation():
    bound = sparse_vector_margin(1.0, 1e-4, 50, 4, 0.1)
    scale = math.sqrt(32 * 4 * math.log(1e4))
    assert bound.value == pytest.approx(4 * scale * math.log(2 * 50 * 4 / 0.1))
    assert bound.printed == pytest.approx(math.log(4000) * math.sqrt(512 * 4 * math.log(1e4)))
    assert bound.sharp == pytest.approx(scale * (2 * math.log(500) + math.log(40)))
    generator = np.random.default_rng(1)
    assert share_answered(bound.value, scale, 50, 4, generator) >= 0.9
    assert share_answered(bound.sharp, scale, 50, 4, generator) >= 0.9
    assert share_answered(bound.sharp / 2, scale, 50, 4, generator) < 0.9  # the simulation can fail


def test_online_release_distance_by_hand_and_in_simulation():
    bound = online_release_distance(1.0, 1e-5, 1000, 50, 0.05)
    scale = online_release_scale(1.0, 1e-5, 50)
    assert scale == pytest.approx(math.sqrt(1600 * math.log(2e5)))
    threshold = 2 * scale * math.log(2e8)
    assert bound.value == pytest.approx(threshold + 4 * scale * math.log(2e6))
    assert bound.printed == pytest.approx(8 * scale * math.log(2e10))
    assert bound.sharp < bound.value < bound.printed
    generator = np.random.default_rng(2)
    assert share_answered(bound.sharp - threshold, scale, 200, 50, generator) >= 0.95


def test_number_of_teachers_is_the_reference_value_and_answers_every_stable_query():
    bound = num_teachers(1.0, 1e-5, 1000, 50, 0.05)
    assert bound.value == 83047  # the privacy page's reference value
    generator, scale = np.random.default_rng(3), online_release_scale(1.0, 1e-5, 50)
    for teachers in (bound.value, int(bound.sharp)):
        votes = generator.binomial(int(teachers), 0.75, size=(RUNS, 200))
        gap = 2 * votes - int(teachers)
        distance = np.maximum(np.ceil(gap / 2) - 1, 0).min(axis=1)
        noise = generator.laplace(scale=2 * scale, size=(RUNS, 200)).min(axis=1)
        high = generator.laplace(scale=scale, size=(RUNS, 50)).max(axis=1)  # worse than any order of the runs
        assert (distance + noise > 2 * scale * math.log(2e8) + high).mean() >= 0.95


def test_sampling_term_takes_over_when_epsilon_is_large():
    bound = num_teachers(1e6, 1e-5, 1000, 50, 0.05)
    assert bound.value == math.ceil(72 * math.log(2000 / 0.05))
    assert bound.printed < 1  # what the print asks for cannot hold


def test_distance_of_the_default_mechanism_is_exact():
    parameters = SimpleNamespace(threshold_scale=3.0, query_scale=10.0, threshold=12)
    answered = distance_answered(parameters, 100, 0.05)
    generator = np.random.default_rng(4)
    grid = np.arange(-60, 61)
    weight = np.exp(-(grid**2) / 18.0)
    threshold = 12 + generator.choice(grid, p=weight / weight.sum(), size=40_000)
    success = -math.expm1(-1 / 10)
    noise = np.max(generator.geometric(success, (2, 40_000, 100)).sum(axis=0) - 2, axis=1)
    share = {distance: float((distance - noise > threshold).mean()) for distance in (answered - 4, answered)}
    assert share[answered] >= 0.95 - 0.003
    assert share[answered - 4] < 0.95
    assert distance_answered(parameters, 1, 0.05) < answered


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: num_teachers(0, 1e-5, 10, 5, 0.1), "epsilon must be a number above 0, got 0"),
        (lambda: num_teachers(1, 1e-5, 10, 0, 0.1), "cutoff must be a positive integer, got 0"),
        (lambda: sparse_vector_margin(1, 2, 10, 5, 0.1), "delta must lie strictly between 0 and 1, got 2"),
        (lambda: online_release_distance(1, 1e-5, 10, 5, 1.5), "failure must lie strictly between 0 and 1, got 1.5"),
    ],
)
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
