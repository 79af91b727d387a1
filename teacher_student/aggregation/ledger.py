"""The ledger: records what every session spent on each dataset, and refuses a session that would exceed the budget.

An entry is a session's whole cost, written before its first noise is drawn. A session that is killed between its entry and its
first state finds its entry again. The entry stays even if nothing was answered, because nobody can know how far the session came.

An account may have a budget. The budget and the filter that adds entries up are fixed once they are given, because later sessions
may be chosen for what earlier ones released (`teacher_student.privacy.filters`). Without a budget, sessions are recorded and
never refused; together they cost the sum of their epsilons at the sum of their deltas, a bound that holds at any time (the
odometer of Rogers, Roth, Ullman, Vadhan 2016). A budget that is given later therefore counts what was recorded, and uses plain
sums.

An account is identified by a public name of the data, chosen by hand. It is never a fingerprint of the data, which would confirm
a guess at all of the data. Fingerprints keyed with a secret of the file are kept beside the name (`Account.recognise`) to remind
the data holder that the same records were charged under another name. They refuse nothing and appear in no listing, because such
an outcome would be a function of the records that no noise protects. The file is private (mode 0600): its key allows guesses to
be tested.

The ledger also remembers the newest link of each session (see `rollback`), so a session whose files were rolled back is detected,
unless the ledger was rolled back with them. Keep the ledger on a local disk: SQLite's write-ahead log does not work across
machines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from teacher_student.aggregation.database import FileDatabase, Schema
from teacher_student.aggregation.entries import (
    LedgerEntry,
    agreed_budget,
    check_budget,
    check_entry,
    check_fits,
    check_same,
    read_entries,
    write_entry,
)
from teacher_student.aggregation.rollback import RollbackGuard
from teacher_student.arguments import ArgumentError, file_path, probability
from teacher_student.privacy import Composition, Filter, Parameters

_SCHEMA = Schema(
    name="ledger",
    owner="a ledger's",
    mark=0x74735F6C,  # "ts_l"
    table="entries",
    unmarked=3,
    migrations=(
        (
            "CREATE TABLE entries (number INTEGER PRIMARY KEY, session TEXT NOT NULL UNIQUE, dataset TEXT NOT NULL, "
            "neighbours TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, parameters TEXT NOT NULL, "
            "time TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)",
        ),
        ("CREATE TABLE accounts (dataset TEXT PRIMARY KEY, epsilon REAL NOT NULL, delta REAL NOT NULL, filter TEXT NOT NULL)",),
        ("CREATE TABLE links (session TEXT PRIMARY KEY, number INTEGER NOT NULL, link TEXT NOT NULL)",),
        (
            "CREATE TABLE fingerprints (dataset TEXT NOT NULL, fingerprint TEXT NOT NULL, PRIMARY KEY (dataset, fingerprint))",
            "CREATE TABLE secret (key BLOB NOT NULL)",
        ),
    ),
)
_KEY_BYTES = 32
_MAGIC = b"SQLite format 3\0"


class Ledger:
    """A file of entries, shared by any number of processes.

    Args:
        path: an SQLite file; created with mode 0600 if it does not exist.

    Raises:
        ArgumentError: the file belongs to another program, has a newer version, or cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._database = FileDatabase("ledger", path)
        with self.transaction():
            pass

    @classmethod
    def existing(cls, path: str | os.PathLike[str]) -> Ledger:
        """Open an existing ledger. A missing file is refused, not created; a file that is not a database is left unchanged."""
        if not file_path("ledger", path).is_file():
            raise ArgumentError(f"ledger must be the file of a ledger, got {path}, which does not exist")
        with Path(path).open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ArgumentError(f"ledger must be the file of a ledger, got {path}, which is not one")
        return cls(path)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction; upgrade the file first if it has an older version."""
        with self._database.transaction() as connection:
            _SCHEMA.bring_up(connection)
            yield connection

    def account(
        self,
        dataset: str,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        filter: str = "basic",  # noqa: A002 - its name
    ) -> Account:
        """Return the account of a dataset, and open it if there is none. All its sessions together stay within its budget.

        Args:
            dataset: a public name of the private data, the same for every session on it. It must not be computed from the data,
                not even as a hash.
            epsilon: limit for all sessions on the data together, fixed once it is given. None takes the account's own limit, if
                it has one.
            delta: the same for delta; given together with epsilon.
            filter: how sessions are added up, fixed once it is given: basic (sums, always allowed), renyi (for many sessions) or
                gaussian (for gnmax and confident_gnmax only). An account with sessions recorded without a limit only allows
                basic.

        Raises:
            ArgumentError: a bad argument, or the account has another budget or filter.
        """
        given = check_budget(dataset, epsilon, delta, filter)
        with self.transaction() as connection:
            budget = agreed_budget(connection, dataset, given)
            if budget is not None:
                values = [dataset, budget.epsilon, budget.delta, budget.name]
                connection.execute("INSERT OR IGNORE INTO accounts VALUES (?, ?, ?, ?)", values)
        return Account(self, dataset, budget)

    def datasets(self) -> list[str]:
        """Return the public names of all datasets with an entry or a budget, oldest first."""
        with self.transaction() as connection:
            names = connection.execute("SELECT dataset FROM entries ORDER BY number").fetchall()
            names += connection.execute("SELECT dataset FROM accounts ORDER BY rowid").fetchall()
        return list(dict.fromkeys(name for (name,) in names))

    def budget(self, dataset: str) -> Filter | None:
        """Return the budget of a dataset's account, or None if it has no limit. Opens no account."""
        with self.transaction() as connection:
            return agreed_budget(connection, dataset)

    def entries(self, dataset: str | None = None) -> list[LedgerEntry]:
        """Return all entries, or those of a dataset, oldest first."""
        with self.transaction() as connection:
            return read_entries(connection, None if dataset is None else "dataset", dataset)

    def total(self, dataset: str, delta: float) -> float:
        """Return the sum of the epsilons of a dataset's entries: 0 without entries, infinite if their deltas exceed `delta`."""
        entries = self.entries(dataset)
        enough = math.fsum(entry.delta for entry in entries) <= probability("delta", delta) * (1 + 1e-12)  # sums of decimals
        return math.fsum(entry.epsilon for entry in entries) if enough else math.inf

    def to_json(self) -> str:
        """Return all entries as JSON."""
        return json.dumps([entry.to_dict() for entry in self.entries()], indent=2, allow_nan=False) + "\n"

    def fingerprint_key(self) -> bytes:
        """Return this file's secret key for fingerprints. It never changes."""
        with self.transaction() as connection:
            if not connection.execute("SELECT 1 FROM secret").fetchone():
                connection.execute("INSERT INTO secret VALUES (?)", [secrets.token_bytes(_KEY_BYTES)])
            return bytes(connection.execute("SELECT key FROM secret").fetchone()[0])


