"""From Renyi divergences to (epsilon, delta), minimised over a fixed set of orders (Canonne, Kamath, Steinke 2020, prop. 12)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from teacher_student.arguments import Floats

ORDERS: Floats = 1 + np.geomspace(0.01, 20_000, 200)
"""Orders that every conversion minimises over. Any set is valid; this one is within 0.1 % of the best."""


def to_epsilon(rdp: Callable[[Floats], Floats], delta: float) -> float:
    """Return the epsilon at `delta` > 0 of a mechanism whose Renyi divergence at given orders is at most `rdp`."""

    def epsilons(orders: Floats) -> Floats:
        return np.asarray(rdp(orders) + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1))

    found = _smallest(epsilons)
    return math.inf if math.isnan(found) else max(0.0, found)


def to_delta(rdp: Callable[[Floats], Floats], epsilon: float) -> float:
    """Return the delta at `epsilon`: the same conversion, solved for delta."""
    asked = min(epsilon, 1e300)  # so that its product with an order is a double; a smaller epsilon has the larger delta

    def logs(orders: Floats) -> Floats:
        return np.asarray((orders - 1) * (rdp(orders) + np.log1p(-1 / orders) - asked) - np.log(orders))

    found = _smallest(logs)
    return 1.0 if math.isnan(found) else math.exp(min(0.0, found))


def _smallest(values: Callable[[Floats], Floats]) -> float:
    """Return the smallest value over every eighth order, then over all orders around it. The bound holds at any order."""
    coarse = values(ORDERS[::8])
    best = 8 * int(coarse.argmin())
    return float(min(coarse.min(), values(ORDERS[max(0, best - 7) : best + 8]).min()))
