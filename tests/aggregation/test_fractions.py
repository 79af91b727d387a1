"""Noisy fractions through the door: sessions, releases, refusals, kills."""

from __future__ import annotations

import json

import numpy as np
import pytest

import teacher_student as ts
from teacher_student import ArgumentError
from teacher_student.aggregation import Ledger
from teacher_student.mechanisms import RecordedNoise
from teacher_student.pipeline.files import verify_folder

COUNTS = np.array([[60, 40], [90, 10], [5, 95]])


def release(**changes):
    return ts.label_fractions(
        **({"counts": COUNTS, "num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "num_teachers": 100} | changes)
    )


def session(**changes):
    given = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "max_answers": 5, "num_teachers": 100}
    return ts.FractionSession(**(given | changes))


def test_fractions_are_unbiased_shares():
    found = release(noise=RecordedNoise([10, -10, 3, 5, -50, 0]))
    assert found.noisy_counts.tolist() == [[70, 30], [93, 15], [-45, 95]]
    assert found.fractions == pytest.approx(np.array([[0.7, 0.3], [0.89, 0.11], [-0.2, 1.2]]))
    assert found.labels.tolist() == [0, 0, 1]
    assert not found.certificate.private


def test_predictions_and_counts_say_the_same():
    votes = np.repeat([[0, 1]], 50, axis=1).reshape(1, -1)
    given = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5}
    one = ts.label_fractions(votes, noise=RecordedNoise([1, 2]), **given)
    two = ts.label_fractions(counts=[[50, 50]], num_teachers=100, noise=RecordedNoise([1, 2]), **given)
    assert np.array_equal(one.codes, two.codes)


def test_save_load_and_verify(tmp_path):
    found = release(max_answers=2)
    found.save(tmp_path / "out")
    found.save(tmp_path / "out")
    loaded = ts.FractionRelease.load(tmp_path / "out")
    assert np.array_equal(loaded.codes, found.codes)
    assert loaded.labels.tolist()[2] == ts.HALTED
    assert np.isnan(loaded.fractions[2]).all()
    assert "noisy_fraction is (1, 1e-05)-private" in verify_folder(tmp_path / "out")


@pytest.mark.parametrize("change", ["more", "noise", "teachers", "order", "huge"])
def test_a_table_that_is_not_the_certificates_is_refused(tmp_path, change):
    release(max_answers=2).save(tmp_path)
    table, certificate = tmp_path / "fractions.csv", tmp_path / "certificate.json"
    lines = table.read_text().splitlines()
    if change == "more":
        lines[5] = "2,0,7"
        lines[6] = "2,1,7"
    elif change == "noise":
        lines[1] = "0,0,"
    elif change == "huge":
        lines[1] = f"0,0,{10**20}"
    elif change == "order":
        lines[1], lines[2] = lines[2], lines[1]
    else:
        fields = json.loads(certificate.read_text())
        fields["used"]["num_teachers"] = None
        certificate.write_text(json.dumps(fields))
    table.write_text("\n".join(lines) + "\n")
    with pytest.raises(ArgumentError):
        ts.FractionRelease.load(tmp_path)


def test_a_query_asked_again_gets_what_it_got(tmp_path):
    state = tmp_path / "state.sqlite"
    with session(state=state) as first:
        answer = first.answer(counts=COUNTS[:2], query_ids=["a", "b"])
        assert first.remaining_cutoff == 3
    with session(state=state) as second:
        again = second.answer(counts=COUNTS[[2, 1]], query_ids=["c", "b"])
        assert np.array_equal(again[1], answer[1])
        assert second.remaining_cutoff == 2
        assert second.release().queries == ("a", "b", "c")


def test_few_votes_of_each_teacher(tmp_path):
    votes = np.full((4, 100), -1)
    votes[np.arange(100) % 4, np.arange(100)] = 1
    found = ts.label_fractions(votes, num_classes=2, epsilon=1.0, delta=1e-5, votes_per_teacher=1, noise=RecordedNoise([0] * 8))
    assert found.noisy_counts.tolist() == [[0, 25]] * 4
    assert found.fractions == pytest.approx(np.array([[0.0, 1.0]] * 4))
    assert found.certificate.parameters.votes_per_teacher == 1
    found.save(tmp_path / "out")
    assert np.array_equal(ts.FractionRelease.load(tmp_path / "out").fractions, found.fractions)
    votes[0, 1] = 0
    with pytest.raises(ArgumentError, match="at most 1 votes"):
        ts.label_fractions(votes, num_classes=2, epsilon=1.0, delta=1e-5, votes_per_teacher=1)


def test_halts_at_the_cap_within_a_batch():
    with session(max_answers=2) as mine:
        assert np.isnan(mine.answer(counts=COUNTS)).all(1).tolist() == [False, False, True]
        assert mine.halted
        assert np.isnan(mine.answer(counts=COUNTS)).all()


def test_pays_from_an_account_before_noise(tmp_path):
    account = Ledger(tmp_path / "ledger.sqlite").account("people", epsilon=1.5, delta=1e-4)
    release(account=account)
    with pytest.raises(ArgumentError, match="epsilon"):
        release(account=account)


@pytest.mark.parametrize(
    "changes",
    [
        {"counts": [[60, 41]]},
        {"counts": [[60, -1]]},
        {"counts": [[1, 2, 3]]},
        {"epsilon": 0.0},
        {"delta": 1.0},
        {"max_answers": 4},
        {"max_answers": 0},
        {"num_teachers": None},
        {"num_classes": 0},
        {"neighbours": "other"},
        {"noise": 7},
        {"votes_per_teacher": 0},
        {"votes_per_teacher": "few"},
    ],
)
def test_bad_input(changes):
    with pytest.raises(ArgumentError):
        release(**changes)


def test_a_refused_call_spends_nothing():
    mine = session()
    with pytest.raises(ArgumentError):
        mine.answer(counts=[[101, 0]])
    assert mine.remaining_cutoff == 5