@dataclasses.dataclass(frozen=True)
class Account:
    """One dataset's part of a ledger, with its budget. A session that is given an account pays from it.

    All sessions ever charged to it are together (epsilon, delta)-private at its budget, however they were chosen; without a
    budget, at the sums of their epsilons and deltas.

    Attributes:
        ledger: the file that the account is in.
        dataset: public name of the private data.
        budget: limit for all sessions on the data together, and how they are added up. None if there was no limit when this
            object was made; a limit that was set since then applies all the same.
    """

    ledger: Ledger
    dataset: str
    budget: Filter | None = None

    @property
    def spent(self) -> float:
        """Share of the budget that is spent, from 0 to 1; 0 without a limit."""
        claims = [entry.claim for entry in self.ledger.entries(self.dataset)]
        return self.budget.spent(claims) if self.budget else 0.0

    def pay(self, session: str, parameters: Parameters, *, neighbours: str, epsilon: float, delta: float) -> None:
        """Enter a session's whole cost once, before any noise is drawn. A session entered at the same cost is not entered again.

        Raises:
            ArgumentError: the budget is too small, the parameters cost more than the claim, the session was entered at another
                cost, or earlier sessions have another neighbouring relation. Nothing was entered.
        """
        entry = LedgerEntry(session, self.dataset, neighbours, epsilon, delta, parameters)
        check_entry(entry)
        with self.ledger.transaction() as connection:
            if known := read_entries(connection, "session", session):
                check_same(known[0], entry)
                return
            check_fits(read_entries(connection, "dataset", self.dataset), entry, agreed_budget(connection, self.dataset))
            write_entry(connection, entry)

    def composition(self, session: str) -> tuple[dict[str, Any], ...]:
        """Return the entries before `session`, in the form that its certificate lists."""
        entries = self.ledger.entries(self.dataset)
        names = [entry.session for entry in entries]
        before = entries[: names.index(session)] if session in names else entries
        return tuple(entry.to_public(ordinal) for ordinal, entry in enumerate(before))

    def recognise(self, fingerprints: Sequence[str]) -> tuple[str, ...]:
        """Keep keyed fingerprints of the records (`Ledger.fingerprint_key`); return other names that they were charged under.

        For the data holder alone: whether two tables are the same is private. Nothing may be refused or published because of it.
        """
        places = ", ".join("?" * len(fingerprints))
        query = f"SELECT DISTINCT dataset FROM fingerprints WHERE fingerprint IN ({places}) AND dataset != ?"  # noqa: S608
        with self.ledger.transaction() as connection:
            rows = [(self.dataset, fingerprint) for fingerprint in fingerprints]
            connection.executemany("INSERT OR IGNORE INTO fingerprints VALUES (?, ?)", rows)
            return tuple(sorted(name for (name,) in connection.execute(query, [*fingerprints, self.dataset])))

    def guard(self, session: str) -> LedgerGuard:
        """Return the guard that detects a rollback of the state of `session`."""
        return LedgerGuard(self.ledger, session)


