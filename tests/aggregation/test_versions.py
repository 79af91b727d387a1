"""Files of earlier versions are upgraded; those of later ones, and of other programs, are refused and left unchanged."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.aggregation import Ledger
from teacher_student.privacy import calibrate

GOOD = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "num_teachers": 4000, "cutoff": 3}
CLEAR, TIED = [4000, 0], [0, 0]

LEDGERS = (
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, session TEXT NOT NULL UNIQUE, dataset TEXT NOT NULL, "
    "neighbours TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, parameters TEXT NOT NULL, "
    "time TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)",
    "CREATE TABLE accounts (dataset TEXT PRIMARY KEY, epsilon REAL NOT NULL, delta REAL NOT NULL, filter TEXT NOT NULL)",
    "CREATE TABLE links (session TEXT PRIMARY KEY, number INTEGER NOT NULL, link TEXT NOT NULL)",
)
"""Tables of the versions before the mark: a file of version n has the first n of them."""

SESSION = (
    "CREATE TABLE session (settings TEXT NOT NULL)",
    "CREATE TABLE batches (number INTEGER PRIMARY KEY, state TEXT NOT NULL, private INTEGER NOT NULL, "
    "end INTEGER NOT NULL, link TEXT NOT NULL, labels BLOB NOT NULL, time TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)",
    "CREATE TABLE queries (query_id TEXT PRIMARY KEY, position INTEGER NOT NULL, label INTEGER NOT NULL) WITHOUT ROWID",
)


@contextlib.contextmanager
def opened(path: Path):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        yield connection


def header(path: Path) -> tuple[int, int]:
    with opened(path) as connection:
        return tuple(connection.execute(f"PRAGMA {field}").fetchone()[0] for field in ("user_version", "application_id"))


def old_ledger(path: Path, version: int) -> None:
    parameters = calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=3)
    with opened(path) as connection:
        for statement in LEDGERS[:version]:
            connection.execute(statement)
        connection.execute(
            "INSERT INTO entries (session, dataset, neighbours, epsilon, delta, parameters) VALUES (?, ?, ?, ?, ?, ?)",
            ["a", "adult", "add_remove", 1.0, 1e-5, json.dumps(parameters.to_dict())],
        )
        if version > 1:
            connection.execute("INSERT INTO accounts VALUES ('adult', 2.5, 1e-4, 'basic')")
        if version > 2:
            connection.execute("INSERT INTO links VALUES ('a', 7, 'abc')")
        connection.execute(f"PRAGMA user_version = {version}")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_old_ledger_keeps_its_entries_budgets_and_links(tmp_path: Path, version: int) -> None:
    old_ledger(tmp_path / "l.sqlite", version)
    ledger = Ledger(tmp_path / "l.sqlite")
    assert [(entry.session, entry.dataset, entry.epsilon) for entry in ledger.entries()] == [("a", "adult", 1.0)]
    assert ledger.account("adult").guard("a").newest() == ((7, "abc") if version > 2 else None)
    account = ledger.account("adult")
    assert account.spent == (0.4 if version > 1 else 0)
    second = ts.label(counts=[CLEAR], account=account, **GOOD)
    assert second.certificate.total(1e-4) == 2.0
    assert header(tmp_path / "l.sqlite") == (4, 0x74735F6C)


def old_session(path: Path, num_teachers: str = "4000") -> list[int]:
    """Write a session of version 1 by hand: the threshold and two batches, with links and witness."""
    with ts.LabelSession(**GOOD) as model:  # provides settings and states
        with model._store.transaction() as stored:
            (settings,) = stored._connection.execute("SELECT settings FROM session").fetchone()
            settings = settings.replace('"num_teachers": 4000', f'"num_teachers": {num_teachers}')
            states = [json.dumps(stored.state, sort_keys=True)]
        labels = [[]]
        for votes in (CLEAR, TIED):
            labels.append(model.answer(counts=[votes]).tolist())
            with model._store.transaction() as stored:
                states.append(json.dumps(stored.state, sort_keys=True))
    previous, end = settings, 0
    with opened(path) as connection:
        for statement in SESSION:
            connection.execute(statement)
        connection.execute("INSERT INTO session VALUES (?)", [settings])
        for number, (state, batch) in enumerate(zip(states, labels, strict=True)):
            data, end = np.array(batch, dtype="<i8").tobytes(), end + len(batch)
            parts = (previous, number, state, True, end, blake2b(data).hexdigest())
            previous = blake2b(json.dumps(parts).encode()).hexdigest()
            connection.execute(
                "INSERT INTO batches (number, state, private, end, link, labels) VALUES (?, ?, ?, ?, ?, ?)",
                [number, state, True, end, previous, data],
            )
        connection.execute("INSERT INTO queries VALUES ('first', 0, ?)", labels[1])
        connection.execute("PRAGMA user_version = 1")
    with opened(Path(f"{path}.witness")) as connection:
        connection.execute("CREATE TABLE witness (session TEXT NOT NULL, inode TEXT NOT NULL, number INTEGER, link TEXT)")
        connection.execute("INSERT INTO witness VALUES ('s', ?, 2, ?)", [str(path.stat().st_ino), previous])
    return [*labels[1], *labels[2]]


@pytest.mark.parametrize("num_teachers", ["4000", "null"])
def test_an_old_session_continues(tmp_path: Path, num_teachers: str) -> None:
    """Also one that was begun without a number of teachers, which was once allowed."""
    path = tmp_path / "s.sqlite"
    given = old_session(path, num_teachers)
    for _ in range(2):
        with ts.LabelSession(state=path, **GOOD) as session:
            assert session.release().labels.tolist() == given == [0, -1]
            assert session.remaining_cutoff == 2
            assert session.answer(counts=[TIED], query_ids=["first"]).tolist() == [0]
    assert header(path) == (3, 0x74735F73)
    with ts.LabelSession(state=path, **GOOD) as session:
        assert session.answer(counts=[TIED, CLEAR, TIED, CLEAR]).tolist() == [-1, 0, -1, -2]


def make_ledger(path: Path) -> None:
    Ledger(path).account("adult", epsilon=1.0, delta=1e-5)


def make_session(path: Path) -> None:
    ts.LabelSession(state=path, **GOOD).answer(counts=[CLEAR])


def open_ledger(path: Path) -> None:
    Ledger(path)


def open_session(path: Path) -> None:
    Path(f"{path}.witness").exists() or make_witness(path)
    ts.LabelSession(state=path, **GOOD)


def make_witness(path: Path) -> None:
    with opened(Path(f"{path}.witness")) as connection:
        connection.execute("CREATE TABLE witness (session TEXT NOT NULL, inode TEXT NOT NULL, number INTEGER, link TEXT)")
        connection.execute("INSERT INTO witness VALUES ('s', ?, NULL, NULL)", [str(path.stat().st_ino)])


@pytest.mark.parametrize(("make", "open_it"), [(make_ledger, open_ledger), (make_session, open_session)])
def test_a_file_of_a_later_version_is_refused_and_left_alone(tmp_path: Path, make, open_it) -> None:
    path = tmp_path / "file"
    make(path)
    with opened(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(
        ts.ArgumentError, match=r"^(ledger|state) must be a \w+'s file of version \d or older, got version 99; up"
    ):
        open_it(path)
    assert path.read_bytes() == before


def make_other(path: Path) -> None:
    with opened(path) as connection:
        connection.execute("CREATE TABLE entries (bookmark TEXT)")


def make_other_with_version(path: Path) -> None:
    make_other(path)
    with opened(path) as connection:
        connection.execute("CREATE TABLE batches (cookie TEXT)")
        connection.execute("PRAGMA user_version = 12")


@pytest.mark.parametrize(
    ("make", "open_it"),
    [
        (make_other, open_ledger),
        (make_other, open_session),
        (make_other_with_version, open_ledger),
        (make_other_with_version, open_session),
        (make_session, open_ledger),
        (make_ledger, open_session),
        (old_session, open_ledger),
        (lambda path: old_ledger(path, 1), open_session),
    ],
)
def test_another_program_s_database_is_refused_and_left_alone(tmp_path: Path, make, open_it) -> None:
    path = tmp_path / "file"
    make(path)
    with opened(path) as connection:
        before = list(connection.iterdump())
    with pytest.raises(ts.ArgumentError, match=r"^(ledger|state) must be a \w+'s file, got a file of another kind$"):
        open_it(path)
    with opened(path) as connection:
        assert list(connection.iterdump()) == before


@pytest.mark.parametrize("content", [None, b"", b"no database at all\n" * 300])
def test_a_ledger_that_must_exist_is_not_made(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "l.sqlite"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o644)
    with pytest.raises(ts.ArgumentError, match=r"^ledger must be [^\n]+$"):
        Ledger.existing(path)
    assert (path.read_bytes() if path.exists() else None) == content
    assert content is None or path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(ts.ArgumentError, match=r"^ledger must be [^\n]+$"):
        Ledger.existing(tmp_path)


EARLIER = {
    f"{path.stem} {name}": files
    for path in sorted((Path(__file__).parent / "earlier_files").glob("*.json"))
    for name, files in json.loads(path.read_text(encoding="utf-8")).items()
}
"""Releases and sessions of every kind, as the code of two earlier commits wrote them, databases as SQL scripts."""


def restored(path: Path, database: dict) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("".join(database["script"]))
        for field, value in zip(("user_version", "application_id"), database["marks"], strict=True):
            connection.execute(f"PRAGMA {field} = {value}")


@pytest.mark.parametrize("files", EARLIER.values(), ids=EARLIER)
def test_an_earlier_release_of_every_kind_loads(tmp_path: Path, files: dict) -> None:
    for name, text in files["release"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = ts.load_release(tmp_path)
    codes = found.labels if isinstance(found, ts.Release) else found.codes
    assert codes.tolist() == files["codes"]
    found.certificate.verify()
    assert found.queries == (tuple(f"q{number}" for number in range(len(codes))) if "state" in files else None)
    found.save(tmp_path / "again")
    table = found.FILE
    assert (tmp_path / "again" / table).read_text() == files["release"][table]


@pytest.mark.parametrize("files", [files for files in EARLIER.values() if "state" in files], ids=lambda files: files["session"])
def test_an_earlier_session_of_every_kind_continues(tmp_path: Path, files: dict) -> None:
    """Recorded answers are repeated, whatever the votes, and the rest of the budget is available."""
    path = tmp_path / "s.sqlite"
    restored(path, files["state"])
    restored(Path(f"{path}.witness"), files["witness"])
    with opened(Path(f"{path}.witness")) as connection:
        connection.execute("UPDATE witness SET inode = ?", [str(path.stat().st_ino)])
    recorded = np.array(files["answers"], dtype=float).squeeze()
    names, arguments, form = [f"q{number}" for number in range(len(recorded))], files["arguments"], files["form"]
    votes = np.zeros((len(recorded), 2), dtype=int)
    if form == "predictions":
        votes = np.zeros((len(recorded), 4), dtype=int)
    elif form == "scores":
        votes = np.full((len(recorded), 400, 2)[: 3 if "num_classes" in arguments else 2], 0.9)
    with getattr(ts, files["session"])(state=path, **arguments) as session:
        again = session.answer(**{form: votes}, query_ids=names)
        assert np.array_equal(np.squeeze(again).astype(float), recorded, equal_nan=True)
        release = session.release()
        assert (release.labels if isinstance(release, ts.Release) else release.codes).tolist() == files["codes"]
        assert json.loads(files["release"]["certificate.json"])["parameters"] == release.certificate.parameters.to_dict()
        assert not session.halted
        if not any("used_votes" in line for line in files["state"]["script"]) and "votes_per_teacher" in arguments:
            return  # a session that began before used votes were recorded takes no more votes
        assert len(session.answer(**{form: votes})) == len(votes)
        assert len(session.release().certificate.used) >= 5
        assert session.release().certificate.used["num_queries"] > release.certificate.used["num_queries"]
