"""`stability`, the default mechanism, and `stability_laplace`: a sparse vector with one threshold for the whole session.

    rho ~ discrete Gaussian(s), drawn once;  nu fresh for every query;  answer iff distance + nu > w + rho
    RDP(a) <= a / (2 s^2) + T kappa(a) / (a - 1)                     the test part (docs/tight_guarantee.md)
    delta2  = E_rho[1 - p(-w - rho)^T]                                the failure event

The number of queries does not appear: answers are free, only refusals are paid for.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import brentq

from teacher_student.arguments import ArgumentError, Floats, positive_number
from teacher_student.privacy.distributions import LARGEST_SUMMED
from teacher_student.privacy.parameters import REPLACED, refuse_options, round_up, smallest_scale
from teacher_student.privacy.rdp import to_delta, to_epsilon
from teacher_student.privacy.registry import register
from teacher_student.privacy.svt_rdp import kappa
from teacher_student.privacy.threshold import RELEASE_SHARE, ThresholdParameters

RATIO = 1.8
"""Default ratio of the threshold's noise scale to the scale that alone would use all of epsilon."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedThreshold(ThresholdParameters):
    """One discrete Gaussian threshold. Subclasses set the law of the query noise."""

    threshold_noise: ClassVar[str] = "discrete_gaussian"
    redraw: ClassVar[bool] = False
    ratios: ClassVar[tuple[float, ...]] = (1.3, 1.8, 2.5, 3.5, 5.0)

    def rdp(self, orders: Sequence[float] | Floats) -> Floats:
        """Return the Renyi bound of the test part at `orders`."""
        alpha = np.asarray(orders, dtype=np.float64)
        gaussian = alpha / (2 * float(self.threshold_scale) ** 2)
        return np.asarray(gaussian + self.cutoff * kappa(self.query_noise, self.query_scale, alpha) / (alpha - 1))

    def _test_epsilon(self, delta: float) -> float:
        return to_epsilon(self.rdp, delta)

    def _test_delta(self, epsilon: float) -> float:
        return to_delta(self.rdp, epsilon)

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        cutoff: int,
        num_queries: int | None = None,
        threshold_ratio: float = RATIO,
        vote_change: str = REPLACED,
        **options: Any,
    ) -> Self:
        """Choose s, then the smallest b, then the smallest w that together spend `epsilon` at `delta`.

        Args:
            epsilon: above 0.
            delta: between 0 and 1.
            cutoff: T.
            num_queries: not used, since any number may be asked.
            threshold_ratio: r > 1, public; s is r times the scale that alone would use all of epsilon.
            vote_change: see `VoteSpec`.
            options: none.
        """
        del num_queries
        refuse_options(options, cls.mechanism, "threshold_ratio", "vote_change")
        if positive_number("threshold_ratio", threshold_ratio) <= 1:
            raise ArgumentError(f"threshold_ratio must be above 1, got {threshold_ratio}; {RATIO} is the default")
        share = (1 - RELEASE_SHARE) * delta
        scale = round_up(threshold_ratio * smallest_gaussian(epsilon, share, LARGEST_SUMMED / threshold_ratio))

        draft = cls(threshold_scale=scale, query_scale=Fraction(1), threshold=0, cutoff=cutoff, vote_change=vote_change)
        query_scale = smallest_scale(lambda tried: dataclasses.replace(draft, query_scale=tried)._test_epsilon(share) <= epsilon)
        if query_scale is None:
            raise ArgumentError(f"threshold_ratio must leave epsilon for refusals, got {threshold_ratio}; {RATIO} does")
        draft = dataclasses.replace(draft, query_scale=query_scale)
        return dataclasses.replace(draft, threshold=draft.smallest_threshold(RELEASE_SHARE * delta))


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
