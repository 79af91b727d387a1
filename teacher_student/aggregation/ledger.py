"""The ledger: what was ever spent on each dataset, and a refusal before more is spent than was meant to be.

An entry is a session's whole cost, entered before its first noise is drawn. A session killed between its entry and its first
state finds its entry again; what was never answered stays entered, since nobody can know how far it came.

A dataset's budget, and the filter by which entries are added up, are fixed when its account is opened, since later sessions may
be chosen for what earlier ones said (`teacher_student.privacy.filters`). Accounts go by a public name of the data, chosen by
hand: never a fingerprint of it, which would tell whether a guess at all of the data is right.

The ledger also remembers the newest link of each session that it knows (see `witness`): a session whose files are rolled back,
however it was done, is noticed as long as the ledger was not rolled back with them.
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
from teacher_student.aggregation.witness import LinkKeeper
from teacher_student.arguments import ArgumentError, choice, probability
from teacher_student.privacy import NEIGHBOURS, Claim, Filter, Parameters, make_filter, parameters_from_dict

_MIGRATIONS = (
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, session TEXT NOT NULL UNIQUE, dataset TEXT NOT NULL, "
    "neighbours TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, parameters TEXT NOT NULL, "
    "time TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)",
    "CREATE TABLE accounts (dataset TEXT PRIMARY KEY, epsilon REAL NOT NULL, delta REAL NOT NULL, filter TEXT NOT NULL)",
    "CREATE TABLE links (session TEXT PRIMARY KEY, number INTEGER NOT NULL, link TEXT NOT NULL)",
)
"""Statement n takes a file from version n to n + 1."""

_COLUMNS = "session, dataset, neighbours, epsilon, delta, parameters, time"


@dataclasses.dataclass(frozen=True)
class LedgerEntry:
    """One session on one dataset.

    Attributes:
        session: the session's own name.
        dataset: public name of the private data.
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
        """Return the fields for JSON: the keeper's own record, not for publication."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return fields | {"parameters": self.parameters.to_dict()}

    def to_public(self, ordinal: int) -> dict[str, Any]:
        """Return what a certificate may say of an earlier session: its place and its cost, nothing else."""
        cost = {"neighbours": self.neighbours, "epsilon": self.epsilon, "delta": self.delta}
        parameters = self.parameters.to_dict()
        return {"ordinal": ordinal, "mechanism": self.parameters.mechanism, **cost, "parameters": parameters}

    @property
    def claim(self) -> Claim:
        """What a filter adds."""
        return Claim(self.parameters, self.epsilon, self.delta)


class Ledger:
    """A file of entries, shared by any number of processes.

    Args:
        path: an SQLite file, made with mode 0600 if it is not there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._database = FileDatabase("ledger", path)
        with self._transaction():
            pass

    def account(self, dataset: str, *, epsilon: float, delta: float, filter: str = "basic") -> Account:  # noqa: A002 - its name
        """Return the account of a dataset; it is opened if there is none. All sessions on it together stay within its budget.

        Args:
            dataset: a public name of the private data, the same for every session on it; not a hash or anything else that is
                computed from it.
            epsilon: for all sessions on the data together, ever. Fixed when the account is opened.
            delta: likewise.
            filter: how sessions are added up, fixed likewise: basic (sums, always allowed), renyi (for many sessions) or gaussian
                (for gnmax and confident_gnmax only).

        Raises:
            ArgumentError: a bad argument, or an account that was opened with another budget or filter.
        """
        if not isinstance(dataset, str) or not dataset:
            raise ArgumentError(f"dataset must be a public name of the private data, got {dataset!r}")
        budget = make_filter(filter, epsilon, delta)
        given = {"epsilon": budget.epsilon, "delta": budget.delta, "filter": budget.name}
        with self._transaction() as connection:
            query = "SELECT epsilon, delta, filter FROM accounts WHERE dataset = ?"
            kept = connection.execute(query, [dataset]).fetchone()
            if not kept:
                connection.execute("INSERT INTO accounts VALUES (?, ?, ?, ?)", [dataset, *given.values()])
        for (name, value), old in zip(given.items(), kept or given.values(), strict=True):
            if value != old:
                raise ArgumentError(f"{name} must be what the account of {dataset!r} was opened with, {old!r}, got {value!r}")
        return Account(self, dataset, budget)

    def entries(self, dataset: str | None = None) -> list[LedgerEntry]:
        """Return all entries, or those of a dataset, oldest first."""
        with self._transaction() as connection:
            return _entries(connection, None if dataset is None else "dataset", dataset)

    def total(self, dataset: str, delta: float) -> float:
        """Return the sum of the epsilons of a dataset's entries; 0 if there are none, infinite if their deltas exceed `delta`."""
        entries = self.entries(dataset)
        enough = math.fsum(entry.delta for entry in entries) <= probability("delta", delta) * (1 + 1e-12)  # sums of decimals
        return math.fsum(entry.epsilon for entry in entries) if enough else math.inf

    def to_json(self) -> str:
        """Return all entries as JSON."""
        return json.dumps([entry.to_dict() for entry in self.entries()], indent=2, allow_nan=False) + "\n"

    def enter(self, entry: LedgerEntry, budget: Filter) -> tuple[LedgerEntry, ...]:
        """Enter a session unless its dataset would then have spent more than its `budget`.

        A session that is in the ledger already, at the same cost, is not entered again.

        Returns:
            the entries of other sessions on the dataset that were there before.

        Raises:
            ArgumentError: the budget does not suffice, the parameters do not bear out the claim, the session was entered at
                another cost, or earlier sessions are under another relation; nothing was entered.
        """
        choice("neighbours", entry.neighbours, NEIGHBOURS)
        check_claim(entry.parameters, entry.epsilon, entry.delta)
        with self._transaction() as connection:
            known = _entries(connection, "session", entry.session)
            before = _entries(connection, "dataset", entry.dataset)
            if known:
                _check_same(known[0], entry)
                return tuple(before[: before.index(known[0])])
            _check_fits(before, entry, budget)
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

    def newest_link(self, session: str) -> tuple[int, str] | None:
        """Return number and link of the newest batch of `session` whose answers may have been handed out, if any is known."""
        with self._transaction() as connection:
            found = connection.execute("SELECT number, link FROM links WHERE session = ?", [session]).fetchone()
        return None if found is None else (int(found[0]), str(found[1]))

    def keep_link(self, session: str, number: int, link: str) -> None:
        """Remember a newer link of `session`."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO links VALUES (?, ?, ?) ON CONFLICT (session) DO UPDATE "
                "SET number = excluded.number, link = excluded.link WHERE number < excluded.number",
                [session, number, link],
            )

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

    All sessions that it was ever charged for are together (epsilon, delta)-private at its budget, however they were chosen.

    Attributes:
        ledger: where it is written down.
        dataset: public name of the private data.
        budget: for all sessions on the data together, ever, and how they are added up.
    """

    ledger: Ledger
    dataset: str
    budget: Filter

    @property
    def spent(self) -> float:
        """How much of the budget is spent, as a part of 1."""
        return self.budget.spent([entry.claim for entry in self.ledger.entries(self.dataset)])

    def pay(self, session: str, parameters: Parameters, *, neighbours: str, epsilon: float, delta: float) -> None:
        """Enter a session's whole cost once, or raise `ArgumentError`; called before any noise is drawn."""
        entry = LedgerEntry(session, self.dataset, neighbours, epsilon, delta, parameters)
        self.ledger.enter(entry, self.budget)

    def witness(self, session: str) -> LedgerWitness:
        """Return what notices that the state of `session` was rolled back."""
        return LedgerWitness(self.ledger, session)

    def composition(self, session: str) -> tuple[dict[str, Any], ...]:
        """Return what was entered before `session`, for its certificate."""
        return tuple(entry.to_public(ordinal) for ordinal, entry in enumerate(self.ledger.before(session, self.dataset)))


