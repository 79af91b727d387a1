"""Noisy sums under test: noisy fractions, few votes of each teacher, and noisy scores.

The worst neighbours are teachers, not sums: they go through the sessions that a user has, without noise, and the output shows by
how much one teacher moves everything that is released. The exact law takes those shifts.

| mutant | mistake |
|---|---|
| noise_halved, scale_0.7, scale_1.3 | a wrong scale |
| one_answer_more | a cap on answers that is one too high |
| pays_for_votes_before_only | few votes: B is paid for, and 2 B counts move |
| pays_for_1_of_4, pays_for_2_of_4 | scores: |a - b|^2 is taken for |a|^2, or for |a|^2 + |b|^2 |
| votes_replaced | neighbours replace votes, and the claim is that they only add or withdraw them |
| voter_counted_twice | a voter has two votes on a query, under the same claim |
| votes_forgotten_between_calls | few votes: B is enforced in each call, not over all of them |
| part_of_a_round_twice | scores: queries of a round are answered separately, and again |
| rounded_to_nearest | scores: integer steps to nearest, which may make a vector longer |
| not_bounded | scores: vectors are summed as they are |
| noise_shared_by_classes | one draw for all classes of a query |

**The exact law.** Sum i has fresh discrete Gaussian noise z_i of one scale s, and differs by j or -j between D and D', or not at
all. The logarithm of the likelihood ratio of one sum is linear in its value, so the signed sum of the T values that move is
sufficient: the divergence is that of the T-fold convolution of the noise's law from the same law shifted by T j.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Self

import numpy as np
from scipy import fft

from teacher_student.aggregation import FractionSession, ScoreSession, add_scores, empty_sums
from teacher_student.arguments import ArgumentError, Floats, Integers
from teacher_student.auditing import checks, sampled
from teacher_student.auditing.laws import IntegerLaw, discrete_gaussian
from teacher_student.auditing.outcomes import Outcomes
from teacher_student.auditing.pairs import MOVES, REPLACEMENT, Move, Score, WorstPair, worst_of
from teacher_student.auditing.sampled import Agreement
from teacher_student.auditing.under_test import AuditConfig, Check, CheckResult, MechanismUnderTest, change_of
from teacher_student.auditing.wrapped_noise import SharedNoise, SilentNoise
from teacher_student.labels import HALTED
from teacher_student.mechanisms.interface import State, build_mechanism
from teacher_student.mechanisms.noisy_sums import from_codes

STEPS = 64
"""Integer steps in which scores are summed; a second definition on purpose."""


@dataclasses.dataclass(frozen=True)
class NoisySumLaw:
    """Sums with fresh discrete Gaussian noise of scale `scale`; `shared` describes a mutant with one draw for all classes."""

    scale: float
    shared: bool = False

    def outcomes(self, shift: Integers) -> Outcomes:
        """Return the atoms of the sufficient statistic for sums (n, C) that differ by `shift` (n, C) between D and D'.

        Raises:
            ArgumentError: sums that move by different amounts, which have no such statistic on few integers.
        """
        if self.shared and (shift != shift[:, :1]).any():
            return Outcomes(np.array([1.0, 0.0]), np.array([0.0, 1.0]))  # differences of classes have no noise at all
        steps = sizes_of(shift)
        if len(steps) > 1:
            raise ArgumentError(f"shift must be of one size wherever it is not 0, got sizes from {min(steps)} to {max(steps)}")
        if not steps:
            return Outcomes(np.ones(1), np.ones(1))
        moved = int(np.count_nonzero(shift))
        law = sum_of(discrete_gaussian(self.scale), moved, self.scale)
        mine = np.concatenate([law.mass, np.zeros(min(moved * steps.pop(), 2 * len(law.mass)))])
        return Outcomes(mine, mine[::-1].copy(), law.outside)


def sizes_of(shift: Integers) -> set[int]:
    """Return the different amounts by which sums move."""
    return set(np.abs(shift[shift != 0]).tolist())


def sum_of(law: IntegerLaw, times: int, scale: float) -> IntegerLaw:
    """Return the law of the sum of `times` draws of a discrete Gaussian of this scale, by a Fourier transform.

    A discrete Gaussian is sub-Gaussian with variance proxy scale^2 (Canonne, Kamath, Steinke 2020, lemma 8), so less than 2 e^-50
    lies beyond 10 standard deviations. `outside` allows for that mass, which wraps around, and for the transform's rounding.
    """
    if times == 1:
        return law
    reach = math.ceil(10 * math.sqrt(times) * scale) + 2
    circle = np.zeros(fft.next_fast_len(2 * reach + 1, real=True))
    np.add.at(circle, law.support % len(circle), law.mass)
    mass = np.roll(fft.irfft(fft.rfft(circle) ** times, len(circle)), reach)[: 2 * reach + 1]
    return IntegerLaw(-reach, np.maximum(mass, 0.0), 1e-13 * (20 + times) + times * law.outside)


@dataclasses.dataclass(frozen=True, eq=False)
class NeighbourSums:
    """The output (answers, C) of a session without noise under D and under D'."""

    name: str
    sums: Integers
    other_sums: Integers

    @property
    def shift(self) -> Integers:
        """How much every released sum moves, (answers, C)."""
        return self.sums - self.other_sums

    @property
    def squares(self) -> int:
        """Squared distance of the released sums."""
        return int((self.shift.astype(object) ** 2).sum())


