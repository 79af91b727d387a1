"""Listings of a ledger: for each account its entries, their total cost, and how much of its budget is spent.

A listing is for the data holder. Relation, mechanism, parameters, epsilon and delta of the entries and the totals are public:
they are in the certificates. Names of datasets and sessions, and times, are not protected by any theorem, but they show what was
done when, so leave them out of anything that you publish. Secrets (noisy thresholds, votes, unreleased labels, links,
fingerprints and their key) are never part of a listing.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from teacher_student.aggregation.entries import LedgerEntry
from teacher_student.aggregation.ledger import Ledger
from teacher_student.arguments import ArgumentError
from teacher_student.privacy import Composition, Filter


@dataclasses.dataclass(frozen=True)
class AccountStatement:
    """The account of one dataset.

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
