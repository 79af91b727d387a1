"""Lemma count, Corollary privPAC, Claim ppac, the PAC theorems: hand-computed values, and the stated events in simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from research.theory import (
    disputed_queries,
    loglog_slope,
    misclassification_rate,
    plan_queries,
    private_labels_error,
    sample_sizes,
    student_error,
    threshold_error,
    unstable_query_cutoff,
)
from research.theory.experiments import run_task, thresholds
from research.theory.learners import fit_thresholds
from research.theory.release_utility import online_release_scale
from teacher_student import ArgumentError


def test_lemma_count_by_hand_and_attained():
    assert disputed_queries(9, 4, 1 / 3).value == 9  # 36 mistakes, 4 to dispute a query
    assert disputed_queries(9, 4, 1 / 3).printed == pytest.approx(12)
    assert disputed_queries(9, 0, 1 / 3).value == 0  # "less than 0 queries", as printed, is impossible
    wrong = np.zeros((9, 20), dtype=bool)
    for query in range(9):  # each query disputed by 4 classifiers, each classifier wrong 4 times
        wrong[(np.arange(4) + query) % 9, query] = True
    assert wrong.sum(axis=1).max() == 4
    assert (wrong.sum(axis=0) > 3).sum() == 9


def test_lemma_count_is_never_exceeded():
    generator = np.random.default_rng(0)
    for _ in range(200):
        classifiers, queries = generator.integers(2, 12), generator.integers(1, 30)
        wrong = generator.random((classifiers, queries)) < generator.random() ** 2
        share = generator.uniform(0.05, 0.5)
        bound = disputed_queries(int(classifiers), int(wrong.sum(axis=1).max()), share)
        disputed = (wrong.sum(axis=0) > share * classifiers).sum()
        assert disputed <= bound.value <= bound.printed


def test_cutoff_by_hand_and_not_reached():
    bound = unstable_query_cutoff(1000, 0.05, 0.1, 200)
    assert bound.value == math.ceil(3 * (50 + math.sqrt(1000 * math.log(1000 / 0.1) / 2)))
    assert bound.sharp < bound.value
    assert unstable_query_cutoff(1000, 0.05, 0.1, 10**6).value > bound.value  # k > m, which the print leaves out
    generator, reached = np.random.default_rng(1), 0
    for _ in range(200):  # teachers that err on a common stretch as far as they may: the worst correlation
        queries = generator.random(1000)
        reached += (queries < 0.05).sum() >= bound.sharp / 3 + 1e-9
    assert reached <= 200 * 0.1


def test_private_label_error_by_hand_and_attained():
    bound = private_labels_error(0.01, 0.02)
    assert bound.value == pytest.approx(0.09)
    assert bound.printed == pytest.approx(0.13)
    queries = np.random.default_rng(2).random(200_000)  # a third of 99 teachers (and one) err on each of three stretches
    stretch = np.minimum((queries / 0.03).astype(int), 3)
    erring = np.array([34, 33, 32, 0])[stretch]
    assert (erring > 33).mean() <= bound.value
    assert erring.mean() / 99 == pytest.approx(0.03, rel=0.05)


def test_student_survives_any_wrong_labels():
    bound = student_error(0.1)
    assert (bound.value, bound.printed) == (pytest.approx(1.3), pytest.approx(1.5))
    generator, alpha, size = np.random.default_rng(3), 0.02, 20_000
    within = []
    for _ in range(50):
        points = np.sort(generator.random(size))
        labels = (points >= 0.5).astype(np.int64)
        middle = np.searchsorted(points, 0.5)
        labels[middle : middle + int(6 * alpha * size)] = 0  # T = 6 alpha m labels, all flipped where they hurt most
        within.append(abs(fit_thresholds(points[None], labels[None])[0] - 0.5))
    assert max(within) <= student_error(alpha).value
    assert min(within) > 5 * alpha  # the adversary does move the student: the factor is not slack


def release(epsilon: float, delta: float, generator: np.random.Generator):
    """The printed online release with Laplace noise: enough for the theorems, without the mechanisms' room."""

    def answer(counts, cutoff):
        scale = online_release_scale(epsilon, delta, cutoff)
        threshold = 2 * scale * math.log(2 * len(counts) / delta)
        distance = np.maximum(np.ceil(np.abs(counts[:, 0] - counts[:, 1]) / 2) - 1, 0)
        labels, paid, noisy = np.full(len(counts), -2), 0, threshold + generator.laplace(scale=scale)
        for index, value in enumerate(distance + generator.laplace(scale=2 * scale, size=len(counts))):
            if paid >= cutoff:
                break
            labels[index] = counts[index].argmax() if value > noisy else -1
            if value <= noisy:
                paid, noisy = paid + 1, threshold + generator.laplace(scale=scale)
        return labels

    return answer


