"""Optimal composition of many pure answers.

The worst eps0-DP mechanism is randomised response: loss +eps0 with probability 1 / (1 + exp(-eps0)), else -eps0 (Kairouz, Oh,
Viswanath 2015, theorem 3.3; it holds for adaptively chosen mechanisms). With L wrong answers of n the loss is (n - 2 L) eps0, so

    delta(epsilon) = P[L <= l] - exp(epsilon) P'[L <= l],    l the largest with (n - 2 l) eps0 > epsilon,

L binomial with success probability 1 / (1 + exp(eps0)) under P and 1 / (1 + exp(-eps0)) under P'. Both are incomplete beta
functions, so a million answers take no longer to compute than one. Beyond `LARGEST_COUNT` double arithmetic cannot separate the
tails, and nothing is certified. Integer Laplace noise of scale b under a shift by one *is* randomised response with eps0 = 1/b,
so these formulas are exact for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from teacher_student.arguments import ArgumentError, Floats

LARGEST_COUNT = 20_000_000
"""Largest number of answers that are composed. (scipy's binomial tail is NaN from 2^31 on, and loses digits long before.)"""

_SLACK, _SLACK_PER_ANSWER = 1e-8, 1e-14
"""Relative slack, upwards: the two tails agree in their leading digits, so their difference has fewer exact ones. Measured
against 40 digits, the error is 8e-12 at 1e4 answers, 2e-9 at 1e6 and 6e-8 at 2e7."""

_LAST_DIGITS, _UNDERFLOW = 4e-16, 1e-300
"""Slack for a tail's own rounding, relative to the tail, and for a tail that is too small for a double."""


def pure_delta(loss: float, count: int, epsilon: float) -> float:
    """Return the smallest delta at which `count` adaptive `loss`-DP mechanisms are (epsilon, delta)-DP.

    >>> math.isclose(pure_delta(0.5, 1, 0.2), (math.exp(0.5) - math.exp(0.2)) / (1 + math.exp(0.5)), rel_tol=1e-7)
    True

    Raises:
        ArgumentError: more than `LARGEST_COUNT`.
    """
    if count > LARGEST_COUNT:
        raise ArgumentError(f"answers must be at most {LARGEST_COUNT} pure ones to be composed, got {count}")
    if epsilon >= loss * count:
        return 0.0
    most = math.ceil((count - epsilon / loss) / 2) - 1
    if most < 0:
        return 0.0
    wrong = float(special.expit(-loss))
    here, there = float(special.bdtr(most, count, wrong)), float(special.bdtr(most, count, 1 - wrong))
    weighted = math.exp(min(0.0, epsilon + math.log(there))) if there > 0 else 0.0
    difference = here - weighted
    if not math.isfinite(difference):
        return 1.0
    difference = max(0.0, difference) + _LAST_DIGITS * here
    return min(1.0, difference * (1 + _SLACK + _SLACK_PER_ANSWER * count) + _UNDERFLOW)


def pure_epsilon(loss: float, count: int, delta: float) -> float:
    """Return the smallest epsilon at which `count` adaptive `loss`-DP mechanisms are (epsilon, delta)-DP.

    >>> pure_epsilon(0.01, 1, 1e-9) <= 0.01 < pure_epsilon(0.01, 100, 1e-9)
    True
    """
    low, high = 0.0, loss * count
    if pure_delta(loss, count, low) <= delta:
        return low
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if pure_delta(loss, count, middle) <= delta else (middle, high)
    return high


def pure_rdp(loss: float, count: int, orders: Sequence[float] | Floats) -> Floats:
    """Return the Renyi divergence of `count` randomised responses of this loss, at each order above 1."""
    above = np.asarray(orders, dtype=np.float64) - 1
    right, wrong = -np.log1p(np.exp(-loss)), -np.log1p(np.exp(loss)) if loss < 700 else -loss
    moment = np.logaddexp(right + above * loss, wrong - above * loss)
    return np.asarray(count * (np.maximum(moment, 0) + 1e-15) / above)


def bounded_range_rdp(width: float, count: int, orders: Sequence[float] | Floats) -> Floats:
    """Return the Renyi divergence of `count` answers whose privacy loss lies in an interval of this width, at each order.

    The exponential mechanism is an example (Durfee, Rogers 2019). At order a, the worst law has two points, t and t - width, and
    E[exp((a - 1) loss)] is largest at exp(t) = (a - 1) A / (a B), with B = 1 - exp(-(a - 1) width) and
    A = exp(width) - exp(-(a - 1) width) (Dong, Durfee, Rogers 2020). The divergence of one answer is at most a width^2 / 8
    (Hoeffding) and at most width.
    """
    order = np.asarray(orders, dtype=np.float64)
    b = -np.expm1(-(order - 1) * width)
    log_a = width + np.log(-np.expm1(-order * width))
    t = np.log1p(-1 / order) + log_a - np.log(b)
    log_expm1 = width + math.log(-math.expm1(-width))
    moment = (order - 1) * t + log_a - np.log(order) - log_expm1
    exact = (np.maximum(moment, 0) + 1e-13) / (order - 1)
    return np.asarray(count * np.minimum(np.minimum(exact, order * width**2 / 8), width))
