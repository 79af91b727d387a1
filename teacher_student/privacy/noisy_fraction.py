"""The noisy fraction: one Gaussian on every vote count of a query. Its parameters, which own the cost.

One record moves one teacher, and so one vote of each query: at most one count goes up by 1 and one down by 1. A GNMax answer is
the argmax of the same noisy counts and is paid for as if all of them had been published (`noisy_max`), so publishing them costs
no more: mu^2 = 2 mu1(scale)^2 for an answered query, exact and adaptive (`gaussian`). What a student gains is how sure the
teachers were, on every query, without a threshold.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any, ClassVar, Self

from teacher_student.arguments import ArgumentError, positive_integer
from teacher_student.privacy.gaussian import compose_mu, discrete_gaussian_mu, gaussian_mu
from teacher_student.privacy.noisy_max import LARGEST_QUERIES, GaussianCost, least_scale, refuse_options
from teacher_student.privacy.parameters import check_scale

_MARGIN = 1e-9
"""Calibration aims this much below the request, so that recomputing it in double arithmetic never lands above."""

LARGEST_CLASSES = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyFraction(GaussianCost):
    """Vote counts plus discrete Gaussian noise, for at most `max_answers` queries.

    Attributes:
        num_classes: counts of a query.
        scale: sigma of the noise on each count.
    """

    mechanism: ClassVar[str] = "noisy_fraction"

    num_classes: int
    scale: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_scale("scale", self.scale))
        positive_integer("num_classes", self.num_classes, maximum=LARGEST_CLASSES)
        positive_integer("max_answers", self.max_answers, maximum=LARGEST_QUERIES)

    @property
    def mu(self) -> float:
        """Each answer holds two counts that moved by one (one, where there is but one class)."""
        moved = min(2, self.num_classes)
        return compose_mu(moved * self.max_answers * discrete_gaussian_mu(self.scale) ** 2)

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        cutoff: int | None = None,
        num_queries: int | None = None,
        num_classes: int | None = None,
        max_answers: int | None = None,
        **options: Any,
    ) -> Self:
        """Return the least scale at which `max_answers` (by default `num_queries`) answers cost at most `epsilon`.

        Args:
            epsilon: above 0.
            delta: between 0 and 1.
            cutoff: not used.
            num_queries: queries that may be asked.
            num_classes: counts of a query.
            max_answers: queries that may be answered.
            options: none.
        """
        del cutoff
        refuse_options(options, cls.mechanism, "num_classes", "max_answers")
        answers = positive_integer("num_queries", num_queries if max_answers is None else max_answers, maximum=LARGEST_QUERIES)
        if num_classes is None:
            raise ArgumentError("num_classes must be given for noisy_fraction, got None")
        parts = answers * min(2, positive_integer("num_classes", num_classes, maximum=LARGEST_CLASSES))
        share = gaussian_mu(epsilon, delta) * (1 - _MARGIN) / parts**0.5
        scale = least_scale(lambda scale: discrete_gaussian_mu(scale) <= share)
        return cls(max_answers=answers, num_classes=num_classes, scale=scale)
