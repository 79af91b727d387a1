"""Storage of a session's state: in memory, or in an SQLite file that survives any end of the process.

A store opens one `Transaction` at a time. The session reads the state from it, asks the mechanism, and records labels and new
state in it. Labels may be handed out only after the transaction has closed, so the budget is written before the answer. If
anything fails in between, nothing was handed out and nothing is recorded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.database import Database, MemoryDatabase, Schema
from teacher_student.aggregation.rollback import RollbackGuard, WitnessFile
from teacher_student.arguments import ArgumentError, Integers

_SCHEMA = Schema(
    name="state",
    owner="a session's",
    mark=0x74735F73,  # "ts_s"
    table="batches",
    unmarked=1,
    migrations=(
        (
            "CREATE TABLE session (settings TEXT NOT NULL)",
            "CREATE TABLE batches (number INTEGER PRIMARY KEY, state TEXT NOT NULL, private INTEGER NOT NULL, "
            "end INTEGER NOT NULL, link TEXT NOT NULL, labels BLOB NOT NULL, time TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)",
            "CREATE TABLE queries (query_id TEXT PRIMARY KEY, position INTEGER NOT NULL, label INTEGER NOT NULL) WITHOUT ROWID",
        ),
        (),  # the mark
        ("CREATE TABLE used_votes (form TEXT NOT NULL, votes BLOB NOT NULL, mark TEXT NOT NULL)",),
    ),
)
_STORED = np.dtype("<i8")
_AT_A_TIME = 500
_LATER = ("num_teachers",)
"""Settings that files of version 2 and older may lack."""

Start = Callable[[str], tuple[Mapping[str, Any], bool]]


@dataclasses.dataclass(frozen=True)
class ChainHead:
    """The newest link of the chain of batches.

    Attributes:
        number: of the batch; 0 is the start, without labels.
        state: state of the mechanism, JSON.
        private: whether all noise so far was the operating system's.
        end: labels so far.
        link: hash of the batch and of the link before it (of the settings, for the first).
    """

    number: int
    state: str
    private: bool
    end: int
    link: str


def _link(previous: str, number: int, state: str, private: bool, end: int, labels: bytes) -> str:
    parts = (previous, number, state, bool(private), end, blake2b(labels).hexdigest())
    return blake2b(json.dumps(parts).encode()).hexdigest()


class UsedVotes(NamedTuple):
    """How many of its votes each teacher has used in a session with `votes_per_teacher`. Private.

    Attributes:
        form: predictions or counts. A session takes only one of them, since counts do not show whose votes they hold.
        votes: shape (num_teachers,) for predictions; for counts the total alone, shape (1,).
    """

    form: str
    votes: npt.NDArray[np.integer]


class Transaction:
    """The store within one database transaction.

    Attributes:
        state: state of the mechanism, as a mapping; `record` replaces it.
        private: whether all noise so far was the operating system's.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._head = _head(connection)
        self.state: dict[str, Any] = json.loads(self._head.state)
        self.private = self._head.private

    def recorded(self, query_ids: Sequence[str]) -> dict[str, int]:
        """Return the labels of the queries among `query_ids` that were answered before."""
        found: dict[str, int] = {}
        for start in range(0, len(query_ids), _AT_A_TIME):
            some = query_ids[start : start + _AT_A_TIME]
            places = ", ".join("?" * len(some))
            found.update(self._connection.execute(f"SELECT query_id, label FROM queries WHERE query_id IN ({places})", some))  # noqa: S608 - only question marks
        return found

    def record(
        self,
        state: Mapping[str, Any],
        labels: Integers,
        query_ids: Sequence[str] | None,
        *,
        private: bool,
        used_votes: UsedVotes | None = None,
    ) -> None:
        """Record the labels of new queries, in order, and the state after them. At most once in a transaction.

        Args:
            state: state of the mechanism after these labels.
            labels: shape (new queries,), int64.
            query_ids: one for each label, never recorded before, or None.
            private: whether the noise was the operating system's.
            used_votes: votes used so far, in sessions with `votes_per_teacher`; then in every call.
        """
        head = _append(self._connection, self._head, state, labels, private=self.private and private)
        rows = zip(query_ids or (), range(self._head.end, head.end), labels.tolist(), strict=False)
        self._connection.executemany("INSERT INTO queries VALUES (?, ?, ?)", rows)
        if used_votes is not None:
            form, data = used_votes.form, used_votes.votes.astype(_STORED).tobytes()
            self._connection.execute("DELETE FROM used_votes")
            self._connection.execute("INSERT INTO used_votes VALUES (?, ?, ?)", [form, data, _mark(head.link, form, data)])

    def used_votes(self) -> UsedVotes | None:
        """Return the votes used so far; None if none were recorded.

        Raises:
            ArgumentError: they are not those recorded with the newest batch.
        """
        found = self._connection.execute("SELECT form, votes, mark FROM used_votes").fetchone()
        if found is None:
            return None
        form, data, mark = found
        if mark != _mark(self._head.link, form, data):
            raise ArgumentError("state must be an undamaged session's file, got one whose used votes are not its newest")
        return UsedVotes(form, np.frombuffer(data, dtype=_STORED).astype(np.int64))

    @property
    def length(self) -> int:
        """How many labels are recorded."""
        return self._head.end

    def labels(self) -> Integers:
        """Return all recorded labels, in the order of the queries, shape (num_queries so far,), int64."""
        blobs = self._connection.execute("SELECT labels FROM batches ORDER BY number")
        return np.frombuffer(b"".join(blob for (blob,) in blobs), dtype=_STORED).astype(np.int64)

    def query_ids(self) -> dict[int, str]:
        """Return the id of every query that was given one, by its position in `labels`."""
        return dict(self._connection.execute("SELECT position, query_id FROM queries"))


