"""A session: one mechanism in use. A statistic of the teachers goes in, a release comes out; it is the only door of this room.

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
from typing import Any, Generic, Self, TypeVar

import numpy as np

from teacher_student.aggregation.budgets import check_claim
from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import AnyRelease
from teacher_student.aggregation.statistic import Statistic, Table
from teacher_student.aggregation.store import Entry, Store
from teacher_student.arguments import ArgumentError, Integers, choice
from teacher_student.mechanisms.interface import State
from teacher_student.mechanisms.noise import Noise, SystemNoise
from teacher_student.privacy import HYPERPARAMETERS, Certificate, MechanismSpec, check_relation
from teacher_student.version import __version__

NOT_COVERED = ("hyper-parameters tuned on the private data", "the evaluation set, where it is private")

SEPARATOR = "\x1f"
"""Between a query's name and its class, where every class of a query is a row of its own."""


@dataclasses.dataclass(frozen=True)
class SessionOptions:
    """Options of every session, and of every function that opens one.

    Attributes:
        state: an SQLite file that keeps the session across restarts and processes, or None for memory. Reopened with the same
            arguments, the session continues: with the same noisy threshold, what is left of its budget, and the same answers to
            queries that were named.
        noise: None for the operating system's entropy; anything else is for studies and is certified as not private.
        neighbours: the relation that the teachers were trained under: add_remove, replace_one or label_only; zero_out for
            teachers that are owners, one of which may withdraw all its votes.
        account: the private data's account in a ledger (`Ledger.account`). The session's whole cost is entered before any noise
            is drawn, or on reopening if it was not entered before; a cost that exceeds the budget is refused. Give the account
            every time: it also notices a state that was rolled back.
        hyperparameters: how they were chosen, as the caller states it: fixed, or on a public_surrogate; the certificate says so.
    """

    state: str | os.PathLike[str] | None = None
    noise: Noise | None = None
    neighbours: str = "add_remove"
    account: Account | None = None
    hyperparameters: str = "fixed"


IN_MEMORY = SessionOptions()

Kind = TypeVar("Kind", bound=AnyRelease)


