"""`stability`, the default mechanism, and `stability_laplace`: a sparse vector with one threshold for the whole session.

    rho ~ discrete Gaussian(s), drawn once;  nu fresh for every query;  answer iff distance + nu > w + rho
    RDP(a) <= a / (2 s^2) + T kappa(a) / (a - 1)                     the test part (docs/tight_guarantee.md)
    delta2  = E_rho[1 - p(-w - rho)^T]                                the failure event

The number of queries does not appear: answers are free, only refusals are paid for. For few refusals, value iteration bounds
the test part more closely (`accountant="numerical"`, see `svt_exact`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import brentq

from teacher_student.arguments import ArgumentError, Floats, choice, positive_number
from teacher_student.privacy import svt_exact
from teacher_student.privacy.distributions import LARGEST_SUMMED, discrete_gaussian
from teacher_student.privacy.parameters import GRID, REPLACED, refuse_options, round_up, smallest_scale
from teacher_student.privacy.rdp import to_delta, to_epsilon
from teacher_student.privacy.registry import register
from teacher_student.privacy.svt_rdp import kappa
from teacher_student.privacy.threshold import RELEASE_SHARE, ThresholdParameters

RENYI, NUMERICAL = "renyi", "numerical"

MOST_NUMERICAL = 10
"""Most refusals of the numerical accountant."""

LARGEST_EPSILON = 500.0
"""Larger ones are treated as this one: e to their power is a double."""

_TIGHT = 1e-9
"""Relative distance between the epsilon that is returned and one that exceeds delta."""

_SAVED, _TIGHT_SCALE = 0.8, 0.002
"""The query scale of the numerical accountant is searched down to this share of the Renyi accountant's, to within that share."""

RATIO = 1.8
"""Default ratio of the threshold's noise scale to the scale that alone would use all of epsilon."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedThreshold(ThresholdParameters):
    """One discrete Gaussian threshold. Subclasses set the law of the query noise.

    Attributes:
        accountant: how the test part is computed: "renyi", or "numerical" for at most `MOST_NUMERICAL` refusals.
    """

    threshold_noise: ClassVar[str] = "discrete_gaussian"
    redraw: ClassVar[bool] = False
    ratios: ClassVar[tuple[float, ...]] = (1.3, 1.8, 2.5, 3.5, 5.0)

    accountant: str = RENYI

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("accountant", self.accountant, (RENYI, NUMERICAL))
        if self.accountant == NUMERICAL and self.cutoff > MOST_NUMERICAL:
            raise ArgumentError(f"cutoff must be at most {MOST_NUMERICAL} for accountant={NUMERICAL}, got {self.cutoff}")

    def rdp(self, orders: Sequence[float] | Floats) -> Floats:
        """Return the Renyi bound of the test part at `orders`."""
        alpha = np.asarray(orders, dtype=np.float64)
        gaussian = alpha / (2 * float(self.threshold_scale) ** 2)
        return np.asarray(gaussian + self.cutoff * kappa(self.query_noise, self.query_scale, alpha) / (alpha - 1))

    def _test_epsilon(self, delta: float) -> float:
        low, high = 0.0, to_epsilon(self.rdp, delta)
        if self.accountant == RENYI:
            return high
        while high - low > _TIGHT * high:  # at `high` delta is never exceeded
            middle = (low + high) / 2
            low, high = (low, middle) if self._test_delta(middle) <= delta else (middle, high)
        return high

    def _test_delta(self, epsilon: float) -> float:
        bound = to_delta(self.rdp, epsilon)
        if self.accountant == RENYI:
            return bound
        window = discrete_gaussian(self.threshold_scale)
        exact = svt_exact.session_delta(
            self.query_noise, self.query_scale, self.cutoff, window, self.threshold_scale, min(epsilon, LARGEST_EPSILON)
        )
        return min(bound, exact)

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        cutoff: int,
        num_queries: int | None = None,
        threshold_ratio: float = RATIO,
        accountant: str = RENYI,
        vote_change: str = REPLACED,
        **options: Any,
    ) -> Self:
        """Choose s, then the smallest b, then the smallest w that together spend `epsilon` at `delta` on any number of queries.

        s is `threshold_ratio` > 1, a public number, times the scale that alone would use all of epsilon. `accountant`
        "numerical" gives a query scale smaller by 5 to 10 % for at most ten refusals, in seconds.
        """
        del num_queries
        refuse_options(options, cls.mechanism, "threshold_ratio", "accountant", "vote_change")
        if positive_number("threshold_ratio", threshold_ratio) <= 1:
            raise ArgumentError(f"threshold_ratio must be above 1, got {threshold_ratio}; {RATIO} is the default")
        share = (1 - RELEASE_SHARE) * delta
        scale = round_up(threshold_ratio * smallest_gaussian(epsilon, share, LARGEST_SUMMED / threshold_ratio))

        draft = cls(threshold_scale=scale, query_scale=Fraction(1), threshold=0, cutoff=cutoff, vote_change=vote_change)
        query_scale = smallest_scale(lambda tried: dataclasses.replace(draft, query_scale=tried)._test_epsilon(share) <= epsilon)
        if query_scale is None:
            raise ArgumentError(f"threshold_ratio must leave epsilon for refusals, got {threshold_ratio}; {RATIO} does")
        draft = dataclasses.replace(draft, query_scale=query_scale, accountant=accountant)
        if accountant == NUMERICAL:
            draft = draft._with_numerical_scale(epsilon, share)
        return dataclasses.replace(draft, threshold=draft.smallest_threshold(RELEASE_SHARE * delta))

    def _with_numerical_scale(self, epsilon: float, delta: float) -> Self:
        """Return these parameters with a smaller query scale, as far as the numerical accountant allows it."""
        low, high = math.floor(_SAVED * self.query_scale * GRID), math.floor(self.query_scale * GRID)
        while high - low > max(1, _TIGHT_SCALE * high):
            middle = (low + high) // 2
            fits = dataclasses.replace(self, query_scale=Fraction(middle, GRID))._test_delta(epsilon) <= delta
            low, high = (low, middle) if fits else (middle, high)
        return dataclasses.replace(self, query_scale=Fraction(high, GRID))


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Stability(FixedThreshold):
    """One threshold, one-sided query noise: minus the sum of two geometrics. The default."""

    mechanism: ClassVar[str] = "stability"
    query_noise: ClassVar[str] = "two_geometrics"


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class StabilityLaplace(FixedThreshold):
    """One threshold, two-sided query noise; for comparison."""

    mechanism: ClassVar[str] = "stability_laplace"
    query_noise: ClassVar[str] = "discrete_laplace"


def smallest_gaussian(epsilon: float, delta: float, largest: float) -> float:
    """Return the scale at which a Gaussian of sensitivity 1 spends `epsilon` at `delta` (Renyi accounting).

    Raises:
        ArgumentError: that scale would be above `largest`.
    """

    def spent(scale: float) -> float:
        return to_epsilon(lambda orders: orders / (2 * scale**2), delta)

    low, high = 1e-3, largest
    if spent(low) <= epsilon:
        return low
    if spent(high) > epsilon:
        raise ArgumentError(f"epsilon must be at least {spent(high):.2g} at this delta, got {epsilon:g}")
    return math.exp(brentq(lambda log: spent(math.exp(log)) - epsilon, math.log(low), math.log(high), xtol=1e-10))