@dataclasses.dataclass(frozen=True)
class Teachers(ABC):
    """Hostile teachers of a claimed mechanism: one of them differs between D and D' in the ways that move sums most.

    Attributes:
        claimed: the parameters whose guarantee is claimed.
        epsilon, delta: the claim, from which sessions calibrate themselves.
        move: what the one teacher may do to the counts of a query.
    """

    claimed: Any
    epsilon: float
    delta: float
    move: Move = REPLACEMENT

    @property
    @abstractmethod
    def most(self) -> int:
        """Largest squared distance of released sums for which the claim allows, by a formula of the audit's own."""

    @abstractmethod
    def pairs(self) -> Iterable[tuple[str, Any, Any]]:
        """Yield a name, and what the one teacher says under D and under D'."""

    @abstractmethod
    def released(self, answers: Any) -> Integers:
        """Return the sums (answers, C) that sessions release, without noise, when the one teacher says `answers`."""

    @abstractmethod
    def broken(self) -> dict[str, Teachers]:
        """Return the same teachers in front of a broken session, by the name of the mutant."""

    @functools.cached_property
    def neighbours(self) -> list[NeighbourSums]:
        """What sessions release under each pair."""
        return [NeighbourSums(name, self.released(mine), self.released(theirs)) for name, mine, theirs in self.pairs()]

    def sums_of(self, session: Any, calls: Iterable[Any]) -> Integers:
        """Return what a session of the claimed parameters releases of these calls. Calls that it refuses release nothing."""
        with session:
            for call in calls:
                try:
                    session.answer(call)
                except ArgumentError:
                    if self.must_answer:
                        raise
            release = session.release()
        if release.certificate.parameters != self.claimed:
            raise ArgumentError(f"parameters must be those of a session, {release.certificate.parameters}, got {self.claimed}")
        return np.asarray(release.noisy_counts[release.answered])

    must_answer: ClassVar[bool] = True
    """Whether a session must accept every call."""


