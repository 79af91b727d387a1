"""Checks on sampled sessions: a lower bound on epsilon, and agreement with an exact law, each with a stated false-alarm rate.

**Bounds.** For any event S of outputs, (epsilon, delta)-DP says P(S) <= e^epsilon P'(S) + delta. The event is chosen on the first
half of the sessions and judged on the second, so that the choice does not bias the judgement. With Clopper-Pearson bounds, each
at half the error,

    epsilon >= ln((lower bound on P(S) - delta) / upper bound on P'(S))    with probability at least 1 - error.

A claim is refuted if this bound exceeds it. A true claim is refuted with probability at most `error`.

**Agreement.** The number of sessions in a cell (a transcript, a count of unanswered queries, an interval of noise) is binomial
with a known probability. The law is rejected if any of n cells is seen so often or so rarely that its binomial tail is below
false_alarm / (2 n). By the union bound a true mechanism is rejected with probability at most `false_alarm`, without asymptotics.
Under a given wrong law the same tails give the power.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from teacher_student.arguments import Floats, Integers, choice
from teacher_student.auditing.exact import ThresholdLaw
from teacher_student.auditing.laws import QUERY_LAWS, THRESHOLD_LAWS, IntegerLaw
from teacher_student.labels import ABSTAIN, HALTED

FALSE_ALARM = 1e-9
"""Default probability with which a sampling check may reject a true mechanism."""

Transcript = tuple[int, ...]


def clopper_pearson(successes: int, trials: int, error: float) -> tuple[float, float]:
    """Return one-sided lower and upper confidence bounds on a probability, each wrong with probability at most `error`.

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
    """A lower bound on epsilon from an event of `size` transcripts, wrong with probability at most `error`."""

    epsilon: float
    size: int
    hits: int
    other_hits: int
    trials: int
    error: float


