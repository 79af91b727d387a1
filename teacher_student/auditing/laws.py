"""Laws of the integer noise, implemented a second time on purpose.

The audit must not share its formulas with what it checks, so nothing here comes from `privacy/` or `mechanisms/`. Each law is a
table over a window of integers with a bound on the mass outside; tail probabilities are closed forms.

    name               probability of j                         used for
    discrete_laplace   (1 - t) / (1 + t) * t^|j|, t = e^(-1/b)  thresholds and queries of `stability_paper`, `_redraw`, `_laplace`
    discrete_gaussian  proportional to e^(-j^2 / 2 s^2)         the threshold of `stability`
    two_geometrics     nu = -(G1 + G2), P(G >= j) = t^j         the queries of `stability`
    none               0 with probability 1                     a mutant that reuses its noise
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from teacher_student.arguments import Floats, Integers

TAIL = 1e-17
"""Mass that a window may leave out, both sides together."""


@dataclasses.dataclass(frozen=True)
class IntegerLaw:
    """A law on the integers `first`, `first + 1`, ... with probabilities `mass` (n,) and at most `outside` elsewhere."""

    first: int
    mass: Floats
    outside: float

    @property
    def support(self) -> Integers:
        """The integers of the window, (n,)."""
        return self.first + np.arange(len(self.mass), dtype=np.int64)

    def minus(self, other: IntegerLaw) -> IntegerLaw:
        """Return the law of X - Y for independent X (this law) and Y (`other`)."""
        last = other.first + len(other.mass) - 1
        mass = np.asarray(np.convolve(self.mass, other.mass[::-1]), dtype=np.float64)
        return IntegerLaw(self.first - last, mass, self.outside + other.outside)


def discrete_laplace(scale: float) -> IntegerLaw:
    """Return the two-sided geometric law with ratio e^(-1/scale)."""
    ratio = math.exp(-1 / scale)
    reach = math.ceil(-math.log(TAIL) * scale) + 1
    grid = np.arange(-reach, reach + 1)
    mass = -math.expm1(-1 / scale) / (1 + ratio) * np.exp(-np.abs(grid) / scale)
    return IntegerLaw(-reach, mass, 2 * math.exp(-(reach + 1) / scale) / (1 + ratio))


def discrete_gaussian(scale: float) -> IntegerLaw:
    """Return the discrete Gaussian law. A geometric series with the window's last ratio bounds the mass outside."""
    reach = math.ceil(9.5 * scale) + 2
    weights = np.exp(-((np.arange(-reach, reach + 1) / scale) ** 2) / 2)
    step = math.exp(-(2 * reach + 1) / (2 * scale**2))
    missing = 2 * float(weights[-1]) * step / (1 - step)
    total = float(weights.sum()) + missing
    return IntegerLaw(-reach, weights / total, missing / total)


def one_sided(scale: float) -> IntegerLaw:
    """Return the law of nu = -(G1 + G2): P(G1 + G2 = j) = (j + 1) (1 - t)^2 t^j for j >= 0."""
    reach = math.ceil(-math.log(TAIL) * scale * 1.2) + 4
    grid = np.arange(reach + 1)
    mass = (grid + 1) * math.expm1(-1 / scale) ** 2 * np.exp(-grid / scale)
    outside = float(two_geometrics_bottom(np.array([reach + 1]), scale)[0])
    return IntegerLaw(-reach, np.asarray(mass[::-1], dtype=np.float64), outside)


def two_geometrics_bottom(shortfall: Integers, scale: float) -> Floats:
    """Return P(G1 + G2 >= y) = (1 + y (1 - t)) t^y for y >= 1, else 1, for each y of `shortfall`."""
    y = np.maximum(shortfall, 0).astype(np.float64)
    return np.asarray((1 - y * np.expm1(-1 / scale)) * np.exp(-y / scale))


def discrete_laplace_bottom(shortfall: Integers, scale: float) -> Floats:
    """Return P(nu <= -y) for a discrete Laplace nu: t^y / (1 + t) for y >= 0, else 1 - t^(1-y) / (1 + t)."""
    ratio = math.exp(-1 / scale)
    upper = np.exp(-np.maximum(shortfall, 0) / scale) / (1 + ratio)
    lower = 1 - np.exp(-(1 - np.minimum(shortfall, 0)) / scale) / (1 + ratio)
    return np.where(shortfall >= 0, upper, lower)


def no_noise_bottom(shortfall: Integers, scale: float) -> Floats:
    """Return P(0 <= -y), which is 0 or 1: the query is compared without noise."""
    del scale
    return np.where(shortfall <= 0, 1.0, 0.0)


THRESHOLD_LAWS: dict[str, Callable[[float], IntegerLaw]] = {
    "discrete_laplace": discrete_laplace,
    "discrete_gaussian": discrete_gaussian,
}
QUERY_LAWS: dict[str, Callable[[float], IntegerLaw]] = {"discrete_laplace": discrete_laplace, "two_geometrics": one_sided}
BOTTOMS: dict[str, Callable[[Integers, float], Floats]] = {
    "discrete_laplace": discrete_laplace_bottom,
    "two_geometrics": two_geometrics_bottom,
    "none": no_noise_bottom,
}