class LedgerWitness(LinkKeeper):
    """The ledger as a witness of one session's state file."""

    def __init__(self, ledger: Ledger, session: str) -> None:
        self._ledger, self._session = ledger, session

    def newest(self) -> tuple[int, str] | None:
        """Return what the ledger remembers."""
        return self._ledger.newest_link(self._session)

    def confirm(self, number: int, link: str) -> None:
        """Have the ledger remember it."""
        self._ledger.keep_link(self._session, number, link)


def check_claim(parameters: Parameters, epsilon: float, delta: float) -> None:
    """Refuse a claim that `parameters` do not bear out."""
    found = parameters.epsilon(delta)
    if not found <= epsilon:  # NaN and infinity fail as well
        raise ArgumentError(f"epsilon must be at least {found:.6g} at delta {delta:g} by its parameters, got {epsilon:g}")


def _check_same(old: LedgerEntry, new: LedgerEntry) -> None:
    """Refuse a session that was entered at another cost, or on other data: its entry would not cover it."""
    kept, given = old.to_dict(), new.to_dict()
    for name in ("dataset", "neighbours", "epsilon", "delta", "parameters"):
        if kept[name] != given[name]:
            raise ArgumentError(
                f"{name} must be what the session was entered with in the ledger, {kept[name]!r}, got {given[name]!r}; "
                "give a new session a state file of its own"
            )


def _check_fits(before: list[LedgerEntry], entry: LedgerEntry, budget: Filter) -> None:
    for other in before:
        if other.neighbours != entry.neighbours:
            raise ArgumentError(
                f"neighbours must be those of all sessions on the data, {other.neighbours!r}, got {entry.neighbours!r}"
            )
    claims = [old.claim for old in before]
    if not budget.admits([*claims, entry.claim]):
        spent, total = budget.spent(claims) if claims else 0.0, budget.spent([*claims, entry.claim])
        raise ArgumentError(
            f"budget must cover all sessions on the data, epsilon {budget.epsilon:g} at delta {budget.delta:g} "
            f"({100 * spent:.4g} % is spent, by the {budget.name} filter), got a session that takes it to {100 * total:.4g} %; "
            "choose a smaller epsilon or delta"
        )


def _entries(connection: sqlite3.Connection, column: str | None, value: str | None) -> list[LedgerEntry]:
    """Return the entries whose `column`, dataset or session, has this value; all of them where there is no column."""
    where, values = ("", []) if column is None else (f" WHERE {column} = ?", [value])
    rows = connection.execute(f"SELECT {_COLUMNS} FROM entries{where} ORDER BY number", values)  # noqa: S608 - constants
    names = [field.name for field in dataclasses.fields(LedgerEntry)]
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return [LedgerEntry(**{**entry, "parameters": parameters_from_dict(json.loads(entry["parameters"]))}) for entry in found]
