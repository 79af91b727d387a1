"""The private data's account: a ledger records what runs on the same data spend together, and a budget limits it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from teacher_student.aggregation.ledger import Account, Ledger, check_ahead
from teacher_student.arguments import ArgumentError, choice, positive_number, probability
from teacher_student.data import PrivateDataset, fingerprint_records
from teacher_student.privacy import Parameters
from teacher_student.privacy.filters import FILTERS


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """Where the cost is recorded, and its limit.

    Attributes:
        ledger: file of the ledger; None or empty keeps none.
        dataset: public name of the private data; None is the data's own.
        epsilon: limit for all sessions on the data together, ever; None is the account's own, or no limit.
        delta: limit for all sessions together; given with epsilon.
        filter: how sessions are added up: basic, renyi or gaussian.
    """

    ledger: str | None = None
    dataset: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    filter: str = "basic"

    def __post_init__(self) -> None:
        choice("budget.filter", self.filter, FILTERS)
        if self.ledger is not None and not isinstance(self.ledger, str):
            raise ArgumentError(f"budget.ledger must be a file, or null, got {self.ledger!r}")
        if self.dataset is not None and (not isinstance(self.dataset, str) or not self.dataset):
            raise ArgumentError(f"budget.dataset must be a public name of the private data, got {self.dataset!r}")
        if self.epsilon is None and self.delta is None:
            return
        positive_number("budget.epsilon", self.epsilon)
        probability("budget.delta", self.delta)
        if not self.ledger:
            raise ArgumentError("budget.ledger must be a file where budget.epsilon is given, got none")

    def news(self) -> str:
        """Return a line to show if the ledger does not exist yet: it will not know what was spent elsewhere."""
        if not self.ledger or (path := Path(self.ledger).absolute()).exists():
            return ""
        return (
            f"A new ledger: {path}. What was spent on the same data elsewhere is not in it; set TEACHER_STUDENT_LEDGER to a file "
            "to have one for all folders."
        )

    def open(self, dataset: str) -> Account | None:
        """Return the account of the data of this public name; make its file and folder if needed. None without a ledger."""
        if not self.ledger:
            return None
        try:
            Path(self.ledger).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArgumentError(
                f"budget.ledger must be a file that can be written, got {self.ledger} ({error.strerror})"
            ) from error
        return Ledger(self.ledger).account(dataset, epsilon=self.epsilon, delta=self.delta, filter=self.filter)

    def check(self, dataset: str, parameters: Parameters, *, neighbours: str, epsilon: float, delta: float) -> None:
        """Refuse a session that the account would refuse now; nothing is written."""
        if self.ledger:
            limit = (self.epsilon, self.delta, self.filter)
            cost = {"epsilon": epsilon, "delta": delta}
            check_ahead(self.ledger, dataset, parameters, neighbours=neighbours, budget=limit, **cost)


def recognise(account: Account, dataset: PrivateDataset) -> str:
    """Return a line if the same records were charged under another name. Private: it compares records."""
    others = account.recognise(fingerprint_records(dataset, account.ledger.fingerprint_key()))
    if not others:
        return ""
    names = ", ".join(map(repr, others))
    return (
        f"The records of {account.dataset!r} were charged as {names} too; what was spent there adds to this. "
        "budget.dataset=NAME charges runs on them to one account."
    )
