"""Search for the pair of neighbours that hurts a threshold mechanism most.

The shape of the pair (docs/privacy.md, "Tests that can fail"): first queries whose distance is one larger under D', where an
answer says that the noisy threshold is low, and lower for D than for D'; then queries whose distance is one smaller under D',
where an abstention pays. How many of each, and at which distances, is searched over a small grid in units of the noise scales.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from teacher_student.arguments import Integers
from teacher_student.auditing.exact import ThresholdLaw, outcomes
from teacher_student.auditing.outcomes import Outcomes
from teacher_student.auditing.pairs import NeighbourVotes, Statistic, flipping, halved_distance

Score = Callable[[Outcomes, float], float]
"""(outcomes, best so far) -> the score, or the best so far where it is no better."""

STEPS = (-0.5, 0.0, 0.5, 1.0, 2.0)
"""Distances that are tried: the threshold plus these many scales."""


class WorstPair(NamedTuple):
    """Neighbours on which a mechanism shows most.

    Attributes:
        name: for the table.
        outcomes: what a session can emit on the two.
        score: what they were chosen by.
        sides: (m, C) votes or sums under D and under D'; none where no session is sampled on them.
    """

    name: str
    outcomes: Outcomes
    score: float
    sides: tuple[Integers, ...] = ()


def exact_epsilon(delta: float) -> Score:
    """Return the score "true epsilon at `delta`", for the exact check."""

    def score(result: Outcomes, best: float) -> float:
        if result.worst_divergence(max(best, 0.0)).lower <= delta:
            return best
        return min(60.0, result.epsilon(delta))

    return score


def sampled_epsilon(delta: float, trials: int, deviations: float = 6.5) -> Score:
    """Return the score "epsilon that `trials` sessions on each side can be expected to certify".

    Transcripts are taken in order of their ratio; each prefix's masses are moved against us by `deviations` standard errors
    (6.5 is what an error of 1e-9 costs).
    """

    def certify(probability: np.ndarray, other: np.ndarray) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            order = np.argsort(-np.nan_to_num(probability / other, posinf=np.inf))
        mine, theirs = np.cumsum(probability[order]), np.cumsum(other[order])
        mine = mine - deviations * np.sqrt(mine / trials) - delta
        theirs = theirs + deviations * np.sqrt(theirs / trials) + deviations**2 / (2 * trials)
        return float(np.max(np.where(mine > 0, np.log(np.maximum(mine, 1e-300) / theirs), 0.0)))

    def score(result: Outcomes, best: float) -> float:
        return max(best, certify(result.probability, result.other), certify(result.other, result.probability))

    return score


def candidates(law: ThresholdLaw, ups: Sequence[int], downs: Sequence[int], statistic: Statistic) -> Iterator[NeighbourVotes]:
    """Yield pairs of `ups` raised queries and `downs` lowered ones, at distances that `statistic` puts around the threshold."""
    reach = max(law.query_scale, law.threshold_scale)
    first, second = (query.distance for query in flipping([(0, 0), (1, 0)]).seen(statistic))
    wanted = (law.threshold + step * reach for step in STEPS)
    levels = sorted({max(1, round((distance - first) / (second - first))) for distance in wanted})
    for raised, lowered in itertools.product(ups, downs):
        for high, low in itertools.product(levels if raised else levels[:1], levels):
            yield flipping([(high, +1)] * raised + [(low, -1)] * lowered, name=f"{raised} raised, then {lowered} lowered")


def worst_flips(
    law: ThresholdLaw,
    score: Score,
    *,
    ups: Sequence[int] = (0, 5, 20),
    downs: Sequence[int] | None = None,
    statistic: Statistic = halved_distance,
) -> WorstPair:
    """Return the pair of largest `score` among `candidates`; ties go to the first."""
    downs = (law.cutoff, 3 * law.cutoff) if downs is None else downs
    best: WorstPair | None = None
    for votes in candidates(law, ups, downs, statistic):
        result = outcomes(law, votes.seen(statistic))
        value = score(result, best.score if best else 0.0)
        if best is None or value > best.score:
            best = WorstPair(votes.name, result, value, votes.sides)
    assert best is not None
    return best
