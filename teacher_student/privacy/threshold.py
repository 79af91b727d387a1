"""What the four stability calibrations share: two scales, a threshold, a cutoff, and the delta of the release part."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from teacher_student.arguments import ArgumentError, positive_integer, positive_number
from teacher_student.privacy import distributions
from teacher_student.privacy.distributions import Window, log_refusal
from teacher_student.privacy.parameters import Parameters, check_scale

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
        positive_integer("threshold", self.threshold, minimum=0)
        positive_integer("cutoff", self.cutoff)

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
        positive_number("delta", delta)
        left = delta - self.release_delta
        return self._test_epsilon(left) if left > 0 else float("inf")

    def delta(self, epsilon: float) -> float:
        """Return the delta certified at `epsilon`: test part plus release part."""
        return min(1.0, self._test_delta(epsilon) + self.release_delta)

    @property
    def release_delta(self) -> float:
        """P(a query whose winner differs between neighbours is answered); its distance is 0 on both sides."""
        return self._redrawn_release_delta() if self.redraw else self._fixed_release_delta()

    def _fixed_release_delta(self) -> float:
        """E_rho[1 - p(-w - rho)^T]: given rho each of at most T split queries is refused with probability p (line 4)."""
        window = WINDOWS[self.threshold_noise](self.threshold_scale)
        refused = log_refusal(self.query_noise, -self.threshold - window.support, self.query_scale)
        return float(window.mass @ -np.expm1(self.cutoff * refused)) + window.outside

    def _redrawn_release_delta(self) -> float:
        """T tau, tau = P(nu - rho >= w + 1): in each of T runs only the first split query can fail (PRIVACY.md section 4)."""
        window = WINDOWS[self.threshold_noise](self.threshold_scale)
        answered = -np.expm1(log_refusal(self.query_noise, -self.threshold - window.support, self.query_scale))
        return min(1.0, self.cutoff * (float(window.mass @ answered) + window.outside))

    def smallest_threshold(self, delta: float) -> int:
        """Return the smallest threshold at which the release part costs at most `delta`, all else as here."""

        def costs(threshold: int) -> float:
            return dataclasses.replace(self, threshold=threshold).release_delta

        high = 1
        while costs(high) > delta:
            high *= 2
            if high > 1 << 40:
                raise ArgumentError(f"delta must leave room for a threshold, got {delta:g} for the release part")
        low = 0 if high == 1 else high // 2
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if costs(middle) <= delta else (middle + 1, high)
        return low
