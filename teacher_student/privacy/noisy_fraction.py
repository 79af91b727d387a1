"""The noisy fraction: one Gaussian on every vote count of a query. Its parameters, which own the cost.

One record moves one teacher, and so one vote of each query: at most one count goes up by 1 and one down by 1. A GNMax answer is
the argmax of the same noisy counts and is paid for as if all of them had been published (`noisy_max`), so publishing them costs
no more: mu^2 = 2 mu1(scale)^2 for an answered query, exact and adaptive (`gaussian`). What a student gains is how sure the
teachers were, on every query, without a threshold.

Few votes of each teacher. Where a teacher votes on at most B of the queries, and abstains on all others, one record moves at
most its teacher's B votes before and B votes after: 2 B counts by one each, whatever B queries it chose, and however it chose
them from its own shard. The counts of a round are one vector, fixed before any noise is drawn, so their joint law is that of 2 B
shifted counts beside unshifted ones: mu^2 = 2 B mu1(scale)^2, and rounds that depend on earlier answers compose adaptively, as
the queries did. The votes that a teacher withholds are those on points unlike all that it has seen, so that of T queries noise
falls by sqrt(T / B) and the signal hardly. The price: B must be held *before* counts are summed, for no count shows whose it is.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

from teacher_student.arguments import positive_integer
from teacher_student.privacy.gaussian import compose_mu, discrete_gaussian_mu
from teacher_student.privacy.noisy_max import LARGEST_QUERIES, GaussianCost, OneScale
from teacher_student.privacy.parameters import Draw
from teacher_student.privacy.registry import register

LARGEST_CLASSES = 1_000_000


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyFraction(GaussianCost, OneScale):
    """Vote counts plus discrete Gaussian noise, for at most `max_answers` queries.

    Attributes:
        num_classes: counts of a query; each of them gets noise of sigma `scale`.
        votes_per_teacher: queries on which one teacher votes at most, in the whole session; None for all of them.
    """

    mechanism: ClassVar[str] = "noisy_fraction"
    releases: ClassVar[str] = "counts"

    num_classes: int
    votes_per_teacher: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer("num_classes", self.num_classes, maximum=LARGEST_CLASSES)
        if self.votes_per_teacher is not None:
            positive_integer("votes_per_teacher", self.votes_per_teacher, maximum=LARGEST_QUERIES)

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Noise on each count."""
        return (Draw("discrete_gaussian", self.scale, "count"),)

    @classmethod
    def audit_options(cls, cutoff: int, num_queries: int | None, **options: Any) -> dict[str, Any]:
        """Return sessions of `cutoff` answers about three classes; more than a teacher's votes, where those are capped."""
        votes = options.get("votes_per_teacher") or 0
        return {"num_classes": 3, **super().audit_options(cutoff + 2 * int(votes), num_queries, **options)}

    def mutants(self) -> dict[str, Self]:
        """Return also the noise of one who pays for the votes before alone: B counts and not 2 B."""
        capped = {"pays_for_votes_before_only": self.rescaled(scale=0.5**0.5)}
        return {**super().mutants(), **(capped if self.votes_per_teacher is not None else {})}

    @property
    def mu(self) -> float:
        """Every count that one record may move by one: two of each answer (one, where there is but one class)."""
        moved = min(2, self.num_classes) * self.max_answers
        if self.votes_per_teacher is not None:
            moved = min(moved, 2 * self.votes_per_teacher)
        return compose_mu(moved * discrete_gaussian_mu(self.scale) ** 2)
