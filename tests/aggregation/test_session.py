"""A session: batches, names, restarts, refusals. Kills are in test_kills."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.mechanisms import GeneratorNoise, Noise, RecordedNoise, State
from teacher_student.privacy import calibrate

GOOD = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "num_teachers": 4000}
CLEAR, TIED = [4000, 0], [0, 0]


def on_the_edge(cutoff: int) -> list[int]:
    """Votes that are answered about every second time: 1.68 query scales above the threshold, (1 + 1.68) exp(-1.68) = 0.5."""
    chosen = calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=cutoff)
    return [2 * (chosen.threshold + round(1.68 * chosen.query_scale) + 1), 0]


def state_of(session: ts.LabelSession) -> State:
    with session._store.transaction() as stored:
        return State.from_dict(stored.state)


def test_batches_and_one_batch_are_the_same_session() -> None:
    votes = [CLEAR, TIED, [0, 4000], TIED, TIED, CLEAR]
    whole = ts.LabelSession(cutoff=3, **GOOD)
    assert whole.answer(counts=votes).tolist() == [0, -1, 1, -1, -1, -2]
    parts = ts.LabelSession(cutoff=3, **GOOD)
    assert [int(parts.answer(counts=[row])[0]) for row in votes] == [0, -1, 1, -1, -1, -2]
    for session in (whole, parts):
        assert (session.remaining_cutoff, session.halted) == (0, True)
        assert session.release().labels.tolist() == [0, -1, 1, -1, -1, -2]
        used = session.certificate.used
        assert (used["num_queries"], used["answered"], used["paid"]) == (6, 2, 3)


def test_the_number_of_teachers_holds_for_every_call_and_restart(tmp_path: Path) -> None:
    """Chunks of any width were once accepted, and certified for a number of teachers that nobody had stated."""
    with pytest.raises(ts.ArgumentError, match=r"^num_teachers must be given: say how many teachers vote"):
        ts.LabelSession(num_classes=2, epsilon=1.0, delta=1e-5)
    session = ts.LabelSession(state=tmp_path / "s.sqlite", **GOOD | {"num_teachers": 3})
    session.answer([[0, 1, -1]])
    for chunk in ([[0, 1]], [[0, 1, 1, 1]], [[0], [1], [0]]):
        with pytest.raises(ts.ArgumentError, match=r"^predictions must have a column for each of num_teachers = 3, got"):
            session.answer(chunk)
    with pytest.raises(ts.ArgumentError, match=r"^counts must add up to at most num_teachers = 3 in each row"):
        session.answer(counts=[[2, 2]])
    assert len(session.release().labels) == 1
    with pytest.raises(ts.ArgumentError, match=r"^num_teachers must be what the session began with, 3, got 4"):
        ts.LabelSession(state=tmp_path / "s.sqlite", **GOOD | {"num_teachers": 4})


def test_a_halted_session_says_so_at_no_cost() -> None:
    session = ts.LabelSession(cutoff=1, **GOOD)
    session.answer(counts=[TIED])
    before = state_of(session)
    assert session.answer(counts=[CLEAR, CLEAR]).tolist() == [ts.HALTED] * 2
    assert state_of(session) == before


def test_a_name_asked_again_gets_its_recorded_answer() -> None:
    session = ts.LabelSession(cutoff=1000, **GOOD)
    edge = on_the_edge(1000)
    first = session.answer(counts=[edge] * 60, query_ids=range(60))
    assert len(set(first.tolist())) == 2  # both outcomes occur (else p < 1e-9), so fresh noise would show
    paid = session.remaining_cutoff
    assert session.answer(counts=[edge] * 60, query_ids=[str(name) for name in range(60)]).tolist() == first.tolist()
    again = [int(np.argmax(first)), int(np.argmin(first))]
    assert session.answer(counts=[TIED] * 2, query_ids=again).tolist() == first[again].tolist()
    assert session.remaining_cutoff == paid
    assert len(session.release().labels) == 60


@pytest.mark.parametrize("names", [["x", "x"], [1, "1"], [3, 3]])
def test_a_name_twice_in_one_call_is_refused(names: list) -> None:
    """Once both got the label of the first one's votes, and the second one's were silently dropped."""
    session = ts.LabelSession(**GOOD)
    with pytest.raises(ts.ArgumentError, match=r"^query_ids must name each query once, got '\w' twice; ask it again in another"):
        session.answer(counts=[CLEAR, TIED], query_ids=names)
    assert len(session.release().labels) == 0
    assert session.remaining_cutoff == 50


@pytest.mark.parametrize("query_ids", ["ab", 7, [1], [1, 2, 3], [1.5, 2], [None, 1], [[1, 2]], [True, 1], {1, 2}])
def test_bad_names_are_refused(query_ids: object) -> None:
    session = ts.LabelSession(**GOOD)
    with pytest.raises(ts.ArgumentError, match=r"^query_ids must [^\n]+$"):
        session.answer(counts=[CLEAR, CLEAR], query_ids=query_ids)
    assert len(session.release().labels) == 0


@pytest.mark.parametrize("counts", [[], [[1, -1]], [[1.5, 0]], [[float("nan"), 0]], [[1, 2], [3]], [[1, 2, 3]], [[3, 3]], None])
@pytest.mark.parametrize("kept", [False, True])
def test_a_refused_batch_spends_nothing(tmp_path: Path, counts: object, kept: bool) -> None:
    session = ts.LabelSession(state=tmp_path / "s.sqlite" if kept else None, **GOOD | {"num_teachers": 5})
    before = state_of(session)
    with pytest.raises(ts.ArgumentError):
        session.answer(counts=counts)
    assert state_of(session) == before
    assert len(session.release().labels) == 0


def test_a_failure_in_the_mechanism_records_nothing(tmp_path: Path) -> None:
    class Failing(Noise):
        left = 2

        def _next(self, scale, size):
            self.left -= 1
            if self.left < 0:
                raise OSError("no entropy")
            return np.zeros(size, dtype=np.int64)

        discrete_laplace = discrete_gaussian = two_geometrics = _next

    for state in (None, tmp_path / "s.sqlite"):
        session = ts.LabelSession(state=state, noise=Failing(), **GOOD)
        session.answer(counts=[CLEAR])
        with pytest.raises(OSError, match="no entropy"):
            session.answer(counts=[CLEAR])
        assert session.release().labels.tolist() == [0]


def test_reopened_it_continues_under_the_same_threshold(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    first = ts.LabelSession(cutoff=3, state=path, **GOOD)
    first.answer(counts=[TIED, CLEAR, TIED])
    with ts.LabelSession(cutoff=3, state=path, **GOOD) as again:
        assert state_of(again) == state_of(first)
        assert again.remaining_cutoff == 1
        assert again.answer(counts=[CLEAR, TIED, CLEAR]).tolist() == [0, -1, -2]
        assert again.release().labels.tolist() == [-1, 0, -1, 0, -1, -2]
    assert first.halted


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 2.0},
        {"delta": 1e-6},
        {"cutoff": 4},
        {"num_classes": 3},
        {"mechanism": "stability_laplace"},
        {"num_teachers": 9},
        {"neighbours": "replace_one"},
        {"threshold_ratio": 2.7},
    ],
)
def test_reopened_with_other_parameters_it_is_refused(tmp_path: Path, change: dict) -> None:
    given = {"cutoff": 3, "state": tmp_path / "s.sqlite", **GOOD}
    ts.LabelSession(**given)
    with pytest.raises(ts.ArgumentError, match=r"must be what the session began with, "):
        ts.LabelSession(**{**given, **change})
    assert not ts.LabelSession(**given).halted


def test_the_files_are_for_the_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.touch(mode=0o644)
    ts.LabelSession(state=path, **GOOD).answer(counts=[CLEAR])
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()} == {
        "s.sqlite": "0o600",
        "s.sqlite.witness": "0o600",
    }


def test_every_commit_is_forced_to_disk(tmp_path: Path) -> None:
    database = ts.LabelSession(state=tmp_path / "s.sqlite", **GOOD)._store._database
    with database.transaction() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_once_not_private_never_private_again(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    assert ts.LabelSession(state=path, **GOOD).certificate.private
    ts.LabelSession(state=path, noise=GeneratorNoise(np.random.default_rng(0)), **GOOD).answer(counts=[CLEAR])
    session = ts.LabelSession(state=path, **GOOD)
    session.answer(counts=[CLEAR])
    assert not session.certificate.private
    assert not ts.LabelSession(noise=RecordedNoise([0]), **GOOD).certificate.private


def copied(path: Path) -> Path:
    shutil.copy(path, path.with_name("copy.sqlite"))
    return path.with_name("copy.sqlite")


def copied_with_witness(path: Path) -> Path:
    shutil.copy(f"{path}.witness", path.with_name("copy.sqlite.witness"))
    return copied(path)


def replaced_by_a_copy(path: Path) -> Path:
    copied(path).rename(path)
    return path


def rolled_back(path: Path) -> Path:
    """Restored in place from a backup made one answer ago: the same file, older content."""
    backup = copied(path)
    open_session(path).answer(counts=[TIED])
    path.write_bytes(backup.read_bytes())
    return path


def forked(path: Path) -> Path:
    """Restored from a backup, and continued by a program that ignores the witness."""
    rolled_back(path)
    with sqlite3.connect(path) as connection:
        row = connection.execute(
            "SELECT number + 1, state, private, end, link, labels FROM batches ORDER BY number DESC"
        ).fetchone()
        connection.execute("INSERT INTO batches (number, state, private, end, link, labels) VALUES (?, ?, ?, ?, ?, ?)", row)
    connection.close()
    return path


def deleted(path: Path) -> Path:
    path.unlink()
    return path


def emptied(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def damaged(path: Path) -> Path:
    """An answer before the newest, which the witness knows, was changed."""
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE batches SET state = replace(state, '\"paid\": 1', '\"paid\": 0')")
    connection.close()
    return path


def another_program(path: Path) -> Path:
    path.write_text("no database at all\n" * 300)
    return path


def a_folder(path: Path) -> Path:
    path.with_name("folder").mkdir()
    return path.with_name("folder")


def nowhere(path: Path) -> Path:
    return path.with_name("missing") / "s.sqlite"


def without_witness(path: Path) -> Path:
    Path(f"{path}.witness").unlink()
    return path


def open_session(path: Path) -> ts.LabelSession:
    return ts.LabelSession(cutoff=3, state=path, **GOOD)


SPOILED = [copied, copied_with_witness, replaced_by_a_copy, rolled_back, forked, deleted, emptied, damaged, another_program]


@pytest.mark.parametrize("spoil", [*SPOILED, a_folder, nowhere, without_witness])
def test_a_state_file_that_is_not_the_session_s_own_is_refused(tmp_path: Path, spoil) -> None:
    path = tmp_path / "s.sqlite"
    open_session(path).answer(counts=[TIED, CLEAR])
    with pytest.raises(ts.ArgumentError, match=r"^state must [^\n]+$"):
        open_session(spoil(path))


@pytest.mark.parametrize("spoil", [rolled_back, replaced_by_a_copy, emptied, deleted])
def test_an_open_session_notices_too(tmp_path: Path, spoil) -> None:
    path = tmp_path / "s.sqlite"
    session = open_session(path)
    session.answer(counts=[TIED, CLEAR])
    spoil(path)
    with pytest.raises(ts.ArgumentError, match=r"^state must "):
        session.answer(counts=[CLEAR])


def test_a_moved_session_continues(tmp_path: Path) -> None:
    open_session(tmp_path / "a.sqlite").answer(counts=[TIED])
    (tmp_path / "a.sqlite").rename(tmp_path / "b.sqlite")
    (tmp_path / "a.sqlite.witness").rename(tmp_path / "b.sqlite.witness")
    assert open_session(tmp_path / "b.sqlite").remaining_cutoff == 2


def test_threads_share_one_budget() -> None:
    session, seen = ts.LabelSession(cutoff=20, **GOOD), []
    threads = [threading.Thread(target=lambda: seen.extend(session.answer(counts=[TIED] * 3).tolist())) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (seen.count(ts.ABSTAIN), seen.count(ts.HALTED)) == (20, 16)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_copy_in_memory_is_refused() -> None:
    session = ts.LabelSession(**GOOD)
    child = os.fork()
    if not child:
        try:
            session.answer(counts=[CLEAR])
        except ts.ArgumentError as error:
            os._exit(0 if "forked copy" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_closed_session_in_memory_is_refused() -> None:
    with ts.LabelSession(**GOOD) as session:
        session.answer(counts=[CLEAR])
    with pytest.raises(ts.ArgumentError, match="closed"):
        session.answer(counts=[CLEAR])


FULL_DISK = """
import resource, signal, sys
import teacher_student as ts
given = dict(num_classes=2, epsilon=1.0, delta=1e-5, num_teachers=4000, state=sys.argv[1])
session = ts.LabelSession(**given)
assert session.answer(counts=[[4000, 0]]).tolist() == [0]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
try:
    session.answer(counts=[[4000, 0]] * 30_000)
except ts.ArgumentError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(ts.LabelSession(**given).release().labels.tolist())
"""


@pytest.mark.slow  # test_online has the same for a database that cannot grow
@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
def test_a_full_disk_hands_nothing_out_and_records_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "s.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    refusal, labels = done.stdout.splitlines()
    assert refusal.startswith("state must be a file of its own that can be written")
    assert labels == "[0]"
