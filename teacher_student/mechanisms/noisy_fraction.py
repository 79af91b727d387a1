"""Noisy fractions: the vote counts of a query, each with integer Gaussian noise.

Not in the paper. GNMax (Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson 2018, definition 1) without its last step:

    require  counts n_j of one query; a scale
    1  output n_j + N(scale) for every class j                                discrete Gaussian, fresh for each j

| there | here |
|---|---|
| n_j | one row of `counts` for each class of each query |
| sigma | scale |

The argmax of what is released is GNMax's answer, at GNMax's price. A noisy count may be negative; as an answer it is a code that
is not, since -1 and -2 mean `ABSTAIN` and `HALTED`: 2 v for v >= 0, else -2 v - 1.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from teacher_student.arguments import ArgumentError, Integers, vote_counts
from teacher_student.labels import HALTED
from teacher_student.mechanisms.interface import Counts, State
from teacher_student.mechanisms.noise import Noise
from teacher_student.privacy.noisy_fraction import NoisyFraction


@dataclasses.dataclass(frozen=True)
class NoisyFractionRelease:
    """Answers rows of single counts, `num_classes` rows to a query, until `max_answers` queries are answered."""

    parameters: NoisyFraction

    def start(self, noise: Noise) -> State:
        """Return the state before the first query; nothing is drawn, since nothing is shared between queries."""
        del noise
        return State()

    def halted(self, state: State) -> bool:
        """Whether the answers that the parameters pay for are used up."""
        return state.paid >= self.parameters.max_answers

    def answer(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        """Answer whole queries in order.

        Args:
            counts: shape (num_queries * num_classes, 1), the counts of a query in adjacent rows.
            state: from `start` or the call before.
            noise: the source of fresh noise.

        Returns:
            codes, shape (num_queries * num_classes,), int64: of noisy counts, or `HALTED`; and the state after them.
        """
        votes = vote_counts("counts", counts, columns=1).ravel().astype(np.int64)
        classes = self.parameters.num_classes
        if len(votes) % classes:
            raise ArgumentError(f"counts must have {classes} rows for each query, got {len(votes)} rows")
        queries = min(len(votes) // classes, self.parameters.max_answers - state.paid)
        rows = queries * classes
        codes = np.full(len(votes), HALTED, dtype=np.int64)
        codes[:rows] = to_codes(votes[:rows] + noise.discrete_gaussian(self.parameters.scale, rows))  # line 1
        counted = {name: getattr(state, name) + queries for name in ("asked", "answered", "paid")}
        return codes, dataclasses.replace(state, **counted)


def to_codes(values: Integers) -> Integers:
    """Return a code of at least 0 for every integer.

    >>> to_codes(np.array([0, 1, -1, -2]))
    array([0, 2, 1, 3])
    """
    return np.where(values >= 0, 2 * values, -2 * values - 1)


def from_codes(codes: Integers) -> Integers:
    """Return the integers of codes.

    >>> from_codes(np.array([0, 2, 1, 3]))
    array([ 0,  1, -1, -2])
    """
    return np.where(codes % 2 == 0, codes // 2, -(codes + 1) // 2)
