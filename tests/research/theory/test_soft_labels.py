"""The soft-label theorems: hand-computed values, and the stated events in simulation, broken constants included."""

from __future__ import annotations

import math

import numpy as np
import pytest

from research.theory import (
    bin_width,
    concentration_radius,
    num_bins,
    score_error,
    soft_num_teachers,
    soft_threshold,
    stable_histogram_gap,
    strong_quality_teachers,
    teachers_for_concentration,
)
from research.theory.soft_labels import soft_scale, strong_quality
from teacher_student import ArgumentError


def test_threshold_by_hand_and_the_print_leaks():
    scale, bound = soft_scale(1.0, 1e-5, 50), soft_threshold(1.0, 1e-5, 1000, 50)
    assert scale == pytest.approx(math.sqrt(3200 * math.log(2e5)))
    assert bound.value == pytest.approx(2 * scale * math.log(4e8))
    # a run releases a split query with probability (4 e^(-w / 2 lambda) - e^(-w / lambda)) / 6, and there are T runs
    leak = {w: 50 * (4 * math.exp(-w / (2 * scale)) - math.exp(-w / scale)) / 6 for w in (bound.value, bound.printed)}
    assert leak[bound.value] < 1e-5 / 2
    assert leak[bound.printed] == pytest.approx(1.7e-3, rel=0.03)  # 170 delta


def test_stable_histograms_are_released():
    bound = stable_histogram_gap(1.0, 1e-5, 100, 10, 0.05)
    scale = soft_scale(1.0, 1e-5, 10)
    threshold = 2 * scale * math.log(4 * 100 / 1e-5)
    assert bound.value == pytest.approx(2 * (threshold + 4 * scale * math.log(8 * 1000 / 0.05) + 1))
    assert bound.printed == pytest.approx(8 * scale * math.log(8 * 1000 / 1e-5))
    generator = np.random.default_rng(0)
    noise = generator.laplace(scale=2 * scale, size=(2000, 200)).min(axis=1)
    high = threshold + generator.laplace(scale=scale, size=(2000, 20)).max(axis=1)
    assert (bound.value / 2 - 1 + noise > high).mean() >= 0.95


def test_radius_by_hand_and_in_simulation():
    # learner: the mean of n' fair coins; alpha^2 = 1 / (2 n'^2), and Steele's inequality is an equality
    size, alpha = 50, math.sqrt(0.5) / 50
    bound = concentration_radius(alpha, size)
    assert bound.value == pytest.approx(4 * alpha * math.sqrt(100))
    scores = np.random.default_rng(1).binomial(size, 0.5, size=100_000) / size
    for radius in (bound.value, bound.sharp):
        assert (np.abs(scores - 0.5) <= radius).mean() >= 0.75


def test_sharp_radius_holds_for_unlucky_coins_too():
    # a learner that is unstable for one coin in five: one record decides, otherwise the score is constant
    generator = np.random.default_rng(2)
    alpha = math.sqrt(0.2 * 0.5)
    unlucky = generator.random(100_000) < 0.2
    score = np.where(unlucky, (generator.random(100_000) < 0.5).astype(float), 0.5)
    assert (np.abs(score - 0.5) <= concentration_radius(alpha, 1, sharp=True).value).mean() >= 0.75


def test_two_thirds_of_the_teachers_concentrate():
    teachers = teachers_for_concentration(0.05)
    assert teachers == math.ceil(72 * math.log(20))
    inside = np.random.default_rng(3).binomial(teachers, 0.75, size=20_000)
    assert (inside >= 2 * teachers / 3).mean() >= 0.95


def test_width_bins_and_errors_by_hand():
    alpha, size = 1e-4, 800  # alpha sqrt(2 n') = 0.004
    assert bin_width(alpha, size, 0.02).value == pytest.approx(16 * 0.004 + 0.02)
    assert bin_width(alpha, size, 0.02, sharp=True).value == pytest.approx(4 * 0.004 + 0.02)
    assert num_bins(16 * 0.004 + 0.02) == 11
    assert score_error(alpha, size, 0.02).value == pytest.approx(12 * 0.004 + 0.01)
    assert score_error(alpha, size, 0.02).printed == pytest.approx(8 * 0.004 + 0.01)
    assert strong_quality(alpha, size, 0.02).value == pytest.approx(8 * 0.004 + 0.01)


def test_printed_score_error_fails_beside_an_edge_and_the_corrected_one_holds():
    # one record per teacher; the score is just right of the edge 1/2 with probability 0.8, else four times as far left
    step, bins = 0.001, 4
    right, left = 0.5 + step, 0.5 - 4.5 * step
    mean, alpha = 0.8 * right + 0.2 * left, math.sqrt(2 * 0.8 * 0.2) * (right - left)
    assert mean < 0.5
    width = bin_width(alpha, 1, 0.0).value
    quality = 1 / bins - width  # chosen so that gamma = 1/4, and an edge lies at 1/2
    votes = np.where(np.random.default_rng(4).random(10_000) < 0.8, right, left)
    counts = np.bincount((votes * bins).astype(int), minlength=bins)
    assert np.diff(np.sort(counts))[-1] > len(votes) / 2  # as stable as one can ask
    score = (counts.argmax() + 0.5) / bins
    bound = score_error(alpha, 1, quality)
    assert abs(score - mean) > bound.printed
    assert abs(score - mean) <= bound.value


def test_strong_quality_teachers_pass_the_first_test():
    scale, threshold, failure = 20.0, 300.0, 0.1
    bound = strong_quality_teachers(scale, threshold, failure)
    assert bound.printed == pytest.approx(3 * (math.sqrt(5) * 20 * math.log(20) + 300))
    assert bound.value == math.ceil(6 * (300 + 40 * math.log(4 / 0.3) + 1))
    generator = np.random.default_rng(5)
    votes = generator.binomial(int(bound.value), 0.75, size=20_000)
    distance = np.maximum(np.ceil((2 * votes - bound.value) / 2) - 1, 0)
    noise = generator.laplace(scale=2 * scale, size=20_000) - generator.laplace(scale=scale, size=20_000)
    assert (distance + noise > threshold).mean() >= 0.9


def test_soft_teachers_answer_every_query():
    bound = soft_num_teachers(1.0, 1e-5, 200, 10, 0.05)
    scale = soft_scale(1.0, 1e-5, 10)
    threshold = 2 * scale * math.log(800 / 1e-5)
    assert bound.value == math.ceil(6 * (threshold + 4 * scale * math.log(8 * 2000 / 0.025) + 1))
    assert bound.printed == pytest.approx(136 * math.log(8 * 2000 / 1e-5) * math.sqrt(20 * math.log(2e5)))
    generator = np.random.default_rng(6)
    votes = generator.binomial(int(bound.value), 0.75, size=(2000, 200)).min(axis=1)
    noise = generator.laplace(scale=2 * scale, size=(2000, 400)).min(axis=1)
    high = threshold + generator.laplace(scale=scale, size=(2000, 20)).max(axis=1)
    assert (votes - bound.value / 2 - 1 + noise > high).mean() >= 0.95


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bin_width(-1, 10, 0.1), "stability must be at least 0, got -1"),
        (lambda: bin_width(0.1, 10, 0.6), "quality must lie between 0 and 1/2, got 0.6"),
        (lambda: num_bins(0.4), "width must be at most 1/3"),
        (lambda: soft_num_teachers(1, 1e-5, 10, 0, 0.1), "cutoff must be a positive integer, got 0"),
    ],
)
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
