"""Entries of a ledger, one for each session."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from typing import Any

from teacher_student.privacy import Claim, Parameters, parameters_from_dict

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
    names = [field.name for field in dataclasses.fields(LedgerEntry)]
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return [LedgerEntry(**{**entry, "parameters": parameters_from_dict(json.loads(entry["parameters"]))}) for entry in found]


def write_entry(connection: sqlite3.Connection, entry: LedgerEntry) -> None:
    """Append an entry, with the current time."""
    values = [entry.session, entry.dataset, entry.neighbours, entry.epsilon, entry.delta, json.dumps(entry.parameters.to_dict())]
    connection.execute(
        "INSERT INTO entries (session, dataset, neighbours, epsilon, delta, parameters) VALUES (?, ?, ?, ?, ?, ?)", values
    )
