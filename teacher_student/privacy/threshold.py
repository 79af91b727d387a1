"""The base of the stability mechanisms: a sparse vector with two noise scales, a threshold and a cutoff on refusals.

A query is *split* if its winner differs between neighbouring data sets. Answering one tells them apart outright: that is the
*failure event*, and `release_delta` bounds its probability. The *test part* of the cost covers everything else a session reveals,
namely which queries are answered.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from teacher_student.arguments import ArgumentError, Floats, Integers, positive_integer, positive_number
from teacher_student.privacy import distributions
from teacher_student.privacy.distributions import ROUNDING, Window, laplace_difference_tail, log_refusal
from teacher_student.privacy.parameters import (
    REPLACED,
    WITHDRAWN,
    Draw,
    Expectation,
    LabelSpec,
    Limit,
    check_scale,
    smallest_integer,
)
from teacher_student.privacy.winning import expected_minimum

LARGEST_THRESHOLD = 1 << 40
LARGEST_CUTOFF = 1_000_000
"""Largest cutoff whose cost is computed."""

RELEASE_SHARE = 0.1
"""Share of delta that calibrations spend on the failure event, where they are free to choose."""

WINDOWS: dict[str, Callable[[Fraction], Window]] = {
    "discrete_gaussian": distributions.discrete_gaussian,
    "discrete_laplace": distributions.discrete_laplace,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThresholdParameters(LabelSpec):
    """Answer iff distance + query noise > threshold + threshold noise; halt at the cutoff.

    Attributes:
        threshold_scale: scale of the threshold's noise.
        query_scale: scale of each query's noise.
        threshold: w, a public integer.
        cutoff: T, the number of refusals after which the session halts (for soft labels the unit budget U).
    """

    pays_for: ClassVar[str] = "abstentions"
    soft_labels: ClassVar[bool] = True
    vote_noise: ClassVar[str | None] = None
    asks_first: ClassVar[bool] = False
    threshold_noise: ClassVar[str]
    query_noise: ClassVar[str]
    redraw: ClassVar[bool]
    vote_changes: ClassVar[tuple[str, ...]] = (REPLACED, WITHDRAWN)

    DECLARED: ClassVar[dict[str, tuple[object, ...]]] = {
        **LabelSpec.DECLARED,
        "threshold_noise": ("discrete_gaussian", "discrete_laplace"),
        "query_noise": ("two_geometrics", "discrete_laplace"),
        "redraw": (True, False),
    }

    threshold_scale: Fraction
    query_scale: Fraction
    threshold: int
    cutoff: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "threshold_scale", check_scale("threshold_scale", self.threshold_scale))
        object.__setattr__(self, "query_scale", check_scale("query_scale", self.query_scale))
        threshold = positive_integer("threshold", self.threshold, minimum=0, maximum=LARGEST_THRESHOLD)
        object.__setattr__(self, "threshold", threshold)
        object.__setattr__(self, "cutoff", check_cutoff(self.cutoff))

    @classmethod
    def calibrate_soft(cls, *, epsilon: float, delta: float, cutoff: int, num_queries: int | None = None, **options: Any) -> Self:
        """Return the parameters for soft labels, where each of `cutoff` unstable queries pays two units."""
        return cls.calibrate(epsilon=epsilon, delta=delta, cutoff=check_cutoff(2 * cutoff), num_queries=num_queries, **options)

    @classmethod
    def audit_options(cls, cutoff: int, num_queries: int | None, **options: Any) -> dict[str, Any]:
        """Add a number of queries, which the printed constants need."""
        return {"num_queries": 20 * cutoff if num_queries is None else num_queries, **options}

    def mutants(self) -> dict[str, Self]:
        """Return a session with one more payment, and wrong scales of either noise."""
        wrong = {
            f"{scale}_{by}": self.rescaled(**{scale: by}) for scale in ("threshold_scale", "query_scale") for by in (0.7, 1.3)
        }
        halved = self.rescaled(threshold_scale=0.5, query_scale=0.5)
        return {"one_payment_more": dataclasses.replace(self, cutoff=self.cutoff + 1), "noise_halved": halved, **wrong}

    @property
    def limit(self) -> Limit:
        """The refusals after which the session halts."""
        return Limit("cutoff", self.cutoff, "abstention")

    @property
    def draws(self) -> tuple[Draw, ...]:
        """The noise of the threshold and of each query."""
        threshold = Draw(self.threshold_noise, self.threshold_scale, "session")
        return threshold, Draw(self.query_noise, self.query_scale, "query")

    @property
    def max_asked(self) -> float:
        """Queries after which the session halts; infinite unless the calibration was made for a fixed number."""
        return math.inf

    def refusal(self, distance: Integers) -> tuple[Floats, Floats]:
        """Return P(refused | threshold noise) as (n, values) for each `distance` (n,), and the probability of each value."""
        support, mass = thinned_noise(self.threshold_noise, self.threshold_scale)
        short = distance[:, np.newaxis] - self.threshold - support
        return np.exp(log_refusal(self.query_noise, short, self.query_scale)), mass

    def first_answer(self, counts: Floats, times: Floats | None = None) -> Floats:
        """Return P(answered) for the plurality of each row, and 0 for the other classes."""
        distance, plurality = distance_of(counts, times, self.moved_counts)
        refused, mass = self.refusal(distance)
        found = np.zeros(counts.shape)
        found[np.arange(len(counts)), plurality] = 1 - refused @ mass
        return found

    def expected_labels(self, counts: Floats, weights: Floats, num_queries: int, times: Floats | None = None) -> Expectation:
        """Return the labels expected until the cutoff is spent; an answer is always the plurality.

        The expectation is over the fixed threshold. Resampled thresholds are treated as fresh for every query.
        """
        distance, plurality = distance_of(counts, times, self.moved_counts)
        levels, place = np.unique(distance, return_inverse=True)
        refused, mass = self.refusal(levels)
        if self.redraw:
            refused, mass = refused @ mass[:, np.newaxis], np.ones(1)
        weight = np.bincount(place, weights=weights)
        unanswered = np.clip(weight @ refused, 1e-15, 1)
        asked = expected_minimum(self.cutoff, num_queries, unanswered) / unanswered
        answers = float(mass @ (asked * (1 - unanswered)))
        labels = np.zeros(counts.shape)
        labels[np.arange(len(counts)), plurality] = weights * (((1 - refused) * asked) @ mass)[place]
        return Expectation(answers, labels)

    @abstractmethod
    def _test_epsilon(self, delta: float) -> float:
        """Return the epsilon of the test part at `delta`."""

    @abstractmethod
    def _test_delta(self, epsilon: float) -> float:
        """Return the delta of the test part at `epsilon`."""

    def epsilon(self, delta: float) -> float:
        """Return the epsilon certified at `delta`: the test part gets the delta that the failure event leaves."""
        left = positive_number("delta", delta) - self.release_delta
        if left <= 0:
            return math.inf
        return self._test_epsilon(left) if left < 1 else 0.0

    def delta(self, epsilon: float) -> float:
        """Return the delta certified at `epsilon`: that of the test part plus the failure event's probability."""
        if epsilon != 0:
            positive_number("epsilon", epsilon)
        return min(1.0, self._test_delta(epsilon) + self.release_delta)

    @property
    def release_delta(self) -> float:
        """Bound on P(some split query is answered); the distance of a split query is 0 on both sides."""
        return self._resampled_release_delta() if self.redraw else self._fixed_release_delta()

    def _fixed_release_delta(self) -> float:
        """E_rho[1 - p(-w - rho)^T]: given rho, each of at most T split queries is refused with probability p (line 5)."""
        window = WINDOWS[self.threshold_noise](self.threshold_scale)
        fails = -np.expm1(self.cutoff * self._log_split_refusal(window))
        return min(1.0, float(window.mass @ fails) * (1 + ROUNDING) + window.outside)

    def _resampled_release_delta(self) -> float:
        """Return T tau with tau = P(nu - rho >= w + 1): in each of T runs only the first split query can fail.

        See docs/privacy.md, "Calibration redraw".
        """
        if (self.query_noise, self.threshold_noise) == ("discrete_laplace", "discrete_laplace"):
            tau = laplace_difference_tail(self.threshold + 1, self.query_scale, self.threshold_scale)
        else:
            window = WINDOWS[self.threshold_noise](self.threshold_scale)
            tau = float(window.mass @ -np.expm1(self._log_split_refusal(window))) * (1 + ROUNDING) + window.outside
        return min(1.0, self.cutoff * tau)

    def _log_split_refusal(self, window: Window) -> Floats:
        """Return ln p(-w - rho) for each rho of the window, lowered by the digits that its two terms may have lost."""
        y = -self.threshold - window.support
        return log_refusal(self.query_noise, y, self.query_scale) - 1e-15 * np.maximum(y, 0) / float(self.query_scale)

    def smallest_threshold(self, delta: float) -> int:
        """Return the smallest threshold whose failure event has probability at most `delta`, all else being equal."""

        def fails(threshold: int) -> float:
            return dataclasses.replace(self, threshold=threshold).release_delta

        if fails(0) <= delta:
            return 0
        found = smallest_integer(lambda threshold: fails(threshold) <= delta, LARGEST_THRESHOLD)
        if found is None:
            least = fails(LARGEST_THRESHOLD)
            raise ArgumentError(
                f"delta must leave the failure event at least {least:.3g}, got {delta:.3g}; take a delta above 1e-25"
            )
        return found


