"""A session: one mechanism in use. Votes go in, labels and a certificate come out; it is the only door of this room.

Whatever is asked is validated before any noise is drawn, and answers are written down before they are handed out (`store`).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import numbers
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from teacher_student.aggregation.budgets import check_claim
from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import Release
from teacher_student.aggregation.store import Entry, Store
from teacher_student.aggregation.votes import Table
from teacher_student.arguments import ArgumentError, Integers, choice
from teacher_student.mechanisms.interface import Mechanism, State
from teacher_student.mechanisms.noise import Noise, SystemNoise
from teacher_student.privacy import HYPERPARAMETERS, NEIGHBOURS, Certificate
from teacher_student.version import __version__

NOT_COVERED = ("hyper-parameters tuned on the private data", "the evaluation set, where it is private")


SEPARATOR = "\x1f"
"""Between a query's name and its class, where every class of a query is a row of its own."""


@dataclasses.dataclass(frozen=True)
class Keeping:
    """Where a session is kept, under which relation, and who pays.

    Attributes:
        state: the file that the state lives in, or None for memory.
        noise: None for the operating system's entropy; anything else makes the certificate say that it is not private.
        neighbours: the relation that the teachers were trained under: add_remove, replace_one or label_only.
        account: the private data's account in a ledger; the session's whole cost is entered before any noise is drawn, or on
            reopening if it was not entered before. Give it every time: it also notices a state that was rolled back.
        hyperparameters: how they were chosen, as whoever asks states it: fixed, or on a public_surrogate.
    """

    state: str | os.PathLike[str] | None = None
    noise: Noise | None = None
    neighbours: str = "add_remove"
    account: Account | None = None
    hyperparameters: str = "fixed"


IN_MEMORY = Keeping()


