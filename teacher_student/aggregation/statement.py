"""What a ledger says when it is asked: for each account its entries, what they cost together, and what is left of its budget.

The listing is the keeper's. Relation, mechanism, parameters, epsilon and delta of the entries, and the totals, are public facts:
they are in the certificates, and may be published. Names of data and of sessions and times are not secret by any theorem, yet
they tell what was done when; leave them out of what you publish. What is secret (noisy thresholds, votes, labels not released,
links, fingerprints and their key) is not in a listing at all.
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
    """One dataset's account.

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
        """Sum of the epsilons: with `delta`, what all sessions cost together, however they were chosen."""
        return math.fsum(entry.epsilon for entry in self.entries)

    @property
    def delta(self) -> float:
        """Sum of the deltas."""
        return math.fsum(entry.delta for entry in self.entries)

    @property
    def spent(self) -> float | None:
        """Part of the budget that is spent, by its own filter; None without one."""
        return None if self.budget is None else self.budget.spent([entry.claim for entry in self.entries])

    def composed(self) -> float | None:
        """Return the epsilon at `delta` of the same list, had it been fixed before its first session (seconds), or None."""
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
        """Return the statement as lines."""
        relation = f" ({self.entries[0].neighbours})" if self.entries else ""
        sessions = "1 session" if len(self.entries) == 1 else f"{len(self.entries)} sessions"
        lines = [f"{self.dataset}{relation}: {sessions}, together epsilon {self.epsilon:.6g}, delta {self.delta:.3g}"]
        if composed and (bound := self.composed()) is not None:
            lines.append(f"  had the list been fixed before the first of them: epsilon {bound:.6g} at delta {self.delta:.3g}")
        if self.budget is not None:
            limit = f"epsilon {self.budget.epsilon:.6g}, delta {self.budget.delta:.3g}"
            lines.append(f"  budget {limit}, by the {self.budget.name} filter: {100 * (self.spent or 0.0):.4g} % spent")
        for number, entry in enumerate(self.entries):
            cost = f"epsilon {entry.epsilon:<8.6g} delta {entry.delta:<8.3g}"
            lines.append(f"  {number:>4}  {entry.time}  {entry.parameters.mechanism:<18} {cost} {entry.session}")
        return "\n".join(lines)


def statements(ledger: Ledger, dataset: str | None = None) -> list[AccountStatement]:
    """Return the statement of one dataset's account, or of all.

    Raises:
        ArgumentError: the ledger knows no such dataset.
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
