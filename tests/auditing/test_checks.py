"""Checks without false alarms pass on the mechanisms and say what is wrong with a mutant."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.auditing import checks
from teacher_student.auditing.audit import under_test
from teacher_student.auditing.pairs import MOVES, NeighbourVotes, all_split, random_votes
from teacher_student.auditing.thresholds import ThresholdUnderTest, threshold_kept
from teacher_student.auditing.under_test import AuditConfig
from teacher_student.mechanisms import GeneratorNoise, SystemNoise
from teacher_student.mechanisms.interface import Mechanism
from teacher_student.privacy import calibrate, registry
from teacher_student.privacy.parameters import WITHDRAWN

MECHANISMS = ["stability", "stability_paper", "stability_redraw", "stability_laplace"]


def _config(noise=None):
    source = noise or GeneratorNoise(np.random.default_rng(0))
    return AuditConfig(1.0, 1e-4, 100, 1e-9, lambda: source)


@pytest.mark.parametrize("check", [checks.cap, checks.draws, threshold_kept], ids=lambda check: check.__name__)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_mechanisms_pass(mechanism, check):
    true = ThresholdUnderTest.of(calibrate(mechanism, epsilon=1.0, delta=1e-4, cutoff=3, num_queries=40))
    for noise in (None, SystemNoise()):
        result = check(true, _config(noise))
        assert result.passed, result.measured


@pytest.mark.parametrize(
    ("mutant", "check", "measured"),
    [
        ("one_payment_more", checks.cap, "4 in 1 call (state 4), 4 in 20 calls"),
        ("noise_halved", checks.draws, "not accounted for"),
        ("threshold_scale_0.7", checks.draws, "not accounted for"),
        ("query_noise_reused", checks.draws, "1 draws for at least"),
        ("threshold_redrawn", threshold_kept, "4 thresholds"),
        ("threshold_redrawn", checks.draws, "draws for 1 to 1"),
    ],
)
def test_mutants_fail_and_the_row_says_why(mutant, check, measured):
    true = ThresholdUnderTest.of(calibrate("stability", epsilon=1.0, delta=1e-4, cutoff=3))
    result = check(next(test for test in true.mutants() if test.name == mutant), _config())
    assert not result.passed
    assert measured in result.measured


@dataclasses.dataclass(frozen=True)
class _Forgetful:
    """Mutant: every call starts with nothing paid."""

    inner: Mechanism

    @property
    def parameters(self):
        return self.inner.parameters

    def start(self, noise):
        return self.inner.start(noise)

    def answer(self, counts, state, noise):
        labels, _ = self.inner.answer(counts, state, noise)
        return labels, state

    def halted(self, state):
        return self.inner.halted(state)


@pytest.mark.parametrize("mechanism", ["stability", "gnmax", "noisy_fraction"])
def test_a_state_that_does_not_survive_between_calls_breaks_the_cap(mechanism):
    options = registry.ANSWERING[mechanism].audit_options(3, None)
    true = under_test(calibrate(mechanism, epsilon=1.0, delta=1e-4, cutoff=3, **options), 1.0, 1e-4)
    assert checks.cap(true, _config()).passed
    forgetful = dataclasses.replace(true, name="forgetful", mechanism=_Forgetful(true.mechanism))
    assert not checks.cap(forgetful, _config()).passed


def test_neighbours_differ_by_one_vote():
    with pytest.raises(ArgumentError, match="one teacher's vote"):
        NeighbourVotes("two votes", np.array([[5, 2]]), np.array([[3, 4]]))
    with pytest.raises(ArgumentError, match="one shape"):
        NeighbourVotes("shapes", np.array([[5, 2]]), np.array([[5, 2, 0]]))
    with pytest.raises(ArgumentError, match="num_teachers must be odd"):
        all_split(3, num_teachers=10)
    votes = random_votes(np.random.default_rng(0), 30, 9, 3)
    assert (np.abs(votes.counts - votes.other_counts).sum(axis=1) <= 2).all()


def test_neighbours_that_withdraw_a_vote_replace_none():
    with pytest.raises(ArgumentError, match="one teacher's vote"):
        NeighbourVotes("replaced", np.array([[5, 2]]), np.array([[4, 3]]), MOVES[WITHDRAWN])
    with pytest.raises(ArgumentError, match="one teacher's vote"):  # the voter is in D' on every query, never in D on one
        NeighbourVotes("both ways", np.array([[5, 2], [5, 2]]), np.array([[6, 2], [4, 2]]), MOVES[WITHDRAWN])
    votes = random_votes(np.random.default_rng(0), 30, 9, 3, move=MOVES[WITHDRAWN])
    assert set(np.unique(votes.other_counts.astype(int) - votes.counts)) == {0, 1}
    split = all_split(1, move=MOVES[WITHDRAWN])
    assert [split.counts.tolist(), split.other_counts.tolist()] == [[[5, 5]], [[5, 6]]]
