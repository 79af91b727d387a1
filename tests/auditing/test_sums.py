"""Noisy fractions, few votes and noisy scores under audit: the law is exact, the claims hold, and every mutant is caught."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from teacher_student.aggregation import GradientSession
from teacher_student.app.verbs import audit as audit_verb
from teacher_student.arguments import ArgumentError
from teacher_student.auditing import audit
from teacher_student.auditing.checks import sampled_epsilon
from teacher_student.auditing.laws import discrete_gaussian
from teacher_student.auditing.pairs import MOVES
from teacher_student.auditing.sums import NoisySumLaw, SumsUnderTest, Teachers, neighbours, sum_of
from teacher_student.auditing.under_test import AuditConfig
from teacher_student.auditing.wrapped_noise import SilentNoise
from teacher_student.mechanisms import GeneratorNoise
from teacher_student.privacy import NoisyFraction, calibrate
from teacher_student.privacy.gaussian import discrete_gaussian_mu
from teacher_student.privacy.parameters import REPLACED, WITHDRAWN
from teacher_student.teachers import record_gradients
from teacher_student.teachers.record_gradients import RecordGradients


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
        "not_bounded": {"neighbours"},
    },
    "withdrawn scores": {
        **COMMON,
        "votes_replaced": {"neighbours", "exact divergence"},
        "voter_counted_twice": {"neighbours", "exact divergence"},
        "part_of_a_round_twice": {"neighbours", "exact divergence"},
        "rounded_to_nearest": {"neighbours"},
        "not_bounded": {"neighbours"},
    },
}
OPTIONS = {
    "few_votes": {"mechanism": "noisy_fraction", "votes_per_teacher": 2},
    "withdrawn scores": {"mechanism": "noisy_scores", "vote_change": WITHDRAWN},
}


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


@dataclasses.dataclass(frozen=True)
class HostileRecords(Teachers):
    """Records of two classes whose gradients have entries of one size, in front of two steps of descent.

    The model is the same in both steps, and says nothing of the record.
    """

    must_answer = False
    FEATURES = 3

    @property
    def most(self):
        sides = 2 if self.claimed.vote_change == REPLACED else 1
        return sides**2 * 64**4 * self.claimed.max_answers * 2

    def pairs(self):
        for name, size in (("a plain record", 1.0), ("a record far away", 1e15), ("a record that is not finite", np.nan)):
            yield name, (size, 0), (size, 1) if self.move.lost else None

    def released(self, answers):
        rows = [] if answers is None else [answers] * self.move.gained
        features = np.array([[size, size] for size, _ in rows], dtype=np.float32)
        points = np.array([[-1.0] * 2, [1.0] * 2], dtype=np.float32)
        records = RecordGradients(features.reshape(-1, 2), np.array([label for _, label in rows], np.int64), points, steps=64)
        sums = records.sums(np.zeros((self.FEATURES, 2)), 0.1)
        options = {"num_queries": self.FEATURES, "rounds": 2, "num_teachers": 5, "norm": 0.1, "noise": SilentNoise()}
        session = GradientSession(2, self.epsilon, self.delta, vote_change=self.claimed.vote_change, **options)
        return self.sums_of(session, [sums[:1], sums, sums])

    def broken(self):
        return {}


@pytest.mark.parametrize("change", [REPLACED, WITHDRAWN])
def test_gradients_of_hostile_records_are_paid_for_and_neighbours_that_do_more_are_caught(change, monkeypatch):
    """From the record to what a session releases. The law of sums that move so far is that of the tests above."""
    sizes = {"num_queries": 2 * HostileRecords.FEATURES, "num_classes": 2, "steps": 64**2, "vote_change": change}
    spec = calibrate("noisy_scores", epsilon=1.0, delta=1e-5, **sizes)
    config = AuditConfig(1.0, 1e-5, 100, 1e-9, SilentNoise)

    def under_test():
        return SumsUnderTest.of(spec, teachers=HostileRecords(spec, 1.0, 1e-5, MOVES[change]))

    true = under_test()
    assert spec.mu == pytest.approx(math.sqrt(true.teachers.most) * discrete_gaussian_mu(spec.scale))
    assert neighbours(true, config).passed
    assert max(pair.squares for pair in true.teachers.neighbours) > 0.9 * true.teachers.most
    for mutant in true.mutants():
        if mutant.name in ("votes_replaced", "voter_counted_twice"):
            assert not neighbours(mutant, config).passed
    monkeypatch.setattr(record_gradients, "_shrunk", lambda whole, most, _: np.trunc(whole * min(most, 1.0)))
    assert not neighbours(under_test(), config).passed


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
