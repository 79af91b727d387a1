"""A_OQR: answer online queries exactly where they are stable, paying only where they are not.

Bassily, Thakkar, Thakurta 2018 (arXiv:1803.05101v2), algorithm 3.

The box, in our words:

    require  queries chosen online, each with its distance to instability; cutoff T; scales and threshold w from (epsilon, delta)
    1  c <- 0;  noisy threshold <- w + threshold noise
    2  for each query f, while c < T
    3      out <- A_stab(f, its distance, the noisy threshold, the query scale)
    4      if out is "abstain": c <- c + 1 and redraw the noisy threshold
    5      output out

| paper | here |
|---|---|
| f(D), dist_f(D) | winner, distance: `stability.distance_to_instability` of the query's vote counts |
| T, c | parameters.cutoff, state.paid |
| w, w hat | parameters.threshold, state.noisy_threshold |
| lambda; 1 / epsilon = 2 lambda in line 3 | parameters.threshold_scale; parameters.query_scale |
| m | parameters.num_queries, under `stability_paper` only |
| bottom | ABSTAIN; HALTED once c = T |

Deviations from the paper:
- Line 2 reads `c < T`, not `c <= T`.
- Line 4 redraws the threshold under `stability_paper` and `stability_redraw` only. The default, `stability`, draws it once for
  the whole session, and so does `stability_laplace`; the parameters own the cost of each.
- The distance is halved, unless votes are only added or withdrawn, and the noise is integer (see `stability`, `noise`).
- Lemma stabP4 takes a union bound over split queries as if each had a fresh threshold, but the threshold is biased by those that
  were answered. The calibrations account for that (see `teacher_student.privacy`), not this loop.

Cost: `parameters.epsilon(delta)` for any number of adaptively chosen queries; `stability_paper` for at most num_queries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from teacher_student.arguments import Integers, vote_counts
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms import sparse_vector
from teacher_student.mechanisms.interface import Counts, State, samples
from teacher_student.mechanisms.noise import Noise
from teacher_student.mechanisms.stability import plurality, stable_answer
from teacher_student.privacy import Stability, StabilityLaplace, StabilityPaper, StabilityRedraw, ThresholdParameters

_FIRST_BLOCK, _BLOCK = 1 << 10, 1 << 16


@samples(Stability, StabilityPaper, StabilityRedraw, StabilityLaplace)
@dataclasses.dataclass(frozen=True)
class OnlineRelease:
    """A_OQR over vote counts, under any of the four threshold calibrations.

    Attributes:
        parameters: scales, threshold and cutoff; they own the cost of the whole session.
    """

    parameters: ThresholdParameters

    def start(self, noise: Noise) -> State:
        """Return the state before the first query, with a fresh noisy threshold."""
        return sparse_vector.start(self.parameters, noise)  # line 1

    def halted(self, state: State) -> bool:
        """Whether the cutoff is spent, or as many queries were asked as the calibration covers."""
        return not (state.paid < self.parameters.cutoff and state.asked < self.parameters.max_asked)

    def answer(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        """Answer the queries in order, in blocks; the same answers as `answer_literally` on the same noise."""
        counts = vote_counts("counts", counts)
        labels = np.full(len(counts), HALTED, dtype=np.int64)
        for rows in _blocks(int(min(len(counts), self.parameters.max_asked - state.asked))):
            if self.halted(state):
                break
            labels[rows], state = self._answer_block(counts[rows], state, noise)
        return labels, state

    def _answer_block(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        """Answer a block of queries that the calibration covers."""
        winner, distance = plurality(counts, self.parameters.moved_counts)
        outcomes, state = sparse_vector.sparse_vector_in_bulk(distance, self.parameters, state, noise)
        return np.where(outcomes == sparse_vector.ABOVE, winner, outcomes), state

    def answer_literally(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        """Do what `answer` does, line by line as in the box."""
        labels = np.full(len(counts), HALTED, dtype=np.int64)
        threshold, paid, asked = state.threshold, state.paid, 0
        for query, (winner, distance) in enumerate(zip(*plurality(counts, self.parameters.moved_counts), strict=True)):
            if not (paid < self.parameters.cutoff and state.asked + asked < self.parameters.max_asked):  # line 2
                break
            nu = int(sparse_vector.query_noise(self.parameters, 1, noise)[0])
            out = stable_answer(int(winner), int(distance), noisy_threshold=threshold, query_noise=nu)  # line 3
            if out == ABSTAIN:  # line 4
                paid += 1
                threshold = sparse_vector.after_abstention(threshold, self.parameters, noise)
            labels[query] = out  # line 5
            asked += 1
        return labels, sparse_vector.after(state, labels[:asked], threshold)


def _blocks(rows: int) -> Iterator[slice]:
    """Yield slices that cover `rows`, small ones first, so that a session that halts early has drawn little noise in vain.

    >>> list(_blocks(3000))
    [slice(0, 1024, None), slice(1024, 3000, None)]
    """
    start, size = 0, _FIRST_BLOCK
    while start < rows:
        yield slice(start, min(start + size, rows))
        start, size = start + size, min(4 * size, _BLOCK)
