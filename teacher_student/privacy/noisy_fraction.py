"""The noisy fraction: one Gaussian on every vote count of a query. Its parameters, which own the cost.

One record moves one teacher, and so one vote of each query: at most one count goes up by 1 and one down by 1. A GNMax answer is
the argmax of the same noisy counts and is paid for as if all of them had been published (`noisy_max`), so publishing them costs
no more: mu^2 = 2 mu1(scale)^2 for an answered query, exact and adaptive (`gaussian`). What a student gains is how sure the
teachers were, on every query, without a threshold.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from teacher_student.arguments import positive_integer
from teacher_student.privacy.gaussian import compose_mu, discrete_gaussian_mu
from teacher_student.privacy.noisy_max import GaussianCost, OneScale

LARGEST_CLASSES = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyFraction(GaussianCost, OneScale):
    """Vote counts plus discrete Gaussian noise, for at most `max_answers` queries.

    Attributes:
        num_classes: counts of a query; each of them gets noise of sigma `scale`.
    """

    mechanism: ClassVar[str] = "noisy_fraction"

    num_classes: int

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer("num_classes", self.num_classes, maximum=LARGEST_CLASSES)

    @property
    def mu(self) -> float:
        """Each answer holds two counts that moved by one (one, where there is but one class)."""
        moved = min(2, self.num_classes)
        return compose_mu(moved * self.max_answers * discrete_gaussian_mu(self.scale) ** 2)