@dataclasses.dataclass(frozen=True)
class VotingTeachers(Teachers):
    """Votes in two calls; `forgets` describes a session that starts afresh with every call."""

    forgets: bool = False

    @property
    def most(self) -> int:
        """One count of a query loses a vote and one gains it; with a cap on votes, those before and those after.

        Where votes are only added or withdrawn, there is no vote before or none after.
        """
        answers, cap = self.claimed.max_answers, self.claimed.votes_per_teacher
        sides = sum(MOVES[change_of(self.claimed)])
        counts = answers * min(sides, self.claimed.num_classes)
        return counts if cap is None else min(counts, sides * cap)

    def pairs(self) -> Iterable[tuple[str, Integers, Integers]]:
        """Yield votes (queries,) on more queries than are answered."""
        queries = self.claimed.max_answers + 2
        zero, none = np.zeros(queries, dtype=np.int64), np.full(queries, -1, dtype=np.int64)
        other = zero + 1 if self.claimed.num_classes > 1 else none
        if not self.move.lost:
            yield "one voter withdraws", zero, none
            return
        yield "one teacher changes sides", zero, other
        yield "one teacher falls silent", zero, none
        if self.claimed.votes_per_teacher is not None:
            odd = np.arange(queries) % 2 == 1
            last = int(self.claimed.num_classes > 1)
            yield "one teacher votes on other queries", np.where(odd, -1, zero), np.where(odd, last, -1)

    def released(self, answers: Integers) -> Integers:
        """Return the counts of sessions in which two more teachers vote for class 0.

        Where a voter is counted twice, it stands in two columns.
        """
        table = np.stack([*[answers] * self.move.gained, np.zeros_like(answers), np.zeros_like(answers)], axis=1)
        calls = np.split(table, [(self.claimed.max_answers + 1) // 2])
        sessions = [[call] for call in calls] if self.forgets else [calls]
        return np.concatenate([self.sums_of(self._session(), rows) for rows in sessions])[: self.claimed.max_answers]

    def _session(self) -> FractionSession:
        spec = self.claimed
        return FractionSession(
            spec.num_classes,
            self.epsilon,
            self.delta,
            spec.max_answers,
            num_teachers=self.move.gained + 2,
            votes_per_teacher=spec.votes_per_teacher,
            vote_change=change_of(spec),
            noise=SilentNoise(),
        )

    def broken(self) -> dict[str, Teachers]:
        """Return the cap that is not enforced over calls, if there is one that can be reached."""
        cap = self.claimed.votes_per_teacher
        if cap is None or cap >= self.claimed.max_answers:
            return {}
        return {"votes_forgotten_between_calls": dataclasses.replace(self, forgets=True)}


@dataclasses.dataclass(frozen=True)
class ScoringTeachers(Teachers):
    """Scores of one round, parts of which are asked before the whole.

    Attributes:
        add: adds bounded scores to sums.
        parts: whether the session answers queries one by one, as often as it is asked.
    """

    must_answer: ClassVar[bool] = False  # a part of a round is refused

    add: Callable[[Integers, Floats, float], None] = add_scores
    parts: bool = False

    @property
    def most(self) -> int:
        """A vector turns into its opposite, twice its length away. Where vectors are only added or withdrawn, it turns into 0."""
        lengths = sum(MOVES[change_of(self.claimed)])
        return lengths**2 * STEPS**2 * int(self.claimed.max_answers) * int(self.claimed.num_classes)

    def pairs(self) -> Iterable[tuple[str, Floats, Floats]]:
        """Yield scores (queries, C): all alike, all in one, and such that the nearest integers are longer."""
        other = -float(self.move.lost)
        shape = (self.claimed.max_answers, self.claimed.num_classes)
        spike, fractional = np.zeros(shape), np.full(shape, 60.6 / STEPS)
        spike[0, 0], fractional[0, 0] = 1e9, 0.0
        fractional[0, 0] = math.sqrt(fractional.size - float((fractional**2).sum()))
        for name, vector in (("all scores", np.ones(shape)), ("one score", spike), ("fractions of a step", fractional)):
            yield f"{name} of one teacher turn", vector, other * vector
        yield "one teacher's scores are not finite", np.where(spike > 0, np.inf, np.nan), spike

    def released(self, answers: Floats) -> Integers:
        """Return the sums of a session in which one more teacher has no opinion; a teacher counted twice is there twice."""
        queries, classes = answers.shape
        sums = empty_sums(queries, classes)
        self.add(sums, np.stack([*[answers] * self.move.gained, np.zeros_like(answers)], axis=1), 1.0)
        asked, rounds = (1, queries) if self.parts else (queries, 1)
        options: dict[str, Any] = {"num_queries": asked, "rounds": rounds, "num_teachers": 2, "norm": 1.0, "noise": SilentNoise()}
        session = ScoreSession(classes, self.epsilon, self.delta, vote_change=change_of(self.claimed), **options)
        return self.sums_of(session, [sums[:1]] * queries + [sums] * 2)

    def broken(self) -> dict[str, Teachers]:
        """Return a session that answers parts, scores rounded to the nearest step, and scores as they are."""
        found: dict[str, Teachers] = {"not_bounded": dataclasses.replace(self, add=add_unbounded)}
        if self.claimed.max_answers > 1:
            found["part_of_a_round_twice"] = dataclasses.replace(self, parts=True)
        if self.claimed.max_answers * self.claimed.num_classes > 1:
            found["rounded_to_nearest"] = dataclasses.replace(self, add=add_nearest)
        return found


def add_unbounded(sums: Integers, scores: Floats, norm: float) -> None:
    """Mutant of `add_scores` that shrinks nothing."""
    steps = np.clip(np.nan_to_num(scores * (STEPS / norm)), -(2.0**40), 2.0**40)
    sums += np.trunc(steps).astype(np.int64).sum(axis=1)


def add_nearest(sums: Integers, scores: Floats, norm: float) -> None:
    """Mutant of `add_scores` that rounds to nearest, so a vector may become longer than was paid for."""
    vectors = np.moveaxis(scores, 1, 0).reshape(scores.shape[1], -1) / norm
    vectors = np.where(np.isfinite(vectors), vectors, 0.0)
    length = np.sqrt((vectors**2).mean(axis=1, keepdims=True))
    sums += np.rint(vectors * (STEPS / np.maximum(length, 1.0))).astype(np.int64).sum(axis=0).reshape(sums.shape)


TEACHERS: dict[str, type[Teachers]] = {"noisy_fraction": VotingTeachers, "noisy_scores": ScoringTeachers}
"""The hostile teachers of each mechanism that releases sums."""


def neighbours(test: SumsUnderTest, config: AuditConfig) -> CheckResult:
    """One hostile teacher in sessions without noise moves everything that is released by no more than is paid for."""
    del config
    worst = max(test.teachers.neighbours, key=lambda pair: pair.squares)
    stated, seen = f"squared distance at most {test.teachers.most}", f"{worst.squares} ({worst.name})"
    return CheckResult(test.name, "neighbours", stated, seen, worst.squares <= test.teachers.most)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumsUnderTest(MechanismUnderTest):
    """A mechanism of noisy sums, with the sessions that turn what teachers say into sums."""

    SESSIONS = 2 * checks.BOUND_SESSIONS + 1
    CHECKS: ClassVar[tuple[Check, ...]] = (neighbours, *checks.ALL, *checks.SAMPLED)

    teachers: Teachers

    @classmethod
    def law_of(cls, spec: Any) -> NoisySumLaw:
        """Return the law that `spec` promises."""
        return NoisySumLaw(float(spec.scale))

    @classmethod
    def claiming(cls, spec: Any, epsilon: float, delta: float) -> Self:
        """Return the mechanism itself with its hostile teachers.

        Raises:
            ArgumentError: its hostile teachers are not defined here.
        """
        if spec.mechanism not in TEACHERS:
            raise ArgumentError(
                f"mechanism must be one whose worst neighbours the audit knows ({', '.join(TEACHERS)}), got {spec.mechanism}; "
                "add them to teacher_student.auditing.sums"
            )
        return cls.of(spec, teachers=TEACHERS[spec.mechanism](spec, epsilon, delta, MOVES[change_of(spec)]))

    def moved(self, name: str, move: Move) -> Self:
        """Return the mutant whose neighbours make this move, which the claim does not cover."""
        return dataclasses.replace(super().moved(name, move), teachers=dataclasses.replace(self.teachers, move=move))

    def mutants(self) -> list[Self]:
        """Add broken sessions, and noise that the classes of a query share."""
        broken = self.teachers.broken().items()
        found = [*super().mutants(), *(dataclasses.replace(self, name=name, teachers=wrong) for name, wrong in broken)]
        if self.spec.num_classes == 1:
            return found
        law = dataclasses.replace(self.law, shared=True)
        return [*found, self.tampered("noise_shared_by_classes", law, SharedNoise, self.spec.num_classes)]

    def worst(self, score: Score, *, brief: bool = False) -> WorstPair:
        """Return the worst of the pairs whose sums all move by one amount; `brief`: the pair that moves furthest."""
        pairs = [pair for pair in self.teachers.neighbours if len(sizes_of(pair.shift)) <= 1]
        pairs = sorted(pairs, key=lambda pair: -pair.squares)[: 1 if brief else None]
        return worst_of(score, ((pair.name, self.law.outcomes(pair.shift), (pair.sums, pair.other_sums)) for pair in pairs))

    @property
    def rows_per_query(self) -> int:
        """One row for each class."""
        return int(self.spec.num_classes)

    def pressing(self) -> Integers:
        """Return empty sums of more queries than are answered."""
        return np.zeros(((2 * self.spec.max_answers + 2) * self.rows_per_query, 1), dtype=np.int64)

    def paid(self, labels: Integers) -> int:
        """Return the answers."""
        return int((labels != HALTED).sum()) // self.rows_per_query

    def needed(self, labels: Integers, state: State) -> dict[str, tuple[float, float]]:
        """Require at least one draw for each sum."""
        del state
        return {"count": (int((labels != HALTED).sum()), math.inf)}

    def values(self, sums: Integers, trials: int, config: AuditConfig) -> Integers:
        """Return noisy sums (trials, answers, C) of this many sessions over `sums` (answers, C), run as one long session."""
        actual, source = self.mechanism.parameters, self.tamper(config.noise())
        long = build_mechanism(dataclasses.replace(actual, max_answers=len(sums) * trials))  # type: ignore[call-arg]
        codes, _ = long.answer(np.tile(sums.reshape(-1, 1), (trials, 1)), long.start(source), source)
        config.ran(trials)
        return from_codes(codes).reshape(trials, *sums.shape)

    def samples(self, pair: WorstPair, trials: int, config: AuditConfig) -> tuple[Integers, Integers]:
        """Return the signed sums of what moves, in cells of half a standard deviation."""
        mine, theirs = pair.sides
        signs = np.sign(mine - theirs)
        width = max(1, round(math.sqrt(np.count_nonzero(signs)) * float(self.spec.scale) / 2))

        def cells(sums: Integers) -> Integers:
            moved = (self.values(sums, trials, config) - theirs) * signs
            return np.asarray(moved.sum(axis=(1, 2))[:, None] // width)

        return cells(mine), cells(theirs)

    def comparisons(self, config: AuditConfig) -> Iterator[Callable[[float], Agreement]]:
        """Yield the noise of single sums, and of the difference between two classes."""
        shape, scale = (self.spec.max_answers, self.spec.num_classes), float(self.spec.scale)
        noise = self.values(np.zeros(shape, dtype=np.int64), config.trials, config)
        signs = np.array([1, -1, *[0] * shape[1]])[: shape[1]]
        single = discrete_gaussian(scale)
        several = sum_of(single, shape[0] * min(2, shape[1]), scale)
        yield lambda false_alarm: sampled.compare_law(noise.ravel()[: 20 * config.trials], single, false_alarm)
        yield lambda false_alarm: sampled.compare_law((noise * signs).sum(axis=(1, 2)), several, false_alarm)
