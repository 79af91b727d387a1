"""The audit as its callers see it."""

from __future__ import annotations

import dataclasses

import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.auditing import AuditReport, audit
from teacher_student.auditing.under_test import CheckResult
from teacher_student.mechanisms import SystemNoise
from teacher_student.privacy.parameters import WITHDRAWN
from teacher_student.privacy.registry import ANSWERING, LABELS


@pytest.mark.parametrize("mechanism", ANSWERING)
def test_every_mechanism_can_be_audited_and_reports_progress(mechanism):
    """Sampling checks: false alarm 1e-9 each."""
    seen: list[tuple[int, int, str]] = []
    report = audit(
        mechanism,
        cutoff=2,
        trials=100,
        mutants=False,
        seed=1,
        progress=lambda done, total, what: seen.append((done, total, what)),
    )
    assert report.sound, str(report)
    assert report.caught == {}
    done, total, what = seen[-1]
    assert done == total
    assert what == "claimed"
    assert [step[0] for step in seen] == sorted(step[0] for step in seen)
    assert str(report).splitlines()[0].startswith(f"{mechanism} at epsilon 1, delta 1e-05")


def test_sessions_may_use_the_exact_samplers():
    assert audit("stability", cutoff=1, trials=100, mutants=False, noise=SystemNoise()).sound


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ANSWERING)
def test_at_many_sessions_the_mechanism_passes_and_every_mutant_is_caught(mechanism):
    """Sampling checks: false alarm 1e-9 each; fresh entropy."""
    report = audit(mechanism, trials=4000)
    assert report.passed, str(report)


# Where votes are only added or withdrawn. Neighbours that do more must show without sampling: a vote that turns into another one
# (a shard of several records, or `replace_one`), and two votes of one person on a query. The printed constants spend so little of
# epsilon that only the distance shows it.
MOVING = {"votes_replaced", "voter_counted_twice"}
FEW = "noisy_fraction of few votes"
LONG = {"stability_paper", "stability_redraw", "stability_laplace"}
WITHDRAWING = [name for name, kind in LABELS.items() if WITHDRAWN in kind.vote_changes] + ["noisy_fraction", "noisy_scores", FEW]


def _audit_withdrawn(name, trials, seed, **options):
    few = {"votes_per_teacher": 2} if name == FEW else {}
    return audit(name.partition(" ")[0], vote_change=WITHDRAWN, trials=trials, seed=seed, **few, **options)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in WITHDRAWING])
def test_votes_that_are_withdrawn_are_audited_and_neighbours_that_do_more_are_caught(name):
    """Sampling checks: false alarm 1e-9 each; 150 sessions a side."""
    report = _audit_withdrawn(name, 150, seed=2, cutoff=2)
    assert report.passed, str(report)
    assert "votes withdrawn at epsilon 1" in str(report)
    exactly = {"sensitivity"} if name in LONG else {"exact divergence"}
    assert all(exactly <= set(report.caught[mutant]) for mutant in MOVING)
    assert "sensitivity_two" not in report.caught  # the whole gap is right here
    if name == FEW:  # B votes in each of two calls, and B are paid for
        assert {"neighbours", "exact divergence"} <= set(report.caught["votes_forgotten_between_calls"])


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHDRAWING)
def test_at_many_sessions_withdrawn_votes_pass_and_every_mutant_is_caught(name):
    """Sampling checks: false alarm 1e-9 each; fresh entropy."""
    report = _audit_withdrawn(name, 4000, seed=None)
    assert report.passed, str(report)


def test_a_session_without_the_claim_is_not_audited_for_it():
    with pytest.raises(ArgumentError, match="vote_change must be replaced for soft labels"):
        audit("stability", bins=5, vote_change=WITHDRAWN)


def test_the_old_name_of_mutants_is_accepted_with_a_notice():
    with pytest.warns(FutureWarning, match="twins is now mutants"):
        report = audit("exponential", cutoff=1, trials=100, twins=False, seed=1)
    assert report.caught == {}


def _report(*rows):
    return AuditReport("stability", None, 1.0, 1e-5, 100, 1e-9, rows)


def test_a_verdict_needs_soundness_and_power():
    good, bad = CheckResult("claimed", "exact, release", "a", "b", True), CheckResult("claimed", "cutoff", "a", "b", False)
    caught = CheckResult("noise_halved", "draws", "a", "b", False)
    missed = dataclasses.replace(caught, passed=True)
    assert _report(good, caught).passed
    assert "audit passed" in str(_report(good, caught))
    assert not _report(good, bad, caught).passed
    assert "REJECTED" in str(_report(good, bad, caught))
    assert not _report(good, missed).passed
    assert "MISSED" in str(_report(good, missed))
    assert "audit NOT PASSED" in str(_report(good, missed))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0}, "epsilon must be a number above 0, got 0"),
        ({"delta": 1.5}, "delta must lie strictly between 0 and 1, got 1.5"),
        ({"cutoff": 0}, "cutoff must be a positive integer, got 0"),
        ({"trials": 10}, "trials must be an integer of at least 100, got 10"),
        ({"mechanism": "laplace"}, "mechanism must be one of"),
        ({"bogus": 3}, "bogus is no option of stability"),
    ],
)
def test_bad_arguments_give_one_clear_line(change, message):
    with pytest.raises(ArgumentError, match=message):
        audit(**{"mechanism": "stability", **change})
