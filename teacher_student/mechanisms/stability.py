"""A_stab: release a value if it is stable, and the distance to instability of a plurality vote.

Bassily, Thakkar, Thakurta 2018 (arXiv:1803.05101v2), algorithm 2 (after Smith and Thakurta 2013), and line 5 of algorithm 4.

The box, in our words:

    require  a function f, its distance to instability, a threshold, a scale
    1  noisy distance <- distance + noise of that scale
    2  output f(D) if the noisy distance is above the threshold, else abstain

| paper | here |
|---|---|
| f(D) | winner: the class with most votes, ties to the lowest label |
| dist_f(D) | distance |
| Gamma | noisy_threshold |
| Lap(1/epsilon) | query_noise, drawn by the caller |
| bottom | ABSTAIN |

Deviations from the paper:
- The printed distance of a vote, max(0, gap - 1), has sensitivity 2 where a neighbour may turn a vote into another: the gap (top
  minus runner-up) then moves by up to 2. It also breaks the lemma that a split query (winners differ between neighbours) has
  distance 0 on both: votes 0,0,1,1 and 1,0,1,1 have winners 0 and 1 and printed distances 0 and 1. Here distance =
  max(0, ceil(gap / 2) - 1): an integer of sensitivity 1, and 0 on both sides of every split query, for every tie order.
- Where a neighbour only casts or withdraws a vote, the gap moves by at most 1. The printed distance then has both properties and
  is used (docs/privacy.md, "Votes that are only added or withdrawn").
- Noise is integer (see `noise`), so the comparison is exact.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import Integers, vote_counts
from teacher_student.labels import ABSTAIN

_BLOCK = 1 << 14
"""Rows at a time, so that a block's columns stay in the cache."""


def stable_answer(winner: int, distance: int, *, noisy_threshold: int, query_noise: int) -> int:
    """A_stab for one query: the winner if it is stable enough, else `ABSTAIN`.

    >>> stable_answer(3, 40, noisy_threshold=30, query_noise=-5), stable_answer(3, 40, noisy_threshold=30, query_noise=-10)
    (3, -1)
    """
    noisy_distance = distance + query_noise  # line 1
    return winner if noisy_distance > noisy_threshold else ABSTAIN  # line 2


def distance_to_instability(counts: object, moved: int = 2) -> tuple[Integers, Integers]:
    """Return each query's plurality class and its distance to instability, both int64 of shape (num_queries,).

    The distance is max(0, ceil(gap / moved) - 1), gap = top minus runner-up; the runner-up of a single class counts 0; ties go to
    the lowest label. A neighbour moves it by at most 1 (sensitivity 1); if it changes the winner, the distance is 0 before and
    after.

    Args:
        counts: votes per class, shape (num_queries, num_classes), any integer type, none negative.
        moved: counts of a query that a neighbour moves by one: 2, one up and one down; 1 where votes are only added or withdrawn.

    Raises:
        ArgumentError: counts not a non-empty table of whole numbers >= 0.

    >>> distance_to_instability([[9, 2, 0], [2, 2, 0], [0, 0, 0]])
    (array([0, 0, 0]), array([3, 0, 0]))
    """
    return plurality(vote_counts("counts", counts), moved)


def plurality(counts: npt.NDArray[np.integer], moved: int = 2) -> tuple[Integers, Integers]:
    """Do the work of `distance_to_instability` on checked counts, block by block, in the counts' own integer type."""
    winner = np.empty(len(counts), dtype=np.int64)
    distance = np.empty(len(counts), dtype=np.int64)
    for start in range(0, len(counts), _BLOCK):
        rows = slice(start, start + _BLOCK)
        winner[rows], gap = _winner_and_gap(np.ascontiguousarray(counts[rows].T))
        distance[rows] = distance_of_gap(gap, moved)
    return winner, distance


def distance_of_gap(gap: npt.NDArray[np.integer], moved: int = 2) -> Integers:
    """Return max(0, ceil(gap / moved) - 1) as int64.

    >>> distance_of_gap(np.arange(8)), distance_of_gap(np.arange(4), 1)
    (array([0, 0, 0, 1, 1, 2, 2, 3]), array([0, 0, 1, 2]))
    """
    distance: Integers = np.maximum((gap.astype(np.int64) - 1) // moved, 0)
    return distance


def _winner_and_gap(columns: npt.NDArray[np.integer]) -> tuple[Integers, npt.NDArray[np.integer]]:
    """Return the first class of most votes and top minus runner-up, by one pass over `columns` (num_classes, rows)."""
    top, runner_up = columns[0].copy(), np.zeros_like(columns[0])
    winner = np.zeros(len(top), dtype=np.int64)
    for label, column in enumerate(columns[1:], start=1):
        winner[column > top] = label
        np.maximum(runner_up, np.minimum(top, column), out=runner_up)
        np.maximum(top, column, out=top)
    return winner, top - runner_up
