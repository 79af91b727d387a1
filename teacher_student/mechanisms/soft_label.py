"""A_SL-Quer, A_LPriv and H_priv: soft labels, a plain histogram first and a shifted one where that fails.

Bassily, Thakkar, Thakurta 2018 (arXiv:1803.05101v2), section 5, the algorithms named A_SL-Quer, A_LPriv (A_PrvLearn) and h_priv.

The boxes, in our words.

A_SL-Quer, soft-label classification queries:

    require  private data D, learner B, number of teachers k, queries x online, bins, cutoff, (epsilon, delta)
    1  c <- 0; scales and threshold w from (epsilon, delta);  noisy threshold <- w + threshold noise
    2  h_priv <- A_LPriv(D, B, k)
    3  for each query x, while c < U
    4      (score, flag) <- h_priv(x)
    5      c <- c + 1 for every sub-answer "abstain": one if the shifted test answered, two if it failed as well
    6      output the score, or "abstain"

A_LPriv, the private learner:

    1  split D into k disjoint shards
    2  train h_j <- B(shard j) for every j
    3  output the algorithm h_priv, which holds h_1, ..., h_k

h_priv, the private classifier:

    1  S <- {h_1(x), ..., h_k(x)}
    2  hist <- GenHist(S), flag <- 0
    3  noisy distance <- distance(hist) + query noise
    4  if it is above the noisy threshold
    5      output the midpoint of the fullest bin
    6  else
    7      flag <- 1; redraw the noisy threshold; hist <- shifted GenHist(S)
    8      noisy distance <- distance(hist) + fresh query noise
    9      if it is above the noisy threshold: output the midpoint of the fullest shifted bin
    10     else output "abstain"; redraw the noisy threshold

| paper | here |
|---|---|
| gamma | 1 / bins, per query |
| T; the budget that 2T stands for | unstable queries; U = parameters.cutoff, in units: one per sub-answer "abstain" |
| c, w hat | state.paid, state.noisy_threshold |
| lambda, 2 lambda, w | parameters.threshold_scale, parameters.query_scale, parameters.threshold |
| s hat, flag | score, shifted |
| bottom | ABSTAIN; HALTED once c = U |

An answer is an integer *code*, B^2 + 2v + flag: bin v of B, plain or shifted. The score is (2v + flag + 1) / (2B), and the code
alone says it, as B^2 <= code < (B + 1)^2. Counts, codes and noise are integers; a score is made last.

Deviations from the paper:
- The noisy threshold, never initialised in h_priv as printed, is drawn in line 1 and *shared* by all queries.
- Line 1: w has a factor 2 that the print lacks (without it, a session leaks); scales are calibrated for U = 2T units, since T
  doubly unstable queries pay 2T. `parameters.cutoff` is U.
- Line 3 reads `c < U`, not `c <= T`; the shifted test runs only if c < U still holds: the last unit may go to a first test.
- Redraws happen under the calibrations `stability_paper` and `stability_redraw` only. The default, `stability`, keeps one
  threshold for the whole session, which its accounting needs.
- The distance is halved (see `stability`); noise is integer; GenHist takes any values (see `soft_histogram`).
- The number of bins may differ per query if it is chosen from public information.

Cost: `parameters.epsilon(delta)`. Each test is one query of sensitivity 1 to the sparse vector, chosen after seeing the one
before; the analysis allows any adaptive choice, and at most U abstentions.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, Floats, Integers, vote_counts
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms import sparse_vector
from teacher_student.mechanisms.interface import Counts, State
from teacher_student.mechanisms.noise import Noise
from teacher_student.mechanisms.soft_histogram import split
from teacher_student.mechanisms.stability import plurality, stable_answer
from teacher_student.privacy import ThresholdParameters
from teacher_student.privacy.parameters import REPLACED

_FIRST_STEP = 64
_FIRST_BLOCK, _BLOCK = 1 << 10, 1 << 16


@dataclasses.dataclass(frozen=True)
class SoftLabelRelease:
    """A_SL-Quer over histograms, under any of the threshold calibrations; a `Mechanism` like the others.

    Attributes:
        parameters: scales, threshold and cutoff; the cutoff is the unit budget U.
    """

    parameters: ThresholdParameters

    def __post_init__(self) -> None:
        if self.parameters.vote_change != REPLACED:
            raise ArgumentError(f"vote_change must be {REPLACED} for soft labels, got {self.parameters.vote_change!r}")

    def start(self, noise: Noise) -> State:
        """Return the state before the first query, the shared noisy threshold drawn."""
        return sparse_vector.start(self.parameters, noise)  # A_SL-Quer, line 1

    def halted(self, state: State) -> bool:
        """Whether the unit budget is spent, or all the queries asked that the calibration was made for."""
        return not (state.paid < self.parameters.cutoff and state.asked < self.parameters.max_asked)

    def answer_literally(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        """Answer the queries in order, line by line as the boxes have it.

        Args:
            counts: both histograms of each query, shape (num_queries, 2B), from `histograms`.
            state: from `start` or the call before; `asked` and `answered` count queries, `paid` counts units.
            noise: the source of fresh noise.

        Returns:
            codes, shape (num_queries,), int64: a code, `ABSTAIN` or `HALTED`; and the state after them.
        """
        num_bins, plain, shifted = split(vote_counts("counts", counts))
        codes = np.full(len(plain), HALTED, dtype=np.int64)
        for query in range(len(codes)):
            if self.halted(state):  # A_SL-Quer, line 3
                break
            flag = 0  # h_priv, line 2
            bin_, state = self._test(plain[query], state, noise)  # lines 3 to 5
            if bin_ == ABSTAIN and state.paid < self.parameters.cutoff:
                flag = 1
                bin_, state = self._test(shifted[query], state, noise)  # lines 7 to 10
            codes[query] = ABSTAIN if bin_ == ABSTAIN else int(num_bins[query]) ** 2 + 2 * bin_ + flag
            asked, answered = state.asked + 1, state.answered + (bin_ != ABSTAIN)
            state = dataclasses.replace(state, asked=asked, answered=answered)
        return codes, state

    def _test(self, counts: Integers, state: State, noise: Noise) -> tuple[int, State]:
        """One test of stability; pays and redraws if it fails (A_SL-Quer, line 5; h_priv, lines 7 and 10)."""
        (winner,), (distance,) = plurality(counts[np.newaxis])
        nu = int(sparse_vector.query_noise(self.parameters, 1, noise)[0])
        threshold = _threshold_of(state)
        answer = stable_answer(int(winner), int(distance), noisy_threshold=threshold, query_noise=nu)
        if answer == ABSTAIN:
            threshold = sparse_vector.noisy_threshold(self.parameters, noise) if self.parameters.redraw else threshold
            state = dataclasses.replace(state, paid=state.paid + 1, noisy_threshold=threshold)
        return answer, state

    def answer(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        """Do what `answer_literally` does on the same noise, with time per abstention and not per query.

        Blocks of queries, small ones first, so that a session that halts early has drawn little noise in vain.
        """
        counts = vote_counts("counts", counts)
        codes = np.full(len(counts), HALTED, dtype=np.int64)
        start, size = 0, _FIRST_BLOCK
        end = int(min(len(counts), max(0, self.parameters.max_asked - state.asked)))
        while start < end and not self.halted(state):
            rows = slice(start, min(start + size, end))
            codes[rows], state = self._answer_block(counts[rows], state, noise)
            start, size = start + size, min(4 * size, _BLOCK)
        return codes, state

    def _answer_block(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        """Answer a block of queries.

        One stream of query noise serves all tests in their order, drawn ahead: at most one value per query and one more per unit.
        Noise drawn for tests that did not take place is dropped, never used again.
        """
        num_bins, plain, shifted = split(counts)
        codes = np.full(len(plain), HALTED, dtype=np.int64)
        (bins, distance), (shifted_bins, shifted_distance) = plurality(plain), plurality(shifted)
        remaining = self.parameters.cutoff - state.paid
        stream = sparse_vector.query_noise(self.parameters, len(codes) + min(len(codes), remaining), noise)
        threshold, query, used = _threshold_of(state), 0, 0
        codes[:] = num_bins**2 + 2 * bins
        while query < len(codes) and remaining:
            passed = _passed(distance[query:], stream[used : used + len(codes) - query], threshold)
            query, used = query + passed, used + passed
            if query == len(codes):
                break
            threshold, remaining, used = self._after_abstention(threshold, noise), remaining - 1, used + 1
            codes[query] = ABSTAIN
            if remaining:
                if shifted_distance[query] + stream[used] > threshold:
                    codes[query] = num_bins[query] ** 2 + 2 * shifted_bins[query] + 1
                else:
                    threshold, remaining = self._after_abstention(threshold, noise), remaining - 1
                used += 1
            query += 1
        codes[query:] = HALTED
        return codes, dataclasses.replace(
            state,
            noisy_threshold=threshold,
            paid=self.parameters.cutoff - remaining,
            asked=state.asked + query,
            answered=state.answered + int(np.count_nonzero(codes[:query] >= 0)),
        )

    def _after_abstention(self, threshold: int, noise: Noise) -> int:
        return sparse_vector.noisy_threshold(self.parameters, noise) if self.parameters.redraw else threshold


def scores_of(codes: Integers) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return score and flag of each code, of any shape; NaN and False where there is no answer.

    >>> scores_of(np.array([100, 101, 118, -1, -2]))
    (array([0.05, 0.1 , 0.95,  nan,  nan]), array([False,  True, False, False, False]))
    """
    answered = codes >= 0
    bins = np.where(answered, np.floor(np.sqrt(np.maximum(codes, 1))), 1).astype(np.int64)
    half_bins = codes - bins**2 + 1
    return np.where(answered, half_bins / (2 * bins), np.nan), answered & (half_bins % 2 == 0)


def _threshold_of(state: State) -> int:
    if state.noisy_threshold is None:
        raise ArgumentError("state must hold a noisy threshold; make it with start()")
    return state.noisy_threshold


def _passed(distance: Integers, noise: Integers, threshold: int) -> int:
    """Return how many queries pass their first test before one fails; looks ever further ahead."""
    if distance[0] + noise[0] <= threshold:
        return 0
    start, step = 1, _FIRST_STEP
    while start < len(distance):
        window = slice(start, start + step)
        failed = np.flatnonzero(distance[window] + noise[window] <= threshold)
        if len(failed):
            return start + int(failed[0])
        start, step = start + step, 2 * step
    return len(distance)