class Store:
    """One session's state, for any number of threads and, with a file, of processes.

    Args:
        path: the state file, created with mode 0600 (and a witness beside it) if it does not exist; None keeps the state in
            memory.
        settings: the session's public settings. An existing file must have the same ones.
        start: called with the session's name; returns the first state, and whether its noise was private. Called once in the
            session's life (again only if it failed or was killed before the state was written).
        second_guard: called with the session's name; returns a second guard, kept elsewhere.

    Raises:
        ArgumentError: the file belongs to another session or program, was copied or rolled back, or cannot be used.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        settings: Mapping[str, Any],
        start: Start,
        second_guard: Callable[[str], RollbackGuard] | None = None,
    ) -> None:
        self._guards: list[RollbackGuard] = []
        if path is None:
            self.session = str(uuid.uuid4())
            self._database: Database = MemoryDatabase()
        else:
            witness = WitnessFile(path)
            self.session, self._database = witness.session, witness.state_file
            self._guards = [witness] if second_guard is None else [witness, second_guard(self.session)]
        text = json.dumps(dict(settings), sort_keys=True)
        with self._connected() as connection:
            if not _SCHEMA.bring_up(connection):
                connection.execute("INSERT INTO session VALUES (?)", [text])
                state, private = start(self.session)
                before = ChainHead(number=-1, state="", private=private, end=0, link=text)
                _append(connection, before, state, np.empty(0, dtype=np.int64), private=private)
            _check(connection, settings)

    def close(self) -> None:
        """Close the store. A file can be opened again; a state in memory is lost."""
        self._database.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction, one at a time; what it records is permanent when the block ends without an error."""
        with self._connected() as connection:
            yield Transaction(connection)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Open a database transaction; check the state against the guards at its start and update them after its end."""
        with self._database.transaction() as connection:
            confirmed = [guard.check(connection) for guard in self._guards]
            yield connection
            head = _head(connection)
        for guard, number in zip(self._guards, confirmed, strict=True):
            if number != head.number:
                guard.confirm(head.number, head.link)


def _mark(link: str, form: str, data: bytes) -> str:
    """Tie the votes used to the batch with which they were recorded."""
    return blake2b(json.dumps((link, form, blake2b(data).hexdigest())).encode()).hexdigest()


def _append(
    connection: sqlite3.Connection, head: ChainHead, state: Mapping[str, Any], labels: Integers, *, private: bool
) -> ChainHead:
    """Append a batch after `head`; return the new head."""
    text, data = json.dumps(dict(state), sort_keys=True), labels.astype(_STORED).tobytes()
    number, end = head.number + 1, head.end + len(labels)
    new = ChainHead(number, text, private, end, _link(head.link, number, text, private, end, data))
    fields = (*dataclasses.astuple(new), data)
    connection.execute("INSERT INTO batches (number, state, private, end, link, labels) VALUES (?, ?, ?, ?, ?, ?)", fields)
    return new


def _head(connection: sqlite3.Connection) -> ChainHead:
    query = "SELECT number, state, private, end, link FROM batches ORDER BY number DESC LIMIT 1"
    number, state, private, end, link = connection.execute(query).fetchone()
    return ChainHead(number, state, bool(private), end, link)


def _check(connection: sqlite3.Connection, settings: Mapping[str, Any]) -> None:
    """Refuse a file with other settings or a broken chain."""
    (text,) = connection.execute("SELECT settings FROM session").fetchone()
    kept, given = json.loads(text), json.loads(json.dumps(dict(settings)))
    for name in sorted(kept.keys() | given.keys()):
        if kept.get(name) != given.get(name) and not (name in _LATER and kept.get(name) is None):
            raise ArgumentError(f"{name} must be what the session began with, {kept.get(name)!r}, got {given.get(name)!r}")
    previous = text
    query = "SELECT number, state, private, end, link, labels FROM batches ORDER BY number"
    for number, state, private, end, link, labels in connection.execute(query):
        if link != _link(previous, number, state, private, end, labels):
            raise ArgumentError(f"state must be an undamaged session's file, got one that is broken at batch {number}")
        previous = link
