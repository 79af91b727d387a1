"""A_sparseVec: which of a stream of integer queries lie above a noisy threshold, paying only for those that do not.

Bassily, Thakkar, Thakurta 2018 (arXiv:1803.05101v2), algorithm 1 (the sparse vector technique).

The box, in our words:

    require  queries of sensitivity 1, one at a time; cutoff T, threshold w, scales from (epsilon, delta)
    1  c <- 0;  noisy threshold <- w + threshold noise
    2  for each query q, while c < T
    3      noisy q <- q + query noise
    4      if noisy q > noisy threshold: output "above"; else output "abstain", redraw the noisy threshold, c <- c + 1

| paper | here |
|---|---|
| q | value, here a distance to instability |
| T, c | parameters.cutoff, state.paid |
| w, w hat | parameters.threshold, state.noisy_threshold |
| lambda, 2 lambda | parameters.threshold_scale, parameters.query_scale |
| top, bottom | ABOVE, ABSTAIN; HALTED once c = T |

Deviations from the paper:
- Line 2 reads `c < T`. The printed `c <= T` abstains T + 1 times, and its guarantee pays for T.
- Noise is integer; its laws and scales come from `parameters`, which own the cost. Four calibrations share this loop:
  `stability_paper` and `stability_redraw` redraw the threshold in line 4 as printed; `stability` and `stability_laplace` draw it
  once for the whole session, since their cost does not pay for a redraw. Under `stability` the query noise is one-sided,
  -(G1 + G2).

`sparse_vector` is the literal loop. `sparse_vector_in_bulk` gives the same outcomes on the same noise, as the tests show: it
draws the query noise of all its queries at once and jumps from one abstention to the next.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from teacher_student.arguments import Integers
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms.interface import State
from teacher_student.mechanisms.noise import Noise
from teacher_student.privacy import ThresholdParameters

ABOVE = 1
"""The outcome of a query above the noisy threshold; the others are `ABSTAIN` and `HALTED`."""

_FIRST_STEP = 64


def noisy_threshold(parameters: ThresholdParameters, noise: Noise) -> int:
    """Return w + rho with fresh threshold noise rho."""
    return parameters.threshold + int(noise.draw(parameters.threshold_noise, parameters.threshold_scale, 1)[0])


def after_abstention(threshold: int, parameters: ThresholdParameters, noise: Noise) -> int:
    """Return the noisy threshold of the next query: a fresh one where the cost pays for it (line 4)."""
    return noisy_threshold(parameters, noise) if parameters.redraw else threshold


def query_noise(parameters: ThresholdParameters, size: int, noise: Noise) -> Integers:
    """Return fresh noise for `size` queries; two geometrics only ever push a query down."""
    drawn = noise.draw(parameters.query_noise, parameters.query_scale, size)
    return -drawn if parameters.query_noise == "two_geometrics" else drawn


def start(parameters: ThresholdParameters, noise: Noise) -> State:
    """Return the state before the first query."""
    return State(noisy_threshold=noisy_threshold(parameters, noise))  # line 1


def sparse_vector(values: Integers, parameters: ThresholdParameters, state: State, noise: Noise) -> tuple[Integers, State]:
    """Compare each value with the noisy threshold, in order, until the cutoff is spent: the literal loop.

    Returns:
        outcomes `ABOVE`, `ABSTAIN` or `HALTED`, shape (num_queries,), int64; and the state after them.
    """
    outcomes = np.full(len(values), HALTED, dtype=np.int64)
    cutoff, paid, threshold, asked = parameters.cutoff, state.paid, state.threshold, 0
    for index, value in enumerate(values.tolist()):
        if not paid < cutoff:  # line 2
            break
        noisy_value = value + int(query_noise(parameters, 1, noise)[0])  # line 3
        outcomes[index] = ABOVE if noisy_value > threshold else ABSTAIN  # line 4
        if outcomes[index] == ABSTAIN:
            threshold = after_abstention(threshold, parameters, noise)
            paid += 1
        asked += 1
    return outcomes, after(state, outcomes[:asked], threshold)


def sparse_vector_in_bulk(
    values: Integers, parameters: ThresholdParameters, state: State, noise: Noise
) -> tuple[Integers, State]:
    """Do what `sparse_vector` does, in time per abstention and not per query.

    Query noise is independent of the threshold's, so drawing it ahead changes nothing. Each draw is used for one query only;
    draws for queries after the halt are dropped.
    """
    if not state.paid < parameters.cutoff:
        return np.full(len(values), HALTED, dtype=np.int64), state
    drawn = query_noise(parameters, len(values), noise)
    outcomes = np.full(len(values), ABOVE, dtype=np.int64)
    threshold, remaining, position = state.threshold, parameters.cutoff - state.paid, 0
    if not parameters.redraw:
        below = np.flatnonzero(values + drawn <= threshold)[:remaining]
        outcomes[below] = ABSTAIN
        remaining -= len(below)
        position = int(below[-1]) + 1 if len(below) else 0
    while parameters.redraw and remaining:
        found = position + first_at_most(values[position:], drawn[position:], threshold)
        if found == len(values):
            break
        outcomes[found] = ABSTAIN
        threshold, remaining, position = noisy_threshold(parameters, noise), remaining - 1, found + 1
    asked = len(values) if remaining else position
    outcomes[asked:] = HALTED
    return outcomes, after(state, outcomes[:asked], threshold)


def after(state: State, outcomes: Integers, threshold: int) -> State:
    """Return the state after `outcomes` (none of them `HALTED`), with the noisy threshold in use now."""
    abstained = int(np.count_nonzero(outcomes == ABSTAIN))
    return dataclasses.replace(
        state,
        noisy_threshold=threshold,
        paid=state.paid + abstained,
        answered=state.answered + len(outcomes) - abstained,
        asked=state.asked + len(outcomes),
    )


def first_at_most(values: Integers, noise: Integers, threshold: int) -> int:
    """Return the first index at which value plus noise is at most `threshold`, or len(values); search in growing steps."""
    start, step = 0, _FIRST_STEP
    while start < len(values):
        window = slice(start, start + step)
        hits = np.flatnonzero(values[window] + noise[window] <= threshold)
        if len(hits):
            return start + int(hits[0])
        start, step = start + step, 2 * step
    return len(values)