class Session(Generic[Kind]):
    """A mechanism, the state it is in, and the noise it draws from.

    Args:
        spec: the mechanism's public numbers, which own the cost.
        statistic: what it answers.
        kind: of the release, with its codec.
        epsilon: claimed for everything that the session will ever answer.
        delta: for everything that the session will ever answer.
        settings: further public facts; a state file belongs to one set of settings.
        options: see `SessionOptions`.

    Raises:
        ArgumentError: an argument is not valid, the spec costs more than epsilon at delta, the account does not cover the
            session, or the state file is not this session's.
    """

    def __init__(
        self,
        spec: MechanismSpec,
        statistic: Statistic,
        kind: type[Kind],
        *,
        epsilon: float,
        delta: float,
        settings: Mapping[str, Any] | None = None,
        options: SessionOptions = IN_MEMORY,
    ) -> None:
        check_claim(spec, epsilon, delta)
        self.mechanism, self.statistic, self._kind = statistic.mechanism(spec), statistic, kind
        named = {} if kind.codec.answers is None else {"answers": kind.codec.answers}
        self._settings = {**named, **statistic.settings, **(settings or {})}
        self._epsilon, self._delta = float(epsilon), float(delta)
        self._classes = statistic.num_classes if "class" in kind.codec.columns else None  # rows of the mechanism for each query
        self._noise = check_noise(options.noise)
        check_relation(options.neighbours, spec)
        self._neighbours = options.neighbours
        self._account = check_account(options.account, self._noise)
        self._hyperparameters = choice("hyperparameters", options.hyperparameters, HYPERPARAMETERS)
        claim = {"epsilon": self._epsilon, "delta": self._delta, "neighbours": self._neighbours}
        known = {**claim, **self._settings, **spec.to_dict()}
        self._store = Store(options.state, known, self._start, self._account.witness if self._account else None)
        self._pay(self._store.session)  # once more: a session that was begun without an account is charged when it gets one

    def ask(self, given: Table, query_ids: Sequence[str | int] | None = None, form: str = "counts") -> Integers:
        """Return the codes of the answers to each row of `given`; whatever is returned has been written down.

        Args:
            given: what the statistic's `check` returned, one row for each query.
            query_ids: public names of the queries, each once. A name that was answered before gets the answer that it has, at
                no cost and whatever its votes are now.
            form: of what is given, predictions or counts; see `Statistic.reduce`.

        Returns:
            shape (num_queries,), int64; (num_queries, num_classes) where every class is a row of its own.
        """
        names = check_query_ids(query_ids, len(given))
        with self._store.entry() as entry:
            if names is None:
                self.statistic.check_batch(len(given), len(given))
                return self._answer(entry, given, None, form)
            keys = self._keys(names)
            answers = entry.recorded(keys)
            new = [row for row, name in enumerate(names) if self._keys([name])[0] not in answers]
            self.statistic.check_batch(len(new), len(given))
            if new:
                fresh = self._keys([names[row] for row in new])
                answers.update(zip(fresh, self._answer(entry, given[new], fresh, form).ravel().tolist(), strict=True))
            return self._shaped(np.array([answers[key] for key in keys], dtype=np.int64))

    @property
    def halted(self) -> bool:
        """Whether the cutoff is spent and further queries are told `HALTED`."""
        with self._store.entry() as entry:
            return self.mechanism.halted(State.from_dict(entry.state))

    @property
    def remaining_cutoff(self) -> int:
        """How many more answers or abstentions, whichever is paid for, fit before the session halts."""
        return self.remaining_units

    @property
    def remaining_units(self) -> int:
        """How many more units can be paid before the session halts."""
        with self._store.entry() as entry:
            return max(0, self.mechanism.parameters.limit.most - State.from_dict(entry.state).paid)

    @property
    def certificate(self) -> Certificate:
        """What has been released so far costs, and under which relation."""
        return self.release().certificate

    def release(self) -> Kind:
        """Return all answers so far, in the order of the queries, with their certificate."""
        with self._store.entry() as entry:
            codes, names = entry.labels(), entry.query_ids()
            shaped = self._shaped(codes)
            certificate = self._certificate(entry, self._kind.codec.counted(shaped).size)
        rows = range(0, len(codes), self._classes or 1)
        recorded = [names.get(row, str(row // rows.step)) for row in rows]
        if self._classes is not None:
            recorded = [name.removesuffix(f"{SEPARATOR}0") for name in recorded]
        return self._kind(shaped, certificate, tuple(recorded) if names else None)

    def close(self) -> None:
        """End the use of this object; a session in memory is gone, one in a file can be opened again."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _keys(self, names: Sequence[str]) -> list[str]:
        """Return what the rows of the named queries are recorded under."""
        if self._classes is None:
            return list(names)
        return [f"{name}{SEPARATOR}{label}" for name in names for label in range(self._classes)]

    def _shaped(self, answers: Integers) -> Integers:
        return answers if self._classes is None else answers.reshape(-1, self._classes)

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

    def _answer(self, entry: Entry, given: Table, keys: Sequence[str] | None, form: str) -> Integers:
        rows, used = self.statistic.reduce(given, form, entry.used_votes(), begun=entry.length > 0)
        answers, state = self.mechanism.answer(
            rows.reshape(len(rows) * (self._classes or 1), -1), State.from_dict(entry.state), self._noise
        )
        entry.record(state.to_dict(), answers, keys, private=self._noise.private, used_votes=used)
        return self._shaped(answers)

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
    names = [str(name) for name in query_ids]
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise ArgumentError(f"query_ids must name each query once, got {twice!r} twice; ask it again in another call")
    return names


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of what drew and accounted for the noise, for the certificate."""
    installed = {name: importlib.metadata.version(name) for name in ("opendp", "numpy", "scipy")}
    return {"teacher-student": __version__, "python": platform.python_version(), **installed}
