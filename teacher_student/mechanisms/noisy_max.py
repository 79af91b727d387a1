"""GNMax, Confident-GNMax, LNMax and the exponential mechanism: the class that wins a noisy vote.

Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson 2018, "Scalable Private Learning with PATE" (arXiv:1802.08908v1),
definition 1 (GNMax) and algorithm 1 (Confident-GNMax); Papernot, Abadi, Erlingsson, Goodfellow, Talwar 2017 (arXiv:1610.05755),
section 2.1 (LNMax); McSherry and Talwar 2007 (exponential mechanism).

The boxes, in our words:

    require  counts n_j of one query; a scale (for Confident-GNMax a threshold and two scales)
    1  if confident and max_j n_j + N(threshold_scale) < threshold: output "abstain"
    2  otherwise output argmax_j (n_j + noise_j), ties to the lowest label
                            noise_j discrete Gaussian (GNMax, Confident-GNMax) or discrete Laplace (LNMax), fresh for each j
    2' or (exponential mechanism) output j with probability proportional to exp(n_j / scale)

| papers | here |
|---|---|
| n_j | counts |
| sigma; sigma_1, sigma_2; 1 / gamma | scale; threshold_scale, query_scale; scale |
| T | threshold |
| bottom | ABSTAIN; HALTED once the caps are reached |

Deviations from the papers:
- Noise is integer, and the cost is that of integer noise (`teacher_student.privacy.noisy_max`). An argmax of integers can tie;
  ties go to the lowest label, which the cost allows, since the whole noisy vector could be published at the same price.
- The papers stop when a data-dependent cost is spent, and when they stop then tells about the data. Here the number of answers,
  and for Confident-GNMax of queries, is capped beforehand, and the cost is that of the caps.

**The exponential mechanism from integers, exactly.** Let g_j >= 0 be how far class j is behind the largest count, and a >= 1 an
integer. A geometric G with P(G >= i) = exp(-i / scale) has P(floor(G / (g + a)) >= i) = w^i with w = exp(-(g + a) / scale), so
floor(G / (g + a)) is odd with probability w / (1 + w): the odds are w to 1. Draw one G_j for each class and repeat until exactly
one is odd. Then class j is output with probability proportional to w_j times the product of all 1 / (1 + w_i), that is to
exp(n_j / scale), whatever a is. With a about scale * ln(sum of exp(-g_j / scale)) a round succeeds at least about once in three.
No floating point enters the law. The number of rounds, and so the time, depends on the votes: do not let an adversary time it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import Integers, vote_counts
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms.interface import Counts, State, samples
from teacher_student.mechanisms.noise import Noise, fold
from teacher_student.privacy.noisy_max import ConfidentGNMax, Exponential, GNMax, LNMax, NoisyMaxParameters
from teacher_student.privacy.registry import attach_box, sampler_of

_BLOCK = 1 << 18
"""Noisy counts drawn at a time."""

_SPARE = 64
"""Rows drawn at a time beyond twice the answers that are left, since those after the last answer are drawn in vain."""


@dataclasses.dataclass(frozen=True)
class NoisyMax:
    """The noisy maximum that `parameters` describe, asked until its caps are reached; its sampler draws the classes."""

    parameters: NoisyMaxParameters

    def start(self, noise: Noise) -> State:
        """Return the state before the first query; no noise is shared between queries."""
        del noise
        return State()

    def halted(self, state: State) -> bool:
        """Whether the answers, or the queries, that the parameters pay for are used up."""
        return state.answered >= self.parameters.max_answers or state.asked >= self.parameters.max_asked

    def answer(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        """Answer the queries in order, in blocks; the same answers as `answer_literally` on the same noise."""
        counts = vote_counts("counts", counts)
        labels = np.full(len(counts), HALTED, dtype=np.int64)
        size, start = max(1, _BLOCK // counts.shape[1]), 0
        while start < len(counts) and not self.halted(state):
            answers = self.parameters.max_answers - state.answered
            rows = min(size, self.parameters.max_asked - state.asked, 2 * answers + _SPARE)
            outcomes = self._answer_block(counts[start : start + rows].astype(np.int64), answers, noise)
            labels[start : start + len(outcomes)] = outcomes
            start, state = start + len(outcomes), _after(state, outcomes)
        return labels, state

    def _answer_block(self, counts: Integers, most_answers: int, noise: Noise) -> Integers:
        """Answer rows until `most_answers` are given; return the outcomes of the rows that were asked."""
        outcomes = self._draw(counts, noise)  # lines 1 and 2
        answered = np.flatnonzero(outcomes >= 0)[:most_answers]  # what was drawn for later rows is dropped, never used
        return outcomes[: int(answered[-1]) + 1] if len(answered) == most_answers else outcomes

    def _draw(self, counts: Integers, noise: Noise) -> Integers:
        drawn: Integers = sampler_of(self.parameters)(counts, self.parameters, noise)
        return drawn

    def answer_literally(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        """Do what `answer` does, one query after the other."""
        labels = np.full(len(counts), HALTED, dtype=np.int64)
        for query in range(len(counts)):
            if self.halted(state):
                break
            row = counts[query : query + 1].astype(np.int64)
            labels[query] = self._draw(row, noise)[0]  # lines 1 and 2
            state = _after(state, labels[query : query + 1])
        return labels, state


attach_box(NoisyMaxParameters, NoisyMax)  # type: ignore[type-abstract]


@samples(GNMax)
def gnmax(counts: Integers, spec: GNMax, noise: Noise) -> Integers:
    """Return the argmax of each row with Gaussian noise."""
    return noisy_argmax(counts, spec.scale, noise.discrete_gaussian)


@samples(ConfidentGNMax)
def confident_gnmax(counts: Integers, spec: ConfidentGNMax, noise: Noise) -> Integers:
    """Return the argmax with Gaussian noise of each row whose noisy largest count (sensitivity 1) reaches the threshold."""
    clear = counts.max(axis=1) + noise.discrete_gaussian(spec.threshold_scale, len(counts)) >= spec.threshold  # line 1
    outcomes = np.full(len(counts), ABSTAIN, dtype=np.int64)
    outcomes[clear] = noisy_argmax(counts[clear], spec.query_scale, noise.discrete_gaussian)  # line 2
    return outcomes


@samples(LNMax)
def lnmax(counts: Integers, spec: LNMax, noise: Noise) -> Integers:
    """Return the argmax of each row with Laplace noise."""
    return noisy_argmax(counts, spec.scale, noise.discrete_laplace)


@samples(Exponential)
def exponential(counts: Integers, spec: Exponential, noise: Noise) -> Integers:
    """Return a class with probability proportional to exp(count / scale) for each row."""
    return exponential_choice(counts, spec.scale, noise)


def noisy_argmax(counts: Integers, scale: Fraction, draw: Callable[[Fraction, int], Integers]) -> Integers:
    """Return argmax of counts (m, C) plus fresh noise, ties to the lowest label, shape (m,)."""
    return np.asarray((counts + draw(scale, counts.size).reshape(counts.shape)).argmax(axis=1), dtype=np.int64)


def exponential_choice(counts: Integers, scale: Fraction, noise: Noise) -> Integers:
    """Return a class for each row of counts (m, C), P(class) exactly proportional to exp(count / scale), shape (m,)."""
    behind = counts.max(axis=1, keepdims=True) - counts
    span = behind + _offset(behind, float(scale))[:, None]

    def odd(rows: Integers) -> npt.NDArray[np.bool_]:
        geometric = fold(noise.discrete_laplace(scale, span[rows].size)).reshape(len(rows), -1)
        return np.asarray((geometric // span[rows]) % 2 == 1)

    return until_one(odd, len(counts))


def until_one(draw: Callable[[Integers], npt.NDArray[np.bool_]], num_rows: int) -> Integers:
    """Return for each row the only class that `draw` marks; rows where it marks none or several are drawn again.

    Args:
        draw: given the rows still undecided, returns fresh marks, shape (len(rows), num_classes).
        num_rows: how many rows there are.
    """
    chosen, pending = np.empty(num_rows, dtype=np.int64), np.arange(num_rows)
    while len(pending):
        marked = draw(pending)
        decided = marked.sum(axis=1) == 1
        chosen[pending[decided]] = marked[decided].argmax(axis=1)
        pending = pending[~decided]
    return chosen


def _offset(behind: Integers, scale: float) -> Integers:
    """Return each row's a >= 1 (see the module); it affects the speed and not the law."""
    total = np.exp(-behind / scale).sum(axis=1)
    return np.asarray(np.maximum(1, np.ceil(scale * np.log(total))), dtype=np.int64)


def _after(state: State, outcomes: Integers) -> State:
    """Return the state after these queries; every answer is paid for."""
    answered = int((outcomes >= 0).sum())
    return dataclasses.replace(
        state, asked=state.asked + len(outcomes), answered=state.answered + answered, paid=state.paid + answered
    )
