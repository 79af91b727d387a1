"""Entries of a ledger, one for each session, and what a ledger refuses: bad names and budgets, false claims, misfits."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from teacher_student.arguments import ArgumentError
from teacher_student.privacy import Claim, Filter, Parameters, make_filter, parameters_from_dict
from teacher_student.privacy.parameters import check_relation

_COLUMNS = "session, dataset, neighbours, epsilon, delta, parameters, time"


@dataclasses.dataclass(frozen=True)
class LedgerEntry:
    """One session on one dataset.

    Attributes:
        session: unique name of the session.
        dataset: public name of the private data.
        neighbours: add_remove, replace_one or label_only.
        epsilon: claimed by the session.
        delta: claimed by the session.
        parameters: the numbers from which the cost is computed.
        time: when the entry was made (UTC, by this machine's clock). Nothing depends on it.
    """

    session: str
    dataset: str
    neighbours: str
    epsilon: float
    delta: float
    parameters: Parameters
    time: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON: the data holder's own record, not for publication."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return fields | {"parameters": self.parameters.to_dict()}

    def to_public(self, ordinal: int) -> dict[str, Any]:
        """Return what a certificate may state about an earlier session: its position and its cost."""
        cost = {"neighbours": self.neighbours, "epsilon": self.epsilon, "delta": self.delta}
        parameters = self.parameters.to_dict()
        return {"ordinal": ordinal, "mechanism": self.parameters.mechanism, **cost, "parameters": parameters}

    @property
    def claim(self) -> Claim:
        """The claim that a filter adds up."""
        return Claim(self.parameters, self.epsilon, self.delta)


def read_entries(connection: sqlite3.Connection, column: str | None = None, value: str | None = None) -> list[LedgerEntry]:
    """Return the entries whose `column` (dataset or session) has this value, oldest first; all entries if `column` is None."""
    where, values = ("", []) if column is None else (f" WHERE {column} = ?", [value])
    rows = connection.execute(f"SELECT {_COLUMNS} FROM entries{where} ORDER BY number", values)  # noqa: S608 - constants
    return [
        LedgerEntry(session, dataset, neighbours, epsilon, delta, parameters_from_dict(json.loads(parameters)), time)
        for session, dataset, neighbours, epsilon, delta, parameters, time in rows
    ]


def write_entry(connection: sqlite3.Connection, entry: LedgerEntry) -> None:
    """Append an entry, with the current time."""
    values = [entry.session, entry.dataset, entry.neighbours, entry.epsilon, entry.delta, json.dumps(entry.parameters.to_dict())]
    connection.execute(
        "INSERT INTO entries (session, dataset, neighbours, epsilon, delta, parameters) VALUES (?, ?, ?, ?, ?, ?)", values
    )


def check_budget(dataset: object, epsilon: float | None, delta: float | None, filter_name: str) -> Filter | None:
    """Return the filter with this budget, or None if no budget is given; refuse what cannot be a dataset's public name."""
    if not isinstance(dataset, str) or not dataset:
        raise ArgumentError(f"dataset must be a public name of the private data, got {dataset!r}")
    if epsilon is not None and delta is not None:
        return make_filter(filter_name, epsilon, delta)
    if (epsilon is None) != (delta is None):
        missing = "delta" if delta is None else "epsilon"
        raise ArgumentError(f"{missing} must be given where a budget for {dataset!r} is, got None")
    if filter_name != "basic":
        raise ArgumentError(f"filter must be basic where no budget is given, got {filter_name!r}")
    return None


def agreed_budget(connection: sqlite3.Connection, dataset: str, given: Filter | None = None) -> Filter | None:
    """Return the budget of a dataset: the account's own, else the given one; refuse a given one that differs from it."""
    kept = connection.execute("SELECT filter, epsilon, delta FROM accounts WHERE dataset = ?", [dataset]).fetchone()
    if kept is not None:
        own = make_filter(*kept)
        for name in ("epsilon", "delta", "name") if given is not None else ():
            old, new = getattr(own, name), getattr(given, name)
            if old != new:
                word = "filter" if name == "name" else name
                raise ArgumentError(f"{word} must be what the account of {dataset!r} was opened with, {old!r}, got {new!r}")
        return own
    if given is not None and given.name != "basic" and read_entries(connection, "dataset", dataset):
        raise ArgumentError(f"filter must be basic for {dataset!r}, whose sessions began without a budget, got {given.name!r}")
    return given


def check_entry(entry: LedgerEntry) -> None:
    """Refuse an unknown relation, or a claim below what the parameters cost."""
    check_relation(entry.neighbours, entry.parameters)
    check_claim(entry.parameters, entry.epsilon, entry.delta)


def check_claim(parameters: Parameters, epsilon: float, delta: float) -> None:
    """Refuse a claim below what `parameters` cost."""
    found = parameters.epsilon(delta)
    if not found <= epsilon:  # NaN and infinity fail as well
        raise ArgumentError(f"epsilon must be at least {found:.6g} at delta {delta:g} by its parameters, got {epsilon:g}")


def check_same(old: LedgerEntry, new: LedgerEntry) -> None:
    """Refuse a session that was entered at another cost or on other data: that entry does not cover it."""
    kept, given = old.to_dict(), new.to_dict()
    for name in ("dataset", "neighbours", "epsilon", "delta", "parameters"):
        if kept[name] != given[name]:
            raise ArgumentError(
                f"{name} must be what the session was entered with in the ledger, {kept[name]!r}, got {given[name]!r}; "
                "give a new session a state file of its own"
            )


def check_fits(before: Sequence[LedgerEntry], entry: LedgerEntry, budget: Filter | None) -> None:
    """Refuse an entry whose relation differs from those `before` it, or that exceeds their `budget` if there is one."""
    for other in before:
        if other.neighbours != entry.neighbours:
            raise ArgumentError(
                f"neighbours must be those of all sessions on {entry.dataset!r}, {other.neighbours!r}, got {entry.neighbours!r}; "
                "costs under two relations do not add up, so other data needs another name"
            )
    claims = [old.claim for old in before]
    if budget is not None and not budget.admits([*claims, entry.claim]):
        spent, total = budget.spent(claims) if claims else 0.0, budget.spent([*claims, entry.claim])
        raise ArgumentError(
            f"budget must cover all sessions on the data, epsilon {budget.epsilon:g} at delta {budget.delta:g} "
            f"({100 * spent:.4g} % is spent, by the {budget.name} filter), got a session that takes it to {100 * total:.4g} %; "
            "choose a smaller epsilon or delta"
        )
