"""Noisy fractions: sessions, releases, refusals, votes per teacher."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import numpy as np
import pytest

import teacher_student as ts
from teacher_student import ArgumentError
from teacher_student.aggregation import Ledger
from teacher_student.aggregation.votes import keep_allowed, keep_first
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
    given = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "num_teachers": 100}
    one = ts.label_fractions(votes, noise=RecordedNoise([1, 2]), **given)
    two = ts.label_fractions(counts=[[50, 50]], noise=RecordedNoise([1, 2]), **given)
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
        assert first.remaining_units == 3
    with session(state=state) as second:
        again = second.answer(counts=COUNTS[[2, 1]], query_ids=["c", "b"])
        assert np.array_equal(again[1], answer[1])
        assert second.remaining_units == 2
        assert second.release().queries == ("a", "b", "c")


def test_few_votes_of_each_teacher(tmp_path):
    votes = np.full((4, 100), -1)
    votes[np.arange(100) % 4, np.arange(100)] = 1
    given = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "num_teachers": 100, "votes_per_teacher": 1}
    found = ts.label_fractions(votes, noise=RecordedNoise([0] * 8), **given)
    assert found.noisy_counts.tolist() == [[0, 25]] * 4
    assert found.fractions == pytest.approx(np.array([[0.0, 1.0]] * 4))
    assert found.certificate.parameters.votes_per_teacher == 1
    found.save(tmp_path / "out")
    assert np.array_equal(ts.FractionRelease.load(tmp_path / "out").fractions, found.fractions)
    votes[3, 0] = 0
    again = ts.label_fractions(votes, noise=RecordedNoise([0] * 8), **given)
    assert np.array_equal(again.codes, found.codes)


FEW = {"votes_per_teacher": 2, "max_answers": 100, "num_teachers": 3}


@pytest.mark.parametrize("kept", [False, True])
def test_a_teacher_has_its_votes_once_over_calls_and_restarts(tmp_path, kept):
    """A hundred calls once let a teacher vote a hundred times under a cap of one: epsilon was 14.4, the certificate said 1."""
    state = tmp_path / "s.sqlite" if kept else None
    mine = session(**FEW, noise=RecordedNoise([0] * 100), state=state)
    for number in range(10):
        if kept and number % 3 == 2:
            mine = session(**FEW, noise=RecordedNoise([0] * 100), state=state)
        mine.answer([[1, 0 if number == 5 else -1, -1]], query_ids=[number])
        mine.answer([[1, 1, 1]], query_ids=[number])  # asked again: no fresh answer, and no vote is used
    assert mine.release().noisy_counts.tolist() == [[0, 1], [0, 1], *[[0, 0]] * 3, [1, 0], *[[0, 0]] * 4]
    assert mine.answer([[0, 0, 0], [0, 0, 0]]).argmax(axis=1).tolist() == [0, 0]
    assert mine.release().noisy_counts[-2:].tolist() == [[2, 0], [1, 0]]


def test_what_is_dropped_of_a_teacher_depends_on_that_teacher_alone():
    rng = np.random.default_rng(0)
    votes = rng.integers(-1, 2, size=(30, 100))
    other = votes.copy()
    other[:, 17] = rng.integers(-1, 2, size=30)
    few = {"votes_per_teacher": 4, "max_answers": 30}
    moved = []
    for table in (votes, other):
        with session(**few, noise=RecordedNoise([0] * 100)) as mine:
            for start in range(0, 30, 7):
                mine.answer(table[start : start + 7])
            moved.append(mine.release().noisy_counts)
    assert np.abs(moved[0] - moved[1]).max() == 1
    assert 0 < np.abs(moved[0] - moved[1]).sum() <= 2 * 4


def test_counts_of_more_votes_than_the_teachers_have_are_refused(tmp_path):
    """Three teachers with two votes each: the seventh vote shows that the cap was not held."""
    state = tmp_path / "s.sqlite"
    with session(**FEW, state=state) as mine:
        mine.answer(counts=[[3, 0], [0, 1]], query_ids=["a", "b"])
    with session(**FEW, state=state) as mine:
        mine.answer(counts=[[3, 0]], query_ids=["a"])
        with pytest.raises(ArgumentError, match=r"^counts must add up to at most num_teachers \* votes_per_teacher = 6 over the"):
            mine.answer(counts=[[0, 1], [1, 1]])
        assert mine.remaining_units == 98
        mine.answer(counts=[[1, 1]])
        with pytest.raises(ArgumentError, match=r"^counts must be given in every call of a session with votes_per_teacher"):
            mine.answer([[-1, -1, -1]])
    with pytest.raises(ArgumentError, match="= 6 over the session"):
        release(counts=[[2, 1], [2, 1], [1, 0]], num_teachers=3, votes_per_teacher=2)
    with session(**FEW) as mine:
        mine.answer([[-1, -1, -1]])
        with pytest.raises(ArgumentError, match=r"^predictions must be given in every call"):
            mine.answer(counts=[[0, 0]])


def test_used_votes_that_were_changed_are_refused(tmp_path):
    state = tmp_path / "s.sqlite"
    with session(**FEW, state=state) as mine:
        mine.answer([[1, 1, 1]])
        with contextlib.closing(sqlite3.connect(state)) as database:
            kept = database.execute("SELECT form, votes, mark FROM used_votes").fetchone()
        mine.answer([[1, 1, 1]])
        with contextlib.closing(sqlite3.connect(state)) as database, database:
            database.execute("UPDATE used_votes SET form = ?, votes = ?, mark = ?", kept)
        with pytest.raises(ArgumentError, match=r"^state must be an undamaged session's file"):
            mine.answer([[1, 1, 1]])
        assert mine.remaining_units == 98


def test_a_session_from_before_used_votes_were_kept_takes_counts_alone(tmp_path):
    state = tmp_path / "s.sqlite"
    with session(**FEW, state=state) as mine:
        mine.answer(counts=[[1, 0]], query_ids=["a"])
        with contextlib.closing(sqlite3.connect(state)) as database, database:
            database.execute("DROP TABLE used_votes")
            database.execute("PRAGMA user_version = 2")
    with session(**FEW, state=state) as mine:
        answer = mine.answer([[0, 0, 0]], query_ids=["a"])
        assert answer.shape == (1, 2)
        with pytest.raises(ArgumentError, match=r"^predictions must not go into a session that began before"):
            mine.answer([[0, 0, 0]])
        mine.answer(counts=[[3, 3 - 3]])


def test_more_teachers_than_classes_fit_a_byte_can_abstain():
    """An unsigned byte holds no -1: abstentions once became votes for class 255."""
    votes = np.full((2, 1), 255, dtype=np.uint8)
    assert keep_allowed(votes, np.array([[0]])).tolist() == [[255], [-1]]
    assert keep_first(votes, np.zeros(1, dtype=np.int64), 1)[0].tolist() == [[255], [-1]]


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
        {"hyperparameters": "tuned"},
    ],
)
def test_bad_input(changes):
    with pytest.raises(ArgumentError):
        release(**changes)


def test_a_refused_call_spends_nothing():
    mine = session()
    with pytest.raises(ArgumentError):
        mine.answer(counts=[[101, 0]])
    assert mine.remaining_units == 5


def test_the_old_name_of_remaining_units_is_accepted_with_a_notice():
    with session() as mine, pytest.warns(FutureWarning, match=r"^FractionSession\.remaining_cutoff is now remaining_units"):
        assert mine.remaining_cutoff == mine.remaining_units == 5
