"""The cost of few refusals when answers are free, by value iteration instead of Renyi moments (docs/tight_guarantee.md, part 7).

Let P and Q be the laws of a session's pattern of answers and refusals under neighbours, given the threshold's noise (z + 1 under
D, z under D'). An event S is worth P(S) - g Q(S) to an adversary who charges g for its probability under D'. If t refusals may
still be paid and the next query is refused with probability p under D and q under D', the worth V_t(g) satisfies

    V_t(g) = max( [1 - g]+,  sup over queries of  p V_(t-1)(g q/p) + (1-p) V_t(g (1-q)/(1-p)) ),   V_0(g) = [1 - g]+.

Any convex function U_t >= U_(t-1) that is at least its own right-hand side bounds V_t, for any number of queries. `worth` builds
such a U_t on a grid. It is linear between grid points and its right-hand side convex, so grid points suffice. Finitely many pairs
(p, q) stand for all integers y, as the intervals of `svt_rdp` do. The delta of the test part is the mean of U_T over the noise of
the threshold. At the scales of the Renyi accountant this epsilon is about 5 % smaller.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from teacher_student.arguments import Floats, Integers
from teacher_student.privacy.distributions import ROUNDING, Window, log_refusal, log_refusal_ratio

_CELLS = 1000
"""Grid cells: twice as many lower epsilon by 0.2 %."""

_PAIRS = 100
"""Intervals of y: twice as many lower epsilon by 0.1 %."""

_REACH = 12
"""Scales above 0 where the last interval of y, which has no end, begins."""

_SLACK = 1e-12
"""Relative room for rounding in one step, towards a larger worth."""


class Worth(NamedTuple):
    """A bound on one V_t: linear between grid points, 0 from the last one on.

    Attributes:
        charge: (n,) values of g, increasing from 0.
        value: (n,) bounds on V_t(g), decreasing and convex.
    """

    charge: Floats
    value: Floats

    def at(self, charge: Floats) -> Floats:
        """Return the bound at each `charge` >= 0."""
        return np.interp(charge, self.charge, self.value, right=0.0)


def refusals(law: str, scale: Fraction) -> tuple[Floats, Floats]:
    """Return finitely many p and q, (n,) each, such that a bound that holds for them holds for every integer y.

    For all y from y1 to y2: ln(p/q) <= r = ln(p(y2 - 2)/p(y2)) and q <= p(y1). The pair with that ratio and the largest q that
    leaves p <= 1 stands for them (docs/tight_guarantee.md, line 24).
    """
    far = math.ceil(_REACH * scale) + 3
    lowest = 1 if law == "two_geometrics" else -far
    low: Integers = np.unique(np.linspace(lowest, far, _PAIRS).astype(np.int64))
    ends = np.append(low[1:] - 1, far)
    ratio = np.append(log_refusal_ratio(law, ends[:-1], scale), 2 / float(scale))  # beyond `far` the ratio stays below its limit
    q = log_refusal(law, low, scale)
    if law != "two_geometrics":
        q[0] = 0.0  # the first interval begins at minus infinity
    q = np.minimum(q, -ratio)
    return np.exp(q + ratio), np.exp(q)


@functools.lru_cache(maxsize=256)
def worth(law: str, scale: Fraction, cutoff: int, lowest: float) -> tuple[Worth, ...]:
    """Return bounds on V_0 to V_T, the worth of sessions that may pay so many refusals, given the threshold's noise.

    Args:
        law: of the query noise.
        scale: of the query noise.
        cutoff: T.
        lowest: ln g of the first grid point; below it the bound is linear.
    """
    p, q = refusals(law, scale)
    kept = p > q  # a query that both sides refuse alike only costs
    p, q = p[kept], q[kept]
    step = (2 * cutoff / float(scale) - lowest) / (_CELLS - cutoff)
    top = 2 * cutoff / float(scale) + cutoff * step  # where U_t ends: e^(2t/b), and a cell more for each interpolation
    charge = np.exp(top - step * np.arange(_CELLS, -1, -1))
    with np.errstate(divide="ignore"):
        rise = np.log1p(-q) - np.log1p(-np.minimum(p, 1 - 1e-16))  # ln of what an answer multiplies g by
    cells = np.where(p < 1, np.minimum(np.floor(rise / step), _CELLS + 1), _CELLS + 1).astype(np.int64)
    upper = np.clip(np.expm1(rise - cells * step) / math.expm1(step), 0, 1) * (cells <= _CELLS)  # share of the upper grid point
    near = cells == 0
    own = np.where(near, p + upper - p * upper, 1.0)  # what is left of U_t(g) after its share on the right-hand side
    grid = np.append(0.0, charge)
    found = [Worth(grid, np.maximum(0, 1 - grid))]
    for _ in range(cutoff):
        refused = p * found[-1].at(charge[:, np.newaxis] * (q / p))
        found.append(Worth(grid, _next(refused, found[-1].value, grid, p, cells, upper, near, own)))
    return tuple(found)


def _next(
    refused: Floats, before: Floats, grid: Floats, p: Floats, cells: Integers, upper: Floats, near: Integers, own: Floats
) -> Floats:
    """Return U_t on the grid from its largest point down. `before` is U_(t-1), `refused` its part (cells + 1, pairs)."""
    last = len(grid) - 1
    value = np.zeros(last + 2 * _CELLS + 4)  # 0 beyond the grid
    stays = np.where(near, 0.0, 1 - upper)
    slope = 0.0
    for point in range(last - 1, 0, -1):
        answered = stays * value[point + cells] + upper * value[point + cells + 1]
        needed = float(((refused[point - 1] + (1 - p) * answered) / own).max()) * (1 + _SLACK)
        width = grid[point + 1] - grid[point]
        found = max(needed, before[point], value[point + 1] - slope * width)  # the last: convex
        slope, value[point] = (value[point + 1] - found) / width, found
    value[0] = max(1.0, before[0], value[1] - slope * grid[1])
    return value[: last + 1]


def session_delta(
    law: str, query_scale: Fraction, cutoff: int, window: Window, threshold_scale: Fraction, epsilon: float
) -> float:
    """Return the delta at `epsilon` of the pattern of answers and refusals: the worth, averaged over the threshold's noise.

    Under D the threshold's noise is one higher than under D', so at z + 1 an event is charged e^epsilon P(z) / P(z + 1).
    """
    spread = 2 * float(threshold_scale) ** 2
    bound = worth(law, query_scale, cutoff, -8 / float(threshold_scale))[cutoff]
    charge = np.exp(np.minimum(epsilon + (2 * window.support[:-1] + 1) / spread, 700.0))
    if not np.isfinite(bound.value).all():  # scales below about 1/25, where no claim is worth having
        return 1.0
    mean = float(window.mass[1:] @ bound.at(charge))
    return mean * (1 + ROUNDING) + 2 * window.outside * float(bound.value[0])
