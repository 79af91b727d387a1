"""What a ledger refuses: bad names and budgets, false claims, and sessions that do not fit the earlier ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from teacher_student.aggregation.entries import LedgerEntry, read_entries
from teacher_student.arguments import ArgumentError
from teacher_student.privacy import Filter, Parameters, check_relation, make_filter


def check_dataset(dataset: object) -> str:
    """Return `dataset` if it can be a public name."""
    if not isinstance(dataset, str) or not dataset:
        raise ArgumentError(f"dataset must be a public name of the private data, got {dataset!r}")
    return dataset


def check_budget(dataset: str, epsilon: float | None, delta: float | None, filter_name: str) -> Filter | None:
    """Return the filter with this budget, or None if no budget is given."""
    if epsilon is not None and delta is not None:
        return make_filter(filter_name, epsilon, delta)
    if (epsilon is None) != (delta is None):
        missing = "delta" if delta is None else "epsilon"
        raise ArgumentError(f"{missing} must be given where a budget for {dataset!r} is, got None")
    if filter_name != "basic":
        raise ArgumentError(f"filter must be basic where no budget is given, got {filter_name!r}")
    return None


def check_entry(entry: LedgerEntry) -> None:
    """Refuse an unknown relation, or a claim below what the parameters cost."""
    check_relation(entry.neighbours, entry.parameters)
    check_claim(entry.parameters, entry.epsilon, entry.delta)


def agreed_budget(connection: sqlite3.Connection, dataset: str, given: Filter | None) -> Filter | None:
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