def test_sample_sizes_keep_their_promise():
    sizes = sample_sizes(1, 0.06, 0.1, 200.0, 1e-4, calibration="paper")
    assert sizes.num_examples == sizes.num_teachers * sizes.examples_per_teacher
    assert sizes.student_error <= 13 * 0.06 + 1e-9
    generator = np.random.default_rng(4)
    outcome = run_task(
        thresholds(),
        examples_per_teacher=sizes.examples_per_teacher,
        num_teachers=sizes.num_teachers,
        num_queries=sizes.num_queries,
        cutoff=sizes.cutoff,
        release=release(200.0, 1e-4, generator),
        generator=generator,
    )
    assert not outcome.halted
    assert outcome.worst_teacher <= 0.06
    assert outcome.labels_error <= sizes.labels_error
    assert outcome.student_error <= sizes.student_error


@pytest.mark.parametrize(("realizable", "power"), [(True, 1), (False, 2)])
def test_sample_size_has_the_order_of_the_theorem(realizable, power):
    alphas = [10.0**-digits for digits in (2, 3, 4, 5, 6)]
    ratios = []
    for alpha in alphas:
        sizes = sample_sizes(5, alpha, 0.01, 1.0, 1e-6, realizable, calibration="paper")
        teacher = 5 * (math.log(1 / alpha) if realizable else 1) + math.log(sizes.num_queries / 0.01)
        noise = math.log(sizes.num_queries * sizes.cutoff / 1e-6) * math.sqrt(sizes.cutoff * math.log(1e6))
        ratios.append(
            sizes.num_examples / (teacher * noise / alpha**power)
        )  # the O(.) of Theorems class-quer-(ag)pac, written out
    assert abs(loglog_slope(alphas, ratios).slope) < (
        0.04 if realizable else 0.1
    )  # agnostic: one logarithm more, without chaining


def test_sample_size_exponent_in_the_dimension():
    dimensions = [100, 1000, 10_000]
    counts = [sample_sizes(dimension, 1e-3, 1e-4, 1.0, 1e-6, calibration="paper").num_examples for dimension in dimensions]
    assert loglog_slope(dimensions, counts).slope == pytest.approx(1.5, abs=0.1)


def test_misclassification_rate_falls_as_stated_up_to_logarithms():
    sizes = [10**12, 10**13, 10**14]
    rates = [misclassification_rate(2, size, 10**9, 0.05, 1.0, 1e-6, calibration="paper") for size in sizes]
    assert loglog_slope(sizes, rates).slope == pytest.approx(-2, abs=0.2)
    sizes = [10**14, 10**15, 10**16]
    rates = [misclassification_rate(2, size, 10**9, 0.05, 1.0, 1e-6, False, calibration="paper") for size in sizes]
    assert loglog_slope(sizes, rates).slope == pytest.approx(-2 / 3, abs=0.1)
    assert misclassification_rate(2, 1000, 1000, 0.05, 1.0, 1e-6, calibration="paper") == 1.0


def test_query_plan_keeps_its_promise():
    plan = plan_queries(2_000_000, 2000, 0.1, 100.0, 1e-4, threshold_error, calibration="paper")
    generator = np.random.default_rng(5)
    outcome = run_task(
        thresholds(),
        examples_per_teacher=2_000_000 // plan.num_teachers,
        num_teachers=plan.num_teachers,
        num_queries=2000,
        cutoff=plan.cutoff,
        release=release(100.0, 1e-4, generator),
        generator=generator,
    )
    assert outcome.labels_error <= plan.rate < 0.5
    assert outcome.worst_teacher <= plan.alpha
    assert not outcome.halted


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sample_sizes(0, 0.1, 0.1, 1, 1e-5), "vc_dimension must be a positive integer, got 0"),
        (lambda: sample_sizes(1, 0, 0.1, 1, 1e-5), "alpha must lie strictly between 0 and 1, got 0"),
        (lambda: sample_sizes(1, 0.5, 0.1, 1, 1e-5, calibration="paper"), "alpha must be smaller, got 0.5"),
        (lambda: sample_sizes(1, 0.1, 0.1, 1, 1e-5, best_error=0.1), "best_error must be 0 in the realizable case"),
        (lambda: sample_sizes(1, 0.1, 0.1, 1, 1e-5, calibration="loose"), "calibration must be one of paper, tight"),
        (lambda: disputed_queries(5, 1, 0.7), "share in"),
    ],
)
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
