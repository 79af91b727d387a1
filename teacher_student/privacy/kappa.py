"""The price of a refusal when answers are free: kappa of the one-threshold sparse vector (docs/tight_guarantee.md, lines 6 to 9).

With y = distance - w - z - 1 the refusal probability is q = P(refused | y) under D', and at most p = P(refused | y - 2) under D
with its threshold moved by one. For a = alpha > 1

    kappa(a) = sup over integers y of  ln [ p^a q^(1-a) / (1 - (1-p)^a (1-q)^(1-a)) ],

and the a-th moment of the likelihood ratio of a session that may pay T refusals is at most e^(kappa T).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from teacher_student.arguments import Floats
from teacher_student.privacy.distributions import log_answer, log_refusal

ORDERS: Floats = 1 + np.geomspace(0.01, 20_000, 200)
"""Orders that every conversion minimises over. Any set is sound; this one is within 0.1 % of the best."""

_REACH = 45
"""Scales above 0 up to which y is searched: there p < e^-38, and what lies beyond differs from the limit by that much."""

_FINENESS = 1 / 256
"""Largest step of the search over y, in scales."""

_SLACK = 1e-12
"""Added for the last digits of double arithmetic, and for the second-order terms beyond `_REACH`."""


def kappa(law: str, scale: Fraction, orders: Floats = ORDERS) -> Floats:
    """Return kappa at each of `orders`, for query noise `law` of `scale`."""
    values = np.array([_kappa(law, scale, float(order)) for order in orders])
    return np.asarray(np.maximum(values, 0) + _SLACK)


@functools.lru_cache(maxsize=4096)
def _kappa(law: str, scale: Fraction, a: float) -> float:
    log_p, log_q, stride = _refusals(law, scale)
    b = float(scale)
    found = max(_worst(a, log_p, log_q), float(kappa_limit(np.array([a]), b)[0]))
    # Between two points of a coarser grid the smooth curve rises by less than its curvature, of the order of (stride / b)^2.
    return found if stride == 1 else found * (1 + 4 * (stride / b) ** 2)


@functools.lru_cache(maxsize=32)
def _refusals(law: str, scale: Fraction) -> tuple[Floats, Floats, int]:
    """Return ln p and ln q over the search window: every integer up to scale 2 / _FINENESS, a grid for larger scales."""
    b = float(scale)
    stride = max(1, math.floor(b * _FINENESS))
    lowest = 1 if law == "two_geometrics" else -math.ceil(_REACH * b)
    y = np.arange(lowest, math.ceil(_REACH * b) + 3, stride)
    return log_refusal(law, y - 2, scale), log_refusal(law, y, scale), stride


def _worst(a: float, log_p: Floats, log_q: Floats) -> float:
    """Largest value over the window. Where p = 1 an answer has probability 0 under D, and the denominator is 1."""
    log_answer_p, log_answer_q = log_answer(log_p), log_answer(log_q)
    with np.errstate(invalid="ignore"):
        answered = np.where(np.isneginf(log_answer_p), -np.inf, log_answer_q + a * (log_answer_p - log_answer_q))
    with np.errstate(divide="ignore"):
        values = a * log_p + (1 - a) * log_q - np.log(-np.expm1(answered))
    return float(values.max())


def kappa_limit(orders: Floats, b: float) -> Floats:
    """Return the limit y to infinity, 2a/b - ln(a e^(2/b) - a + 1): there p/q is e^(2/b), its supremum.

    Beyond the search window p and q are so small that the expression is r^a / (a r - a + 1) at r = p/q, up to a relative error of
    the order of a p. It rises with r >= 1, so that the limit bounds it.
    """
    return 2 * orders / b - np.log1p(orders * math.expm1(2 / b))


def to_epsilon(rdp: Callable[[Floats], Floats], delta: float) -> float:
    """Return the epsilon of a Renyi bound (Canonne, Kamath, Steinke 2020, proposition 12), at least 0.

    Args:
        rdp: the bound at given orders.
        delta: above 0.
    """

    def epsilons(orders: Floats) -> Floats:
        return np.asarray(rdp(orders) + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1))

    return max(0.0, _smallest(epsilons))


def to_delta(rdp: Callable[[Floats], Floats], epsilon: float) -> float:
    """Return the delta of a Renyi bound at `epsilon`: the same conversion, solved for delta."""

    def logs(orders: Floats) -> Floats:
        return np.asarray((orders - 1) * (rdp(orders) + np.log1p(-1 / orders) - epsilon) - np.log(orders))

    return math.exp(min(0.0, _smallest(logs)))


def _smallest(values: Callable[[Floats], Floats]) -> float:
    """Smallest value over every eighth order, then over all orders around it. Whichever order is taken, the bound holds."""
    coarse = values(ORDERS[::8])
    best = 8 * int(coarse.argmin())
    return float(min(coarse.min(), values(ORDERS[max(0, best - 7) : best + 8]).min()))
