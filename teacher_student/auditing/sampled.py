"""Sampled bounds: from many sessions of the real mechanism on a worst pair, a lower bound on epsilon.

For any event S of outputs, (epsilon, delta)-DP says P(S) <= e^epsilon P'(S) + delta. The event is chosen on the first half of
the sessions and judged on the second, so that the choice does not bias the judgement. With Clopper-Pearson bounds, each at half
the error,

    epsilon >= ln((lower bound on P(S) - delta) / upper bound on P'(S))    with probability at least 1 - error.

A claim is refuted if this lower bound exceeds it; a true claim is refuted with probability at most `error`.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

from scipy import stats

from teacher_student.arguments import Integers

FALSE_ALARM = 1e-9
"""Probability with which a check that samples may reject a true mechanism, unless it says otherwise."""


def clopper_pearson(successes: int, trials: int, error: float) -> tuple[float, float]:
    """Return the one-sided lower and the one-sided upper confidence bound on a probability, each wrong with at most `error`.

    >>> clopper_pearson(0, 100, 0.05)[0]
    0.0
    """
    lower = float(stats.beta.ppf(error, successes, trials - successes + 1)) if successes else 0.0
    upper = float(stats.beta.ppf(1 - error, successes + 1, trials - successes)) if successes < trials else 1.0
    return lower, upper


def certain_epsilon(hits: int, other_hits: int, trials: int, delta: float, error: float) -> float:
    """Return the lower bound on epsilon for one fixed event seen `hits` and `other_hits` times in `trials` sessions each."""
    lower = clopper_pearson(hits, trials, error / 2)[0]
    upper = clopper_pearson(other_hits, trials, error / 2)[1]
    return max(0.0, math.log((lower - delta) / upper)) if lower > delta else 0.0


@dataclasses.dataclass(frozen=True)
class LowerBound:
    """What the samples say of epsilon: at least `epsilon`, on an event of `size` transcripts, with the stated error."""

    epsilon: float
    size: int
    hits: int
    other_hits: int
    trials: int
    error: float


def choose_event(labels: Integers, other: Integers, delta: float, error: float) -> frozenset[bytes]:
    """Return the set of transcripts that looks best in these sessions: those of largest ratio, as many as bound epsilon most.

    Transcripts are ranked by (count under D + 1/2) / (count under D' + 1/2); every prefix of the ranking is tried.
    """
    seen, other_seen = (Counter(row.tobytes() for row in table) for table in (labels, other))
    ranked = sorted(seen, key=lambda key: ((seen[key] + 0.5) / (other_seen[key] + 0.5), seen[key]), reverse=True)
    best, kept, hits, other_hits = 0.0, 1, 0, 0
    for size, key in enumerate(ranked[:2000], start=1):
        hits, other_hits = hits + seen[key], other_hits + other_seen[key]
        bound = certain_epsilon(hits, other_hits, len(labels), delta, error)
        best, kept = (bound, size) if bound > best else (best, kept)
    return frozenset(ranked[:kept])


def lower_bound(labels: Integers, other: Integers, delta: float, *, error: float = FALSE_ALARM) -> LowerBound:
    """Return a lower bound on epsilon from sessions under D and under D', (trials, m) each, in both directions.

    The error is shared by the two directions; each is judged on the half of the sessions that its event was not chosen on.
    """
    half = len(labels) // 2
    bounds = []
    for mine, theirs in ((labels, other), (other, labels)):
        event = choose_event(mine[:half], theirs[:half], delta, error / 2)
        hits, other_hits = (sum(row.tobytes() in event for row in table[half:]) for table in (mine, theirs))
        trials = len(labels) - half
        epsilon = certain_epsilon(hits, other_hits, trials, delta, error / 2)
        bounds.append(LowerBound(epsilon, len(event), hits, other_hits, trials, error))
    return max(bounds, key=lambda bound: bound.epsilon)
