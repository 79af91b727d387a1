"""The exact law of the noisy maxima against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.auditing import audit
from teacher_student.auditing.checks import sampled_epsilon
from teacher_student.auditing.laws import IntegerLaw
from teacher_student.auditing.noisy_max import (
    NoisyMaxLaw,
    NoisyMaxUnderTest,
    label_chances,
    session_law,
    session_outcomes,
    worst_gap,
)
from teacher_student.auditing.pairs import exact_epsilon, random_votes
from teacher_student.auditing.under_test import AuditConfig
from teacher_student.mechanisms import GeneratorNoise
from teacher_student.privacy import calibrate


@pytest.mark.parametrize("counts", [[3, 3, 2], [0, 4], [5], [1, 1, 1, 1], [2, 0, 3]])
def test_label_chances_equal_brute_force(counts):
    law = IntegerLaw(-2, np.array([0.1, 0.2, 0.4, 0.2, 0.1]), 0.0)
    expected = np.zeros(len(counts))
    for noise in itertools.product(range(5), repeat=len(counts)):
        winner = int(np.argmax(np.array(counts) + np.array(noise) - 2))
        expected[winner] += math.prod(law.mass[index] for index in noise)
    assert label_chances(np.array(counts), law) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("test", [(None, None), (6, 2.0)], ids=["no test", "test"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_sessions_equal_brute_force(test, epsilon):
    law = NoisyMaxLaw("discrete_gaussian", 1.5, 2, *test)
    rows, others = [[6, 3], [2, 7], [5, 4]], [[5, 4], [3, 6], [5, 3]]
    one, two = session_law(law, np.array(rows)), session_law(law, np.array(others))
    direct = sum(max(0.0, mass - math.exp(epsilon) * two[key]) for key, mass in one.items())
    exact = session_outcomes(law, np.array(rows), np.array(others))
    assert exact.probability.sum() == pytest.approx(1, abs=1e-12)
    assert exact.divergence(epsilon).lower == pytest.approx(direct, abs=1e-11)


def test_a_description_is_checked():
    with pytest.raises(ArgumentError, match="noise must be one of"):
        NoisyMaxLaw("cauchy", 1.0, 2)
    with pytest.raises(ArgumentError, match="test_threshold and test_scale"):
        NoisyMaxLaw("discrete_gaussian", 1.0, 2, 5)


MECHANISMS = ["gnmax", "confident_gnmax", "lnmax", "exponential"]


def _calibrated(mechanism, epsilon, delta, answers):
    options = {"threshold": 30} if mechanism == "confident_gnmax" else {}
    return calibrate(mechanism, epsilon=epsilon, delta=delta, num_queries=answers, **options)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("epsilon", "delta", "answers"), [(1.0, 1e-5, 3), (2.0, 1e-6, 1), (1.0, 1e-5, 12), (4.0, 1e-2, 2)])
def test_divergence_on_contested_votes_is_within_the_claim(mechanism, epsilon, delta, answers):
    parameters = _calibrated(mechanism, epsilon, delta, answers)
    worst = worst_gap(NoisyMaxLaw.of(parameters), exact_epsilon(delta), answers)
    assert worst.score <= parameters.epsilon(delta) <= epsilon
    assert worst.outcomes.worst_divergence(epsilon).upper <= delta


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("seed", range(3))
def test_random_neighbours_are_within_the_claim(mechanism, seed):
    epsilon, delta = 2.0, 1e-4
    law = NoisyMaxLaw.of(_calibrated(mechanism, epsilon, delta, 4))
    votes = random_votes(np.random.default_rng(seed), 4, 40, 4, agreement=0.3)
    assert session_outcomes(law, votes.counts, votes.other_counts).worst_divergence(epsilon).upper <= delta


def test_the_exponential_mechanism_attains_its_claim():
    """The accountant of its answers is exact: the worst pair comes within 1 % of the claimed epsilon."""
    parameters = _calibrated("exponential", 1.0, 1e-5, 3)
    assert worst_gap(NoisyMaxLaw.of(parameters), exact_epsilon(1e-5), 3).score > 0.98


# The exponential mechanism draws until it may answer, so that one noise for all counts would never end: no such mutant.
REJECTED_BY = {
    "gnmax": {
        "noise_halved": {"exact divergence", "draws", "sampled law"},
        "scale_0.7": {"exact divergence", "draws"},
        "scale_1.3": {"draws"},
        "one_answer_more": {"cap"},
        "noise_reused": {"exact divergence", "draws", "sampled epsilon", "sampled law"},
    },
    "confident_gnmax": {
        "noise_halved": {"exact divergence", "draws"},
        "scale_0.7": {"exact divergence", "draws"},
        "scale_1.3": {"draws"},
        "test_noise_0.7": {"draws"},
        "one_answer_more": {"cap"},
        "noise_reused": {"exact divergence", "draws", "sampled epsilon"},
    },
    "lnmax": {
        "noise_halved": {"exact divergence", "draws", "sampled law"},
        "scale_0.7": {"exact divergence", "draws"},
        "scale_1.3": {"draws"},
        "one_answer_more": {"cap"},
        "noise_reused": {"exact divergence", "draws", "sampled epsilon", "sampled law"},
    },
    "exponential": {
        "noise_halved": {"exact divergence", "draws", "sampled law"},
        "scale_0.7": {"exact divergence", "draws"},
        "scale_1.3": {"draws"},
        "one_answer_more": {"exact divergence", "cap"},
    },
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_mechanism_passes_and_every_mutant_is_rejected_by_these_checks(mechanism):
    """Sampling checks: false alarm 1e-9 each; 150 sessions a side."""
    report = audit(mechanism, epsilon=1.0, delta=1e-5, cutoff=3, trials=150, seed=2)
    assert report.passed, str(report)
    assert set(report.caught) == set(REJECTED_BY[mechanism])
    for mutant, by in REJECTED_BY[mechanism].items():
        assert by <= set(report.caught[mutant]), mutant


@pytest.mark.slow
def test_sampled_bound_alone_rejects_too_little_noise():
    """Clopper-Pearson at error 1e-9 on one answer of the exponential mechanism, which attains its epsilon."""
    parameters = _calibrated("exponential", 2.0, 1e-5, 1)
    config = AuditConfig(2.0, 1e-5, 10_000, 1e-9, lambda: GeneratorNoise(np.random.default_rng(0)))
    true = NoisyMaxUnderTest.of(parameters)
    halved = next(mutant for mutant in true.mutants() if mutant.name == "noise_halved")
    assert sampled_epsilon(true, config).passed
    assert not sampled_epsilon(halved, config).passed
