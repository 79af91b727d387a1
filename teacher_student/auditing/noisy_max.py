"""The noisy maxima and the exponential mechanism under test: their exact law, by summation over integers, and their mutants.

    for each query, while fewer than `max_answers` are answered (and, with a test, fewer than `num_queries` asked):
        with a test: unless top count + noise at the test's scale >= test threshold, release "unanswered"
        release the label whose count + fresh noise is largest, ties to the lowest label

Queries are independent, so a session is composed of its queries.

| mutant | mistake |
|---|---|
| one_answer_more | a cap on answers that is one too high |
| noise_halved | every scale halved |
| scale_0.7, scale_1.3 | every scale wrong |
| test_noise_0.7 | Confident-GNMax tests with too little noise |
| votes_replaced | neighbours replace votes, and the claim is that they only add or withdraw them |
| voter_counted_twice | a voter has two votes on a query, under the same claim |
| noise_reused | one draw for all counts, which then decides nothing (omitted if the sampler would never end) |
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np

from teacher_student.arguments import ArgumentError, Floats, Integers, choice
from teacher_student.auditing import checks, sampled
from teacher_student.auditing.laws import THRESHOLD_LAWS, IntegerLaw
from teacher_student.auditing.outcomes import Outcomes, joined, product
from teacher_student.auditing.pairs import REPLACEMENT, Move, NeighbourVotes, Score, WorstPair, contested, worst_of
from teacher_student.auditing.sampled import Agreement
from teacher_student.auditing.under_test import AuditConfig, Check, MechanismUnderTest
from teacher_student.auditing.wrapped_noise import ReusedNoise
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms.interface import State

ITS_OWN = "its own"
"""Noise of a mechanism whose law is not implemented here: the audit uses `NoisyMaxParameters.law`, which must be exact."""

WRITTEN_AGAIN = {
    "gnmax": "discrete_gaussian",
    "confident_gnmax": "discrete_gaussian",
    "lnmax": "discrete_laplace",
    "exponential": "exponential",
}
"""Mechanisms whose law is implemented here a second time instead of taken from `privacy/`."""


@dataclasses.dataclass(frozen=True)
class NoisyMaxLaw:
    """A noisy maximum as laws alone.

    Attributes:
        noise: law of the noise on every count, or "exponential" for P(label) proportional to e^(count / scale), or `ITS_OWN`.
        scale: its scale.
        max_answers: cap on released labels.
        test_threshold: votes that the noisy top count must reach, or None for no test.
        test_scale: scale of the test's noise, a discrete Gaussian.
        max_asked: cap on queries, or None.
        reuse: whether the noise is the same for every count, as in a mutant, and so decides nothing.
        own: the law of an answer, from counts (C,) to probabilities (C,), if `noise` is `ITS_OWN`.
    """

    noise: str
    scale: float
    max_answers: int
    test_threshold: int | None = None
    test_scale: float | None = None
    max_asked: int | None = None
    reuse: bool = False
    own: Callable[[Integers], Floats] | None = None

    def __post_init__(self) -> None:
        choice("noise", self.noise, [*THRESHOLD_LAWS, "exponential", ITS_OWN])
        if (self.own is None) != (self.noise != ITS_OWN):
            raise ArgumentError(f"own must be given where noise is {ITS_OWN!r}, and nowhere else")
        if (self.test_threshold is None) != (self.test_scale is None):
            raise ArgumentError("test_threshold and test_scale must be given together")

    @classmethod
    def of(cls, parameters: Any) -> NoisyMaxLaw:
        """Return the law that `parameters` (a NoisyMaxParameters) promise."""
        noise = WRITTEN_AGAIN.get(parameters.mechanism, ITS_OWN)
        found = cls(noise, parameters.vote_scale, parameters.max_answers, own=parameters.law if noise == ITS_OWN else None)
        if not parameters.asks_first:
            return found
        test = {"test_threshold": parameters.threshold, "test_scale": float(parameters.threshold_scale)}
        return dataclasses.replace(found, **test, max_asked=parameters.max_asked)

    def chances(self, counts: Integers) -> Floats:
        """Return the probabilities (C + 1,) of each label and finally of "unanswered", for the counts (C,) of one query."""
        labels = self._label_chances(np.asarray(counts, dtype=np.int64))
        if self.test_threshold is None or self.test_scale is None:
            return np.append(labels, 0.0)
        test = THRESHOLD_LAWS["discrete_gaussian"](self.test_scale)
        passed = float(test.mass[test.support >= self.test_threshold - int(counts.max())].sum())
        return np.append(passed * labels, 1 - passed)

    def _label_chances(self, counts: Integers) -> Floats:
        if self.reuse:
            return np.eye(len(counts))[int(counts.argmax())]
        if self.own is not None:
            return self.own(counts)
        if self.noise == "exponential":
            weights = np.exp((counts - counts.max()) / self.scale)
            return np.asarray(weights / weights.sum())
        return label_chances(counts, THRESHOLD_LAWS[self.noise](self.scale))


def label_chances(counts: Integers, law: IntegerLaw) -> Floats:
    """Return P(label c has the largest count + noise, ties to the lowest label) for each c, (C,).

    P(c) = sum_x P(count_c + N = x) prod_{j < c} P(count_j + N < x) prod_{j > c} P(count_j + N <= x).
    """
    counts = np.asarray(counts, dtype=np.int64)
    grid = np.arange(counts.min() + law.first, counts.max() + law.first + len(law.mass))
    cumulative = np.concatenate([[0.0], np.cumsum(law.mass)])
    place = np.clip(grid - counts[:, None] - law.first, -1, len(law.mass) - 1)
    at_most = cumulative[place + 1]
    below = cumulative[np.clip(grid - 1 - counts[:, None] - law.first, -1, len(law.mass) - 1) + 1]
    exactly = at_most - below
    chances = [np.sum(exactly[c] * np.prod(below[:c], axis=0) * np.prod(at_most[c + 1 :], axis=0)) for c in range(len(counts))]
    return np.array(chances)


def session_outcomes(
    law: NoisyMaxLaw, counts: Integers, other_counts: Integers, *, width: float = 1e-5, largest: int = 200_000
) -> Outcomes:
    """Return what a session over `counts` (m, C) and over its neighbour `other_counts` can emit."""
    nothing = Outcomes(np.zeros(0), np.zeros(0))
    alive = [Outcomes(np.ones(1), np.ones(1)), *[nothing] * law.max_answers]  # by number of labels released
    chances = functools.lru_cache(maxsize=None)(lambda row: law.chances(np.array(row)))
    for mine, theirs in zip(counts[: law.max_asked].tolist(), other_counts[: law.max_asked].tolist(), strict=True):
        one, other = chances(tuple(mine)), chances(tuple(theirs))
        label, silence = Outcomes(one[:-1], other[:-1]), Outcomes(one[-1:], other[-1:])
        after = []
        for released, before in enumerate(alive):
            parts = [before if released == law.max_answers else product(before, silence)]
            parts += [product(alive[released - 1], label)] if released else []
            after.append(joined(parts, width=width, largest=largest))
        alive = after
    return joined(alive)


def session_law(law: NoisyMaxLaw, counts: Integers) -> dict[sampled.Transcript, float]:
    """Return the probability of every transcript of a session over `counts` (m, C)."""

    def branches(query: int, paid: int, mass: float) -> Iterator[tuple[int, int, float]]:
        del paid
        if law.max_asked is not None and query >= law.max_asked:
            yield HALTED, 0, mass
            return
        chances = law.chances(counts[query])
        yield ABSTAIN, 0, mass * chances[-1]
        for label, chance in enumerate(chances[:-1]):
            yield label, 1, mass * chance

    found = sampled.transcripts(1.0, branches, len(counts), law.max_answers)
    return {transcript: mass for transcript, mass in found.items() if mass > 0}


GAPS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Gaps that are tried, in standard deviations of the difference of two noisy counts."""