class LedgerGuard(RollbackGuard):
    """The ledger as a guard of one session's state file."""

    def __init__(self, ledger: Ledger, session: str) -> None:
        self._ledger, self._session = ledger, session

    def newest(self) -> tuple[int, str] | None:
        """Return the newest link that the ledger remembers."""
        with self._ledger.transaction() as connection:
            found = connection.execute("SELECT number, link FROM links WHERE session = ?", [self._session]).fetchone()
        return None if found is None else (int(found[0]), str(found[1]))

    def confirm(self, number: int, link: str) -> None:
        """Store the newest link in the ledger."""
        with self._ledger.transaction() as connection:
            connection.execute(
                "INSERT INTO links VALUES (?, ?, ?) ON CONFLICT (session) DO UPDATE "
                "SET number = excluded.number, link = excluded.link WHERE number < excluded.number",
                [self._session, number, link],
            )


def check_ahead(
    path: str | os.PathLike[str],
    dataset: str,
    parameters: Parameters,
    *,
    neighbours: str,
    epsilon: float,
    delta: float,
    budget: tuple[float | None, float | None, str],
) -> None:
    """Refuse a session that the account would refuse now, before the session is opened. Creates no file and enters nothing.

    `budget` holds epsilon, delta and filter, as they will be passed to `Ledger.account`; the other arguments are those of
    `Account.pay`, for the ledger at `path`.

    Raises:
        ArgumentError: a bad argument, or a budget that does not cover the session.
    """
    given = check_budget(dataset, *budget)
    entry = LedgerEntry("", dataset, neighbours, epsilon, delta, parameters)
    if not Path(path).exists():
        check_entry(entry)
        check_fits((), entry, given)
        return
    ledger = Ledger(path)
    check_entry(entry)
    with ledger.transaction() as connection:
        agreed = agreed_budget(connection, dataset, given)
        check_fits(read_entries(connection, "dataset", dataset), entry, agreed)


