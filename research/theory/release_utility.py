"""Which queries the release mechanisms answer: sufficient distances and numbers of teachers.

Statements of the paper, by label: Theorem kstabUtil (A_stab), Theorem spAcc (A_sparseVec), Corollary spAcc1 (A_OQR),
Theorem utilitySubAgg (A_subSamp). Two things differ throughout:

- The distance is halved, `max(0, ceil(gap / 2) - 1)` (the printed one has sensitivity 2). An agreement of two thirds gives a
  gap of k/3 and hence a distance of at least k/6 - 1, not k/3.
- The session halts at its T-th abstention (the printed loop emits T + 1). "At most T unstable queries" therefore reads
  "fewer than T", or the T-th one must come last.

Noise is Laplace here, as printed. `distance_answered` answers the same question exactly for the default mechanism.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import numpy as np

from research.theory.bound import Bound
from teacher_student.arguments import ArgumentError, positive_integer, positive_number, probability


@runtime_checkable
class OneThreshold(Protocol):
    """The fields that the default ("stability") mechanism is accounted by: any such parameters can be passed."""

    threshold_scale: object
    query_scale: object
    threshold: int


def stability_test_distance(epsilon: float, delta: float, failure: float) -> Bound:
    """Distance at which A_stab (threshold ln(1/delta)/epsilon) releases with probability 1 - failure: Theorem kstabUtil.

    >>> print(stability_test_distance(1.0, 1e-5, 0.05))
    14.5087 (Theorem kstabUtil, printed 14.5087, sharp 13.8155)
    """
    epsilon, delta, failure = positive_number("epsilon", epsilon), probability("delta", delta), probability("failure", failure)
    printed = (math.log(1 / delta) + math.log(1 / failure)) / epsilon
    sharp = (math.log(1 / delta) + max(0.0, math.log(1 / (2 * failure)))) / epsilon
    return Bound(printed, printed, "Theorem kstabUtil", "holds as printed; one tail of the noise is failure / 2", sharp)


def sparse_vector_margin(epsilon: float, delta: float, num_queries: int, cutoff: int, failure: float) -> Bound:
    """Margin above the threshold at which A_sparseVec answers every query with probability 1 - failure: Theorem spAcc.

    With scale lambda = sqrt(32 T ln(1/delta)) / epsilon, the printed margin is 4 lambda ln(2 m T / failure). It holds if
    fewer than `cutoff` queries lie below it. Sharp: 2 lambda ln(m/failure) + lambda ln(T/failure), half a failure for each.
    """
    queries, limit, failure = _sizes(num_queries, cutoff, failure)
    scale = math.sqrt(32 * limit * math.log(1 / probability("delta", delta))) / positive_number("epsilon", epsilon)
    value = 4 * scale * math.log(2 * queries * limit / failure)
    note = "fewer than T queries below the margin, since the session halts at its T-th abstention"
    return Bound(value, value, "Theorem spAcc", note, _margin(scale, queries, limit, failure))


def online_release_scale(epsilon: float, delta: float, cutoff: int) -> float:
    """Scale lambda = sqrt(32 T ln(2/delta)) / epsilon of A_OQR's threshold noise; the query noise has twice that."""
    limit = positive_integer("cutoff", cutoff)
    return math.sqrt(32 * limit * math.log(2 / probability("delta", delta))) / positive_number("epsilon", epsilon)


def online_release_distance(epsilon: float, delta: float, num_queries: int, cutoff: int, failure: float) -> Bound:
    """Distance at which A_OQR answers every query with probability 1 - failure: Corollary spAcc1.

    The threshold w = 2 lambda ln(2 m/delta) plus the margin of `sparse_vector_margin` at this scale. The printed bound,
    8 lambda ln(4 m T / min(delta, failure)), is larger: valid and loose.
    """
    queries, limit, failure = _sizes(num_queries, cutoff, failure)
    scale = online_release_scale(epsilon, delta, limit)
    threshold = 2 * scale * math.log(2 * queries / delta)
    printed = 32 * math.log(4 * queries * limit / min(delta, failure)) * math.sqrt(2 * limit * math.log(2 / delta)) / epsilon
    value = threshold + 4 * scale * math.log(2 * queries * limit / failure)
    note = "printed bound is valid but loose; the distance is the halved one; fewer than T unstable queries"
    return Bound(value, printed, "Corollary spAcc1", note, threshold + _margin(scale, queries, limit, failure))


