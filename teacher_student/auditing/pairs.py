"""Worst pairs: the votes of two neighbours, what the statistic makes of them, and the search for the pair that hurts most.

One record is in one shard, so one teacher may vote differently (or abstain) on every query. Where the voters themselves are
protected, one of them comes or goes, and no other vote takes the place of its votes (`Move`). The pairs below move one vote per
query in the direction that hurts most. The shape of the worst pair for a threshold mechanism (docs/privacy.md, "Tests that can
fail"): first come queries whose distance is one larger under D', where an answer says that the noisy threshold is low, and lower
for D than for D'; then queries whose distance is one smaller under D', where an abstention pays. How many of each, and at which
distances, is searched over a small grid in units of the noise scales.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from teacher_student.arguments import ArgumentError, Floats, Integers, vote_counts
from teacher_student.auditing.exact import QueryPair, ThresholdLaw, outcomes
from teacher_student.auditing.outcomes import Outcomes
from teacher_student.privacy.parameters import REPLACED, WITHDRAWN

Statistic = Callable[[Integers], tuple[int, int]]
"""One query's counts (C,) -> (winner, distance)."""

Score = Callable[[Outcomes, float], float]
"""(outcomes, best so far) -> the score, or the best so far if it is no better."""


class Move(NamedTuple):
    """What a neighbour does to the counts of one query: the votes that one class gains and that another class loses."""

    gained: int
    lost: int


MOVES = {REPLACED: Move(1, 1), WITHDRAWN: Move(1, 0)}
"""The move of each `vote_change`. Where votes are withdrawn, D' is the side with the voter: it gains votes and loses none."""

REPLACEMENT = MOVES[REPLACED]

STEPS = (-0.5, 0.0, 0.5, 1.0, 2.0)
"""Distances that are tried: the threshold plus this many scales."""


@dataclasses.dataclass(frozen=True, eq=False)
class NeighbourVotes:
    """Counts (m, C) of the same queries under D and D'; one teacher differs.

    Attributes:
        name: of the pair, for the table.
        counts: (m, C) votes per class under D.
        other_counts: (m, C) votes per class under D'.
        move: what the one teacher does to the counts of a query.
    """

    name: str
    counts: Integers
    other_counts: Integers
    move: Move = REPLACEMENT

    def __post_init__(self) -> None:
        for name in ("counts", "other_counts"):
            object.__setattr__(self, name, vote_counts(name, getattr(self, name)))
        if self.counts.ndim != 2 or self.counts.shape != self.other_counts.shape or not len(self.counts):
            raise ArgumentError(f"counts must be two tables of one shape, got {self.counts.shape}, {self.other_counts.shape}")
        change = self.other_counts.astype(np.int64) - self.counts.astype(np.int64)
        gained, lost = np.maximum(change, 0).sum(axis=1), np.maximum(-change, 0).sum(axis=1)
        if (gained > self.move.gained).any() or (lost > self.move.lost).any():
            raise ArgumentError(f"counts must differ by one teacher's vote per query, got changes {change.tolist()}")

    @property
    def sides(self) -> tuple[Integers, Integers]:
        """Counts under D and under D'."""
        return self.counts, self.other_counts

    def seen(self, statistic: Statistic) -> list[QueryPair]:
        """Return each query as `statistic` sees it on both sides."""
        rows = zip(self.counts, self.other_counts, strict=True)
        return [QueryPair(*statistic(mine), *statistic(theirs)) for mine, theirs in rows]


def _winner_and_gap(counts: Integers) -> tuple[int, int]:
    ordered = sorted((int(count) for count in counts), reverse=True)
    return int(np.argmax(counts)), ordered[0] - (ordered[1] if len(ordered) > 1 else 0)


