"""Does the mechanism do what its parameters say? Sampled sessions against the exact law, cell by cell.

The number of sessions that fall in a cell (a transcript, a count of unanswered queries, an interval of noise) is binomial with a
known probability. The law is rejected if any of n cells is seen so often or so rarely that the binomial's own tail is below
false_alarm / (2 n): by the union bound a true mechanism is then rejected with probability at most `false_alarm`, exactly, with no
asymptotics. Under a given wrong law the same tails give the power.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from teacher_student.arguments import ArgumentError, Floats, Integers
from teacher_student.auditing.exact import ThresholdLaw
from teacher_student.auditing.laws import QUERY_LAWS, THRESHOLD_LAWS, IntegerLaw
from teacher_student.auditing.sampled import FALSE_ALARM
from teacher_student.labels import ABSTAIN, HALTED

Transcript = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Agreement:
    """The worst cell of a comparison: its p-value (two-sided, times the number of cells) and whether the law stands."""

    accepted: bool
    p_value: float
    cell: str
    false_alarm: float


def compare(names: Sequence[str], seen: Integers, chances: Floats, trials: int, false_alarm: float = FALSE_ALARM) -> Agreement:
    """Compare `seen` (cells,) sessions out of `trials` with the chances (cells,) of the law."""
    chances = np.clip(chances, 0.0, 1.0)
    tails = 2 * np.minimum(stats.binom.cdf(seen, trials, chances), stats.binom.sf(seen - 1, trials, chances))
    worst = int(np.argmin(tails))
    p_value = min(1.0, float(tails[worst]) * len(tails))
    cell = f"{names[worst]}: seen {seen[worst]}, expected {trials * chances[worst]:.1f} of {trials}"
    return Agreement(p_value > false_alarm, p_value, cell, false_alarm)


def power(chances: Floats, wrong: Floats, trials: int, false_alarm: float = FALSE_ALARM) -> float:
    """Return the probability that the best single cell rejects when `wrong` (cells,) holds in place of `chances` (cells,)."""
    tail = false_alarm / (2 * len(chances))
    low, high = stats.binom.ppf(tail, trials, chances), stats.binom.isf(tail, trials, chances)
    below, above = stats.binom.cdf(low - 1, trials, wrong), stats.binom.sf(high, trials, wrong)
    return float(np.max(below + above))


def transcript_law(law: ThresholdLaw, seen: Sequence[tuple[int, int]]) -> dict[Transcript, float]:
    """Return the probability of every transcript of queries with these (winner, distance)."""
    noise = law.noisy_threshold()
    alive: dict[tuple[Transcript, int], Floats] = {((), 0): noise.mass}
    for winner, distance in seen:
        unanswered, answered = (np.exp(part) for part in law.log_unanswered(distance))
        following: dict[tuple[Transcript, int], Floats] = {}
        for (transcript, paid), weights in alive.items():
            if paid == law.cutoff:
                following[(*transcript, HALTED), paid] = weights
                continue
            following[(*transcript, winner), paid] = weights * answered
            after = weights * unanswered
            following[(*transcript, ABSTAIN), paid + 1] = noise.mass * after.sum() if law.redraw else after
        alive = following
    return {transcript: float(weights.sum()) for (transcript, _), weights in alive.items()}


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


def noise_cells(law: str, scale: float) -> tuple[list[str], IntegerLaw, Integers]:
    """Return the cells "noise <= edge" at 41 quantiles of a noise law, the law, and the edges (cells,).

    `two_geometrics` is looked at as it is sampled, G1 + G2 >= 0.
    """
    table = {**THRESHOLD_LAWS, **QUERY_LAWS}
    if law not in table:
        raise ArgumentError(f"law must be one of {', '.join(sorted(table))}; got {law!r}")
    true = table[law](scale)
    if law == "two_geometrics":
        true = IntegerLaw(0, true.mass[::-1], true.outside)
    edges = edges_of(true)
    return [f"noise <= {edge}" for edge in edges], true, edges


def edges_of(law: IntegerLaw) -> Integers:
    """Return 41 quantiles of a law, (edges,), those that are equal once."""
    shares = np.concatenate([np.linspace(0.02, 0.98, 37), [0.002, 0.01, 0.99, 0.998]])
    return np.unique(law.support[np.searchsorted(np.cumsum(law.mass), shares)])


def at_most(law: IntegerLaw, edges: Integers) -> Floats:
    """Return P(X <= edge) for each edge (cells,)."""
    cumulative = np.concatenate([[0.0], np.cumsum(law.mass)])
    return np.asarray(cumulative[np.clip(edges - law.first + 1, 0, len(law.mass))])


def compare_noise(draws: Integers, law: str, scale: float, false_alarm: float = FALSE_ALARM) -> Agreement:
    """Compare noise draws (n,) with their law, named as in `noise_cells`."""
    return compare_law(draws, noise_cells(law, scale)[1], false_alarm)


def compare_law(draws: Integers, law: IntegerLaw, false_alarm: float = FALSE_ALARM) -> Agreement:
    """Compare draws (n,) with a law, by the cells "noise <= edge" at its quantiles."""
    edges = edges_of(law)
    seen = (draws[:, None] <= edges).sum(axis=0)
    return compare([f"noise <= {edge}" for edge in edges], seen, at_most(law, edges), len(draws), false_alarm)


def noise_power(law: str, scale: float, factor: float, trials: int, false_alarm: float = FALSE_ALARM) -> float:
    """Return the power of `compare_noise` against draws at `factor` times the scale."""
    _, true, edges = noise_cells(law, scale)
    wrong = noise_cells(law, scale * factor)[1]
    return power(at_most(true, edges), at_most(wrong, edges), trials, false_alarm)


def stated_power(law: str, scale: float, trials: int, false_alarm: float = FALSE_ALARM) -> str:
    """Return the scale, and with which probability 0.7 and 1.3 times as much would be rejected, for a table."""
    least = min(noise_power(law, scale, factor, trials, false_alarm) for factor in (0.7, 1.3))
    shown = "> 0.9999" if least > 0.9999 else f"{least:.3f}"
    return f"scale {scale:g}; 30 % off is rejected with power {shown}"


def compare_transcripts(labels: Integers, law: Mapping[Transcript, float], false_alarm: float = FALSE_ALARM) -> Agreement:
    """Compare sessions (trials, m) with the law of their transcripts; a transcript that the law excludes rejects at once."""
    keys, seen = np.unique(labels, axis=0, return_counts=True)
    counted = {tuple(int(label) for label in key): int(count) for key, count in zip(keys, seen, strict=True)}
    impossible = [key for key in counted if law.get(key, 0.0) <= 0.0]
    if impossible:
        return Agreement(False, 0.0, f"transcript {impossible[0]} cannot occur, seen {counted[impossible[0]]}", false_alarm)
    names = [str(key) for key in law]
    tally = np.array([counted.get(key, 0) for key in law], dtype=np.int64)
    return compare(names, tally, np.array(list(law.values())), len(labels), false_alarm)


def compare_unanswered(labels: Integers, law: Floats, false_alarm: float = FALSE_ALARM) -> Agreement:
    """Compare the number of unanswered queries per session (trials, m) with its law (cutoff + 1,): exact counts and tails."""
    paid = (labels == ABSTAIN).sum(axis=1)
    if (paid >= len(law)).any():
        return Agreement(False, 0.0, f"{int(paid.max())} unanswered, the cutoff is {len(law) - 1}", false_alarm)
    seen = np.bincount(paid, minlength=len(law))
    names = [f"{count} unanswered" for count in range(len(law))] + [f"at most {count} unanswered" for count in range(len(law))]
    chances = np.concatenate([law, np.cumsum(law)])
    return compare(names, np.concatenate([seen, np.cumsum(seen)]), chances, len(labels), false_alarm)