def num_teachers(epsilon: float, delta: float, num_queries: int, cutoff: int, failure: float) -> Bound:
    """Teachers that A_subSamp needs to answer every stable query with probability 1 - failure: Theorem utilitySubAgg.

    A query is stable if a fresh teacher gives its label with probability 3/4. Half the failure goes to the teachers'
    sample, half to the noise.

    >>> num_teachers(1.0, 1e-5, 1000, 50, 0.05).value
    83047
    """
    queries, limit, failure = _sizes(num_queries, cutoff, failure)
    distance = online_release_distance(epsilon, delta, queries, limit, failure / 2)
    printed = 136 * math.log(4 * queries * limit / min(delta, failure / 2)) * math.sqrt(limit * math.log(2 / delta)) / epsilon
    note = "distance k/6 - 1 instead of k/3; the sampling term 72 ln(2m/failure) is not implied when epsilon is large"
    sharp = distance.sharp if distance.sharp is not None else distance.value
    return Bound(
        teachers_for_distance(distance.value, queries, failure),
        printed,
        "Theorem utilitySubAgg",
        note,
        teachers_for_distance(sharp, queries, failure),
    )


def teachers_for_distance(distance: float, num_queries: int, failure: float) -> int:
    """Teachers k for which stable queries reach `distance`: k >= 6 (distance + 1) and k >= 72 ln(2 m / failure).

    By Hoeffding 3k/4 - sqrt(k ln(2m/failure)/2) >= 2k/3 of the votes agree, with failure / 2 over all queries; the gap is then
    at least k/3 and the distance at least k/6 - 1.
    """
    queries, failure = positive_integer("num_queries", num_queries), probability("failure", failure)
    return math.ceil(max(6 * (distance + 1), 72 * math.log(2 * queries / failure)))


def distance_answered(parameters: OneThreshold, num_queries: int, failure: float) -> int:
    """Smallest distance at which the default mechanism answers all of m such queries with probability 1 - failure (exact).

    The threshold's noise rho is drawn once and query noise is one-sided: given rho, queries at distance d fail independently
    with probability p(d - w - rho), where p(y) = (1 + y (1 - theta)) theta^y for y >= 1 and 1 below, theta = e^(-1/b).
    The smallest d with E_rho[1 - (1 - p)^m] <= failure is found by bisection. Redrawn thresholds are not covered.
    """
    queries, failure = positive_integer("num_queries", num_queries), probability("failure", failure)
    if not isinstance(parameters, OneThreshold):
        raise ArgumentError(f"parameters must be those of a mechanism whose threshold is drawn once, got {parameters!r}")
    sigma, scale = float(parameters.threshold_scale), float(parameters.query_scale)  # type: ignore[arg-type]
    noise = np.arange(-math.ceil(14 * sigma), math.ceil(14 * sigma) + 1)
    weight = np.exp(-0.5 * (noise / sigma) ** 2)
    weight /= weight.sum()
    low, high = 0, parameters.threshold + 1
    while _some_abstain(high - parameters.threshold - noise, weight, scale, queries) > failure:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        fails = _some_abstain(middle - parameters.threshold - noise, weight, scale, queries) > failure
        low, high = (middle, high) if fails else (low, middle)
    return high


def _some_abstain(above: np.ndarray, weight: np.ndarray, scale: float, num_queries: int) -> float:
    reach = np.maximum(above, 0).astype(float)
    abstains = np.where(above >= 1, (1 - reach * math.expm1(-1 / scale)) * np.exp(-reach / scale), 1.0)
    with np.errstate(divide="ignore"):
        return float(np.sum(weight * -np.expm1(num_queries * np.log1p(-np.minimum(abstains, 1.0)))))


def _margin(scale: float, num_queries: int, cutoff: int, failure: float) -> float:
    return 2 * scale * math.log(num_queries / failure) + scale * math.log(cutoff / failure)


def _sizes(num_queries: int, cutoff: int, failure: float) -> tuple[int, int, float]:
    return (
        positive_integer("num_queries", num_queries),
        positive_integer("cutoff", cutoff),
        probability("failure", failure),
    )
