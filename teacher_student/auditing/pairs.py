"""Worst pairs: the votes of two neighbours, and what the statistic makes of them.

One record sits in one shard, so one teacher may vote otherwise (or abstain) on every query: the pairs below move one vote per
query, in the direction that hurts most (docs/privacy.md, "Tests that can fail").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from teacher_student.arguments import ArgumentError, Integers, vote_counts
from teacher_student.auditing.exact import QueryPair

Statistic = Callable[[Integers], tuple[int, int]]
"""One query's counts (C,) -> (winner, distance)."""


@dataclasses.dataclass(frozen=True, eq=False)
class NeighbourVotes:
    """Counts (m, C) of the same queries under D and D'; one teacher differs.

    Attributes:
        name: what the pair is, for the table.
        counts: (m, C) votes per class under D.
        other_counts: (m, C) votes per class under D'.
    """

    name: str
    counts: Integers
    other_counts: Integers

    def __post_init__(self) -> None:
        for name in ("counts", "other_counts"):
            object.__setattr__(self, name, vote_counts(name, getattr(self, name)))
        if self.counts.ndim != 2 or self.counts.shape != self.other_counts.shape or not len(self.counts):
            raise ArgumentError(f"counts must be two tables of one shape, got {self.counts.shape}, {self.other_counts.shape}")
        change = self.other_counts.astype(np.int64) - self.counts.astype(np.int64)
        gained, lost = np.maximum(change, 0).sum(axis=1), np.maximum(-change, 0).sum(axis=1)
        if (gained > 1).any() or (lost > 1).any():
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
    """Return the winner and max(0, ceil(gap / 2) - 1), the distance of sensitivity 1, one query at a time.

    >>> halved_distance(np.array([7, 2]))
    (0, 2)
    """
    winner, gap = _winner_and_gap(counts)
    return winner, max(0, -(-gap // 2) - 1)


def printed_distance(counts: Integers) -> tuple[int, int]:
    """Return the winner and max(0, gap - 1), the paper's distance: one vote moves it by 2, a guarantee for 1 does not hold.

    >>> printed_distance(np.array([7, 2]))
    (0, 4)
    """
    winner, gap = _winner_and_gap(counts)
    return winner, max(0, gap - 1)


def flipping(moves: list[tuple[int, int]], *, name: str = "one teacher flips on all queries") -> NeighbourVotes:
    """Return queries of which one teacher's vote raises or lowers the distance.

    Args:
        moves: for each query its distance under D (>= 0, >= 1 to be lowered) and the change under D' (+1, 0 or -1).
        name: for the table.
    """
    teachers = 2 * max(distance for distance, _ in moves) + 6
    top = np.array([teachers // 2 + distance + 1 for distance, _ in moves])
    change = np.array([step for _, step in moves])
    return NeighbourVotes(
        name,
        np.stack([top, teachers - top], axis=1).astype(np.int64),
        np.stack([top + change, teachers - top - change], axis=1).astype(np.int64),
    )


def all_split(num_queries: int, num_teachers: int = 11) -> NeighbourVotes:
    """Return queries split (ceil(k/2), floor(k/2)) of which one teacher changes sides, so that every winner changes (k odd)."""
    if num_teachers % 2 == 0:
        raise ArgumentError(f"num_teachers must be odd for one vote to change the winner, got {num_teachers}")
    row = np.array([num_teachers // 2 + 1, num_teachers // 2], dtype=np.int64)
    return NeighbourVotes("every query split", np.tile(row, (num_queries, 1)), np.tile(row[::-1], (num_queries, 1)))


def contested(gap: int, num_queries: int) -> NeighbourVotes:
    """Return queries of two classes whose gap, `gap` under D, is 2 smaller under D': one teacher changes sides every time."""
    teachers = abs(gap) + 8
    row = np.array([(teachers + gap) // 2, (teachers - gap) // 2], dtype=np.int64)
    counts = np.tile(row, (num_queries, 1))
    return NeighbourVotes(f"{num_queries} queries of gap {gap}", counts, counts + np.array([-1, 1]))


def random_votes(
    generator: np.random.Generator, num_queries: int, num_teachers: int, num_classes: int, agreement: float = 0.8
) -> NeighbourVotes:
    """Return random queries; the last teacher votes anew or abstains under D', independently per query."""
    votes = generator.integers(num_classes, size=(num_queries, num_teachers))
    votes[generator.random(votes.shape) < agreement] = 0
    other = votes.copy()
    other[:, -1] = generator.integers(-1, num_classes, size=num_queries)
    return NeighbourVotes("random votes", _tally(votes, num_classes), _tally(other, num_classes))


def _tally(votes: Integers, num_classes: int) -> Integers:
    return np.stack([(votes == label).sum(axis=1) for label in range(num_classes)], axis=1).astype(np.int64)