def distance_of(counts: Floats, times: Floats | None, moved: int = 2) -> tuple[Integers, Integers]:
    """Return the distance and the plurality of each row of counts (rows, C).

    `times` as in `LabelSpec.first_answer`; `moved` as `VoteSpec.moved_counts`.
    """
    plurality = np.asarray(counts.argmax(axis=1), dtype=np.int64)
    rivals = np.where(np.ones(counts.shape) if times is None else times > 0, counts, -np.inf)
    top = rivals[np.arange(len(counts)), plurality]
    if times is None or (times[np.arange(len(counts)), plurality] <= 1).all():
        rivals[np.arange(len(counts)), plurality] = -np.inf
    second = rivals.max(axis=1)
    gap = np.round(top - np.where(np.isfinite(second), second, 0), 6)
    return np.maximum(0, np.ceil(gap / moved).astype(np.int64) - 1), plurality


@functools.lru_cache(maxsize=64)
def thinned_noise(law: str, scale: Fraction) -> tuple[Integers, Floats]:
    """Return the threshold's noise, thinned to a few thousand values: enough for an expectation."""
    window = WINDOWS[law](scale)
    stride = max(1, len(window.support) // 2000)
    support, mass = window.support[stride // 2 :: stride], np.add.reduceat(window.mass, np.arange(0, len(window.mass), stride))
    return support[: len(mass)], mass[: len(support)] / mass[: len(support)].sum()


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
