"""The attack on finished students: the private one holds its claim, what protects nothing does not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from teacher_student.app import dispatch
from teacher_student.arguments import ArgumentError
from teacher_student.pipeline import attack_student
from teacher_student.pipeline.attack import CANARIES, QUERIES, MembershipExperiment

SMALL = {"epsilon": 2.0, "delta": 1e-7, "worlds": 75, "num_teachers": 110, "error": 1e-5}


@pytest.fixture(scope="module")
def report():
    return attack_student(**SMALL, seed=3)


def test_the_student_holds_its_claim_and_the_attack_has_power(report):
    """Coins, shards and noise are fresh: a true claim fails with probability at most 2e-5. Power as measured: every guess of
    hundreds is right where nothing protects, and the bound is well above the claim."""
    assert report.passed, str(report)
    assert report.answered > 30  # so there is a release to attack
    measured = {row.subject: row.bound.epsilon for row in report.rows}
    assert max(measured["released labels"], measured["student"]) < 1
    assert min(measured["student, one teacher, no noise"], measured["non-private model"]) > SMALL["epsilon"]


def test_a_verdict_needs_soundness_and_power(report):
    leaking = dataclasses.replace(report.rows[1], bound=report.rows[3].bound)
    refuted = dataclasses.replace(report, rows=(leaking, *report.rows[2:]))
    assert not refuted.sound
    assert "REJECTED" in str(refuted)
    blind = dataclasses.replace(report, rows=(*report.rows[:3], dataclasses.replace(report.rows[3], bound=report.rows[1].bound)))
    assert not blind.passed
    assert "MISSED" in str(blind)


def test_worlds_differ_in_their_canaries_alone():
    worlds = MembershipExperiment.make(100, 10, seed=0)
    assert np.array_equal(worlds.points[-CANARIES:], worlds.features[-CANARIES:])
    assert worlds.points.shape[0] == QUERIES + CANARIES
    records = worlds._records()
    for world, coins in enumerate(worlds.members):
        assert len(records[world]) == 50 + coins.sum()
        assert set(records[world][50:] - 50) == set(np.flatnonzero(coins))
    assert abs(worlds.members.mean() - 0.5) < 0.1  # 8 standard deviations
    assert not np.array_equal(worlds.members, MembershipExperiment.make(100, 10, seed=0).members)


def test_a_student_that_was_told_nothing_has_no_score():
    worlds = MembershipExperiment.make(2, 10, seed=0)
    assert (worlds.student_scores(np.full((2, QUERIES + CANARIES), -2)) == 0).all()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["target=teacher"], "target must be one of mechanism, student; got 'teacher'"),
        (["target=student", "worlds=5"], "worlds must be an integer of at least 60, got 5"),
        (["target=student", "privacy.delta=0"], "delta must lie strictly between 0 and 1"),
        (["target=student", "num_teachers=1"], "num_teachers must be an integer of at least 2, got 1"),
    ],
)
def test_a_slip_is_one_line(arguments, says, capsys):
    assert dispatch(["audit", "console=quiet", *arguments]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint
    assert len(complaint.strip().splitlines()) == 1


@pytest.mark.parametrize("claim", [{"epsilon": 0.0}, {"epsilon": 1.0, "bogus": 3}])
def test_an_impossible_claim_is_refused_before_any_training(claim):
    with pytest.raises(ArgumentError):
        attack_student(**{**SMALL, **claim})


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["stability", "gnmax"])
def test_the_command_at_full_length(mechanism, capsys):
    """False alarm at most 0.1 for each mechanism, were its students to spend all of epsilon; they spend little of it."""
    assert dispatch(["audit", "target=student", f"mechanism={mechanism}", "console=quiet"]) == 0
    assert "audit passed" in capsys.readouterr().out
