"""Noisy sums under test: noisy fractions, few votes of each teacher, and noisy scores.

The worst neighbours are teachers, not sums: they go through the sessions that a user has, without noise, and what comes out
shows by how much one teacher moves everything that is released. The exact law takes those shifts.

| mutant | mistake |
|---|---|
| noise_halved, scale_0.7, scale_1.3 | a wrong scale |
| one_answer_more | a cap on the answers that is one too high |
| pays_for_votes_before_only | few votes: B is paid for, and 2 B counts move |
| pays_for_1_of_4, pays_for_2_of_4 | scores: |a - b|^2 is taken for |a|^2, or for |a|^2 + |b|^2 |
| votes_forgotten_between_calls | few votes: B is held in each call, not over all of them |
| part_of_a_round_twice | scores: queries of a round are answered on their own, and again |
| rounded_to_nearest | scores: integer steps to nearest, which may make a vector longer |
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
from teacher_student.auditing import agreement, checks
from teacher_student.auditing.agreement import Agreement
from teacher_student.auditing.laws import IntegerLaw, discrete_gaussian
from teacher_student.auditing.outcomes import Outcomes
from teacher_student.auditing.search import Score, WorstPair
from teacher_student.auditing.under_test import AuditConfig, Check, CheckResult, MechanismUnderTest
from teacher_student.auditing.wrapped_noise import SharedNoise, SilentNoise
from teacher_student.labels import HALTED
from teacher_student.mechanisms.interface import State, build_mechanism
from teacher_student.mechanisms.noisy_sums import from_codes

STEPS = 64
"""Integer steps in which scores are summed, written here a second time."""


@dataclasses.dataclass(frozen=True)
class NoisySumLaw:
    """Sums with fresh discrete Gaussian noise of scale `scale`; `shared` describes one draw for all classes of a query."""

    scale: float
    shared: bool = False

    @classmethod
    def of(cls, parameters: Any) -> NoisySumLaw:
        """Return the law that `parameters` promise."""
        return cls(float(parameters.scale))

    def outcomes(self, shift: Integers) -> Outcomes:
        """Return the atoms of the sufficient statistic for sums (n, C) that differ by `shift` (n, C) between D and D'.

        Raises:
            ArgumentError: sums that move by different amounts, for which there is no such statistic on few integers.
        """
        if self.shared and (shift != shift[:, :1]).any():
            return Outcomes(np.array([1.0, 0.0]), np.array([0.0, 1.0]))  # differences of classes have no noise at all
        step, moved = uniform_step(shift)
        if not moved:
            return Outcomes(np.ones(1), np.ones(1))
        law = sum_of(discrete_gaussian(self.scale), moved, self.scale)
        mine = np.concatenate([law.mass, np.zeros(min(moved * step, 2 * len(law.mass)))])
        return Outcomes(mine, mine[::-1].copy(), law.outside)


def uniform_step(shift: Integers) -> tuple[int, int]:
    """Return by how much sums move, and how many of them do."""
    steps = np.abs(shift[shift != 0])
    if len(set(steps.tolist())) > 1:
        raise ArgumentError(f"shift must be of one size wherever it is not 0, got sizes from {steps.min()} to {steps.max()}")
    return (int(steps[0]) if len(steps) else 0), len(steps)


def sum_of(law: IntegerLaw, times: int, scale: float) -> IntegerLaw:
    """Return the law of the sum of `times` draws of a discrete Gaussian of this scale, by a Fourier transform.

    A discrete Gaussian is sub-Gaussian with variance proxy scale^2 (Canonne, Kamath, Steinke 2020, lemma 8), so that less than
    2 e^-50 lies past 10 standard deviations; `outside` allows for that, which wraps around, and for the transform's rounding.
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
    """What a session without noise releases under D and under D', (answers, C) each."""

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
    """Hostile teachers of a claimed mechanism: one of them differs between D and D', in the ways that move sums most.

    Attributes:
        claimed: the parameters whose guarantee is claimed.
        epsilon, delta: the claim, from which sessions calibrate themselves.
    """

    claimed: Any
    epsilon: float
    delta: float

    @property
    @abstractmethod
    def most(self) -> int:
        """Squared distance of everything released that the claim allows for, by a formula of the audit's own."""

    @abstractmethod
    def pairs(self) -> Iterable[tuple[str, Any, Any]]:
        """Yield a name, and what the one teacher says under D and under D'."""

    @abstractmethod
    def released(self, answers: Any) -> Integers:
        """Return the sums (answers, C) that sessions release, without noise, when the one teacher says `answers`."""

    @abstractmethod
    def broken(self) -> dict[str, Teachers]:
        """Return what a faulty session would make of the same teachers."""

    def neighbours(self) -> list[NeighbourSums]:
        """Return what sessions release under each pair."""
        return _neighbours(self)

    def held(self, release: Any) -> Integers:
        """Return the sums of a session's release, which must be one of the claimed parameters."""
        if release.certificate.parameters != self.claimed:
            raise ArgumentError(f"parameters must be those of a session, {release.certificate.parameters}, got {self.claimed}")
        return np.asarray(release.noisy_counts[release.answered])