SAMPLED_GAPS = (0.5, 1.0)
"""Gaps at which sessions are compared with their law."""


RIVALS = (1, 9)
"""Classes behind the first that are tried where a single count moves: of many rivals the noisy largest one varies less."""


def votes_of_gap(
    law: NoisyMaxLaw, gap: int, num_queries: int, *, clear: float = 0.0, move: Move = REPLACEMENT, rivals: int = 1
) -> NeighbourVotes:
    """Return contested votes of this gap. If there is a test, the top count is `clear` of its scales above the threshold."""
    votes = contested(gap, num_queries, move=move, rivals=rivals)
    if law.test_threshold is None or law.test_scale is None:
        return votes
    lift = law.test_threshold + round(clear * law.test_scale) - votes.counts.max()
    counts = np.maximum(votes.counts + lift, 0)
    other_counts = np.maximum(counts + votes.other_counts - votes.counts, 0)
    return dataclasses.replace(votes, counts=counts, other_counts=other_counts)


def first_gains(votes: NeighbourVotes) -> NeighbourVotes:
    """Return the same queries with the vote that is added given to the first class."""
    change = (votes.other_counts - votes.counts)[:, [1, 0, *range(2, votes.counts.shape[1])]]
    return dataclasses.replace(votes, name=f"{votes.name}, gained", other_counts=votes.counts + change)


