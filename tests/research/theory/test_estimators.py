"""Estimators against learners whose stability, quality and consistency are known in closed form, and the theorem on SGD."""

from __future__ import annotations

import math

import numpy as np
import pytest

from research.theory import (
    consistency_of_randomization,
    loglog_slope,
    mean_score,
    on_average_stability,
    one_pass_stability,
    share_beyond,
    strong_quality,
    strongly_convex_constant_step,
    weak_quality,
)
from research.theory.example import (
    draw_example,
    label_noise,
    label_probability,
    logistic_learner,
    lucky_learner,
    permuted_sgd_learner,
    sgd_learner,
    with_constant,
)
from research.theory.gradient_descent import decaying_steps, score_stability
from research.theory.learners import fit_logistic

QUERY = np.array([[0.7, 0.7]])


def coins(num_datasets, num_examples, generator):
    """Features that mean nothing and labels that are 1 with probability 0.9."""
    shape = (num_datasets, num_examples)
    return generator.random((*shape, 1)), (generator.random(shape) < 0.9).astype(np.int64)


def average_learner(features, labels, seeds):
    """Score = share of ones: alpha = sqrt(2 p (1 - p)) / n exactly."""
    return lambda queries: np.repeat(labels.mean(axis=1)[:, None], len(queries), axis=1)


def in_a_ball(num_datasets, num_examples, generator):
    """Features of norm at most 1, logistic labels."""
    features = generator.uniform(-1, 1, (num_datasets, num_examples, 2)) / math.sqrt(2)
    return features, (generator.random((num_datasets, num_examples)) < 1 / (1 + np.exp(-4 * features[..., 0]))).astype(np.int64)


def test_on_average_stability_of_the_average_is_known():
    inside = 0
    for seed in range(20):
        estimate = on_average_stability(
            average_learner, coins, QUERY, num_examples=20, num_pairs=3000, generator=np.random.default_rng(seed), confidence=0.99
        )
        exact = math.sqrt(2 * 0.9 * 0.1) / 20
        assert estimate.worst == pytest.approx(exact, rel=0.1)
        inside += bool(estimate.lower[0] <= exact <= estimate.upper[0])
    assert inside >= 18


def test_weak_and_strong_quality_of_the_average_are_known():
    options = {"num_examples": 20, "num_datasets": 4000, "generator": np.random.default_rng(0), "confidence": 0.999}
    weak = weak_quality(mean_score(average_learner, coins, QUERY, **options))
    assert weak.lower[0] <= 0.1 <= weak.upper[0]
    strong = strong_quality(average_learner, coins, QUERY, quality=0.1, **options)
    exact = sum(math.comb(20, ones) * 0.9**ones * 0.1 ** (20 - ones) for ones in (0, 1, 2, 18, 19, 20))
    assert strong.lower[0] <= exact <= strong.upper[0]
    edges = share_beyond(np.array([[0.0, np.nan], [1.0, 0.5]]), 0.1)
    assert edges.value.tolist() == [1.0, 0.0]
    assert edges.upper[0] == 1.0
    assert edges.lower[1] == 0.0


def test_interval_of_weak_quality_crosses_one_half():
    estimate = mean_score(average_learner, coins, QUERY, num_examples=1, num_datasets=4, generator=np.random.default_rng(2))
    assert weak_quality(estimate).upper[0] <= 0.5


def test_permuted_descent_has_consistent_randomization_and_tilted_descent_has_not():
    steps = np.full(30, 0.5)
    options = {"num_examples": 30, "num_coins": 6, "num_datasets": 400}
    fair = consistency_of_randomization(
        permuted_sgd_learner(steps), in_a_ball, QUERY, generator=np.random.default_rng(1), **options
    )
    assert fair.p_value[0] > 1e-3
    tilted = consistency_of_randomization(
        lucky_learner(sgd_learner(steps)), in_a_ball, QUERY, generator=np.random.default_rng(1), **options
    )
    assert tilted.p_value[0] < 1e-9
    assert tilted.spread[0] > 3 * fair.spread[0]