@dataclasses.dataclass(frozen=True)
class AccountStatement:
    """The account of one dataset, listed for the data holder.

    Relation, mechanism, parameters, epsilon and delta of the entries and the totals are public: they are in the certificates.
    Names of datasets and sessions, and times, are not protected by any theorem, and they show what was done when, so leave them
    out of anything that you publish. Secrets (noisy thresholds, votes, unreleased labels, links, fingerprints and their key) are
    never part of a statement.

    Attributes:
        dataset: public name of the private data.
        budget: limit for all sessions, or None.
        entries: oldest first.
    """

    dataset: str
    budget: Filter | None
    entries: tuple[LedgerEntry, ...]

    @property
    def epsilon(self) -> float:
        """Sum of the epsilons. With `delta` it bounds the cost of all sessions together, however they were chosen."""
        return math.fsum(entry.epsilon for entry in self.entries)

    @property
    def delta(self) -> float:
        """Sum of the deltas."""
        return math.fsum(entry.delta for entry in self.entries)

    @property
    def spent(self) -> float | None:
        """Share of the budget that is spent, by the account's filter; None without a budget."""
        return None if self.budget is None else self.budget.spent([entry.claim for entry in self.entries])

    def composed(self) -> float | None:
        """Return the epsilon at `delta` of the same sessions if their list had been fixed beforehand, or None. Takes seconds."""
        if not 0 < self.delta < 1:
            return None
        counts: dict[Any, int] = {}
        for entry in self.entries:
            counts[entry.parameters] = counts.get(entry.parameters, 0) + 1
        return min(self.epsilon, Composition(tuple(counts.items())).epsilon(self.delta))

    def to_dict(self, *, composed: bool = False) -> dict[str, Any]:
        """Return the statement for JSON."""
        budget = self.budget and {"epsilon": self.budget.epsilon, "delta": self.budget.delta, "filter": self.budget.name}
        return {
            "dataset": self.dataset,
            "neighbours": self.entries[0].neighbours if self.entries else None,
            "sessions": len(self.entries),
            "epsilon": self.epsilon,
            "delta": self.delta,
            **({"epsilon_if_fixed_beforehand": self.composed()} if composed else {}),
            "budget": budget,
            "spent": self.spent,
            "entries": [entry.to_dict() for entry in self.entries],
        }

    def to_text(self, *, composed: bool = False) -> str:
        """Return the statement as text, a line for each session."""
        relation = f" ({self.entries[0].neighbours})" if self.entries else ""
        sessions = "1 session" if len(self.entries) == 1 else f"{len(self.entries)} sessions"
        lines = [f"{self.dataset}{relation}: {sessions}, together epsilon {self.epsilon:.6g}, delta {self.delta:.3g}"]
        if composed and (bound := self.composed()) is not None:
            lines.append(f"  if this list had been fixed beforehand: epsilon {bound:.6g} at delta {self.delta:.3g}")
        if self.budget is not None:
            limit = f"epsilon {self.budget.epsilon:.6g}, delta {self.budget.delta:.3g}"
            lines.append(f"  budget {limit}, by the {self.budget.name} filter: {100 * (self.spent or 0.0):.4g} % spent")
        for number, entry in enumerate(self.entries):
            cost = f"epsilon {entry.epsilon:<8.6g} delta {entry.delta:<8.3g}"
            lines.append(f"  {number:>4}  {entry.time}  {entry.parameters.mechanism:<18} {cost} {entry.session}")
        return "\n".join(lines)


def statements(ledger: Ledger, dataset: str | None = None) -> list[AccountStatement]:
    """Return the statement of one dataset's account, or of all accounts.

    Raises:
        ArgumentError: the dataset is not in the ledger.
    """
    names = ledger.datasets()
    if dataset is not None and dataset not in names:
        known = ", ".join(map(repr, names)) or "none"
        raise ArgumentError(f"dataset must be one that the ledger knows ({known}), got {dataset!r}")
    chosen = names if dataset is None else [dataset]
    return [AccountStatement(name, ledger.budget(name), tuple(ledger.entries(name))) for name in chosen]


def to_json(accounts: list[AccountStatement], *, composed: bool = False) -> str:
    """Return statements as JSON; every number is exact."""
    return json.dumps({"accounts": [account.to_dict(composed=composed) for account in accounts]}, indent=2, allow_nan=False)
