"""`stability_paper` and `stability_redraw`: a fresh threshold after every refusal, discrete Laplace noise throughout.

One run, from a fresh threshold to its first refusal, is pure eps0-DP with

    eps0 = 1 / threshold_scale + 2 / query_scale                     2 / lambda at query_scale = 2 lambda

(moving the threshold by one pays 1 / threshold_scale; the refused query may then be off by two). A session is T such runs, and
split queries cost delta2 = T tau. `stability_paper` composes the runs by the advanced composition theorem with the corrected
printed constants; `stability_redraw` composes them optimally (Kairouz, Oh, Viswanath 2015).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

from teacher_student.arguments import ArgumentError, positive_integer
from teacher_student.privacy.parameters import round_up
from teacher_student.privacy.threshold import ThresholdParameters
from teacher_student.privacy.tight import RELEASE_SHARE, _refuse


@dataclasses.dataclass(frozen=True, kw_only=True)
class RedrawnThreshold(ThresholdParameters):
    """T runs of a pure mechanism."""

    threshold_noise: ClassVar[str] = "discrete_laplace"
    query_noise: ClassVar[str] = "discrete_laplace"
    redraw: ClassVar[bool] = True

    @property
    def run_epsilon(self) -> float:
        """Epsilon of one run to its first refusal."""
        return 1 / float(self.threshold_scale) + 2 / float(self.query_scale)

    @property
    def pure_parts(self) -> tuple[float, int]:
        """T runs, each pure."""
        return self.run_epsilon, self.cutoff

    def _test_epsilon(self, delta: float) -> float:
        total = self.cutoff * self.run_epsilon
        if optimal_delta(self.run_epsilon, self.cutoff, 0.0) <= delta:
            return 0.0
        if optimal_delta(self.run_epsilon, self.cutoff, total * (1 - 1e-12)) > delta:
            return total
        found = brentq(
            lambda e: math.log(optimal_delta(self.run_epsilon, self.cutoff, e) + 1e-300) - math.log(delta), 0.0, total, xtol=1e-12
        )
        return min(total, float(found) * (1 + 1e-9) + 1e-12)

    def _test_delta(self, epsilon: float) -> float:
        return optimal_delta(self.run_epsilon, self.cutoff, epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StabilityRedraw(RedrawnThreshold):
    """The printed loop, its T runs composed optimally."""

    mechanism: ClassVar[str] = "stability_redraw"

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, cutoff: int, num_queries: int | None = None, **options: Any) -> Self:
        """Return the smallest lambda that optimal composition allows, then the smallest threshold."""
        del num_queries
        _refuse(options, cls.mechanism)
        share = (1 - RELEASE_SHARE) * delta

        def over(log_scale: float) -> float:
            return optimal_delta(2 * math.exp(-log_scale), cutoff, epsilon) - share

        high = math.log(2 * cutoff / epsilon)  # at this scale T eps0 = epsilon, and delta is 0
        low = high
        while over(low) <= 0:
            low -= 0.5
        scale = round_up(math.exp(brentq(over, low, high, xtol=1e-10)))
        draft = cls(threshold_scale=scale, query_scale=2 * scale, threshold=0, cutoff=cutoff)
        return dataclasses.replace(draft, threshold=draft.smallest_threshold(RELEASE_SHARE * delta))


@dataclasses.dataclass(frozen=True, kw_only=True)
class StabilityPaper(RedrawnThreshold):
    """The printed calibration with the fewest corrections that make its theorem true.

    Attributes:
        num_queries: m, the most queries that may be asked; the threshold grows with its logarithm.
    """

    mechanism: ClassVar[str] = "stability_paper"

    num_queries: int

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer("num_queries", self.num_queries)

    def _test_epsilon(self, delta: float) -> float:
        """Advanced composition of T runs (Dwork, Rothblum, Vadhan 2010), or plain composition where that is less."""
        eps0, runs = self.run_epsilon, self.cutoff
        return min(runs * eps0, math.sqrt(2 * runs * math.log(1 / delta)) * eps0 + runs * eps0 * math.expm1(eps0))

    def _test_delta(self, epsilon: float) -> float:
        eps0, runs = self.run_epsilon, self.cutoff
        if epsilon >= runs * eps0:
            return 0.0
        left = epsilon - runs * eps0 * math.expm1(eps0)
        return 1.0 if left <= 0 else math.exp(-(left**2) / (2 * runs * eps0**2))

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, cutoff: int, num_queries: int | None = None, **options: Any) -> Self:
        """Set lambda = sqrt(32 T ln(2/delta)) / epsilon, w = 2 lambda ln(2 m / delta) (algorithm 3, line 1)."""
        _refuse(options, cls.mechanism)
        queries = positive_integer("num_queries", num_queries)
        return cls._printed(epsilon, delta, cutoff, queries, constant=32, doubled=1)

    @classmethod
    def calibrate_soft(cls, *, epsilon: float, delta: float, cutoff: int, num_queries: int | None = None, **options: Any) -> Self:
        """Set lambda = sqrt(64 T ln(2/delta)) / epsilon, w = 2 lambda ln(4 m / delta), unit budget U = 2 T (algorithm 4, line 1)."""
        _refuse(options, cls.mechanism)
        queries = positive_integer("num_queries", num_queries)
        return cls._printed(epsilon, delta, cutoff, queries, constant=64, doubled=2)

    @classmethod
    def _printed(cls, epsilon: float, delta: float, cutoff: int, num_queries: int, *, constant: int, doubled: int) -> Self:
        scale = round_up(math.sqrt(constant * cutoff * math.log(2 / delta)) / epsilon)
        runs, eps0 = doubled * cutoff, 2 / float(scale)
        if runs * eps0 * math.expm1(eps0) > epsilon / 2 and runs * eps0 > epsilon:
            raise ArgumentError(
                f"epsilon must satisfy T eps0 (e^eps0 - 1) <= epsilon / 2 for the printed constants, "
                f"got {epsilon:g} with T = {cutoff}; take a smaller epsilon, or the mechanism stability"
            )
        threshold = math.ceil(2 * float(scale) * math.log(2 * doubled * num_queries / delta))
        made = cls(threshold_scale=scale, query_scale=2 * scale, threshold=threshold, cutoff=runs, num_queries=num_queries)
        if made.epsilon(delta) > epsilon:
            raise ArgumentError(
                f"cutoff must be at most 1.5 num_queries for the printed constants, got {cutoff} for {num_queries}"
            )
        return made


def optimal_delta(run_epsilon: float, runs: int, epsilon: float) -> float:
    """Return the smallest delta at `epsilon` of `runs` adaptive pure mechanisms (Kairouz, Oh, Viswanath 2015, theorem 3.3).

    The worst case is randomised response: with l of the runs pointing away, the loss is (runs - 2 l) run_epsilon.
    """
    away = np.arange(runs + 1)
    log_binomial = gammaln(runs + 1) - gammaln(away + 1) - gammaln(runs - away + 1)
    loss = (runs - 2 * away) * run_epsilon
    counted = loss > epsilon
    if not counted.any():
        return 0.0
    log_mass = log_binomial + (runs - away) * run_epsilon - runs * np.logaddexp(0, run_epsilon)
    terms = log_mass[counted] + np.log(-np.expm1(epsilon - loss[counted]))
    return float(np.exp(min(0.0, logsumexp(terms)))) * (1 + 1e-9)