class Session:
    """A mechanism, the state it is in, and the noise it draws from.

    Args:
        mechanism: what answers; its parameters own the cost.
        epsilon: claimed for everything that the session will ever answer.
        delta: likewise.
        settings: further public facts; a state file belongs to one set of settings.
        keeping: where it is kept, under which relation, and who pays.

    Raises:
        ArgumentError: an argument is not valid, the parameters do not bear out epsilon at delta, the account does not cover the
            session, or the state file is not this session's.
    """

    _answers_counted = 1
    """Answers that the mechanism and the certificate count as one query."""

    def __init__(
        self,
        mechanism: Mechanism,
        *,
        epsilon: float,
        delta: float,
        settings: Mapping[str, Any],
        keeping: Keeping = IN_MEMORY,
    ) -> None:
        check_claim(mechanism.parameters, epsilon, delta)
        self.mechanism = mechanism
        self._epsilon, self._delta, self._settings = float(epsilon), float(delta), dict(settings)
        self._noise = check_noise(keeping.noise)
        self._neighbours = choice("neighbours", keeping.neighbours, NEIGHBOURS)
        self._account = check_account(keeping.account, self._noise)
        self._hyperparameters = choice("hyperparameters", keeping.hyperparameters, HYPERPARAMETERS)
        claim = {"epsilon": self._epsilon, "delta": self._delta, "neighbours": self._neighbours}
        known = {**claim, **settings, **mechanism.parameters.to_dict()}
        self._store = Store(keeping.state, known, self._start, self._account.witness if self._account else None)
        self._pay(self._store.session)  # once more: a session that was begun without an account is charged when it gets one

    def ask(self, counts: Table, query_ids: Sequence[str | int] | None = None) -> Integers:
        """Return a label for each row of checked `counts`; whatever is returned has been written down.

        Args:
            counts: shape (num_queries, columns of the mechanism).
            query_ids: public names of the queries. A name that was answered before, also within the batch, gets the label that it
                has, at no cost and whatever its votes are now.
        """
        names = check_query_ids(query_ids, len(counts))
        with self._store.entry() as entry:
            if names is None:
                self._check_fresh(len(counts), len(counts))
                return self._answer(entry, counts, None)
            labels = entry.recorded(names)
            fresh = {name: row for row, name in reversed(list(enumerate(names))) if name not in labels}
            rows = sorted(fresh.values())
            self._check_fresh(len(rows), len(counts))
            if rows:
                new = [names[row] for row in rows]
                labels.update(zip(new, self._answer(entry, counts[rows], new).tolist(), strict=True))
            return np.array([labels[name] for name in names], dtype=np.int64)

    @property
    def halted(self) -> bool:
        """Whether the cutoff is spent and further queries are told `HALTED`."""
        with self._store.entry() as entry:
            return self.mechanism.halted(State.from_dict(entry.state))

    @property
    def remaining_cutoff(self) -> int:
        """How many more units can be paid before the session halts."""
        given = self.mechanism.parameters.to_dict()
        limit = int(given["cutoff"] if "cutoff" in given else given["max_answers"])
        with self._store.entry() as entry:
            return max(0, limit - State.from_dict(entry.state).paid)

    @property
    def certificate(self) -> Certificate:
        """What has been released so far costs, and under which relation."""
        return self.release().certificate

    def release(self) -> Release:
        """Return all labels so far, in the order of the queries, with their certificate."""
        return Release(*self._so_far())

    def close(self) -> None:
        """End the use of this object; a session in memory is gone, one in a file can be opened again."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _check_fresh(self, fresh: int, asked: int) -> None:
        """Refuse a batch of `asked` rows, `fresh` of them not answered before, that the mechanism's cost does not cover."""

    def _so_far(self, classes: int = 1) -> tuple[Integers, Certificate, tuple[str, ...] | None]:
        """Return all answers, what they cost, and the names of the queries, `classes` answers to each."""
        with self._store.entry() as entry:
            answers, names = entry.labels(), entry.query_ids()
            certificate = self._certificate(entry, len(answers) // self._answers_counted)
        rows = range(0, len(answers), classes)
        queries = tuple(names.get(row, str(row // classes)).split(SEPARATOR)[0] for row in rows) if names else None
        return answers, certificate, queries

    def _start(self, session: str) -> tuple[Mapping[str, Any], bool]:
        self._pay(session)
        return self.mechanism.start(self._noise).to_dict(), self._noise.private

    def _pay(self, session: str) -> None:
        if self._account:
            self._account.pay(
                session,
                self.mechanism.parameters,
                neighbours=self._neighbours,
                epsilon=self._epsilon,
                delta=self._delta,
            )

    def _answer(self, entry: Entry, counts: Table, names: Sequence[str] | None) -> Integers:
        labels, state = self.mechanism.answer(counts, State.from_dict(entry.state), self._noise)
        entry.record(state.to_dict(), labels, names, private=self._noise.private)
        return labels

    def _certificate(self, entry: Entry, num_queries: int) -> Certificate:
        """Only what is public or has been released goes in: never the state itself."""
        state = State.from_dict(entry.state)
        used = {
            **self._settings,
            "hyperparameters": self._hyperparameters,
            "num_queries": num_queries,
            "answered": state.answered,
            "paid": state.paid,
        }
        return Certificate(
            epsilon=self._epsilon,
            delta=self._delta,
            mechanism=self.mechanism.parameters.mechanism,
            parameters=self.mechanism.parameters,
            private=entry.private,
            neighbours=self._neighbours,
            used=used,
            composition=self._account.composition(self._store.session) if self._account else (),
            not_covered=NOT_COVERED,
            versions=versions(),
        )


def names_of_classes(query_ids: object, num_queries: int, num_classes: int) -> list[str] | None:
    """Return a name for every class of every query, where each class is a row of its own."""
    names = check_query_ids(query_ids, num_queries)
    return None if names is None else [f"{name}{SEPARATOR}{label}" for name in names for label in range(num_classes)]


def check_noise(noise: object) -> Noise:
    """Return `noise`, or the operating system's where there is none."""
    if noise is None:
        return SystemNoise()
    if not isinstance(noise, Noise):
        raise ArgumentError(f"noise must be a Noise, or None for the operating system's entropy, got {noise!r}")
    return noise


def check_account(account: object, noise: Noise) -> Account | None:
    """Return `account`; one that is to be paid from needs noise whose cost is known."""
    if account is not None and not isinstance(account, Account):
        raise ArgumentError(f"account must be an account of a ledger, or None, got {account!r}")
    if account is not None and not noise.private:
        raise ArgumentError("noise must be the operating system's where an account is kept, got injected noise")
    return account


def check_query_ids(query_ids: object, num_queries: int) -> list[str] | None:
    """Return the names of `num_queries` queries as strings, or None where none are given."""
    if query_ids is None:
        return None
    if isinstance(query_ids, str) or not isinstance(query_ids, Sequence | np.ndarray) or np.ndim(query_ids) != 1:
        raise ArgumentError(f"query_ids must be a list of strings or integers, got {type(query_ids).__name__}")
    if len(query_ids) != num_queries:
        raise ArgumentError(f"query_ids must name each of {num_queries} queries, got {len(query_ids)}")
    for name in query_ids:
        if not isinstance(name, str | numbers.Integral) or isinstance(name, bool | np.bool_):
            raise ArgumentError(f"query_ids must be strings or integers, got {name!r}")
    return [str(name) for name in query_ids]


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of what drew and accounted for the noise, for the certificate."""
    installed = {name: importlib.metadata.version(name) for name in ("opendp", "numpy", "scipy")}
    return {"teacher-student": __version__, "python": platform.python_version(), **installed}
