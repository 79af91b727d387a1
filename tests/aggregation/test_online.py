"""Sessions online: batches of any size, readers beside a writer, adaptive queries, full disks, wrong clocks."""

from __future__ import annotations

import ast
import contextlib
import datetime
import multiprocessing
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.aggregation import session as session_module
from teacher_student.aggregation.database import FileDatabase
from teacher_student.mechanisms import RecordedNoise, State
from teacher_student.privacy import calibrate

GOOD: dict[str, Any] = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "num_teachers": 4000}
CLEAR, TIED = [4000, 0], [0, 0]


def state_of(session: ts.LabelSession) -> State:
    with session._store.transaction() as stored:
        return State.from_dict(stored.state)


def edge(cutoff: int) -> list[int]:
    """Votes that are answered about every second time."""
    chosen = calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=cutoff)
    return [2 * (chosen.threshold + round(1.68 * chosen.query_scale) + 1), 0]


# Batches of one to a million.


@pytest.mark.parametrize("size", [1, 1000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_batches_of_any_size_are_recorded_whole(tmp_path: Path, size: int) -> None:
    path, votes = tmp_path / "s.sqlite", np.zeros((size, 2), dtype=np.int32)
    votes[np.arange(size), np.arange(size) % 2] = 4000
    with ts.LabelSession(state=path, **GOOD) as session:
        first = session.answer(counts=votes, query_ids=range(size))
        assert first.tolist() == (np.arange(size) % 2).tolist()
        assert np.array_equal(session.answer(counts=votes[::-1], query_ids=range(size)), first)
        assert session.answer(counts=votes[:1]).tolist() == [0]
    with ts.LabelSession(state=path, **GOOD) as session:
        assert session.certificate.used["num_queries"] == size + 1
        assert np.array_equal(session.release().labels[:size], first)


# Readers beside a writer.


def write(path: Path, batches: int) -> None:
    session = ts.LabelSession(cutoff=1000, state=path, **GOOD)
    for number in range(batches):
        session.answer(counts=[edge(1000)] * 7, query_ids=[f"{number}:{place}" for place in range(7)])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_reader_sees_whole_batches_that_never_change(tmp_path: Path) -> None:
    """Another process writes; whatever is read at any moment is a prefix of the final release."""
    path, seen = tmp_path / "s.sqlite", []
    reader = ts.LabelSession(cutoff=1000, state=path, **GOOD)
    writer = multiprocessing.get_context("fork").Process(target=write, args=(path, 15))
    writer.start()
    while writer.is_alive():
        release = reader.release()
        seen.append(release.labels.tolist())
        used = release.certificate.used
        assert used["num_queries"] == len(release.labels) == 7 * (len(release.labels) // 7)
        assert (used["answered"], used["paid"]) == (seen[-1].count(0), seen[-1].count(ts.ABSTAIN))
    writer.join()
    assert writer.exitcode == 0
    final = reader.release().labels.tolist()
    assert len(final) == 105
    assert all(final[: len(labels)] == labels for labels in seen)


# Queries chosen for what was answered.


def test_queries_may_be_chosen_for_earlier_answers(tmp_path: Path) -> None:
    """A search for the secret threshold: each query's gap depends on the last answer. It pays like any other session."""
    path, gap, asked = tmp_path / "s.sqlite", 400, 0
    session = ts.LabelSession(cutoff=12, state=path, **GOOD)
    while not session.halted and asked < 100:
        (label,) = session.answer(counts=[[gap, 0]], query_ids=[asked])
        gap, asked = max(0, gap - 40 if label == 0 else gap + 30), asked + 1
        if asked % 10 == 0:
            session = ts.LabelSession(cutoff=12, state=path, **GOOD)
    session = ts.LabelSession(cutoff=12, state=path, **GOOD)
    labels = session.release().labels
    assert (labels == ts.ABSTAIN).sum() == 12 - session.remaining_cutoff
    assert len(labels) == asked
    assert session.answer(counts=[CLEAR] * 3, query_ids=["a", 0, 1]).tolist()[1:] == labels[:2].tolist()
    assert session.certificate.verify() <= 1.0


def test_adaptive_queries_are_answered_as_the_algorithm_says() -> None:
    """With recorded noise: each query's distance depends on earlier answers, and each answer is that of the inequality."""
    chosen = calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=5)
    noise = [3, *range(40)]
    session = ts.LabelSession(cutoff=5, noise=RecordedNoise(noise), **GOOD)
    distance, paid = chosen.threshold + 4, 0
    for place in range(40):
        (label,) = session.answer(counts=[[2 * (distance + 1), 0]])
        expected = 0 if distance - place > chosen.threshold + 3 else ts.ABSTAIN
        assert label == (ts.HALTED if paid == 5 else expected)
        paid += label == ts.ABSTAIN
        distance += 2 if label == ts.ABSTAIN else 0
    assert paid == 5


# A disk that is full.


@contextlib.contextmanager
def full(monkeypatch: pytest.MonkeyPatch, path: Path) -> Iterator[None]:
    """Let no page be added to the file at `path`, so that SQLite reports a full disk."""
    connect = FileDatabase._connect

    def limited(self: FileDatabase) -> sqlite3.Connection:
        connection = connect(self)
        if self.path == path:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(FileDatabase, "_connect", limited)
        yield


def test_on_a_full_disk_nothing_is_handed_out_and_nothing_answered_anew(tmp_path: Path, monkeypatch) -> None:
    path, names = tmp_path / "s.sqlite", [f"{'long name ' * 20}{place}" for place in range(200)]
    session = ts.LabelSession(cutoff=1000, state=path, **GOOD)
    first = session.answer(counts=[edge(1000)] * 50, query_ids=names[:50])
    before = state_of(session)
    with full(monkeypatch, path):
        for _ in range(3):
            with pytest.raises(ts.ArgumentError, match=r"^state must be .*: database or disk is full$"):
                session.answer(counts=[edge(1000)] * 200, query_ids=names)
        assert session.answer(counts=[CLEAR] * 50, query_ids=names[:50]).tolist() == first.tolist()
    assert state_of(session) == before
    assert session.release().labels.tolist() == first.tolist()
    again = session.answer(counts=[edge(1000)] * 200, query_ids=names)
    assert again[:50].tolist() == first.tolist()
    assert state_of(session).noisy_threshold == before.noisy_threshold


def test_an_answer_that_was_committed_but_not_witnessed_is_not_drawn_again(tmp_path: Path, monkeypatch) -> None:
    """The witness fails after the commit: nothing is handed out, and a repeated call returns the committed labels."""
    path = tmp_path / "s.sqlite"
    session = ts.LabelSession(cutoff=1000, state=path, **GOOD)
    (witness,) = session._store._guards
    with monkeypatch.context() as patch:
        patch.setattr(type(witness), "confirm", lambda *given: (_ for _ in ()).throw(sqlite3.OperationalError("full")))
        with pytest.raises(sqlite3.OperationalError):
            session.answer(counts=[edge(1000)] * 60, query_ids=range(60))
    committed = session.release().labels
    assert len(set(committed.tolist())) == 2
    assert session.answer(counts=[edge(1000)] * 60, query_ids=range(60)).tolist() == committed.tolist()


# Clocks.


def test_clocks_that_jump_change_nothing(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "s.sqlite"
    votes = [edge(1000)] * 40
    first = ts.LabelSession(cutoff=1000, state=path, **GOOD).answer(counts=votes, query_ids=range(40))
    for jump in (-1e9, 1e9):
        for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter"):
            clock = getattr(time, name)
            monkeypatch.setattr(time, name, lambda clock=clock, jump=jump: clock() + type(clock())(jump))
        os.utime(path, (time.time(), time.time()))
        stamp = (datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=jump)).isoformat(" ")
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE batches SET time = ?", [stamp])
        session = ts.LabelSession(cutoff=1000, state=path, **GOOD)
        assert session.answer(counts=[CLEAR] * 40, query_ids=range(40)).tolist() == first.tolist()
        assert session.remaining_cutoff == 1000 - int((first == ts.ABSTAIN).sum())


def test_no_clock_is_read_in_this_room() -> None:
    for path in Path(session_module.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"time", "datetime"}, path
