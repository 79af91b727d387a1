"""A_SL-Quer, A_LPriv and H_priv: soft labels from a plain histogram, and from a shifted one where that fails.

Bassily, Thakkar, Thakurta 2018 (arXiv:1803.05101v2), section 5, the algorithms named A_SL-Quer, A_LPriv (A_PrvLearn) and h_priv.

The boxes, in our words. A_SL-Quer, soft-label classification queries:

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

An answer is an integer *code*, B^2 + 2v + flag: bin v of B, plain or shifted. The score is (2v + flag + 1) / (2B). A code alone
determines it, as B^2 <= code < (B + 1)^2. Counts, codes and noise are integers; scores are computed last.

Deviations from the paper:
- The noisy threshold, never initialised in h_priv as printed, is drawn in line 1 and *shared* by all queries.
- Line 1: w has a factor 2 that the print lacks (without it, a session leaks); scales are calibrated for U = 2T units, since T
  doubly unstable queries pay 2T. `parameters.cutoff` is U.
- Line 3 reads `c < U`, not `c <= T`; the shifted test runs only if c < U still holds: the last unit may go to a first test.
- Only the calibrations `stability_paper` and `stability_redraw` redraw the threshold. The default, `stability`, keeps one for the
  whole session, which its accounting needs.
- The distance is halved (see `stability`); noise is integer; GenHist takes any values (see `soft_histogram`).
- The number of bins may differ per query if it is chosen from public information.

Cost: `parameters.epsilon(delta)`. Each test is one query of sensitivity 1 to the sparse vector, chosen after seeing the previous
answer; the analysis allows any adaptive choice, and at most U abstentions.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, Floats, Integers, vote_counts
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms.interface import Counts, State
from teacher_student.mechanisms.noise import Noise
from teacher_student.mechanisms.online_release import OnlineRelease
from teacher_student.mechanisms.soft_histogram import split
from teacher_student.mechanisms.sparse_vector import after_abstention, first_at_most, query_noise
from teacher_student.mechanisms.stability import plurality, stable_answer
from teacher_student.privacy.parameters import REPLACED


@dataclasses.dataclass(frozen=True)
class SoftLabelRelease(OnlineRelease):
    """A_SL-Quer over histograms, under any of the threshold calibrations; the cutoff is the unit budget U.

    `answer` takes both histograms of each query, shape (num_queries, 2B), from `histograms`, and returns codes.
    """

    def __post_init__(self) -> None:
        if self.parameters.vote_change != REPLACED:
            raise ArgumentError(f"vote_change must be {REPLACED} for soft labels, got {self.parameters.vote_change!r}")

    def answer_literally(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        """Do what `answer` does, line by line as in the boxes."""
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
        """Run one test of stability; pay and redraw if it fails (A_SL-Quer, line 5; h_priv, lines 7 and 10)."""
        (winner,), (distance,) = plurality(counts[np.newaxis])
        nu = int(query_noise(self.parameters, 1, noise)[0])
        answer = stable_answer(int(winner), int(distance), noisy_threshold=state.threshold, query_noise=nu)
        if answer == ABSTAIN:
            threshold = after_abstention(state.threshold, self.parameters, noise)
            state = dataclasses.replace(state, paid=state.paid + 1, noisy_threshold=threshold)
        return answer, state

    def _answer_block(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        """Answer a block of queries, in time per abstention and not per query.

        One stream of query noise serves all tests in their order, drawn ahead: at most one value per query and one more per unit.
        Noise drawn for tests that did not take place is dropped, never used again.
        """
        num_bins, plain, shifted = split(counts)
        codes = np.full(len(plain), HALTED, dtype=np.int64)
        (bins, distance), (shifted_bins, shifted_distance) = plurality(plain), plurality(shifted)
        remaining = self.parameters.cutoff - state.paid
        stream = query_noise(self.parameters, len(codes) + min(len(codes), remaining), noise)
        threshold, query, used = state.threshold, 0, 0
        codes[:] = num_bins**2 + 2 * bins
        while query < len(codes) and remaining:
            passed = first_at_most(distance[query:], stream[used : used + len(codes) - query], threshold)
            query, used = query + passed, used + passed
            if query == len(codes):
                break
            threshold, remaining, used = after_abstention(threshold, self.parameters, noise), remaining - 1, used + 1
            codes[query] = ABSTAIN
            if remaining:
                if shifted_distance[query] + stream[used] > threshold:
                    codes[query] = num_bins[query] ** 2 + 2 * shifted_bins[query] + 1
                else:
                    threshold, remaining = after_abstention(threshold, self.parameters, noise), remaining - 1
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


def scores_of(codes: Integers) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return score and flag of each code, of any shape; NaN and False where there is no answer.

    >>> scores_of(np.array([100, 101, 118, -1, -2]))
    (array([0.05, 0.1 , 0.95,  nan,  nan]), array([False,  True, False, False, False]))
    """
    answered = codes >= 0
    bins = np.where(answered, np.floor(np.sqrt(np.maximum(codes, 1))), 1).astype(np.int64)
    half_bins = codes - bins**2 + 1
    return np.where(answered, half_bins / (2 * bins), np.nan), answered & (half_bins % 2 == 0)