def halved_distance(counts: Integers) -> tuple[int, int]:
    """Return the winner and max(0, ceil(gap / 2) - 1), the distance of sensitivity 1, for one query.

    >>> halved_distance(np.array([7, 2]))
    (0, 2)
    """
    winner, gap = _winner_and_gap(counts)
    return winner, max(0, -(-gap // 2) - 1)


def printed_distance(counts: Integers) -> tuple[int, int]:
    """Return the winner and max(0, gap - 1), the paper's distance: of sensitivity 1 where votes are only added or withdrawn.

    A vote that turns into another one moves it by 2, so a guarantee for 1 does not hold then.

    >>> printed_distance(np.array([7, 2]))
    (0, 4)
    """
    winner, gap = _winner_and_gap(counts)
    return winner, max(0, gap - 1)


STATISTICS: dict[str, Statistic] = {REPLACED: halved_distance, WITHDRAWN: printed_distance}
"""The distance of sensitivity 1 for each `vote_change`."""


def flipping(
    moves: list[tuple[int, int]], *, name: str = "one teacher flips on all queries", move: Move = REPLACEMENT
) -> NeighbourVotes:
    """Return queries on each of which one teacher's vote raises or lowers the distance.

    Args:
        moves: for each query its distance under D (>= 0, >= 1 to be lowered) and the change under D' (+1, 0 or -1), by a distance
            that `move` changes by one.
        name: for the table.
        move: what the teacher does to the counts of a query.
    """
    gap = sum(move) * (np.array([distance for distance, _ in moves], dtype=np.int64) + 1)
    change = np.array([step for _, step in moves])
    top = (2 * max(distance for distance, _ in moves) + 7 + gap) // 2
    counts = np.stack([top, top - gap], axis=1)
    raised = np.array([move.gained, -move.lost]) * (change == 1)[:, np.newaxis]
    lowered = np.array([-move.lost, move.gained]) * (change == -1)[:, np.newaxis]
    return NeighbourVotes(name, counts, counts + raised + lowered, move)


def all_split(num_queries: int, num_teachers: int = 11, move: Move = REPLACEMENT) -> NeighbourVotes:
    """Return queries that are as close as votes can be, on which one teacher changes every winner."""
    if num_teachers % 2 == 0:
        raise ArgumentError(f"num_teachers must be odd for one vote to change the winner, got {num_teachers}")
    fewer = num_teachers // 2
    row = np.array([fewer + sum(move) - 1, fewer], dtype=np.int64)  # equal votes go to the first class
    counts = np.tile(row, (num_queries, 1))
    return NeighbourVotes("every query split", counts, counts + np.array([-move.lost, move.gained]), move)


def contested(gap: int, num_queries: int, *, move: Move = REPLACEMENT, rivals: int = 1) -> NeighbourVotes:
    """Return queries with this gap under D, on each of which one teacher's vote goes to the first rival under D'.

    Args:
        gap: of the first class over each of its rivals.
        num_queries: how many.
        move: what the teacher does to the counts of a query.
        rivals: classes that tie behind the first.
    """
    teachers = abs(gap) + 8
    row = np.array([(teachers + gap) // 2, *[(teachers - gap) // 2] * rivals], dtype=np.int64)
    change = np.array([-move.lost, move.gained, *[0] * (rivals - 1)])
    counts = np.tile(row, (num_queries, 1))
    return NeighbourVotes(f"{num_queries} queries of gap {gap}", counts, counts + change, move)


def random_votes(
    generator: np.random.Generator,
    num_queries: int,
    num_teachers: int,
    num_classes: int,
    agreement: float = 0.8,
    move: Move = REPLACEMENT,
) -> NeighbourVotes:
    """Return random queries; under D' the last teacher votes afresh or abstains, independently per query.

    Where votes are only added, the last teacher abstains under D.
    """
    votes = generator.integers(num_classes, size=(num_queries, num_teachers))
    votes[generator.random(votes.shape) < agreement] = 0
    if not move.lost:
        votes[:, -1] = -1
    other = votes.copy()
    other[:, -1] = generator.integers(-1, num_classes, size=num_queries)
    mine, theirs = ((table[:, :, np.newaxis] == np.arange(num_classes)).sum(axis=1) for table in (votes, other))
    return NeighbourVotes("random votes", mine, theirs, move)


class WorstPair(NamedTuple):
    """The neighbours on which a mechanism reveals most.

    Attributes:
        name: for the table.
        outcomes: what a session can emit on the two.
        score: by which they were chosen.
        sides: (m, C) votes or sums under D and under D'; empty if no session is sampled on them.
    """

    name: str
    outcomes: Outcomes
    score: float
    sides: tuple[Integers, ...] = ()


def worst_of(
    score: Score, candidates: Iterable[tuple[str, Outcomes, tuple[Integers, ...]]], best: WorstPair | None = None
) -> WorstPair:
    """Return the candidate of largest score, or `best` if none is better; ties go to the first."""
    for name, found, sides in candidates:
        value = score(found, best.score if best else 0.0)
        if best is None or value > best.score:
            best = WorstPair(name, found, value, sides)
    assert best is not None
    return best


def exact_epsilon(delta: float) -> Score:
    """Return the score "true epsilon at `delta`", for the exact check."""

    def score(result: Outcomes, best: float) -> float:
        if result.worst_divergence(max(best, 0.0)).lower <= delta:
            return best
        return min(60.0, result.epsilon(delta))

    return score


def sampled_epsilon(delta: float, trials: int, deviations: float = 6.5) -> Score:
    """Return the score "epsilon that `trials` sessions on each side can be expected to certify".

    Transcripts are taken in order of their ratio. The masses of each prefix are moved against us by `deviations` standard errors
    (6.5 is what an error of 1e-9 costs).
    """

    def certify(probability: Floats, other: Floats) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            order = np.argsort(-np.nan_to_num(probability / other, posinf=np.inf))
        mine, theirs = np.cumsum(probability[order]), np.cumsum(other[order])
        mine = mine - deviations * np.sqrt(mine / trials) - delta
        theirs = theirs + deviations * np.sqrt(theirs / trials) + deviations**2 / (2 * trials)
        return float(np.max(np.where(mine > 0, np.log(np.maximum(mine, 1e-300) / theirs), 0.0)))

    def score(result: Outcomes, best: float) -> float:
        return max(best, certify(result.probability, result.other), certify(result.other, result.probability))

    return score


def candidates(
    law: ThresholdLaw, ups: Sequence[int], downs: Sequence[int], statistic: Statistic, move: Move
) -> Iterator[NeighbourVotes]:
    """Yield pairs of `ups` raised queries and `downs` lowered ones, at distances that `statistic` puts around the threshold."""
    reach = max(law.query_scale, law.threshold_scale)
    first, second = (query.distance for query in flipping([(0, 0), (1, 0)], move=move).seen(statistic))
    wanted = (law.threshold + step * reach for step in STEPS)
    levels = sorted({max(1, round((distance - first) / (second - first))) for distance in wanted})
    for raised, lowered in itertools.product(ups, downs):
        for high, low in itertools.product(levels if raised else levels[:1], levels):
            steps = [(high, +1)] * raised + [(low, -1)] * lowered
            yield flipping(steps, name=f"{raised} raised, then {lowered} lowered", move=move)


def worst_flips(
    law: ThresholdLaw,
    score: Score,
    *,
    ups: Sequence[int] = (0, 5, 20),
    downs: Sequence[int] | None = None,
    statistic: Statistic = halved_distance,
    move: Move = REPLACEMENT,
) -> WorstPair:
    """Return the pair of largest `score` among `candidates`."""
    found = candidates(law, ups, (law.cutoff, 3 * law.cutoff) if downs is None else downs, statistic, move)
    return worst_of(score, ((votes.name, outcomes(law, votes.seen(statistic)), votes.sides) for votes in found))
