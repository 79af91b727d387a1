"""`stability_paper` and `stability_redraw`: a fresh threshold after every refusal, discrete Laplace noise throughout.

One run, from a fresh threshold to its first refusal, is pure eps0-DP with

    eps0 = 1 / threshold_scale + 2 / query_scale                     2 / lambda at query_scale = 2 lambda

(moving the threshold by one costs 1 / threshold_scale; the refused query may then differ by two). A session is T such runs, and
its failure event has probability delta2 = T tau. `stability_paper` composes the runs by the advanced composition theorem, with
the printed constants corrected; `stability_redraw` composes them optimally (see `pure`).
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any, ClassVar, Self

from teacher_student.arguments import ArgumentError, positive_integer
from teacher_student.privacy.distributions import LARGEST_SUMMED
from teacher_student.privacy.parameters import REPLACED, refuse_options, round_up, smallest_scale
from teacher_student.privacy.pure import pure_delta, pure_epsilon
from teacher_student.privacy.registry import register
from teacher_student.privacy.threshold import RELEASE_SHARE, ThresholdParameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResampledThreshold(ThresholdParameters):
    """T runs of a pure mechanism, composed optimally."""

    threshold_noise: ClassVar[str] = "discrete_laplace"
    query_noise: ClassVar[str] = "discrete_laplace"
    redraw: ClassVar[bool] = True
    ratios: ClassVar[tuple[float, ...]] = ()

    @property
    def run_epsilon(self) -> float:
        """Epsilon of one run to its first refusal."""
        return 1 / float(self.threshold_scale) + 2 / float(self.query_scale)

    @property
    def pure_parts(self) -> tuple[float, int]:
        """T runs, each pure."""
        return self.run_epsilon, self.cutoff

    def _test_epsilon(self, delta: float) -> float:
        return pure_epsilon(*self.pure_parts, delta)

    def _test_delta(self, epsilon: float) -> float:
        return pure_delta(*self.pure_parts, epsilon)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class StabilityRedraw(ResampledThreshold):
    """The printed algorithm with optimal composition."""

    mechanism: ClassVar[str] = "stability_redraw"

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        cutoff: int,
        num_queries: int | None = None,
        vote_change: str = REPLACED,
        **options: Any,
    ) -> Self:
        """Take the smallest lambda that optimal composition allows, then the smallest threshold."""
        del num_queries
        refuse_options(options, cls.mechanism, "vote_change")
        share = (1 - RELEASE_SHARE) * delta
        scale = smallest_scale(lambda tried: pure_delta(2 / float(tried), cutoff, epsilon) <= share, LARGEST_SUMMED)
        if scale is None:
            largest = Fraction(LARGEST_SUMMED)
            least = cls(threshold_scale=largest, query_scale=2 * largest, threshold=0, cutoff=cutoff)._test_epsilon(share)
            raise ArgumentError(f"epsilon must be at least {least:.2g} at cutoff {cutoff} and this delta, got {epsilon:g}")
        draft = cls(threshold_scale=scale, query_scale=2 * scale, threshold=0, cutoff=cutoff, vote_change=vote_change)
        return dataclasses.replace(draft, threshold=draft.smallest_threshold(RELEASE_SHARE * delta))


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class StabilityPaper(ResampledThreshold):
    """The printed algorithm and constants, with the fewest corrections that make the theorem true.

    Attributes:
        num_queries: m, the most queries that may be asked; the threshold grows with its logarithm.
    """

    mechanism: ClassVar[str] = "stability_paper"

    num_queries: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "num_queries", positive_integer("num_queries", self.num_queries))

    @property
    def max_asked(self) -> float:
        """The number of queries for which the threshold was set."""
        return self.num_queries

    def _test_epsilon(self, delta: float) -> float:
        """Return that of advanced composition (Dwork, Rothblum, Vadhan 2010), or of basic composition if that is less."""
        eps0, runs = self.run_epsilon, self.cutoff
        return min(runs * eps0, math.sqrt(2 * runs * math.log(1 / delta)) * eps0 + runs * eps0 * _expm1(eps0))

    def _test_delta(self, epsilon: float) -> float:
        eps0, runs = self.run_epsilon, self.cutoff
        if epsilon >= runs * eps0:
            return 0.0
        left = epsilon - runs * eps0 * _expm1(eps0)
        return 1.0 if left <= 0 else math.exp(-(left**2) / (2 * runs * eps0**2))

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        cutoff: int,
        num_queries: int | None = None,
        vote_change: str = REPLACED,
        **options: Any,
    ) -> Self:
        """Set lambda = sqrt(32 T ln(2/delta)) / epsilon, w = 2 lambda ln(2 m / delta) (algorithm 3, line 1)."""
        refuse_options(options, cls.mechanism, "vote_change")
        queries = positive_integer("num_queries", num_queries)
        made = cls._printed(epsilon, delta, cutoff, queries, questions=queries)
        return dataclasses.replace(made, vote_change=vote_change)

    @classmethod
    def calibrate_soft(cls, *, epsilon: float, delta: float, cutoff: int, num_queries: int | None = None, **options: Any) -> Self:
        """Set lambda = sqrt(64 T ln(2/delta)) / epsilon, w = 2 lambda ln(4 m / delta), unit budget U = 2 T (algorithm 4, line 1).

        These are the hard-label constants for 2 T refusals among 2 m questions, since a query may ask two.
        """
        refuse_options(options, cls.mechanism)
        queries = positive_integer("num_queries", num_queries)
        return cls._printed(epsilon, delta, 2 * cutoff, queries, questions=2 * queries)

    @classmethod
    def _printed(cls, epsilon: float, delta: float, runs: int, num_queries: int, *, questions: int) -> Self:
        scale = _check_printed(epsilon, delta, runs)
        threshold = math.ceil(2 * float(scale) * math.log(2 * questions / delta))
        made = cls(threshold_scale=scale, query_scale=2 * scale, threshold=threshold, cutoff=runs, num_queries=num_queries)
        if made.epsilon(delta) > epsilon:  # T tau is about T delta / (3 m): it passes delta / 2 beyond T = 1.5 m
            most = math.floor(runs * delta / 2 / made.release_delta)
            raise ArgumentError(f"cutoff must be about {most} or less for {num_queries} queries at the printed w, got {runs}")
        return made


def _expm1(value: float) -> float:
    """Return e^value - 1, or a large number where that would overflow; basic composition is the better bound there."""
    return math.expm1(min(value, 700.0))


def _check_printed(epsilon: float, delta: float, runs: int) -> Fraction:
    """Return the printed lambda, rounded up; refuse it if the theorem does not hold for it."""
    scale = printed_scale(epsilon, delta, runs)
    if scale > LARGEST_SUMMED:
        least = epsilon * scale / LARGEST_SUMMED
        raise ArgumentError(f"epsilon must be at least {least:.2g} at cutoff {runs} and this delta, got {epsilon:g}")
    rounded = round_up(scale)
    eps0 = 2 / float(rounded)
    if runs * eps0 * math.expm1(eps0) > epsilon / 2 and runs * eps0 > epsilon:
        raise ArgumentError(
            f"epsilon must be at most {_largest_printed_epsilon(delta, runs):.4g} for the printed constants to hold "
            f"(T eps0 (e^eps0 - 1) <= epsilon / 2), got {epsilon:g} with T = {runs}; stability has no such limit"
        )
    return rounded


def printed_scale(epsilon: float, delta: float, cutoff: int) -> float:
    """Return the printed lambda = sqrt(32 T ln(2/delta)) / epsilon, before rounding."""
    return math.sqrt(32 * cutoff * math.log(2 / delta)) / epsilon


def _largest_printed_epsilon(delta: float, runs: int) -> float:
    """Solve T eps0 expm1(eps0) = epsilon / 2 for epsilon, where eps0 = c epsilon / sqrt(T) with c = 2 / sqrt(32 ln(2/delta)).

    Basic composition covers any epsilon if T eps0 <= epsilon, that is, if T <= 8 ln(2/delta).
    """
    slope = 2 / printed_scale(1.0, delta, runs)
    return math.log1p(1 / (2 * runs * slope)) / slope
