"""Exact laws of the integer noises, in double precision with every truncation counted against the guarantee.

| law | P(x) | used for |
|---|---|---|
| discrete Gaussian, scale s | proportional to exp(-x^2 / (2 s^2)) | the threshold of `stability` and `stability_laplace` |
| discrete Laplace, scale b | (1 - t)/(1 + t) t^abs(x), t = exp(-1/b) | thresholds and queries of the redrawn calibrations |
| minus two geometrics, scale b | nu = -(G1 + G2), P(G >= j) = t^j | the queries of `stability` |

A query at distance 0 under the noisy threshold w + rho is refused with probability p(y), y = -w - rho; `log_refusal` is ln p.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np

from teacher_student.arguments import Floats, Integers

NEGLIGIBLE = 1e-30
"""Mass that a window may leave out; it is added to the delta."""


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
    s = float(scale)
    reach = math.ceil(s * math.sqrt(2 * math.log(4 / NEGLIGIBLE))) + 2
    support = np.arange(-reach, reach + 1)
    weights = np.exp(-((support / s) ** 2) / 2)
    return Window(support, weights / weights.sum(), NEGLIGIBLE)


def discrete_laplace(scale: Fraction) -> Window:
    """Return P(x) proportional to exp(-abs(x) / scale) on a window that leaves out less than `NEGLIGIBLE`."""
    b = float(scale)
    reach = math.ceil(b * math.log(2 / NEGLIGIBLE)) + 1
    support = np.arange(-reach, reach + 1)
    mass = math.tanh(0.5 / b) * np.exp(-np.abs(support) / b)  # (1 - t) / (1 + t) = tanh(1 / 2b)
    return Window(support, mass, NEGLIGIBLE)


def log_refusal(law: str, y: Integers, scale: Fraction) -> Floats:
    """Return ln P(refused | y): the noise falls y short or more.

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


def log_answer(log_refused: Floats) -> Floats:
    """Return ln(1 - p) from ln p <= 0; minus infinity where p is 1. Two forms, each exact to the last digits on its side."""
    with np.errstate(divide="ignore"):
        return np.where(log_refused > -math.log(2), np.log(-np.expm1(log_refused)), np.log1p(-np.exp(log_refused)))
