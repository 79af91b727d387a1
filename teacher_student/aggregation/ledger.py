"""The ledger: what was ever spent on each dataset, and a refusal before more is spent than was meant to be.

An entry is a session's whole cost, entered before its first noise is drawn. A session killed between its entry and its first
state finds its entry again; what was never answered stays entered, since nobody can know how far it came.

An account may have a budget. It, and the filter by which entries are added up, are fixed once given, since later sessions may be
chosen for what earlier ones said (`teacher_student.privacy.filters`). Without a budget sessions are recorded and never refused;
what they cost together is the sum of their epsilons at the sum of their deltas, which holds whenever one looks (the odometer of
Rogers, Roth, Ullman, Vadhan 2016). A budget given later therefore counts what was recorded, and adds by plain sums.

Accounts go by a public name of the data, chosen by hand: never a fingerprint of it, which would tell whether a guess at all of
the data is right. A fingerprint keyed with a secret of the file is kept beside the name (`Account.recognise`), to remind the
keeper that the same records were charged under another name. It refuses nothing and is in no listing: an outcome that depended on
it would be a function of the records that no noise covers. The file is private (mode 0600): with its key, a guess can be tried.

The ledger also remembers the newest link of each session that it knows (see `witness`): a session whose files are rolled back,
however it was done, is noticed as long as the ledger was not rolled back with them. Keep it on a disk of the machine: SQLite's
write-ahead log does not work across machines.
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

from teacher_student.aggregation.budgets import agreed_budget, check_budget, check_dataset, check_entry, check_fits, check_same
from teacher_student.aggregation.database import FileDatabase, Schema
from teacher_student.aggregation.entries import LedgerEntry, read_entries, write_entry
from teacher_student.aggregation.witness import LinkKeeper
from teacher_student.arguments import ArgumentError, file_path, probability
from teacher_student.privacy import Filter, Parameters

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
        path: an SQLite file, made with mode 0600 if it is not there.

    Raises:
        ArgumentError: it is another program's file, of a newer version, or cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._database = FileDatabase("ledger", path)
        with self._transaction():
            pass

    @classmethod
    def existing(cls, path: str | os.PathLike[str]) -> Ledger:
        """Open a ledger that is there already; a missing file is refused, not made, and what is no database is left as it is."""
        if not file_path("ledger", path).is_file():
            raise ArgumentError(f"ledger must be the file of a ledger, got {path}, which is not there")
        with Path(path).open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ArgumentError(f"ledger must be the file of a ledger, got {path}, which is none")
        return cls(path)

    def account(
        self,
        dataset: str,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        filter: str = "basic",  # noqa: A002 - its name
    ) -> Account:
        """Return the account of a dataset; it is opened if there is none. All sessions on it together stay within its budget.

        Args:
            dataset: a public name of the private data, the same for every session on it; not a hash or anything else that is
                computed from it.
            epsilon: for all sessions on the data together, ever. Fixed once it is given. None is the account's own, or no limit.
            delta: likewise; given with epsilon.
            filter: how sessions are added up, fixed likewise: basic (sums, always allowed), renyi (for many sessions) or gaussian
                (for gnmax and confident_gnmax only). Only basic for an account on which sessions were recorded without a limit.

        Raises:
            ArgumentError: a bad argument, or an account that has another budget or filter.
        """
        given = check_budget(check_dataset(dataset), epsilon, delta, filter)
        with self._transaction() as connection:
            budget = agreed_budget(connection, dataset, given)
            if budget is not None:
                values = [dataset, budget.epsilon, budget.delta, budget.name]
                connection.execute("INSERT OR IGNORE INTO accounts VALUES (?, ?, ?, ?)", values)
        return Account(self, dataset, budget)

    def datasets(self) -> list[str]:
        """Return the public names of all data that have an entry or a budget, oldest first."""
        with self._transaction() as connection:
            names = connection.execute("SELECT dataset FROM entries ORDER BY number").fetchall()
            names += connection.execute("SELECT dataset FROM accounts ORDER BY rowid").fetchall()
        return list(dict.fromkeys(name for (name,) in names))

    def budget(self, dataset: str) -> Filter | None:
        """Return the budget of a dataset's account, None where there is no limit; nothing is opened."""
        with self._transaction() as connection:
            return agreed_budget(connection, dataset, None)

    def entries(self, dataset: str | None = None) -> list[LedgerEntry]:
        """Return all entries, or those of a dataset, oldest first."""
        with self._transaction() as connection:
            return read_entries(connection, None if dataset is None else "dataset", dataset)

    def total(self, dataset: str, delta: float) -> float:
        """Return the sum of the epsilons of a dataset's entries; 0 if there are none, infinite if their deltas exceed `delta`."""
        entries = self.entries(dataset)
        enough = math.fsum(entry.delta for entry in entries) <= probability("delta", delta) * (1 + 1e-12)  # sums of decimals
        return math.fsum(entry.epsilon for entry in entries) if enough else math.inf

    def to_json(self) -> str:
        """Return all entries as JSON."""
        return json.dumps([entry.to_dict() for entry in self.entries()], indent=2, allow_nan=False) + "\n"

    def enter(self, entry: LedgerEntry) -> tuple[LedgerEntry, ...]:
        """Enter a session unless its dataset would then have spent more than its budget.

        A session that is in the ledger already, at the same cost, is not entered again.

        Returns:
            the entries of other sessions on the dataset that were there before.

        Raises:
            ArgumentError: the budget does not suffice, the parameters do not bear out the claim, the session was entered at
                another cost, or earlier sessions are under another relation; nothing was entered.
        """
        check_entry(entry)
        with self._transaction() as connection:
            known = read_entries(connection, "session", entry.session)
            before = read_entries(connection, "dataset", entry.dataset)
            if known:
                check_same(known[0], entry)
                return tuple(before[: before.index(known[0])])
            check_fits(before, entry, agreed_budget(connection, entry.dataset, None))
            write_entry(connection, entry)
            return tuple(before)

    def check(self, entry: LedgerEntry, budget: Filter | None) -> None:
        """Refuse what `account` with this budget, and `enter` after it, would refuse now; nothing is written."""
        check_entry(entry)
        with self._transaction() as connection:
            agreed = agreed_budget(connection, entry.dataset, budget)
            check_fits(read_entries(connection, "dataset", entry.dataset), entry, agreed)

    def before(self, session: str, dataset: str) -> tuple[LedgerEntry, ...]:
        """Return the entries of a dataset that were there when `session` was entered."""
        entries = self.entries(dataset)
        names = [entry.session for entry in entries]
        return tuple(entries[: names.index(session)]) if session in names else tuple(entries)

    def fingerprint_key(self) -> bytes:
        """Return this file's secret key for fingerprints, the same ever after."""
        with self._transaction() as connection:
            if not connection.execute("SELECT 1 FROM secret").fetchone():
                connection.execute("INSERT INTO secret VALUES (?)", [secrets.token_bytes(_KEY_BYTES)])
            return bytes(connection.execute("SELECT key FROM secret").fetchone()[0])

    def recognise(self, dataset: str, fingerprints: Sequence[str]) -> tuple[str, ...]:
        """Keep the fingerprints of a dataset's records; return the other datasets that one of them was kept for. Private."""
        places = ", ".join("?" * len(fingerprints))
        query = f"SELECT DISTINCT dataset FROM fingerprints WHERE fingerprint IN ({places}) AND dataset != ?"  # noqa: S608
        with self._transaction() as connection:
            rows = [(dataset, fingerprint) for fingerprint in fingerprints]
            connection.executemany("INSERT OR IGNORE INTO fingerprints VALUES (?, ?)", rows)
            return tuple(sorted(name for (name,) in connection.execute(query, [*fingerprints, dataset])))

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
            _SCHEMA.bring_up(connection)
            yield connection