def test_deterministic_constant_learner_is_consistent():
    constant = lambda features, labels, seeds: lambda queries: np.full((len(labels), len(queries)), 0.5)  # noqa: E731
    result = consistency_of_randomization(
        constant, coins, QUERY, num_examples=3, num_coins=2, num_datasets=5, generator=np.random.default_rng(0)
    )
    assert result.p_value[0] == 1


def test_one_pass_stability_by_hand():
    bound = one_pass_stability(np.array([0.5, 0.5]), 1.0, 1.0)  # moves 2 * 0.5 * 0.5 and 2 * 0.5
    assert bound.value == pytest.approx(math.sqrt((0.25 + 1) / 2))
    assert bound.printed == pytest.approx(0.75)
    closed = strongly_convex_constant_step(2000, 0.1, 1.0, 0.5)
    numeric = one_pass_stability(np.full(2000, 0.1), 1.0, 0.5)
    assert (closed.value, closed.printed) == (pytest.approx(numeric.value, rel=1e-6), pytest.approx(numeric.printed, rel=1e-6))
    assert one_pass_stability(decaying_steps(100, 0.5, 1.5), 1.0, 0.5).value == pytest.approx(2 / (0.5 * 103))


@pytest.mark.parametrize(("decaying", "exponent"), [(True, -1.0), (False, -0.5)])
def test_stability_of_descent_is_below_its_bound_with_its_exponent(decaying, exponent):
    sizes, ridge, measured = [50, 200, 800], 0.2, []
    for size in sizes:
        steps = decaying_steps(size, ridge, 0.25 + ridge) if decaying else np.full(size, 0.5)
        estimate = on_average_stability(
            sgd_learner(steps, ridge), in_a_ball, QUERY, num_examples=size, num_pairs=1500, generator=np.random.default_rng(size)
        )
        bound = one_pass_stability(steps, 1.0, ridge)
        assert estimate.upper[0] <= score_stability(bound.value, 1.0)
        measured.append(estimate.worst)
    assert loglog_slope(sizes, measured).slope == pytest.approx(exponent, abs=0.12)


def test_theorem_sgd_one_fixed_order_is_as_stable_as_a_random_one():
    steps = np.full(40, 0.5)
    fixed, permuted = (
        on_average_stability(
            learner, in_a_ball, QUERY, num_examples=40, num_pairs=4000, generator=np.random.default_rng(3), confidence=0.999
        )
        for learner in (sgd_learner(steps, 0.2), permuted_sgd_learner(steps, 0.2))
    )
    assert fixed.lower[0] <= permuted.upper[0]
    assert permuted.lower[0] <= fixed.upper[0]


def test_the_papers_example():
    assert label_noise().value == pytest.approx(0.5 * math.erfc(2), rel=1e-9)  # Phi(-sqrt 8)
    assert label_probability(np.array([1.0]))[0] == pytest.approx(1 - label_noise().value)
    features, labels = draw_example(1, 50_000, np.random.default_rng(5))
    assert np.abs(features[..., 1]).min() >= 1
    flipped = np.mean(labels != (features[..., 1] > 0))
    assert 0 < flipped < label_noise().value
    queries = with_constant(np.array([-1.5, 1.5]))
    mean = mean_score(
        logistic_learner(0.01), draw_example, queries, num_examples=200, num_datasets=200, generator=np.random.default_rng(6)
    )
    assert weak_quality(mean).upper.max() < 0.1


def test_stacked_logistic_regression_is_at_its_optimum_for_every_dataset():
    features, labels = in_a_ball(5, 100, np.random.default_rng(7))
    weights = fit_logistic(features, labels, ridge=0.01)
    scores = 1 / (1 + np.exp(-np.einsum("rnd,rd->rn", features, weights)))
    gradient = np.einsum("rnd,rn->rd", features, scores - labels) / 100 + 0.01 * weights
    assert np.abs(gradient).max() < 1e-10
