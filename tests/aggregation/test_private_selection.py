"""Choosing among candidates by private runs: only the best is released, and the whole cost is charged and certified."""

from __future__ import annotations

import math

import numpy as np
import pytest

from teacher_student.aggregation import LabelSession, Ledger, Release, label, private_selection, select_privately
from teacher_student.arguments import ArgumentError
from teacher_student.privacy import PrivateSelection

TRUTH = np.arange(60) % 2
GOOD = np.stack([np.where(TRUTH == 0, 2000, 0), np.where(TRUTH == 1, 2000, 0)], axis=1)
POOR = np.full((60, 2), 1000)


def right(_: int, release: Release) -> float:
    return float((release.labels == TRUTH).mean())


def select(candidates=(POOR, GOOD), score=right, **options):
    return select_privately(
        candidates,
        score,
        **{"num_classes": 2, "epsilon": 2.0, "delta": 1e-5, "repetitions": 20, "cutoff": 10, "num_teachers": 2000} | options,
    )


@pytest.fixture
def many(monkeypatch):
    """Exactly twelve runs: both candidates are drawn except with probability 2^-11."""
    left = iter([True] * 11 + [False] * 1000)
    monkeypatch.setattr(private_selection, "another_run", lambda _: next(left))


def test_the_best_run_is_released_and_nothing_else(many):
    runs = []

    def score(candidate, release):
        runs.append((candidate, right(candidate, release)))
        return runs[-1][1]

    chosen = select(score=score)
    assert len(runs) == 12
    assert right(chosen.candidate, chosen.release) == max(value for _, value in runs)
    assert chosen.candidate in {candidate for candidate, _ in runs}


def test_a_run_without_a_score_is_the_worst(many):
    assert select(score=lambda candidate, _: math.nan if candidate == 1 else -5.0).candidate == 0


def test_the_certificate_states_the_whole_cost_and_not_the_number_of_runs(many, tmp_path):
    release = select().release
    certificate = release.certificate
    assert isinstance(certificate.parameters, PrivateSelection)
    assert (certificate.epsilon, certificate.delta) == (2.0, 1e-5)
    assert 1.9 < certificate.verify() <= 2.0
    assert certificate.parameters.session.epsilon(1e-5) < 1.5
    assert certificate.used["hyperparameters"] == "private_selection"
    assert certificate.used["candidates"] == 2
    assert "12" not in {str(value) for value in certificate.used.values()}
    release.save(tmp_path / "out")
    assert Release.load(tmp_path / "out").certificate == certificate


def test_the_number_of_runs_is_geometric():
    """20,000 draws, within 6.2 standard errors: one false alarm in 2e9."""
    selection = select(mechanism="gnmax", cutoff=None, num_teachers=2000, repetitions=5).release.certificate.parameters
    more = sum(private_selection.another_run(selection) for _ in range(20_000)) / 20_000
    assert abs(more - 0.8) < 6.2 * math.sqrt(0.16 / 20_000)


def test_the_account_pays_once_for_all_and_before_the_first_run(many, tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    select(account=ledger.account("people", epsilon=3.0, delta=1e-4))
    entries = ledger.entries("people")
    assert [(entry.epsilon, entry.delta) for entry in entries] == [(2.0, 1e-5)]
    assert isinstance(entries[0].parameters, PrivateSelection)
    runs = []
    with pytest.raises(ArgumentError, match="epsilon"):
        select(score=lambda *_: runs.append(1) or 0.0, account=ledger.account("people"))
    assert runs == []
    assert len(ledger.entries("people")) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"candidates": ()}, "candidates must be one or more tables of votes on the same queries, got 0"),
        (
            {"candidates": (GOOD, GOOD[:5])},
            "candidates must be one or more tables of votes on the same queries, got 2 that differ",
        ),
        ({"repetitions": 1}, "repetitions must be an integer from 2 to 10000, got 1"),
        ({"mechanism": "noisy_fraction"}, "mechanism must be one of"),
        ({"neighbours": "some"}, "neighbours must be one of"),
        ({"num_teachers": 1000}, "counts must add up to at most num_teachers = 1000"),
    ],
)
def test_bad_input_gets_one_clear_line_before_any_run(options, says):
    runs = []
    with pytest.raises(ArgumentError, match=says):
        select(score=lambda *_: runs.append(1) or 0.0, **options)
    assert runs == []


def test_every_certificate_says_how_hyper_parameters_were_chosen():
    given = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "num_teachers": 2000}
    assert label(counts=GOOD, **given).certificate.used["hyperparameters"] == "fixed"
    chosen = label(counts=GOOD, hyperparameters="public_surrogate", **given)
    assert chosen.certificate.used["hyperparameters"] == "public_surrogate"
    with pytest.raises(ArgumentError, match="hyperparameters must be one of fixed, public_surrogate; got 'tuned'"):
        LabelSession(num_classes=2, epsilon=1.0, delta=1e-5, num_teachers=2000, hyperparameters="tuned")
