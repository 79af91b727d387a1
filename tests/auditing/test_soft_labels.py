"""The soft-label loop: its claim holds exactly, the real loop follows its law, and the printed threshold leaks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats

from teacher_student.arguments import ArgumentError
from teacher_student.auditing import audit
from teacher_student.auditing.exact import QueryPair, ThresholdLaw, outcomes
from teacher_student.auditing.pairs import all_split, halved_distance
from teacher_student.auditing.sampled import compare_transcripts
from teacher_student.auditing.soft_labels import soft_law, soft_votes
from teacher_student.mechanisms import GeneratorNoise
from teacher_student.mechanisms.soft_label import SoftLabelRelease
from teacher_student.privacy.calibration import calibrate_soft

MECHANISMS = ["stability", "stability_paper", "stability_redraw", "stability_laplace"]


def _turns(num_queries):
    """A plain test 2 i and, if it goes unanswered, a shifted test 2 i + 1."""
    turns = []
    for query in range(num_queries):
        turns += [(2 * query + 2, 2 * query + 1), (2 * query + 2, 2 * query + 2)]
    return turns


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("plain", "shifted"), [(+1, -1), (-1, +1), (-1, -1)])
def test_one_teacher_who_moves_both_histograms_is_within_the_claim(mechanism, plain, shifted):
    epsilon, delta = 1.0, 1e-4
    parameters = calibrate_soft(mechanism, epsilon=epsilon, delta=delta, cutoff=1, num_queries=10)
    law = ThresholdLaw.of(parameters)
    reach = int(law.query_scale)
    for high in (law.threshold, law.threshold + reach):
        for low in (law.threshold, law.threshold + reach):
            queries = [QueryPair(0, high, 0, high + plain), QueryPair(0, low, 0, low + shifted)] * 6
            assert outcomes(law, queries, turns=_turns(6)).worst_divergence(epsilon).upper <= delta


@pytest.mark.parametrize("mechanism", ["stability", "stability_redraw"])
def test_the_loop_follows_its_law(mechanism):
    """False alarm 1e-9, 1,200 sessions of three queries; the law of a distance one scale away is rejected."""
    parameters = calibrate_soft(mechanism, epsilon=2.0, delta=1e-2, cutoff=2)
    law = ThresholdLaw.of(parameters)
    near = law.threshold + int(law.query_scale) // 2
    release, noise = SoftLabelRelease(parameters), GeneratorNoise(np.random.default_rng(4))
    counts = soft_votes(near, 3, 3)
    labels = np.array([release.answer(counts, release.start(noise), noise)[0] for _ in range(1200)])
    codes = np.unique(labels[labels >= 0])  # two answers are possible: plain bin 0, and, half a bin higher, shifted bin 0
    labels = np.where(labels >= 0, np.searchsorted(codes, labels), labels)
    assert compare_transcripts(labels, soft_law(law, near, near, 3)).accepted
    assert not compare_transcripts(labels, soft_law(law, near + int(law.query_scale), near, 3)).accepted


def test_sessions_under_the_printed_threshold_are_caught_leaking():
    """One-sided binomial at 1e-9 over 1,200 sessions: the corrected loop passes; the printed one is caught with power > 0.999."""
    parameters = calibrate_soft("stability_paper", epsilon=1.0, delta=1e-3, cutoff=5, num_queries=20)
    printed = dataclasses.replace(parameters, threshold=parameters.threshold // 2)
    exact = outcomes(ThresholdLaw.of(printed), all_split(printed.cutoff).seen(halved_distance)).divergence(1.0).lower
    most = int(stats.binom.isf(1e-9, 1200, parameters.release_delta))
    assert stats.binom.sf(most, 1200, exact) > 0.999
    assert _leaking_sessions(parameters, 1200) <= most < _leaking_sessions(printed, 1200)


def _leaking_sessions(parameters, trials):
    counts = soft_votes(0, parameters.cutoff, 3)
    release, noise = SoftLabelRelease(parameters), GeneratorNoise(np.random.default_rng(8))
    return sum(bool((release.answer(counts, release.start(noise), noise)[0] >= 0).any()) for _ in range(trials))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_audit_of_soft_labels_passes(mechanism):
    """Sampling checks: false alarm 1e-9 each."""
    report = audit(mechanism, cutoff=1, bins=4, trials=100, mutants=False, seed=1)
    assert report.sound, str(report)


def test_the_audit_of_soft_labels_catches_every_mutant():
    """Power: every mutant is caught at these few sessions by a check that does not sample."""
    report = audit("stability", cutoff=2, bins=10, trials=100, seed=1)
    assert report.passed, str(report)
    assert "cap" in report.caught["unstable_pays_once"]
    assert "exact release" in report.caught["printed_threshold"]
    assert "draws" in report.caught["threshold_redrawn"]


@pytest.mark.parametrize(
    ("mechanism", "bins", "message"),
    [("gnmax", 10, "mechanism must be one of stability,"), ("stability", 2, "bins must be an integer of at least 3, got 2")],
)
def test_audits_of_what_has_no_soft_labels_are_refused(mechanism, bins, message):
    with pytest.raises(ArgumentError, match=message):
        audit(mechanism, bins=bins)
