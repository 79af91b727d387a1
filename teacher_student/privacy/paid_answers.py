"""Bases for mechanisms that pay for every answer: their cap, their calibration, and how the costs of answers compose."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, Self

from teacher_student.arguments import ArgumentError, positive_integer, positive_number, probability
from teacher_student.privacy.gaussian import gaussian_delta, gaussian_epsilon
from teacher_student.privacy.parameters import GRID, Limit, MechanismSpec, check_scale, refuse_options, smallest_scale
from teacher_student.privacy.pure import pure_delta, pure_epsilon

MARGIN = 1e-9
"""Calibration aims this much below the request, so that recomputing the cost in double arithmetic never lands above it."""

LARGEST_QUERIES = 10_000_000
"""Largest cap on answers and on queries whose cost is computed (see `pure`)."""

_LARGEST = 10**9


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaidAnswers(MechanismSpec):
    """A mechanism that pays for every answer.

    Attributes:
        max_answers: answers after which the session halts.
    """

    pays_for: ClassVar[str] = "answers"
    soft_labels: ClassVar[bool] = False

    max_answers: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self._scales():
            object.__setattr__(self, name, check_scale(name, getattr(self, name)))
        positive_integer("max_answers", self.max_answers, maximum=LARGEST_QUERIES)

    @classmethod
    def _scales(cls) -> list[str]:
        return [field.name for field in dataclasses.fields(cls) if field.name.endswith("scale")]

    @property
    def max_asked(self) -> int:
        """Queries after which the session halts."""
        return self.max_answers

    @property
    def limit(self) -> Limit:
        """The answers after which the session halts."""
        return Limit("max_answers", self.max_answers, "answer")

    @classmethod
    def audit_options(cls, cutoff: int, num_queries: int | None, **options: Any) -> dict[str, Any]:
        """Add sessions of `cutoff` answers."""
        queries = cutoff if num_queries is None else num_queries
        return {"num_queries": queries, "max_answers": min(cutoff, queries), **options}

    def mutants(self) -> dict[str, Self]:
        """Return specs with wrong scales, and one that gives one answer more than is paid for."""
        wrong = {"noise_halved": 0.5, "scale_0.7": 0.7, "scale_1.3": 1.3}
        found = {name: self.rescaled(**dict.fromkeys(self._scales(), factor)) for name, factor in wrong.items()}
        return {**found, "one_answer_more": self.with_one_answer_more()}

    def with_one_answer_more(self) -> Self:
        """Return parameters that answer once more than these pay for."""
        return dataclasses.replace(self, max_answers=self.max_answers + 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneScale(PaidAnswers):
    """A mechanism with one scale that answers every query it is asked.

    Attributes:
        scale: of the noise on each count (for `gnmax` its sigma).
    """

    FINEST: ClassVar[Fraction] = Fraction(1, GRID)
    """Smallest scale; larger where exact draws at smaller ones would take too long."""

    scale: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale < self.FINEST:
            raise ArgumentError(f"scale must be at least {self.FINEST} for {self.mechanism}, got {self.scale}")

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        cutoff: int | None = None,
        num_queries: int | None = None,
        max_answers: int | None = None,
        num_teachers: int | None = None,
        **fields: Any,
    ) -> Self:
        """Return the least scale at which `max_answers` answers, by default to all queries, cost `epsilon` at `delta`.

        Other fields of the class are options; those with a default may be left out.
        """
        del cutoff, num_teachers
        own = {field.name: field.default for field in dataclasses.fields(cls) if field.name not in ("scale", "max_answers")}
        unknown = {name: value for name, value in fields.items() if name not in own}
        refuse_options(unknown, cls.mechanism, "max_answers", "num_teachers", *own)
        for name, default in own.items():
            if fields.get(name) is None and default is dataclasses.MISSING:
                raise ArgumentError(f"{name} must be given for {cls.mechanism}, got None")
        answers = check_answers(cls.mechanism, max_answers, num_queries)
        aim = positive_number("epsilon", epsilon) * (1 - MARGIN)
        share = probability("delta", delta)

        def suffices(scale: Fraction) -> bool:
            return scale >= cls.FINEST and cls(max_answers=answers, scale=scale, **fields).delta(aim) <= share

        return cls(max_answers=answers, scale=least_scale(suffices), **fields)


class GaussianCost(MechanismSpec):
    """The cost of whatever is computed from discrete Gaussian answers: exact at every delta, from `mu` alone."""

    @property
    @abstractmethod
    def mu(self) -> float:
        """The mu of Gaussian differential privacy of a whole session."""

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon certified at `delta`."""
        return gaussian_epsilon(self.mu, probability("delta", delta))

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta certified at `epsilon`."""
        return gaussian_delta(self.mu, epsilon)


class PureCost(MechanismSpec):
    """The cost of adaptive pure answers, composed optimally, from `pure_parts` alone."""

    @property
    @abstractmethod
    def pure_parts(self) -> tuple[float, int]:
        """(loss, n): the session is at most n adaptive answers, each loss-DP."""

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon certified at `delta`."""
        return pure_epsilon(*self.pure_parts, probability("delta", delta))

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta certified at `epsilon`."""
        return pure_delta(*self.pure_parts, epsilon)


def least_scale(suffices: Callable[[Fraction], bool]) -> Fraction:
    """Return the smallest dyadic scale that suffices, as every larger one must.

    Raises:
        ArgumentError: there is none up to 1e9.
    """
    scale = smallest_scale(suffices, _LARGEST)
    if scale is None:
        raise ArgumentError(f"epsilon must be within reach of noise of scale {_LARGEST:.0e}, got a request that is not")
    return scale


def check_answers(mechanism: str, max_answers: int | None, num_queries: int | None) -> int:
    """Return the cap on answers: `max_answers`, or else `num_queries`."""
    if max_answers is None and num_queries is None:
        raise ArgumentError(f"max_answers (or num_queries) must be given for {mechanism}: it pays for every answer, got None")
    if max_answers is None:
        return positive_integer("num_queries", num_queries, maximum=LARGEST_QUERIES)
    return positive_integer("max_answers", max_answers, maximum=min(num_queries or LARGEST_QUERIES, LARGEST_QUERIES))
