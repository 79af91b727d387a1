"""What the four stability calibrations share: two scales, a threshold, a cutoff, and the delta of the release part."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from teacher_student.arguments import ArgumentError, Floats, positive_integer, positive_number
from teacher_student.privacy import distributions
from teacher_student.privacy.distributions import ROUNDING, Window, laplace_difference_tail, log_refusal
from teacher_student.privacy.parameters import Parameters, check_scale

LARGEST_THRESHOLD = 1 << 40
LARGEST_CUTOFF = 1_000_000
"""Larger ones are refused: what they cost could not be summed at ease."""

RELEASE_SHARE = 0.1
"""Share of delta that the release part may use, where the calibration is free to choose."""

WINDOWS: dict[str, Callable[[Fraction], Window]] = {
    "discrete_gaussian": distributions.discrete_gaussian,
    "discrete_laplace": distributions.discrete_laplace,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThresholdParameters(Parameters):
    """Answer iff distance + query noise > threshold + threshold noise; halt at the cutoff.

    Attributes:
        threshold_scale: scale of the threshold's noise.
        query_scale: scale of each query's noise.
        threshold: w, a public integer.
        cutoff: T, refusals that are paid before the session halts (for soft labels the unit budget U).
    """

    threshold_noise: ClassVar[str]
    query_noise: ClassVar[str]
    redraw: ClassVar[bool]

    threshold_scale: Fraction
    query_scale: Fraction
    threshold: int
    cutoff: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold_scale", check_scale("threshold_scale", self.threshold_scale))
        object.__setattr__(self, "query_scale", check_scale("query_scale", self.query_scale))
        threshold = positive_integer("threshold", self.threshold, minimum=0, maximum=LARGEST_THRESHOLD)
        object.__setattr__(self, "threshold", threshold)
        object.__setattr__(self, "cutoff", check_cutoff(self.cutoff))

    @classmethod
    @abstractmethod
    def calibrate(cls, *, epsilon: float, delta: float, cutoff: int, num_queries: int | None, **options: Any) -> Self:
        """Return the parameters that spend at most `epsilon` at `delta`."""

    @abstractmethod
    def _test_epsilon(self, delta: float) -> float:
        """Epsilon of the test part (who is answered) at its own delta."""

    @abstractmethod
    def _test_delta(self, epsilon: float) -> float:
        """Delta of the test part at `epsilon`."""

    def epsilon(self, delta: float) -> float:
        """Return the epsilon certified at `delta`: what the release part leaves of delta goes to the test part."""
        left = positive_number("delta", delta) - self.release_delta
        if left <= 0:
            return math.inf
        return self._test_epsilon(left) if left < 1 else 0.0

    def delta(self, epsilon: float) -> float:
        """Return the delta certified at `epsilon`: test part plus release part."""
        if epsilon != 0:
            positive_number("epsilon", epsilon)
        return min(1.0, self._test_delta(epsilon) + self.release_delta)

    @property
    def release_delta(self) -> float:
        """P(a query whose winner differs between neighbours is answered); its distance is 0 on both sides."""
        return self._redrawn_release_delta() if self.redraw else self._fixed_release_delta()

    def _fixed_release_delta(self) -> float:
        """E_rho[1 - p(-w - rho)^T]: given rho each of at most T split queries is refused with probability p (line 5)."""
        window = WINDOWS[self.threshold_noise](self.threshold_scale)
        fails = -np.expm1(self.cutoff * self._log_split_refusal(window))
        return min(1.0, float(window.mass @ fails) * (1 + ROUNDING) + window.outside)

    def _redrawn_release_delta(self) -> float:
        """Return T tau, tau = P(nu - rho >= w + 1): in each of T runs only the first split query can fail.

        See docs/privacy.md, "Calibration redraw".
        """
        if (self.query_noise, self.threshold_noise) == ("discrete_laplace", "discrete_laplace"):
            tau = laplace_difference_tail(self.threshold + 1, self.query_scale, self.threshold_scale)
        else:
            window = WINDOWS[self.threshold_noise](self.threshold_scale)
            tau = float(window.mass @ -np.expm1(self._log_split_refusal(window))) * (1 + ROUNDING) + window.outside
        return min(1.0, self.cutoff * tau)

    def _log_split_refusal(self, window: Window) -> Floats:
        """Return ln p(-w - rho) for each rho of the window, less the last digits that its two terms may have lost."""
        y = -self.threshold - window.support
        return log_refusal(self.query_noise, y, self.query_scale) - 1e-15 * np.maximum(y, 0) / float(self.query_scale)

    def smallest_threshold(self, delta: float) -> int:
        """Return the smallest threshold at which the release part costs at most `delta`, all else as here."""

        def costs(threshold: int) -> float:
            return dataclasses.replace(self, threshold=threshold).release_delta

        high = 1
        while costs(high) > delta:
            if 2 * high > LARGEST_THRESHOLD:
                raise ArgumentError(
                    f"delta must leave the release part at least {costs(high):.3g}, got {delta:.3g}; take a delta above 1e-25"
                )
            high *= 2
        low = 0 if high == 1 else high // 2
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if costs(middle) <= delta else (middle + 1, high)
        return low


def check_cutoff(value: object) -> int:
    """Return `value` as a cutoff.

    >>> check_cutoff(0)
    Traceback (most recent call last):
    teacher_student.arguments.ArgumentError: cutoff must be a positive integer, got 0
    """
    cutoff = positive_integer("cutoff", value)
    if cutoff > LARGEST_CUTOFF:
        raise ArgumentError(f"cutoff must be at most {LARGEST_CUTOFF}, got {cutoff}")
    return cutoff


def refuse_options(options: Mapping[str, Any], mechanism: str, *known: str) -> None:
    """Refuse options that a mechanism's calibration does not have."""
    for name in options:
        raise ArgumentError(f"{name} is no option of {mechanism}; it has {', '.join(known) or 'none'}")