@dataclasses.dataclass(frozen=True)
class Account:
    """One dataset's part of a ledger, with its budget. Give it to a session, and the session pays from it.

    All sessions that it was ever charged for are together (epsilon, delta)-private at its budget, however they were chosen;
    without a budget, at the sums of their epsilons and deltas.

    Attributes:
        ledger: where it is written down.
        dataset: public name of the private data.
        budget: for all sessions on the data together, ever, and how they are added up; None where there was no limit when this
            was made. One that was given since counts all the same.
    """

    ledger: Ledger
    dataset: str
    budget: Filter | None = None

    @property
    def spent(self) -> float:
        """How much of the budget is spent, as a part of 1; nothing where there is no limit."""
        claims = [entry.claim for entry in self.ledger.entries(self.dataset)]
        return self.budget.spent(claims) if self.budget else 0.0

    def pay(self, session: str, parameters: Parameters, *, neighbours: str, epsilon: float, delta: float) -> None:
        """Enter a session's whole cost once, or raise `ArgumentError`; called before any noise is drawn."""
        self.ledger.enter(LedgerEntry(session, self.dataset, neighbours, epsilon, delta, parameters))

    def recognise(self, fingerprints: Sequence[str]) -> tuple[str, ...]:
        """Keep keyed fingerprints of the records (`Ledger.fingerprint_key`); return other names that they were charged under.

        For the keeper's eyes: whether two tables are the same is private. Nothing may be refused or published for it.
        """
        return self.ledger.recognise(self.dataset, fingerprints)

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
    """Refuse a session that the account would refuse now, long before it is opened; no file is made, nothing is entered.

    Args:
        path: of the ledger.
        dataset: public name of the private data.
        parameters: of the session.
        neighbours: the session's relation.
        epsilon: claimed by the session.
        delta: likewise.
        budget: epsilon, delta and filter, as `Ledger.account` will be given them.

    Raises:
        ArgumentError: a bad argument, or a budget that does not cover the session.
    """
    given = check_budget(check_dataset(dataset), *budget)
    entry = LedgerEntry("", dataset, neighbours, epsilon, delta, parameters)
    if Path(path).exists():
        Ledger(path).check(entry, given)
    else:
        check_entry(entry)
        check_fits((), entry, given)