def choose_event(labels: Integers, other: Integers, delta: float, error: float) -> frozenset[bytes]:
    """Return the set of transcripts with the best bound in these sessions: those of largest ratio, up to the best cut.

    Transcripts are ranked by (count under D + 1/2) / (count under D' + 1/2), and every prefix of the ranking is tried.
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

    The two directions share the error; each is judged on the half of the sessions on which its event was not chosen.
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


@dataclasses.dataclass(frozen=True)
class Agreement:
    """The worst cell of a comparison, its p-value (two-sided, times the number of cells), and whether the law is accepted."""

    accepted: bool
    p_value: float
    cell: str
    false_alarm: float


def compare(names: Sequence[str], seen: Integers, chances: Floats, trials: int, false_alarm: float = FALSE_ALARM) -> Agreement:
    """Compare `seen` (cells,) sessions out of `trials` with the probabilities (cells,) of the law."""
    chances = np.clip(chances, 0.0, 1.0)
    tails = 2 * np.minimum(stats.binom.cdf(seen, trials, chances), stats.binom.sf(seen - 1, trials, chances))
    worst = int(np.argmin(tails))
    p_value = min(1.0, float(tails[worst]) * len(tails))
    cell = f"{names[worst]}: seen {seen[worst]}, expected {trials * chances[worst]:.1f} of {trials}"
    return Agreement(p_value > false_alarm, p_value, cell, false_alarm)


def power(chances: Floats, wrong: Floats, trials: int, false_alarm: float = FALSE_ALARM) -> float:
    """Return the probability that the best single cell rejects if `wrong` (cells,) holds instead of `chances` (cells,)."""
    tail = false_alarm / (2 * len(chances))
    low, high = stats.binom.ppf(tail, trials, chances), stats.binom.isf(tail, trials, chances)
    below, above = stats.binom.cdf(low - 1, trials, wrong), stats.binom.sf(high, trials, wrong)
    return float(np.max(below + above))


Branches = Callable[[int, int, Any], Iterable[tuple[int, int, Any]]]
"""(query, payments so far, weights) -> for each outcome of the query its label, its cost and the weights after it."""


def transcripts(start: Any, branches: Branches, num_queries: int, cutoff: int) -> dict[Transcript, float]:
    """Return the probability of every transcript of a session that halts after `cutoff` payments.

    Args:
        start: weights before the first query: a probability, or probabilities (n,) of a hidden state such as the threshold.
        branches: what a query does.
        num_queries: queries of the session.
        cutoff: payments after which the session halts.
    """
    alive: dict[tuple[Transcript, int], Any] = {((), 0): start}
    for query in range(num_queries):
        following: dict[tuple[Transcript, int], Any] = {}
        for (transcript, paid), weights in alive.items():
            found = [(HALTED, 0, weights)] if paid == cutoff else branches(query, paid, weights)
            following |= {((*transcript, label), paid + cost): after for label, cost, after in found}
        alive = following
    law: dict[Transcript, float] = {}
    for (transcript, _), weights in alive.items():
        law[transcript] = law.get(transcript, 0.0) + float(np.sum(weights))
    return law


def transcript_law(law: ThresholdLaw, seen: Sequence[tuple[int, int]]) -> dict[Transcript, float]:
    """Return the probability of every transcript of queries with these (winner, distance)."""
    noise = law.noisy_threshold()

    def branches(query: int, paid: int, weights: Floats) -> Iterable[tuple[int, int, Floats]]:
        del paid
        winner, distance = seen[query]
        unanswered, answered = (np.exp(part) for part in law.log_unanswered(distance))
        after = weights * unanswered
        return (winner, 0, weights * answered), (ABSTAIN, 1, noise.mass * after.sum() if law.redraw else after)

    return transcripts(noise.mass, branches, len(seen), law.cutoff)


def unanswered_law(law: ThresholdLaw, distance: int, num_queries: int) -> Floats:
    """Return the probabilities (cutoff + 1,) that 0, 1, ..., cutoff of `num_queries` queries at `distance` go unanswered."""
    noise = law.noisy_threshold()
    unanswered, answered = (np.exp(part) for part in law.log_unanswered(distance))
    weights = np.zeros((law.cutoff + 1, len(noise.mass)))
    weights[0] = noise.mass
    for _ in range(num_queries):
        paying = weights[:-1] * unanswered
        weights[:-1] *= answered
        weights[1:] += np.outer(paying.sum(axis=1), noise.mass) if law.redraw else paying
    return np.asarray(weights.sum(axis=1))


def noise_law(name: str, scale: float) -> IntegerLaw:
    """Return a noise law by its name. `two_geometrics` is returned as it is sampled, G1 + G2 >= 0."""
    known = {**THRESHOLD_LAWS, **QUERY_LAWS}
    law = known[choice("law", name, known)](scale)
    return IntegerLaw(0, law.mass[::-1], law.outside) if name == "two_geometrics" else law


def quantiles(law: IntegerLaw) -> Integers:
    """Return up to 41 distinct quantiles of a law, (edges,): the edges of the cells "noise <= edge"."""
    shares = np.concatenate([np.linspace(0.02, 0.98, 37), [0.002, 0.01, 0.99, 0.998]])
    return np.unique(law.support[np.searchsorted(np.cumsum(law.mass), shares)])


def at_most(law: IntegerLaw, edges: Integers) -> Floats:
    """Return P(X <= edge) for each edge (cells,)."""
    cumulative = np.concatenate([[0.0], np.cumsum(law.mass)])
    return np.asarray(cumulative[np.clip(edges - law.first + 1, 0, len(law.mass))])


def compare_law(draws: Integers, law: IntegerLaw, false_alarm: float = FALSE_ALARM) -> Agreement:
    """Compare draws (n,) with a law, by the cells between its quantiles."""
    edges = quantiles(law)
    seen = (draws[:, None] <= edges).sum(axis=0)
    return compare([f"noise <= {edge}" for edge in edges], seen, at_most(law, edges), len(draws), false_alarm)


def noise_power(name: str, scale: float, factor: float, trials: int, false_alarm: float = FALSE_ALARM) -> float:
    """Return the power of `compare_law` against draws at `factor` times the scale."""
    law = noise_law(name, scale)
    edges = quantiles(law)
    return power(at_most(law, edges), at_most(noise_law(name, scale * factor), edges), trials, false_alarm)


def stated_power(name: str, scale: float, trials: int, false_alarm: float = FALSE_ALARM) -> str:
    """Return the scale and the power against 0.7 and 1.3 times as much, for a table."""
    least = min(noise_power(name, scale, factor, trials, false_alarm) for factor in (0.7, 1.3))
    shown = "> 0.9999" if least > 0.9999 else f"{least:.3f}"
    return f"scale {scale:g}; 30 % off is rejected with power {shown}"


def compare_transcripts(labels: Integers, law: Mapping[Transcript, float], false_alarm: float = FALSE_ALARM) -> Agreement:
    """Compare sessions (trials, m) with the law of their transcripts. A transcript of probability 0 rejects at once."""
    keys, seen = np.unique(labels, axis=0, return_counts=True)
    counted = {tuple(int(label) for label in key): int(count) for key, count in zip(keys, seen, strict=True)}
    impossible = [key for key in counted if law.get(key, 0.0) <= 0.0]
    if impossible:
        return Agreement(False, 0.0, f"transcript {impossible[0]} cannot occur, seen {counted[impossible[0]]}", false_alarm)
    tally = np.array([counted.get(key, 0) for key in law], dtype=np.int64)
    return compare([str(key) for key in law], tally, np.array(list(law.values())), len(labels), false_alarm)


def compare_unanswered(labels: Integers, law: Floats, false_alarm: float = FALSE_ALARM) -> Agreement:
    """Compare the number of unanswered queries per session (trials, m) with its law (cutoff + 1,): exact counts and tails."""
    paid = (labels == ABSTAIN).sum(axis=1)
    if (paid >= len(law)).any():
        return Agreement(False, 0.0, f"{int(paid.max())} unanswered, the cutoff is {len(law) - 1}", false_alarm)
    seen = np.bincount(paid, minlength=len(law))
    names = [f"{count} unanswered" for count in range(len(law))] + [f"at most {count} unanswered" for count in range(len(law))]
    chances = np.concatenate([law, np.cumsum(law)])
    return compare(names, np.concatenate([seen, np.cumsum(seen)]), chances, len(labels), false_alarm)
