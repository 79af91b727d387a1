"""Noisy sums: the teachers' votes for, or scores of, each class of a query, summed, plus integer Gaussian noise.

Not in the paper. GNMax (Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson 2018, definition 1) without its last step:

    require  sums n_j of one query; a scale
    1  output n_j + N(scale) for every class j                                discrete Gaussian, fresh for each j

| there | here |
|---|---|
| n_j | one row of `counts` for each class of each query |
| sigma | scale |

For votes (noisy fractions) the argmax of the released sums is GNMax's answer, at GNMax's price. For scores (noisy scores) a sum
may be negative even before noise. Since -1 and -2 mean `ABSTAIN` and `HALTED`, an integer v is released as a code of at least 0:
2 v for v >= 0, else -2 v - 1.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from teacher_student.arguments import ArgumentError, Integers, integer_matrix, vote_counts
from teacher_student.labels import HALTED
from teacher_student.mechanisms.interface import Counts, State, samples
from teacher_student.mechanisms.noise import Noise
from teacher_student.privacy.noisy_sums import NoisyFraction, NoisyScores

LARGEST_SUM = 1 << 53
"""Largest sum of scores over all teachers, which a double holds exactly."""


@samples(NoisyFraction, NoisyScores)
@dataclasses.dataclass(frozen=True)
class NoisySums:
    """Answers rows of single sums, `num_classes` rows to a query, until `max_answers` queries are answered."""

    parameters: NoisyFraction | NoisyScores

    def start(self, noise: Noise) -> State:
        """Return the state before the first query; no noise is shared between queries."""
        del noise
        return State()

    def halted(self, state: State) -> bool:
        """Whether the answers that the parameters pay for are used up."""
        return state.paid >= self.parameters.max_answers

    def answer(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        """Answer whole queries in order; a query's classes are adjacent rows of `counts`, shape (num_queries * num_classes, 1).

        Returns:
            codes of noisy sums, or `HALTED`, shape (num_queries * num_classes,), int64; and the state after them.
        """
        sums = self._checked(counts)
        classes = self.parameters.num_classes
        if len(sums) % classes:
            raise ArgumentError(f"counts must have {classes} rows for each query, got {len(sums)} rows")
        queries = min(len(sums) // classes, self.parameters.max_answers - state.paid)
        rows = queries * classes
        codes = np.full(len(sums), HALTED, dtype=np.int64)
        codes[:rows] = to_codes(sums[:rows] + noise.discrete_gaussian(self.parameters.scale, rows))  # line 1
        counted = {name: getattr(state, name) + queries for name in ("asked", "answered", "paid")}
        return codes, dataclasses.replace(state, **counted)

    def _checked(self, counts: Counts) -> Integers:
        if self.parameters.releases == "counts":
            return vote_counts("counts", counts, columns=1).ravel().astype(np.int64)
        return check_sums(integer_matrix("counts", counts, columns=1)).ravel()


def check_sums(sums: Counts) -> Integers:
    """Return sums of scores as int64; refuse any so large that noise could overflow."""
    if max(-int(sums.min()), int(sums.max())) > LARGEST_SUM:
        raise ArgumentError(f"sums must lie between -2^53 and 2^53, got {int(sums.min())} to {int(sums.max())}")
    return sums.astype(np.int64)


def to_codes(values: Integers) -> Integers:
    """Return the code, at least 0, of every integer.

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
