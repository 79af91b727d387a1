"""Functional checks pass on the mechanisms and name what a broken one does."""

from __future__ import annotations

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.auditing import functional
from teacher_student.auditing.pairs import NeighbourVotes, all_split, random_votes
from teacher_student.auditing.twins import claimed, threshold_twins
from teacher_student.mechanisms import GeneratorNoise, SystemNoise
from teacher_student.privacy import calibrate

MECHANISMS = ["stability", "stability_paper", "stability_redraw", "stability_laplace"]
CHECKS = [
    functional.cutoff_holds,
    functional.batches_do_not_matter,
    functional.draws_as_accounted,
    functional.threshold_is_kept,
]


def _noise():
    return GeneratorNoise(np.random.default_rng(0))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_mechanisms_pass(mechanism, check):
    subject = claimed(calibrate(mechanism, epsilon=1.0, delta=1e-4, cutoff=3, num_queries=40))
    for noise in (_noise(), SystemNoise()):
        verdict = check(subject, noise)
        assert verdict.passed, verdict.seen


@pytest.mark.parametrize(
    ("twin", "check", "seen"),
    [
        ("one_payment_more", functional.cutoff_holds, "4 unanswered, the cutoff is 3"),
        ("one_payment_more", functional.batches_do_not_matter, "4 payments"),
        ("noise_halved", functional.draws_as_accounted, "not accounted for"),
        ("threshold_scale_0.7", functional.draws_as_accounted, "not accounted for"),
        ("query_noise_reused", functional.draws_as_accounted, "1 query draws"),
        ("threshold_redrawn", functional.threshold_is_kept, "4 thresholds"),
        ("threshold_redrawn", functional.draws_as_accounted, "threshold draws"),
    ],
)
def test_twins_fail_and_the_verdict_says_why(twin, check, seen):
    parameters = calibrate("stability", epsilon=1.0, delta=1e-4, cutoff=3)
    subject = next(subject for subject in threshold_twins(parameters) if subject.name == twin)
    verdict = check(subject, _noise())
    assert not verdict.passed
    assert seen in verdict.seen


def test_neighbours_differ_by_one_vote():
    with pytest.raises(ArgumentError, match="one teacher's vote"):
        NeighbourVotes("two votes", np.array([[5, 2]]), np.array([[3, 4]]))
    with pytest.raises(ArgumentError, match="one shape"):
        NeighbourVotes("shapes", np.array([[5, 2]]), np.array([[5, 2, 0]]))
    with pytest.raises(ArgumentError, match="num_teachers must be odd"):
        all_split(3, num_teachers=10)
    votes = random_votes(np.random.default_rng(0), 30, 9, 3)
    assert (np.abs(votes.counts - votes.other_counts).sum(axis=1) <= 2).all()
