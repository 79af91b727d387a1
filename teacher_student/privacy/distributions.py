"""Laws of the integer noise, in double precision. Every truncation is counted against the guarantee.

| law | P(x) | used for |
|---|---|---|
| discrete Gaussian, scale s | proportional to exp(-x^2 / (2 s^2)) | the threshold of `stability` and `stability_laplace` |
| discrete Laplace, scale b | (1 - t)/(1 + t) t^abs(x), t = exp(-1/b) | thresholds and queries of the redrawn calibrations |
| minus two geometrics, scale b | nu = -(G1 + G2), P(G >= j) = t^j | the queries of `stability` |

A query at distance d is refused under the noisy threshold w + rho iff its noise nu is at most -y, where y = d - w - rho. Its
probability is p(y) = P(nu <= -y), and `log_refusal` is ln p. Both query laws are log-concave, so p(y - 2) / p(y) never falls in
y.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np

from teacher_student.arguments import ArgumentError, Floats, Integers

NEGLIGIBLE = 1e-30
"""Probability mass that a window may leave out; it is added to delta."""

ROUNDING = 1e-10
"""Relative slack for rounding in a sum of probabilities, always towards a larger delta."""

LARGEST_SUMMED = 1 << 16
"""Largest scale whose law is summed term by term; the cost of larger ones is not certified."""


@dataclasses.dataclass(frozen=True)
class Window:
    """A law on consecutive integers.

    Attributes:
        support: (n,) integers.
        mass: (n,) probabilities.
        outside: bound on the mass elsewhere.
    """

    support: Integers
    mass: Floats
    outside: float


def discrete_gaussian(scale: Fraction) -> Window:
    """Return P(x) proportional to exp(-x^2 / (2 scale^2)) on a window that leaves out less than `NEGLIGIBLE`."""
    s = _summed(scale)
    reach = math.ceil(s * math.sqrt(2 * math.log(4 / NEGLIGIBLE))) + 2
    support = np.arange(-reach, reach + 1)
    weights = np.exp(-((support / s) ** 2) / 2)
    return Window(support, weights / weights.sum(), NEGLIGIBLE)


def discrete_laplace(scale: Fraction) -> Window:
    """Return P(x) proportional to exp(-abs(x) / scale) on a window that leaves out less than `NEGLIGIBLE`."""
    b = _summed(scale)
    reach = math.ceil(b * math.log(2 / NEGLIGIBLE)) + 1
    support = np.arange(-reach, reach + 1)
    mass = math.tanh(0.5 / b) * np.exp(-np.abs(support) / b)  # (1 - t) / (1 + t) = tanh(1 / 2b)
    return Window(support, mass, NEGLIGIBLE)


def _summed(scale: Fraction) -> float:
    if scale > LARGEST_SUMMED:
        raise ArgumentError(f"threshold_scale must be at most {LARGEST_SUMMED} for its cost to be summed, got {float(scale):g}")
    return float(scale)


def log_refusal(law: str, y: Integers, scale: Fraction) -> Floats:
    """Return ln p(y), the logarithm of P(nu <= -y).

    Two geometrics: P(G1 + G2 >= y) = (1 + y (1 - t)) t^y for y >= 1, else 1.
    Discrete Laplace: P(nu <= -y) = t^y / (1 + t) for y >= 0, else 1 - t^(1 - y) / (1 + t).
    """
    b = float(scale)
    up = np.maximum(y, 0).astype(np.float64)
    if law == "two_geometrics":
        return np.log1p(-up * math.expm1(-1 / b)) - up / b
    assert law == "discrete_laplace"
    half = math.log1p(math.exp(-1 / b))
    down = np.minimum(y, 0).astype(np.float64)
    return np.where(y >= 0, -up / b - half, np.log1p(-np.exp((down - 1) / b - half)))


def log_refusal_ratio(law: str, y: Integers, scale: Fraction) -> Floats:
    """Return ln p(y - 2) - ln p(y) >= 0. It never falls in y, tends to 2 / scale, and has no cancellation from y = 2 on."""
    b = float(scale)
    direct = log_refusal(law, np.minimum(y, 2) - 2, scale) - log_refusal(law, np.minimum(y, 2), scale)
    above = np.full(y.shape, 2 / b)
    if law == "two_geometrics":
        gap = -math.expm1(-1 / b)
        above += np.log1p(-2 * gap / (1 + np.maximum(y, 2) * gap))
    return np.where(y >= 2, above, np.maximum(direct, 0))


def log_answer(log_refused: Floats) -> Floats:
    """Return ln(1 - p) from ln p <= 0; minus infinity where p is 1. Each of the two forms is exact on its side."""
    with np.errstate(divide="ignore"):
        return np.where(log_refused > -math.log(2), np.log(-np.expm1(log_refused)), np.log1p(-np.exp(log_refused)))


def laplace_difference_tail(least: int, query_scale: Fraction, threshold_scale: Fraction) -> float:
    """Return P(nu - rho >= least) of two independent discrete Laplace variables, least >= 1, rounded up.

    The generating function of a sum is a product; by partial fractions the sum's law on x >= 0 is c t^x + d u^x, with t and u the
    two ratios, c = (1-t)/(1+t) * (1-u)^2 / ((1 - u/t)(1 - u t)), and d the same with t and u exchanged. If the scales are close
    to each other, the two terms cancel, and the convolution is summed directly.
    """
    if not 0.8 < query_scale / threshold_scale < 1.25:
        terms = _tail_term(least, query_scale, threshold_scale) + _tail_term(least, threshold_scale, query_scale)
        return terms * (1 + ROUNDING)
    window = discrete_laplace(threshold_scale)
    answered = -np.expm1(log_refusal("discrete_laplace", 1 - least - window.support, query_scale))
    return float(window.mass @ answered) * (1 + ROUNDING) + window.outside


def _tail_term(least: int, own: Fraction, other: Fraction) -> float:
    """Sum of c t^x over x >= least: t the ratio of `own`, u that of `other`."""
    b, g = float(own), float(other)
    vanishing = math.expm1(-1 / g) ** 2 / (math.expm1(1 / b - 1 / g) * math.expm1(-1 / b - 1 / g))
    return vanishing * math.exp(-least / b) / (1 + math.exp(-1 / b))
