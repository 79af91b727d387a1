"""Specs of noisy sums, and their costs: one Gaussian on every vote count of a query, or on sums of bounded scores.

**Noisy fractions.** One record moves one teacher, and so one vote of each query: at most one count goes up by 1 and one down by
1. A GNMax answer is the argmax of the same noisy counts and is paid for as if all of them had been published (`noisy_max`), so
publishing them costs no more: mu^2 = 2 mu1(scale)^2 for an answered query, exact and adaptive (`gaussian`). A student gains how
sure the teachers were, on every query, without a threshold.

**Few votes of each teacher.** If a teacher votes on at most B of the queries and abstains on all others, one record moves at most
its teacher's B votes before and B votes after: 2 B counts by one each, whichever B queries it chose, and however it chose them
from its own shard. The counts of a round are one vector, fixed before any noise is drawn, so their joint law is that of 2 B
shifted counts beside unshifted ones: mu^2 = 2 B mu1(scale)^2. Rounds that depend on earlier answers compose adaptively, as the
queries did. A teacher withholds its votes on points unlike all that it has seen, so the noise falls by sqrt(T / B) for T queries
and the signal hardly. The price: B must be enforced *before* counts are summed, because a count does not show whose votes it has.

**Noisy scores.** A vote says which class; a score says how much. In a round of queries every teacher has one vector of integers,
a number for each class of each query, whose squares add up to at most S = steps^2 for every number. The vectors of all rounds
together have squares of at most `squared_norm`. One record moves one teacher: a becomes b, and
|a - b|^2 <= (|a| + |b|)^2 <= 4 squared_norm.

*A discrete Gaussian that is shifted by j costs j mu1.* Let P_i be its law shifted by i. `gaussian` proves that telling P_0 from
P_1 is as hard as telling N(0, 1) from N(mu1, 1): every test phi has E_1 phi <= Phi(Phi^-1(E_0 phi) + mu1). The same holds for P_i
and P_(i+1), and in the other direction by symmetry, so j steps give E_j phi <= Phi(Phi^-1(E_0 phi) + j mu1) (group privacy: Dong,
Roth, Su 2022, theorem 2.14). Sums get independent noise, so a round in which they move by j_1, j_2, ... costs
mu^2 = mu1^2 (j_1^2 + j_2^2 + ...) (their corollary 3.3). Rounds that depend on earlier answers compose in the same way, because
each round's S is fixed before the first. Together mu^2 = 4 squared_norm mu1(scale)^2, whatever the teachers are.

**Votes and scores that are only added or withdrawn.** If every voter is itself protected, nothing replaces its words: one count
of an answer moves instead of two, B counts instead of 2 B, and |a|^2 <= squared_norm takes the place of |a - b|^2.

The bound must be enforced on each teacher's vector *before* vectors are summed (`aggregation.scores.add_scores` does), and a
round must be answered whole or not at all: a vector may have all its length where the answers are
(`aggregation.scores.ScoreSession`).
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any, ClassVar, Self

from teacher_student.arguments import positive_integer
from teacher_student.privacy.gaussian import discrete_gaussian_mu, mu_from_squares
from teacher_student.privacy.paid_answers import LARGEST_QUERIES, GaussianCost, OneScale
from teacher_student.privacy.parameters import REPLACED, WITHDRAWN, Draw, VoteSpec
from teacher_student.privacy.registry import register

LARGEST_CLASSES = 1_000_000

STEPS = 64
"""Default number of integer steps into which the largest root mean square of a teacher's scores is divided."""

LARGEST_SQUARED_NORM = 1 << 53
"""Largest squared norm of a teacher's scores: what a double holds exactly."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisySums(GaussianCost, OneScale, VoteSpec):
    """Sums plus discrete Gaussian noise, one for each class of a query.

    Attributes:
        num_classes: sums of a query; each gets noise of sigma `scale`.
    """

    vote_changes: ClassVar[tuple[str, ...]] = (REPLACED, WITHDRAWN)

    num_classes: int

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer("num_classes", self.num_classes, maximum=LARGEST_CLASSES)

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Noise on each sum."""
        return (Draw("discrete_gaussian", self.scale, "count"),)

    @classmethod
    def audit_options(cls, cutoff: int, num_queries: int | None, **options: Any) -> dict[str, Any]:
        """Add sessions of `cutoff` answers about three classes."""
        return {"num_classes": 3, **super().audit_options(cutoff, num_queries, **options)}

    @property
    @abstractmethod
    def squared_sensitivity(self) -> int:
        """Largest squared distance by which one record can move all released sums of a session."""

    @property
    def mu(self) -> float:
        """The sensitivity times the mu of a sum that moves by one."""
        return mu_from_squares(self.squared_sensitivity * discrete_gaussian_mu(self.scale) ** 2)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyFraction(NoisySums):
    """Noisy vote counts, for at most `max_answers` queries.

    Attributes:
        votes_per_teacher: largest number of queries on which one teacher votes in the whole session; None for all of them.
    """

    mechanism: ClassVar[str] = "noisy_fraction"
    releases: ClassVar[str] = "counts"

    votes_per_teacher: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.votes_per_teacher is not None:
            positive_integer("votes_per_teacher", self.votes_per_teacher, maximum=LARGEST_QUERIES)

    @classmethod
    def audit_options(cls, cutoff: int, num_queries: int | None, **options: Any) -> dict[str, Any]:
        """Add more answers than a teacher has votes, where votes are capped."""
        votes = options.get("votes_per_teacher") or 0
        return super().audit_options(cutoff + 2 * int(votes), num_queries, **options)

    def mutants(self) -> dict[str, Self]:
        """Add the noise of an accountant that pays for the votes before a change but not for those after it: B, not 2 B."""
        capped = {"pays_for_votes_before_only": self.rescaled(scale=0.5**0.5)}
        both = self.votes_per_teacher is not None and self.vote_change == REPLACED
        return {**super().mutants(), **(capped if both else {})}

    @property
    def squared_sensitivity(self) -> int:
        """Two counts of each answer move by one, 2 B counts at most; one and B if votes are only added or withdrawn."""
        moved = min(self.moved_counts, self.num_classes) * self.max_answers
        return moved if self.votes_per_teacher is None else min(moved, self.moved_counts * self.votes_per_teacher)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyScores(NoisySums):
    """Noisy sums of integer scores, for at most `max_answers` queries.

    Attributes:
        steps: largest root mean square of the integers that one teacher gives in a round.
    """

    mechanism: ClassVar[str] = "noisy_scores"
    releases: ClassVar[str] = "scores"

    steps: int = STEPS

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer("steps", self.steps, maximum=LARGEST_CLASSES)
        positive_integer("squared_norm", self.squared_norm, maximum=LARGEST_SQUARED_NORM)

    @property
    def squared_norm(self) -> int:
        """Largest sum of squares of one teacher's integers over all queries of the session."""
        return self.steps**2 * self.max_answers * self.num_classes

    def mutants(self) -> dict[str, Self]:
        """Add the noise of an accountant that takes |a - b|^2 for |a|^2, or for |a|^2 + |b|^2: 1 or 2 norms instead of 4."""
        short = {"pays_for_1_of_4": self.rescaled(scale=0.5), "pays_for_2_of_4": self.rescaled(scale=0.5**0.5)}
        return {**super().mutants(), **(short if self.vote_change == REPLACED else {})}

    @property
    def squared_sensitivity(self) -> int:
        """A teacher's scores may turn into their opposite, twice their length away, unless they are only added or withdrawn."""
        return self.moved_counts**2 * self.squared_norm
