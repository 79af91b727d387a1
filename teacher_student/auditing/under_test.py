"""The subject of an audit: a mechanism that runs, the guarantee that it claims, and what the checks need to know about it.

Each family of mechanisms has a subclass (`thresholds`, `noisy_max`, `soft_labels`, `sums`) with a second implementation of its
law, its worst neighbours and its mutants. A mutant is the mechanism with one known mistake, which the audit must reject.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np

from teacher_student.arguments import Integers
from teacher_student.auditing.pairs import MOVES, REPLACEMENT, Move, Score, WorstPair
from teacher_student.auditing.sampled import Agreement
from teacher_student.mechanisms.interface import Mechanism, State, build_mechanism
from teacher_student.mechanisms.noise import Noise
from teacher_student.privacy.parameters import REPLACED

CLAIMED = "claimed"
"""Name of the mechanism itself in the table."""


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """One line of the table."""

    subject: str
    check: str
    claimed: str
    measured: str
    passed: bool


@dataclasses.dataclass(frozen=True)
class AuditConfig:
    """Settings that all checks of an audit share.

    Attributes:
        epsilon, delta: the claim.
        trials: sessions per side and check.
        false_alarm: error of each sampling check.
        noise: returns a source of noise for a check.
        progress: called with the number of sessions run.
    """

    epsilon: float
    delta: float
    trials: int
    false_alarm: float
    noise: Callable[[], Noise]
    progress: Callable[[int], None] | None = None

    def ran(self, sessions: int) -> None:
        """Report sessions to `progress`."""
        if self.progress is not None:
            self.progress(sessions)


WRONG_MOVES = {"votes_replaced": REPLACEMENT, "voter_counted_twice": Move(2, 0)}
"""Neighbours of mutants that claim that votes are only added or withdrawn: the vote of a shard of several records turns into
another one (as every vote does under `replace_one`), and both records of one person vote on the same queries."""

Check = Callable[[Any, AuditConfig], CheckResult]
"""One check: a mechanism under test in, a row of the table out."""


def _honest(noise: Noise) -> Noise:
    return noise


def change_of(spec: Any) -> str:
    """Return what a neighbour may do to a vote under the claim of `spec`."""
    return str(getattr(spec, "vote_change", REPLACED))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismUnderTest(ABC):
    """A mechanism or one of its mutants.

    Attributes:
        name: for the table; `CLAIMED` for the mechanism itself.
        mechanism: the mechanism that is run.
        spec: the parameters whose guarantee is claimed for it.
        law: the law of what is run.
        tamper: changes the noise that the mechanism is given.
        move: what a neighbour does to the counts of a query; what the spec claims, unless a mutant does more.
    """

    SESSIONS: ClassVar[int]
    """Number of sessions that the checks run, in units of the trials."""

    CHECKS: ClassVar[tuple[Check, ...]]
    """The checks of this family: those of `checks` and its own."""

    name: str = CLAIMED
    mechanism: Mechanism
    spec: Any
    law: Any
    tamper: Callable[[Noise], Noise] = _honest
    move: Move = REPLACEMENT

    @classmethod
    @abstractmethod
    def law_of(cls, spec: Any) -> Any:
        """Return the law that `spec` promises."""

    @classmethod
    def build(cls, spec: Any) -> Mechanism:
        """Return the mechanism that runs `spec`."""
        return build_mechanism(spec)

    @classmethod
    def of(cls, spec: Any, **fields: Any) -> Self:
        """Return the mechanism itself as a subject."""
        return cls(mechanism=cls.build(spec), spec=spec, law=cls.law_of(spec), move=MOVES[change_of(spec)], **fields)

    def running(self, name: str, actual: Any) -> Self:
        """Return the mutant that runs on other parameters than it claims."""
        return dataclasses.replace(self, name=name, mechanism=self.build(actual), law=self.law_of(actual))

    def tampered(self, name: str, law: Any, source: Callable[..., Noise], *options: Any) -> Self:
        """Return the mutant that draws from `source(noise, *options)`, which makes its law `law`."""
        return dataclasses.replace(self, name=name, law=law, tamper=lambda noise: source(noise, *options))

    def mutants(self) -> list[Self]:
        """Return the mutants that the spec names, and neighbours that do more than it claims; a family adds its own."""
        found = [self.running(name, actual) for name, actual in self.spec.mutants().items()]
        if change_of(self.spec) == REPLACED:
            return found
        return [*found, *(self.moved(name, move) for name, move in WRONG_MOVES.items())]

    def moved(self, name: str, move: Move) -> Self:
        """Return the mutant whose neighbours make this move, which the claim does not cover."""
        return dataclasses.replace(self, name=name, move=move)

    @abstractmethod
    def worst(self, score: Score, *, brief: bool = False) -> WorstPair:
        """Return the neighbours of largest score; `brief` searches only those on which sessions can be sampled."""

    @abstractmethod
    def pressing(self) -> Integers:
        """Return counts (m, C) of a session with more queries than it can pay for, each of which costs a payment."""

    def drawing(self) -> Integers:
        """Return counts (m, C) of the session whose draws are counted."""
        return self.pressing()

    @abstractmethod
    def paid(self, labels: Integers) -> int:
        """Return the number of payments for these answers."""

    @property
    def rows_per_query(self) -> int:
        """Rows of counts that make one query."""
        return 1

    @abstractmethod
    def needed(self, labels: Integers, state: State) -> dict[str, tuple[float, float]]:
        """Return the least and the largest number of draws that the session may have made, by what they are for (`Draw.per`)."""

    @abstractmethod
    def comparisons(self, config: AuditConfig) -> Iterator[Callable[[float], Agreement]]:
        """Yield comparisons of sessions with the law of the *claimed* parameters, as functions of the false alarm."""

    def session(self, counts: Integers, noise: Noise) -> tuple[Integers, State]:
        """Return the labels (m,) of one whole session over `counts` (m, C), and the state after it."""
        source = self.tamper(noise)
        return self.mechanism.answer(counts, self.mechanism.start(source), source)

    def sessions(self, counts: Integers, trials: int, config: AuditConfig) -> Integers:
        """Return the labels of independent sessions, (trials, m)."""
        labels, noise = np.empty((trials, len(counts)), dtype=np.int64), config.noise()
        for trial in range(trials):
            labels[trial] = self.session(counts, noise)[0]
            if trial % 500 == 499:
                config.ran(500)
        config.ran(trials % 500)
        return labels

    def samples(self, pair: WorstPair, trials: int, config: AuditConfig) -> tuple[Integers, Integers]:
        """Return tables (trials, m) of the output of sessions under D and under D'."""
        mine, theirs = (self.sessions(counts, trials, config) for counts in pair.sides)
        return mine, theirs
