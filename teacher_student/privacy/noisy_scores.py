"""Noisy scores: one Gaussian on sums of bounded score vectors. Its parameters, which own the cost.

A vote says which class; a score says how much. In a round of questions every teacher has one vector of integers, a number for
each class of each query, whose squares add up to at most S = steps^2 for every number. The vectors of all rounds together have
squares of at most `squared_norm`. One record moves one teacher: a becomes b, and |a - b|^2 <= (|a| + |b|)^2 <= 4 squared_norm.

**A discrete Gaussian that is shifted by j costs j mu1.** Let P_i be its law shifted by i. `gaussian` proves that telling P_0 from
P_1 is as hard as telling N(0, 1) from N(mu1, 1): every test phi has E_1 phi <= Phi(Phi^-1(E_0 phi) + mu1). The same holds for P_i
and P_(i+1), and in the other direction by symmetry, so j steps give E_j phi <= Phi(Phi^-1(E_0 phi) + j mu1) (group privacy: Dong,
Roth, Su 2022, theorem 2.14). Sums get independent noise, so a round in which they move by j_1, j_2, ... costs
mu^2 = mu1^2 (j_1^2 + j_2^2 + ...) (their corollary 3.3), and rounds that depend on earlier answers compose alike, each round's S
being fixed before the first. Together mu^2 = 4 squared_norm mu1(scale)^2, whatever the teachers are.

The bound must be held on each teacher's vector *before* vectors are summed (`aggregation.scores.add_scores` does), and a round
must be answered whole, or not at all: a vector may have all its length where the answers are (`aggregation.scores.ScoreSession`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

from teacher_student.arguments import positive_integer
from teacher_student.privacy.gaussian import compose_mu, discrete_gaussian_mu
from teacher_student.privacy.noisy_fraction import LARGEST_CLASSES
from teacher_student.privacy.noisy_max import GaussianCost, OneScale
from teacher_student.privacy.parameters import Draw
from teacher_student.privacy.registry import register

STEPS = 64
"""Integer steps into which the root mean square is divided that a teacher's scores have at most."""

LARGEST_SQUARED_NORM = 1 << 53
"""Of a teacher's scores: what a double holds exactly."""


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyScores(GaussianCost, OneScale):
    """Sums of integer scores plus discrete Gaussian noise, for at most `max_answers` queries.

    Attributes:
        num_classes: sums of a query; each of them gets noise of sigma `scale`.
        steps: root mean square of the integers that one teacher gives in a round, at most.
    """

    mechanism: ClassVar[str] = "noisy_scores"
    releases: ClassVar[str] = "scores"

    num_classes: int
    steps: int = STEPS

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer("num_classes", self.num_classes, maximum=LARGEST_CLASSES)
        positive_integer("steps", self.steps, maximum=LARGEST_CLASSES)
        positive_integer("squared_norm", self.squared_norm, maximum=LARGEST_SQUARED_NORM)

    @property
    def squared_norm(self) -> int:
        """What the squares of one teacher's integers add up to at most, over all queries of the session."""
        return self.steps**2 * self.max_answers * self.num_classes

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Noise on each sum."""
        return (Draw("discrete_gaussian", self.scale, "count"),)

    @classmethod
    def audit_options(cls, cutoff: int, num_queries: int | None, **options: Any) -> dict[str, Any]:
        """Return sessions of `cutoff` answers about three classes."""
        return {"num_classes": 3, **super().audit_options(cutoff, num_queries, **options)}

    def mutants(self) -> dict[str, Self]:
        """Return also the noise of one who takes |a - b|^2 for |a|^2, or for |a|^2 + |b|^2: 1 or 2 norms in place of 4."""
        short = {"pays_for_1_of_4": self.rescaled(scale=0.5), "pays_for_2_of_4": self.rescaled(scale=0.5**0.5)}
        return {**super().mutants(), **short}

    @property
    def mu(self) -> float:
        """A teacher's scores may turn into their opposite, twice their length away."""
        return compose_mu(4 * self.squared_norm * discrete_gaussian_mu(self.scale) ** 2)
