"""kappa, the Renyi cost of a refusal in the sparse vector with a fixed threshold (docs/tight_guarantee.md, part 3).

Let d' be the distance under D', z the threshold's noise there, and y = d' - w - z. Under D' a query is refused with probability
q = p(y); under D, where the threshold's noise is z + 1, with probability at most p = p(y - 2). For a = alpha > 1

    kappa(a) = sup over integers y of K(y),   K = ln [ p^a q^(1-a) / (1 - (1-p)^a (1-q)^(1-a)) ],

and the a-th moment of the likelihood ratio of a session that may pay T refusals is at most e^(kappa T).

**The supremum is bounded, not sampled.** As a function of ln r = ln(p / q) and ln q, K rises in both (lines 15 and 16 of the
proof). In y, r rises (the noise is log-concave) and q falls. So on all integers from y1 to y2

    K <= K(r(y2), q(y1)),     and beyond the last y    K <= K(e^(2/b), q(y)),

so no fine grid is needed: intervals are halved until their bounds come down to the best value found.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from teacher_student.arguments import Floats, Integers
from teacher_student.privacy.distributions import log_answer, log_refusal, log_refusal_ratio
from teacher_student.privacy.rdp import ORDERS

_REACH = 45
"""Start of the last, unbounded interval, in scales above 0: q < 1e-17 there."""

_INTERVALS = 128
"""Number of initial intervals."""

_TIGHT = 1e-5
"""Relative distance of the returned bound from the best value found. Any number is valid."""


def kappa(law: str, scale: Fraction, orders: Floats = ORDERS) -> Floats:
    """Return an upper bound on kappa, within a relative 1e-5 of it, at each of `orders` for query noise `law` of `scale`."""
    return np.array(_kappa(law, scale, tuple(np.asarray(orders, dtype=np.float64).tolist())))


@functools.lru_cache(maxsize=1024)
def _kappa(law: str, scale: Fraction, orders: tuple[float, ...]) -> tuple[float, ...]:
    a = np.array(orders)
    b = float(scale)
    best = np.maximum(0, kappa_limit(a, b))
    bound = best.copy()
    left = _first_intervals(law, scale, len(a))
    while len(left.order):
        orders_left = a[left.order]
        np.maximum.at(best, left.order, log_price(orders_left, *_refusals(law, left.low, scale)))
        upper = log_price(orders_left, _ratio_up_to(law, left.high, scale), log_refusal(law, left.low, scale))
        settled = (upper <= best[left.order] * (1 + _TIGHT)) | (left.low == left.high)
        np.maximum.at(bound, left.order[settled], upper[settled])
        left = left.halved(~settled)
    return tuple((np.maximum(bound, best) + 1e-13 + 1e-15 * a).tolist())  # the addend: last digits of double arithmetic


class _Intervals(NamedTuple):
    """Intervals of integers, both ends included, each for the order at an index. A `high` of `_END` means unbounded."""

    order: Integers
    low: Integers
    high: Integers

    def halved(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> _Intervals:
        order, low, high = self.order[kept], self.low[kept], self.high[kept]
        middle = np.where(high == _END, 2 * low, (low + high) // 2)
        return _Intervals(np.tile(order, 2), np.concatenate([low, middle + 1]), np.concatenate([middle, high]))


_END = np.iinfo(np.int64).max


def _first_intervals(law: str, scale: Fraction, num_orders: int) -> _Intervals:
    """Cover the integers. Two geometrics: for y <= 0 p = q = 1 and K = 0. Laplace: below the reach, p > 1 - e^-45."""
    far = math.ceil(_REACH * scale) + 3
    lowest = 1 if law == "two_geometrics" else -far
    low = np.unique(np.linspace(lowest, far, _INTERVALS).astype(np.int64))
    high = np.append(low[1:] - 1, _END)
    if law != "two_geometrics":  # everything below: r(y) <= r(-far) and q <= 1, which the first interval's bound covers
        low[0] = -(2**62)
    return _Intervals(np.repeat(np.arange(num_orders), len(low)), np.tile(low, num_orders), np.tile(high, num_orders))


def _refusals(law: str, y: Integers, scale: Fraction) -> tuple[Floats, Floats]:
    return log_refusal_ratio(law, y, scale), log_refusal(law, y, scale)


def _ratio_up_to(law: str, high: Integers, scale: Fraction) -> Floats:
    """Return ln r at the upper end of intervals; its limit 2 / b for unbounded ones."""
    return np.where(high == _END, 2 / float(scale), log_refusal_ratio(law, np.minimum(high, 2**62), scale))


def log_price(a: Floats, log_ratio: Floats, log_q: Floats) -> Floats:
    """Return K(y) from ln(p/q) and ln q. Where p >= 1 an answer has probability 0 under D, and the denominator is 1."""
    log_p = np.minimum(log_q + log_ratio, 0)
    certain = log_p >= 0
    answer_p, answer_q = log_answer(log_p), log_answer(log_q)
    with np.errstate(invalid="ignore"):
        answered = np.where(certain, -np.inf, answer_q + a * (answer_p - answer_q))
    return np.asarray(a * log_ratio + log_q - np.log(-np.expm1(np.minimum(answered, -1e-300))))


def kappa_limit(orders: Floats, b: float) -> Floats:
    """Return the limit of K for y to infinity, 2a/b - ln(a e^(2/b) - a + 1), where p and q vanish and r is e^(2/b)."""
    return 2 * orders / b - np.log1p(orders * math.expm1(2 / b))
