"""Noisy fractions, few votes and noisy scores under audit: the law is exact, the claims hold, and every mutant is caught."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from teacher_student.app.verbs import audit as audit_verb
from teacher_student.arguments import ArgumentError
from teacher_student.auditing import audit
from teacher_student.auditing.checks import sampled_epsilon
from teacher_student.auditing.laws import discrete_gaussian
from teacher_student.auditing.sums import NoisySumLaw, SumsUnderTest, sum_of
from teacher_student.auditing.under_test import AuditConfig
from teacher_student.mechanisms import GeneratorNoise
from teacher_student.privacy import NoisyFraction, calibrate


@pytest.mark.parametrize("times", [1, 2, 5])
def test_the_law_of_a_sum_is_the_convolution(times):
    single = discrete_gaussian(3.3)
    direct = single.mass
    for _ in range(times - 1):
        direct = np.convolve(direct, single.mass)
    found = sum_of(single, times, 3.3)
    mass = dict(zip((times * single.first + np.arange(len(direct))).tolist(), direct.tolist(), strict=True))
    assert found.mass == pytest.approx([mass.get(value, 0.0) for value in found.support.tolist()], abs=1e-15)
    assert abs(1 - found.mass.sum()) <= found.outside


@pytest.mark.parametrize("shift", [[[1, -1, 0]], [[2, 0, 0]], [[-3, 3, 3]]])
def test_the_divergence_of_sums_equals_brute_force(shift):
    """Over all outcomes of three sums, not the sufficient statistic."""
    scale, epsilon, direct = 1.4, 0.5, 0.0
    law = discrete_gaussian(scale)
    place = dict(zip(law.support.tolist(), law.mass.tolist(), strict=True))
    for values in itertools.product(range(-9, 10), repeat=3):
        mine = math.prod(place[value] for value in values)
        theirs = math.prod(place.get(value + moved, 0.0) for value, moved in zip(values, shift[0], strict=True))
        direct += max(0.0, mine - math.exp(epsilon) * theirs)
    bracket = NoisySumLaw(scale).outcomes(np.array(shift)).worst_divergence(epsilon)
    assert bracket.lower - 1e-9 <= direct <= bracket.upper


def test_sums_that_move_by_different_amounts_have_no_law_here_and_equal_ones_no_divergence():
    with pytest.raises(ArgumentError, match="shift must be of one size"):
        NoisySumLaw(2.0).outcomes(np.array([[1, 2]]))
    assert NoisySumLaw(2.0).outcomes(np.zeros((1, 2), dtype=np.int64)).worst_divergence(0.1).lower == 0


COMMON = {
    "noise_halved": {"exact divergence", "draws"},
    "scale_0.7": {"exact divergence", "draws"},
    "scale_1.3": {"draws"},
    "one_answer_more": {"cap"},
    "noise_shared_by_classes": {"exact divergence", "draws", "sampled law"},
}
REJECTED_BY = {
    "noisy_fraction": COMMON,
    "few_votes": {
        **COMMON,
        "pays_for_votes_before_only": {"exact divergence", "draws"},
        "votes_forgotten_between_calls": {"neighbours", "exact divergence"},
    },
    "noisy_scores": {
        **COMMON,
        "pays_for_1_of_4": {"exact divergence", "draws"},
        "pays_for_2_of_4": {"exact divergence", "draws"},
        "part_of_a_round_twice": {"neighbours", "exact divergence"},
        "rounded_to_nearest": {"neighbours"},
    },
}
OPTIONS = {"few_votes": {"mechanism": "noisy_fraction", "votes_per_teacher": 2}}


@pytest.mark.parametrize("mechanism", REJECTED_BY)
def test_the_mechanism_passes_and_every_mutant_is_rejected_by_these_checks(mechanism):
    """Sampling checks: false alarm 1e-9 each; 200 sessions a side."""
    report = audit(**OPTIONS.get(mechanism, {"mechanism": mechanism}), trials=200, seed=3)
    assert report.passed, str(report)
    assert set(report.caught) == set(REJECTED_BY[mechanism])
    for mutant, by in REJECTED_BY[mechanism].items():
        assert by <= set(report.caught[mutant]), mutant


@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("options", [{"votes_per_teacher": 5}, {"votes_per_teacher": 1}, {}])
def test_few_classes_and_caps_above_the_answers_are_audited(classes, options):
    report = audit("noisy_fraction", num_queries=3, num_classes=classes, trials=100, seed=1, **options)
    assert report.passed, str(report)
    assert ("votes_forgotten_between_calls" in report.caught) == (options.get("votes_per_teacher") == 1)


@pytest.mark.parametrize("mechanism", ["noisy_fraction", "noisy_scores"])
def test_the_claim_is_nearly_attained(mechanism):
    """The worst neighbours leave less than a tenth of delta: they are the worst, and the law is theirs."""
    parameters = calibrate(mechanism, epsilon=2.0, delta=1e-6, num_queries=8, num_classes=4)
    true = SumsUnderTest.claiming(parameters, 2.0, 1e-6)
    lower = [true.law.outcomes(pair.shift).worst_divergence(2.0).lower for pair in true.teachers.neighbours[:2]]
    assert 0.9e-6 < max(lower) <= 1e-6


def test_sums_without_known_neighbours_are_refused():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Strange(NoisyFraction):
        mechanism = "strange_sums"

    with pytest.raises(ArgumentError, match="worst neighbours the audit knows"):
        SumsUnderTest.claiming(Strange(scale=Fraction(9), max_answers=3, num_classes=2), 1.0, 1e-5)


def test_a_config_of_few_votes_and_one_of_scores_can_be_audited(capsys):
    few = ["mechanism=few_votes", "mechanism.votes_per_teacher=1", "trials=100", "console=quiet"]
    assert audit_verb(few) == 0
    assert "votes_forgotten_between_calls" in capsys.readouterr().out
    assert audit_verb(["mechanism=noisy_scores", "trials=100", "console=quiet"]) == 0
    assert "part_of_a_round_twice" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["noisy_fraction", "noisy_scores"])
def test_sampled_bound_alone_rejects_too_little_noise(mechanism):
    """Clopper-Pearson at error 1e-9; with a quarter of the noise the true epsilon is more than four times as large."""
    parameters = calibrate(mechanism, epsilon=1.0, delta=1e-3, num_queries=1, num_classes=2)
    config = AuditConfig(1.0, 1e-3, 20_000, 1e-9, lambda: GeneratorNoise(np.random.default_rng(0)))
    true = SumsUnderTest.claiming(parameters, 1.0, 1e-3)
    weak = next(mutant for mutant in true.mutants() if mutant.name == "noise_halved")
    assert sampled_epsilon(true, config).passed
    assert not sampled_epsilon(weak, config).passed
