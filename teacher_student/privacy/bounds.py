"""Sufficient numbers of teachers: theorem utilitySubAgg for each calibration, with checked constants.

A query is *stable* if a fresh teacher gives its label with probability at least 3/4. With probability 1 - failure every stable
query of a session is answered with its label, as long as fewer than `cutoff` queries are unstable. Two events share `failure`:

- *Votes.* With k >= 72 ln(2 m / failure) teachers, at least 2 k / 3 vote for the label in all m queries (Hoeffding: 3/4 - 2/3 is
  1/12, and exp(-2 k / 144) m <= failure / 2). The gap is then at least k/3, the halved distance at least k/6 - 1.
- *Noise.* All queries at distance `distance_answered` are answered.

Hence k = ceil(max(6 (distance + 1), 72 ln(2 m / failure))). The printed theorem has k/3 where k/6 - 1 is right, and omits the
second term, which the first does not imply for large epsilon.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from teacher_student.arguments import ArgumentError, Floats, positive_integer, positive_number, probability
from teacher_student.privacy.distributions import laplace_difference_tail, log_answer, log_refusal
from teacher_student.privacy.parameters import smallest_integer
from teacher_student.privacy.svt_fixed_threshold import Stability
from teacher_student.privacy.svt_resampled_threshold import ResampledThreshold, printed_scale
from teacher_student.privacy.threshold import LARGEST_THRESHOLD, WINDOWS, ThresholdParameters, check_cutoff


class TightTeachers(NamedTuple):
    """The fewest teachers that the default calibration needs, and the threshold ratio that needs no more."""

    num_teachers: int
    threshold_ratio: float


def distance_answered(parameters: ThresholdParameters, *, num_queries: int, failure: float) -> int:
    """Return the smallest distance at which all of `num_queries` queries are answered with probability 1 - failure.

    Fixed threshold: E_rho[1 - (1 - p(d - w - rho))^m] <= failure, exact. Resampled thresholds: union bound over the queries.

    >>> from teacher_student.privacy import calibrate
    >>> distance_answered(calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=50), num_queries=1000, failure=0.025)
    804
    """
    queries, failure = positive_integer("num_queries", num_queries), probability("failure", failure)
    above = smallest_integer(lambda above: _some_refused(parameters, above, queries) <= failure, 4 * LARGEST_THRESHOLD)
    if above is None:
        raise ArgumentError(f"failure must be reachable at some distance, got {failure:g}")
    return parameters.threshold + above


def teachers_for_distance(distance: float, *, num_queries: int, failure: float) -> int:
    """Return the k at which stable queries are at `distance` or more with probability 1 - failure / 2."""
    queries, failure = positive_integer("num_queries", num_queries), probability("failure", failure)
    return math.ceil(max(6 * (distance + 1), 72 * math.log(2 * queries / failure)))


def teachers_needed(parameters: ThresholdParameters, *, num_queries: int, failure: float) -> int:
    """Return the k with which all stable queries are answered with their label, with probability 1 - failure.

    Args:
        parameters: of any stability mechanism.
        num_queries: m.
        failure: beta.
    """
    distance = distance_answered(parameters, num_queries=num_queries, failure=probability("failure", failure) / 2)
    return teachers_for_distance(distance, num_queries=num_queries, failure=failure)


def teachers_printed(*, epsilon: float, delta: float, cutoff: int, num_queries: int, failure: float) -> int:
    """Return the k of the printed calibration: ceil(max(6 (w + 4 lambda ln(4 m T / failure) + 1), 72 ln(2 m / failure))).

    >>> teachers_printed(epsilon=1.0, delta=1e-5, cutoff=50, num_queries=1000, failure=0.05)
    83047
    """
    queries, runs = positive_integer("num_queries", num_queries), check_cutoff(cutoff)
    delta, failure = probability("delta", delta), probability("failure", failure)
    scale = printed_scale(positive_number("epsilon", epsilon), delta, runs)
    threshold = 2 * scale * math.log(2 * queries / delta)
    margin = 4 * scale * math.log(4 * queries * runs / failure)
    return teachers_for_distance(threshold + margin, num_queries=queries, failure=failure)


def teachers_tight(*, epsilon: float, delta: float, cutoff: int, num_queries: int, failure: float) -> TightTeachers:
    """Return the fewest teachers for `stability` over all threshold ratios r.

    A larger r needs a larger threshold but less noise per query, so there is a best one. It depends on public numbers only.

    >>> teachers_tight(epsilon=1.0, delta=1e-5, cutoff=50, num_queries=1000, failure=0.05).num_teachers
    4296
    """
    epsilon, delta = positive_number("epsilon", epsilon), probability("delta", delta)
    cutoff, failure = check_cutoff(cutoff), probability("failure", failure)

    def teachers(log_ratio: float) -> int:
        parameters = Stability.calibrate(epsilon=epsilon, delta=delta, cutoff=cutoff, threshold_ratio=math.exp(log_ratio))
        return teachers_needed(parameters, num_queries=num_queries, failure=failure)

    found = minimize_scalar(teachers, bounds=(math.log(1.2), math.log(12)), method="bounded", options={"xatol": 0.01})
    return TightTeachers(teachers(float(found.x)), math.exp(float(found.x)))


def _some_refused(parameters: ThresholdParameters, above: int, num_queries: int) -> float:
    """Bound P(some of the queries, all at distance `above` + threshold, is refused); exact for a fixed threshold."""
    if isinstance(parameters, ResampledThreshold):  # refused iff rho - nu >= distance - w
        return num_queries * laplace_difference_tail(above, parameters.threshold_scale, parameters.query_scale)
    window = WINDOWS[parameters.threshold_noise](parameters.threshold_scale)
    refused: Floats = log_refusal(parameters.query_noise, above - window.support, parameters.query_scale)
    with np.errstate(invalid="ignore"):
        return float(window.mass @ -np.expm1(num_queries * log_answer(refused))) + window.outside
