"""The ledger: what was ever spent on each dataset, and a refusal before more is spent than was meant to be.

An entry is a session's whole cost, entered before its first noise is drawn. A session killed between its entry and its first
state finds its entry again; what was never answered stays entered, since nobody can know how far it came.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import sqlite3
from collections.abc import Iterator
from typing import Any

from teacher_student.aggregation.database import FileDatabase
from teacher_student.arguments import ArgumentError, choice, positive_number, probability
from teacher_student.privacy import NEIGHBOURS, Composition, Parameters, parameters_from_dict

_MIGRATIONS = (
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, session TEXT NOT NULL UNIQUE, dataset TEXT NOT NULL, "
    "neighbours TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, parameters TEXT NOT NULL, "
    "time TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)",
)
"""Statement n takes a file from version n to n + 1."""

_COLUMNS = "session, dataset, neighbours, epsilon, delta, parameters, time"


@dataclasses.dataclass(frozen=True)
class LedgerEntry:
    """One session on one dataset.

    Attributes:
        session: the session's own name.
        dataset: fingerprint of the private data.
        neighbours: add_remove, replace_one or label_only.
        epsilon: claimed by the session.
        delta: claimed by the session.
        parameters: what the cost is computed from.
        time: when it was entered (UTC, by this machine's clock; nothing depends on it).
    """

    session: str
    dataset: str
    neighbours: str
    epsilon: float
    delta: float
    parameters: Parameters
    time: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return fields | {"parameters": self.parameters.to_dict()}


class Ledger:
    """A file of entries, shared by any number of processes.

    Args:
        path: an SQLite file, made with mode 0600 if it is not there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._database = FileDatabase("ledger", path)
        with self._transaction():
            pass

    def account(self, dataset: str, *, epsilon: float, delta: float) -> Account:
        """Return the account of a dataset, by its fingerprint: all sessions on it together may spend `epsilon` at `delta`."""
        if not isinstance(dataset, str) or not dataset:
            raise ArgumentError(f"dataset must be the fingerprint of the private data, got {dataset!r}")
        return Account(self, dataset, positive_number("epsilon", epsilon), probability("delta", delta))

    def entries(self, dataset: str | None = None) -> list[LedgerEntry]:
        """Return all entries, or those of a dataset, oldest first."""
        with self._transaction() as connection:
            return _entries(connection, dataset)

    def total(self, dataset: str, delta: float) -> float:
        """Return the epsilon at `delta` of all entries of a dataset together; 0 if there are none.

        It holds under the weakest relation among them (label_only, then replace_one, then add_remove).
        """
        return _epsilon(self.entries(dataset), probability("delta", delta))

    def to_json(self) -> str:
        """Return all entries as JSON."""
        return json.dumps([entry.to_dict() for entry in self.entries()], indent=2, allow_nan=False) + "\n"

    def enter(self, entry: LedgerEntry, *, epsilon: float, delta: float) -> tuple[LedgerEntry, ...]:
        """Enter a session unless its dataset would then have spent more than `epsilon` at `delta`.

        A session that is in the ledger already is not entered again.

        Returns:
            the entries of other sessions on the dataset that were there before.

        Raises:
            ArgumentError: the budget does not suffice; nothing was entered.
        """
        choice("neighbours", entry.neighbours, NEIGHBOURS)
        with self._transaction() as connection:
            before = _entries(connection, entry.dataset)
            known = [old.session for old in before]
            if entry.session in known:
                return tuple(before[: known.index(entry.session)])
            total = _epsilon([*before, entry], delta)
            if total > epsilon:
                spent = _epsilon(before, delta)
                raise ArgumentError(
                    f"budget must cover all sessions on the data, epsilon {epsilon:g} at delta {delta:g} ({spent:.4g} is spent), "
                    f"got a session that takes it to {total:.4g}; choose a smaller epsilon or delta"
                )
            values = [entry.session, entry.dataset, entry.neighbours, entry.epsilon, entry.delta]
            connection.execute(
                "INSERT INTO entries (session, dataset, neighbours, epsilon, delta, parameters) VALUES (?, ?, ?, ?, ?, ?)",
                [*values, json.dumps(entry.parameters.to_dict())],
            )
            return tuple(before)

    def before(self, session: str, dataset: str) -> tuple[LedgerEntry, ...]:
        """Return the entries of a dataset that were there when `session` was entered."""
        entries = self.entries(dataset)
        names = [entry.session for entry in entries]
        return tuple(entries[: names.index(session)]) if session in names else tuple(entries)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction on a file of this version, brought up to it if it is older."""
        with self._database.transaction() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > len(_MIGRATIONS):
                raise ArgumentError(f"ledger must be of version {len(_MIGRATIONS)} or older, got version {version}; upgrade")
            for statement in _MIGRATIONS[version:]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")
            yield connection


@dataclasses.dataclass(frozen=True)
class Account:
    """One dataset's part of a ledger, with its budget. Give it to a session, and the session pays from it.

    Attributes:
        ledger: where it is written down.
        dataset: fingerprint of the private data.
        epsilon: for all sessions on the data together, ever.
        delta: likewise.
    """

    ledger: Ledger
    dataset: str
    epsilon: float
    delta: float

    def pay(self, session: str, parameters: Parameters, *, neighbours: str, epsilon: float, delta: float) -> None:
        """Enter a session's whole cost, or raise `ArgumentError`; called before any noise is drawn."""
        entry = LedgerEntry(session, self.dataset, neighbours, epsilon, delta, parameters)
        self.ledger.enter(entry, epsilon=self.epsilon, delta=self.delta)

    def composition(self, session: str) -> tuple[dict[str, Any], ...]:
        """Return what was entered before `session`, for its certificate."""
        return tuple(entry.to_dict() for entry in self.ledger.before(session, self.dataset))


def _entries(connection: sqlite3.Connection, dataset: str | None) -> list[LedgerEntry]:
    where, values = ("", []) if dataset is None else (" WHERE dataset = ?", [dataset])
    rows = connection.execute(f"SELECT {_COLUMNS} FROM entries{where} ORDER BY number", values)  # noqa: S608 - constants
    names = [field.name for field in dataclasses.fields(LedgerEntry)]
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return [LedgerEntry(**{**entry, "parameters": parameters_from_dict(json.loads(entry["parameters"]))}) for entry in found]


def _epsilon(entries: list[LedgerEntry], delta: float) -> float:
    """Return the composed epsilon at `delta`; infinite if the release parts alone take more than that."""
    composition = Composition()
    for entry in entries:
        composition = composition.add(entry.parameters)
    if not entries:
        return 0.0
    return composition.epsilon(delta) if composition.release_delta < delta else math.inf