@functools.lru_cache(maxsize=16)
def _neighbours(teachers: Teachers) -> list[NeighbourSums]:
    return [NeighbourSums(name, teachers.released(mine), teachers.released(theirs)) for name, mine, theirs in teachers.pairs()]


@dataclasses.dataclass(frozen=True)
class VotingTeachers(Teachers):
    """Votes in two calls; `forgets` is a session that begins anew with every call."""

    forgets: bool = False

    @property
    def most(self) -> int:
        """One count of a query loses a vote and one gains it; with a cap on the votes, those before and those after."""
        answers, cap = self.claimed.max_answers, self.claimed.votes_per_teacher
        counts = answers * (2 if self.claimed.num_classes > 1 else 1)
        return counts if cap is None else min(counts, 2 * cap)

    def pairs(self) -> Iterable[tuple[str, Integers, Integers]]:
        """Yield votes (queries,) on more queries than are answered."""
        answers, cap = self.claimed.max_answers, self.claimed.votes_per_teacher
        zero, none = np.zeros(answers + 2, dtype=np.int64), np.full(answers + 2, -1, dtype=np.int64)
        other = zero + 1 if self.claimed.num_classes > 1 else none
        yield "one teacher changes sides", zero, other
        yield "one teacher falls silent", zero, none
        if cap is not None:
            odd = np.arange(answers + 2) % 2 == 1
            yield (
                "one teacher votes on other queries",
                np.where(odd, -1, zero),
                np.where(odd, int(self.claimed.num_classes > 1), -1),
            )

    def released(self, answers: Integers) -> Integers:
        """Return the counts of sessions in which two more teachers vote for class 0."""
        table = np.stack([answers, np.zeros_like(answers), np.zeros_like(answers)], axis=1)
        calls = np.split(table, [(self.claimed.max_answers + 1) // 2])
        sessions = [[call] for call in calls] if self.forgets else [calls]
        return np.concatenate([self._one_session(rows) for rows in sessions])[: self.claimed.max_answers]

    def _one_session(self, calls: list[Integers]) -> Integers:
        spec = self.claimed
        with FractionSession(
            spec.num_classes,
            self.epsilon,
            self.delta,
            spec.max_answers,
            num_teachers=3,
            votes_per_teacher=spec.votes_per_teacher,
            noise=SilentNoise(),
        ) as session:
            for votes in calls:
                session.answer(votes)
            return self.held(session.release())

    def broken(self) -> dict[str, Teachers]:
        """Return the cap that is not held over calls, where there is one that can be reached."""
        cap = self.claimed.votes_per_teacher
        if cap is None or cap >= self.claimed.max_answers:
            return {}
        return {"votes_forgotten_between_calls": dataclasses.replace(self, forgets=True)}


@dataclasses.dataclass(frozen=True)
class ScoringTeachers(Teachers):
    """Scores of one round, of which parts are asked before the whole.

    Attributes:
        add: adds bounded scores to sums.
        parts: a session that answers queries one by one, as often as it is asked.
    """

    add: Callable[[Integers, Floats, float], None] = add_scores
    parts: bool = False

    @property
    def most(self) -> int:
        """A vector turns into its opposite, twice its length away."""
        return 4 * STEPS**2 * int(self.claimed.max_answers) * int(self.claimed.num_classes)

    def pairs(self) -> Iterable[tuple[str, Floats, Floats]]:
        """Yield scores (queries, C): all alike, all in one, and such that nearest integers are longer."""
        shape = (self.claimed.max_answers, self.claimed.num_classes)
        spike, fractional = np.zeros(shape), np.full(shape, 60.6 / STEPS)
        spike[0, 0], fractional[0, 0] = 1e9, 0.0
        fractional[0, 0] = math.sqrt(fractional.size - float((fractional**2).sum()))
        for name, vector in (("all scores", np.ones(shape)), ("one score", spike), ("fractions of a step", fractional)):
            yield f"{name} of one teacher turn", vector, -vector
        yield "one teacher's scores are not finite", np.where(spike > 0, np.inf, np.nan), spike

    def released(self, answers: Floats) -> Integers:
        """Return the sums of a session in which one more teacher has no opinion."""
        queries, classes = answers.shape
        sums = empty_sums(queries, classes)
        self.add(sums, np.stack([answers, np.zeros_like(answers)], axis=1), 1.0)
        sizes = (1, queries) if self.parts else (queries, 1)
        with ScoreSession(
            classes,
            self.epsilon,
            self.delta,
            num_queries=sizes[0],
            rounds=sizes[1],
            num_teachers=2,
            norm=1.0,
            noise=SilentNoise(),
        ) as session:
            for part in [sums[:1]] * queries + [sums] * 2:
                try:
                    session.answer(part)
                except ArgumentError:
                    continue  # a part of a round is refused, and nothing of it is released
            return self.held(session.release())

    def broken(self) -> dict[str, Teachers]:
        """Return a session that answers parts, and scores rounded to the nearest step."""
        found: dict[str, Teachers] = {}
        if self.claimed.max_answers > 1:
            found["part_of_a_round_twice"] = dataclasses.replace(self, parts=True)
        if self.claimed.max_answers * self.claimed.num_classes > 1:
            found["rounded_to_nearest"] = dataclasses.replace(self, add=add_nearest)
        return found


def add_nearest(sums: Integers, scores: Floats, norm: float) -> None:
    """Do what `add_scores` does, but for rounding to nearest. Broken: a vector may become longer than was paid for."""
    vectors = np.moveaxis(scores, 1, 0).reshape(scores.shape[1], -1) / norm
    vectors = np.where(np.isfinite(vectors), vectors, 0.0)
    length = np.sqrt((vectors**2).mean(axis=1, keepdims=True))
    sums += np.rint(vectors * (STEPS / np.maximum(length, 1.0))).astype(np.int64).sum(axis=0).reshape(sums.shape)


TEACHERS: dict[str, type[Teachers]] = {"noisy_fraction": VotingTeachers, "noisy_scores": ScoringTeachers}
"""Worst neighbours of each mechanism that releases sums."""


def neighbours(test: SumsUnderTest, config: AuditConfig) -> CheckResult:
    """One hostile teacher in sessions without noise moves everything released by no more than is paid for."""
    del config
    worst = max(test.teachers.neighbours(), key=lambda pair: pair.squares)
    stated, seen = f"squared distance at most {test.teachers.most}", f"{worst.squares} ({worst.name})"
    return CheckResult(test.name, "neighbours", stated, seen, worst.squares <= test.teachers.most)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumsUnderTest(MechanismUnderTest):
    """A mechanism of noisy sums, beside the sessions that make sums of what teachers say."""

    SESSIONS = 2 * checks.BOUND_SESSIONS + 1
    CHECKS: ClassVar[tuple[Check, ...]] = (neighbours, *checks.ALL, *checks.SAMPLED)

    teachers: Teachers

    @classmethod
    def law_of(cls, spec: Any) -> NoisySumLaw:
        """Return the law that `spec` promises."""
        return NoisySumLaw.of(spec)

    @classmethod
    def claiming(cls, spec: Any, epsilon: float, delta: float) -> Self:
        """Return the mechanism as it is, with its hostile teachers.

        Raises:
            ArgumentError: its worst neighbours are not written down here.
        """
        if spec.mechanism not in TEACHERS:
            raise ArgumentError(
                f"mechanism must be one whose worst neighbours the audit knows ({', '.join(TEACHERS)}), got {spec.mechanism}; "
                "add them to teacher_student.auditing.sums"
            )
        return cls.of(spec, teachers=TEACHERS[spec.mechanism](spec, epsilon, delta))

    def mutants(self) -> list[Self]:
        """Return those of the spec, of the sessions, and noise that the classes of a query share."""
        broken = self.teachers.broken().items()
        found = [*super().mutants(), *(dataclasses.replace(self, name=name, teachers=wrong) for name, wrong in broken)]
        classes = self.spec.num_classes
        if classes == 1:
            return found
        law = dataclasses.replace(self.law, shared=True)
        shared = dataclasses.replace(
            self, name="noise_shared_by_classes", law=law, tamper=lambda noise: SharedNoise(noise, classes)
        )
        return [*found, shared]

    def worst(self, score: Score, *, brief: bool = False) -> WorstPair:
        """Return the worst of the pairs whose sums all move by one amount; `brief`: the one that moves furthest."""
        pairs = [pair for pair in self.teachers.neighbours() if len(set(np.abs(pair.shift[pair.shift != 0]).tolist())) <= 1]
        best: WorstPair | None = None
        for pair in sorted(pairs, key=lambda pair: -pair.squares)[: 1 if brief else None]:
            found = self.law.outcomes(pair.shift)
            value = 0.0 if brief else score(found, best.score if best else 0.0)
            if best is None or value > best.score:
                best = WorstPair(pair.name, found, value, (pair.sums, pair.other_sums))
        assert best is not None
        return best

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
        """One draw for each sum."""
        del state
        return {"count": (int((labels != HALTED).sum()), math.inf)}

    def values(self, sums: Integers, trials: int, config: AuditConfig) -> Integers:
        """Return noisy sums (trials, answers, C) of so many sessions over `sums` (answers, C): one that is as long as all."""
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
        yield lambda false_alarm: agreement.compare_law(noise.ravel()[: 20 * config.trials], single, false_alarm)
        yield lambda false_alarm: agreement.compare_law((noise * signs).sum(axis=(1, 2)), several, false_alarm)