def worst_gap(law: NoisyMaxLaw, score: Score, num_queries: int, move: Move = REPLACEMENT) -> WorstPair:
    """Return the contested votes of largest score."""
    gaps = sorted({sum(move) - 1 + round(step * 2**0.5 * law.scale) for step in GAPS})  # the least gap splits a query
    tests = (0.0,) if law.test_scale is None else (-1.0, 0.0, 1.0, 3.0)

    def found() -> Iterator[NeighbourVotes]:
        for rivals, gap, clear in itertools.product((1,) if move.lost or len(tests) > 1 else RIVALS, gaps, tests):
            votes = votes_of_gap(law, gap, num_queries, clear=clear, move=move, rivals=rivals)
            yield from (votes,) if move.lost else (votes, first_gains(votes))

    exact = ((votes, session_outcomes(law, *votes.sides, width=1e-4, largest=20_000)) for votes in found())
    return worst_of(score, ((votes.name, outcomes, votes.sides) for votes, outcomes in exact))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyMaxUnderTest(MechanismUnderTest):
    """A noisy maximum under test."""

    SESSIONS = len(SAMPLED_GAPS) + 2 * checks.BOUND_SESSIONS
    CHECKS: ClassVar[tuple[Check, ...]] = (*checks.ALL, *checks.SAMPLED)

    @classmethod
    def law_of(cls, spec: Any) -> NoisyMaxLaw:
        """Return the law that `spec` promises."""
        return NoisyMaxLaw.of(spec)

    def mutants(self) -> list[Self]:
        """Add noise that is drawn once for all counts."""
        drawn = [draw for draw in self.spec.draws if draw.per == "count" and draw.decides]
        law = dataclasses.replace(self.law, reuse=True)
        return [*super().mutants(), *(self.tampered("noise_reused", law, ReusedNoise, draw.law, draw.scale) for draw in drawn)]

    def worst(self, score: Score, *, brief: bool = False) -> WorstPair:
        """Return the worst contested votes."""
        del brief
        return worst_gap(self.law, score, int(self.law.max_asked or self.law.max_answers), self.move)

    def pressing(self) -> Integers:
        """Return clear queries, so that each is answered."""
        return votes_of_gap(self.law, 9, 2 * self.spec.max_asked + 3, clear=9.0).counts

    def paid(self, labels: Integers) -> int:
        """Return the answers."""
        return int((labels >= 0).sum())

    def needed(self, labels: Integers, state: State) -> dict[str, tuple[float, float]]:
        """Require at least one draw for each count of each answer and one for each test."""
        return {"query": (state.asked, math.inf), "count": (self.pressing().shape[1] * self.paid(labels), math.inf)}

    def comparisons(self, config: AuditConfig) -> Iterator[Callable[[float], Agreement]]:
        """Yield transcripts of sessions on contested votes."""
        law = NoisyMaxLaw.of(self.spec)
        most = min(law.max_asked or law.max_answers, 4)

        def compare(step: float, false_alarm: float) -> Agreement:
            counts = votes_of_gap(law, 1 + round(step * 2**0.5 * law.scale), most).counts
            labels = self.sessions(counts, config.trials, config)
            return sampled.compare_transcripts(labels, session_law(law, counts), false_alarm)

        for step in SAMPLED_GAPS:
            yield lambda false_alarm, step=step: compare(step, false_alarm)  # type: ignore[misc]
