"""A session: one mechanism in use. A statistic of the teachers goes in, a release comes out; this is the room's only door.

Everything is validated before any noise is drawn, and answers are stored before they are handed out (`store`).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import numbers
import os
import platform
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np

from teacher_student.aggregation.entries import check_claim
from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import AnyRelease
from teacher_student.aggregation.statistic import Statistic, Table
from teacher_student.aggregation.store import Store, Transaction
from teacher_student.arguments import ArgumentError, Integers, choice
from teacher_student.mechanisms.interface import State
from teacher_student.mechanisms.noise import Noise, SystemNoise
from teacher_student.privacy import HYPERPARAMETERS, Certificate, MechanismSpec
from teacher_student.privacy.parameters import check_relation
from teacher_student.version import __version__

NOT_COVERED = ("hyper-parameters tuned on the private data", "the evaluation set, where it is private")

SEPARATOR = "\x1f"
"""Between a query's name and its class, where every class of a query is a row of its own."""


@dataclasses.dataclass(frozen=True)
class SessionOptions:
    """Options of every session, and of every function that opens one.

    Attributes:
        state: an SQLite file that keeps the session across restarts and processes, or None for memory. Reopened with the same
            arguments, the session continues: with the same noisy threshold, the rest of its budget, and the same answers to
            named queries.
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

    def __post_init__(self) -> None:
        if self.noise is not None and not isinstance(self.noise, Noise):
            raise ArgumentError(f"noise must be a Noise, or None for the operating system's entropy, got {self.noise!r}")
        if self.account is not None and not isinstance(self.account, Account):
            raise ArgumentError(f"account must be an account of a ledger, or None, got {self.account!r}")
        if self.account is not None and self.noise is not None and not self.noise.private:
            raise ArgumentError("noise must be the operating system's where an account is kept, got injected noise")
        choice("hyperparameters", self.hyperparameters, HYPERPARAMETERS)


Kind = TypeVar("Kind", bound=AnyRelease)


class Session(Generic[Kind]):
    """A mechanism, its state, and its source of noise.

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
        options: SessionOptions | None = None,
    ) -> None:
        options = options or SessionOptions()
        check_claim(spec, epsilon, delta)
        check_relation(options.neighbours, spec)
        self.mechanism, self.statistic, self._kind = statistic.mechanism(spec), statistic, kind
        self._options, self._noise = options, options.noise or SystemNoise()
        named = {} if kind.codec.answers is None else {"answers": kind.codec.answers}
        self._settings = {**named, **statistic.settings, **(settings or {})}
        self._claim: dict[str, Any] = {"epsilon": float(epsilon), "delta": float(delta), "neighbours": options.neighbours}
        self._classes = statistic.num_classes if "class" in kind.codec.columns else None  # rows of the mechanism for each query
        known = {**self._claim, **self._settings, **spec.to_dict()}
        self._store = Store(options.state, known, self._start, options.account.guard if options.account else None)
        self._pay(self._store.session)  # once more: a session that was begun without an account is charged when it gets one

    def ask(self, given: Table, query_ids: Sequence[str | int] | None = None, form: str = "counts") -> Integers:
        """Return the codes of the answers to each row of `given`; they have been stored by then.

        Args:
            given: what the statistic's `check` returned, one row for each query.
            query_ids: public names of the queries, each once. A name that was answered before gets its recorded answer, at no
                cost and whatever its votes are now.
            form: of what is given, predictions or counts; see `Statistic.reduce`.

        Returns:
            shape (num_queries,), int64; (num_queries, num_classes) where every class is a row of its own.
        """
        names = check_query_ids(query_ids, len(given))
        with self._store.transaction() as stored:
            if names is None:
                self.statistic.check_batch(len(given), len(given))
                return self._answer(stored, given, None, form)
            keys = self._keys(names)
            answers = stored.recorded(keys)
            new = [row for row, name in enumerate(names) if self._keys([name])[0] not in answers]
            self.statistic.check_batch(len(new), len(given))
            if new:
                fresh = self._keys([names[row] for row in new])
                answers.update(zip(fresh, self._answer(stored, given[new], fresh, form).ravel().tolist(), strict=True))
            return self._shaped(np.array([answers[key] for key in keys], dtype=np.int64))

    def ask_once(self, given: Table, form: str = "counts") -> Kind:
        """Ask about all rows of `given` and return the release.

        In a session with a state file the queries are named by their positions, so a call repeated after a kill gets the recorded
        answers.
        """
        self.ask(given, None if self._options.state is None else range(len(given)), form)
        return self.release()

    @property
    def halted(self) -> bool:
        """Whether the budget is spent and further queries are told `HALTED`."""
        with self._store.transaction() as stored:
            return self.mechanism.halted(State.from_dict(stored.state))

    @property
    def remaining_units(self) -> int:
        """How many more units can be paid before the session halts: abstentions or answers, whichever the mechanism pays for."""
        with self._store.transaction() as stored:
            return max(0, self.mechanism.parameters.limit.most - State.from_dict(stored.state).paid)

    @property
    def remaining_cutoff(self) -> int:
        """The old name of `remaining_units` in sessions without a cutoff."""
        notice = f"{type(self).__name__}.remaining_cutoff is now remaining_units; the old name is accepted in this version only"
        warnings.warn(notice, FutureWarning, stacklevel=2)
        return self.remaining_units

    @property
    def certificate(self) -> Certificate:
        """The cost of what has been released so far, and under which relation."""
        return self.release().certificate

    def release(self) -> Kind:
        """Return all answers so far, in the order of the queries, with their certificate."""
        with self._store.transaction() as stored:
            codes, names = stored.labels(), stored.query_ids()
            shaped = self._shaped(codes)
            certificate = self._certificate(stored, self._kind.codec.counted(shaped).size)
        rows = range(0, len(codes), self._classes or 1)
        recorded = [names.get(row, str(row // rows.step)) for row in rows]
        if self._classes is not None:
            recorded = [name.removesuffix(f"{SEPARATOR}0") for name in recorded]
        return self._kind(shaped, certificate, tuple(recorded) if names else None)

    def close(self) -> None:
        """Release the session's storage; a session in memory is lost, one in a file can be opened again."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _keys(self, names: Sequence[str]) -> list[str]:
        """Return the names under which the rows of the named queries are recorded."""
        if self._classes is None:
            return list(names)
        return [f"{name}{SEPARATOR}{label}" for name in names for label in range(self._classes)]

    def _shaped(self, answers: Integers) -> Integers:
        return answers if self._classes is None else answers.reshape(-1, self._classes)

    def _start(self, session: str) -> tuple[Mapping[str, Any], bool]:
        self._pay(session)
        return self.mechanism.start(self._noise).to_dict(), self._noise.private

    def _pay(self, session: str) -> None:
        if self._options.account:
            self._options.account.pay(session, self.mechanism.parameters, **self._claim)

    def _answer(self, stored: Transaction, given: Table, keys: Sequence[str] | None, form: str) -> Integers:
        rows, used = self.statistic.reduce(given, form, stored.used_votes(), begun=stored.length > 0)
        answers, state = self.mechanism.answer(
            rows.reshape(len(rows) * (self._classes or 1), -1), State.from_dict(stored.state), self._noise
        )
        stored.record(state.to_dict(), answers, keys, private=self._noise.private, used_votes=used)
        return self._shaped(answers)

    def _certificate(self, stored: Transaction, num_queries: int) -> Certificate:
        """Only what is public or has been released goes in: never the state itself."""
        state, account = State.from_dict(stored.state), self._options.account
        used = {
            **self._settings,
            "hyperparameters": self._options.hyperparameters,
            "num_queries": num_queries,
            "answered": state.answered,
            "paid": state.paid,
        }
        return Certificate(
            **self._claim,
            mechanism=self.mechanism.parameters.mechanism,
            parameters=self.mechanism.parameters,
            private=stored.private,
            used=used,
            composition=account.composition(self._store.session) if account else (),
            not_covered=NOT_COVERED,
            versions=versions(),
        )


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
