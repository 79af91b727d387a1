"""Specs of the noisy maxima of PATE, and their costs.

One record moves one teacher, and so one vote of each query: at most one count goes up by 1 and one down by 1. Every answer costs
something, however clear the vote, and the session halts at a cap on answers that is fixed beforehand.

| mechanism | answer | cost of n answers, whatever the votes |
|---|---|---|
| GNMax | argmax of counts + discrete Gaussian(scale) | mu^2 = 2 n mu1(scale)^2, exact (see `gaussian`) |
| Confident-GNMax | GNMax, if max count + discrete Gaussian >= threshold | that + mu1(threshold_scale)^2 for each query asked |
| LNMax | argmax of counts + discrete Laplace(scale) | 2 n randomised responses of loss 1/scale, exact (see `pure`) |
| exponential | P(class) proportional to exp(count / scale) | n answers whose loss has range 2/scale: Renyi (see `pure`) |

GNMax, Confident-GNMax and LNMax are computed from the noisy counts, two of which move, each by 1. Their cost is therefore that of
the noisy counts. With continuous noise an answer of GNMax would cost mu^2 = 2 / sigma^2; for the discrete noise that is drawn,
mu1 exceeds 1 / sigma by a factor of about 1 + 1 / (24 sigma^2), which must be paid (docs/privacy.md, "The discrete Gaussian").
GNMax and Confident-GNMax: Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson 2018 (arXiv:1802.08908); LNMax: Papernot,
Abadi, Erlingsson, Goodfellow, Talwar 2017; exponential mechanism: McSherry, Talwar 2007.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special

from teacher_student.arguments import ArgumentError, Floats, Integers, positive_integer, probability
from teacher_student.privacy.distributions import discrete_gaussian, discrete_laplace
from teacher_student.privacy.gaussian import discrete_gaussian_mu, gaussian_mu, mu_from_squares
from teacher_student.privacy.paid_answers import (
    LARGEST_QUERIES,
    MARGIN,
    GaussianCost,
    OneScale,
    PaidAnswers,
    PureCost,
    check_answers,
    least_scale,
)
from teacher_student.privacy.parameters import REPLACED, WITHDRAWN, Draw, Expectation, LabelSpec, refuse_options
from teacher_student.privacy.pure import bounded_range_rdp
from teacher_student.privacy.rdp import to_delta, to_epsilon
from teacher_student.privacy.registry import register
from teacher_student.privacy.winning import argmax_law, expected_minimum, win_probability

TEST_SHARE = 0.5
"""Default share of mu^2 that Confident-GNMax spends on testing whether the vote is clear."""

LARGEST_THRESHOLD = 1 << 53
"""Largest threshold: as many votes as can be counted."""

THRESHOLD_SHARE = 0.75
"""Default threshold of Confident-GNMax as a share of the teachers: halfway between a tie of two classes and unanimity."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyMaxParameters(PaidAnswers, LabelSpec):
    """A mechanism that draws a class for every answered query from the votes of that query alone."""

    ratios: ClassVar[tuple[float, ...]] = ()
    vote_changes: ClassVar[tuple[str, ...]] = (REPLACED, WITHDRAWN)

    @property
    def vote_scale(self) -> float:
        """Scale of the noise on a count, in votes."""
        return float(next(draw.scale for draw in self.draws if draw.per == "count"))

    @abstractmethod
    def law(self, counts: Integers) -> Floats:
        """Return the exact probability (C,) of each class for an answered query with these votes (C,).

        The audit compares sessions and the claimed cost with it, unless it has a second implementation of the law.
        """

    @classmethod
    def says_who_wins(cls) -> bool:
        """Whether `vote_noise` or a method of the class itself gives `win_probability`."""
        return cls.vote_noise is not None or cls.win_probability is not NoisyMaxParameters.win_probability

    def win_probability(self, leads: Floats, times: Floats | None = None) -> Floats:
        """Return (rows,) probabilities that an answer is the class that leads other classes by `leads` (rows, n) votes.

        Args:
            leads: votes; may be negative.
            times: (rows, n) number of classes with this lead; None for one each.
        """
        assert self.vote_noise is not None  # `register` saw to it
        return win_probability(self.vote_noise, leads / self.vote_scale, times)

    def passes(self, counts: Floats) -> Floats:
        """Return (rows,) probabilities that a query with these votes (rows, C) is answered."""
        return np.ones(len(counts))

    def wins(self, counts: Floats, times: Floats | None = None) -> Floats:
        """Return (rows, C) probabilities of one class of each column for an answered query."""
        times = np.ones(counts.shape) if times is None else times
        found = np.empty(counts.shape)
        for label in range(counts.shape[1]):
            rivals = times - np.eye(counts.shape[1])[label]
            leads = np.where(rivals > 0, counts[:, [label]] - counts, 0.0)
            kept = (rivals > 0).any(axis=0)
            found[:, label] = self.win_probability(leads[:, kept], np.maximum(rivals, 0)[:, kept])
        return found

    def first_answer(self, counts: Floats, times: Floats | None = None) -> Floats:
        """Return P(answered) times P(the class wins)."""
        return np.asarray(self.passes(counts)[:, np.newaxis] * self.wins(counts, times))

    def expected_labels(self, counts: Floats, weights: Floats, num_queries: int, times: Floats | None = None) -> Expectation:
        """Return the labels expected until the caps on answers and queries are reached."""
        passed = weights * self.passes(counts)
        share = float(passed.sum())
        asked = min(num_queries, self.max_asked)
        answers = float(expected_minimum(self.max_answers, asked, np.array([share]))[0])
        each = answers / max(share, 1e-300) * passed
        return Expectation(answers, each[:, np.newaxis] * self.wins(counts, times))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneScaleMax(OneScale, NoisyMaxParameters):
    """A noisy maximum with one scale, which answers every query with a class."""

    asks_first: ClassVar[bool] = False


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class GNMax(GaussianCost, OneScaleMax):
    """Argmax of counts plus discrete Gaussian noise."""

    mechanism: ClassVar[str] = "gnmax"
    vote_noise: ClassVar[str | None] = "gaussian"

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Noise on each count."""
        return (Draw("discrete_gaussian", self.scale, "count"),)

    def law(self, counts: Integers) -> Floats:
        """Return the law of the argmax, ties to the lowest label."""
        return argmax_law(counts, discrete_gaussian(self.scale))

    @property
    def mu(self) -> float:
        """Each answer moves two of the noisy counts by one, or one where votes are only added or withdrawn."""
        return mu_from_squares(self.moved_counts * self.max_answers * discrete_gaussian_mu(self.scale) ** 2)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfidentGNMax(GaussianCost, NoisyMaxParameters):
    """Argmax of counts plus discrete Gaussian noise, if the largest count plus noise reaches a threshold; else abstain.

    Attributes:
        threshold: votes that the noisy largest count must reach.
        threshold_scale: sigma of the noise on the largest count, which one vote moves by at most 1.
        query_scale: sigma of the noise on each count of an answered query.
        num_queries: queries after which the session halts; every query pays for its test.
    """

    mechanism: ClassVar[str] = "confident_gnmax"
    vote_noise: ClassVar[str | None] = "gaussian"
    asks_first: ClassVar[bool] = True

    threshold: int
    threshold_scale: Fraction
    query_scale: Fraction
    num_queries: int

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer("threshold", self.threshold, minimum=0, maximum=LARGEST_THRESHOLD)
        if positive_integer("num_queries", self.num_queries, maximum=LARGEST_QUERIES) < self.max_answers:
            raise ArgumentError(f"max_answers must be at most num_queries = {self.num_queries}, got {self.max_answers}")

    @property
    def max_asked(self) -> int:
        """Queries after which the session halts."""
        return self.num_queries

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Noise on the largest count, and on each count of an answered query."""
        test = Draw("discrete_gaussian", self.threshold_scale, "query")
        return test, Draw("discrete_gaussian", self.query_scale, "count")

    def passes(self, counts: Floats) -> Floats:
        """Return the probability that the noisy largest count reaches the threshold."""
        return np.asarray(special.ndtr((counts.max(axis=1) - self.threshold) / float(self.threshold_scale)))

    def law(self, counts: Integers) -> Floats:
        """Return the law of the argmax, ties to the lowest label."""
        return argmax_law(counts, discrete_gaussian(self.query_scale))

    @classmethod
    def audit_options(cls, cutoff: int, num_queries: int | None, **options: Any) -> dict[str, Any]:
        """Add sessions of `cutoff` answers, a threshold of 40 votes, and so few tests that a wrong cost of answers shows."""
        return {"threshold": 40, "test_share": 0.25, **super().audit_options(cutoff, num_queries, **options)}

    def mutants(self) -> dict[str, Self]:
        """Add a test with too little noise."""
        return {**super().mutants(), "test_noise_0.7": self.rescaled(threshold_scale=0.7)}

    def with_one_answer_more(self) -> Self:
        """Return parameters that ask and answer once more than these pay for."""
        return dataclasses.replace(self, max_answers=self.max_answers + 1, num_queries=self.num_queries + 1)

    @property
    def mu(self) -> float:
        """One unit-sensitivity Gaussian for each query asked, and one for each count that moves in an answer."""
        tests = self.num_queries * discrete_gaussian_mu(self.threshold_scale) ** 2
        return mu_from_squares(tests, self.moved_counts * self.max_answers * discrete_gaussian_mu(self.query_scale) ** 2)

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        cutoff: int | None = None,
        num_queries: int | None = None,
        max_answers: int | None = None,
        threshold: int | None = None,
        num_teachers: int | None = None,
        test_share: float = TEST_SHARE,
        vote_change: str = REPLACED,
        **options: Any,
    ) -> Self:
        """Return the least scales that ask `num_queries` and answer at most `max_answers`, by default all, within `epsilon`.

        The noisy largest count must reach `threshold` votes, by default three quarters of `num_teachers`. The tests get
        `test_share` of mu^2.
        """
        del cutoff
        refuse_options(options, cls.mechanism, "max_answers", "threshold", "num_teachers", "test_share", "vote_change")
        answers = check_answers(cls.mechanism, max_answers, num_queries)
        asked = answers if num_queries is None else positive_integer("num_queries", num_queries, maximum=LARGEST_QUERIES)
        if threshold is None:
            if num_teachers is None:
                raise ArgumentError("threshold must be given for confident_gnmax (votes wanted behind a class), got None")
            threshold = math.ceil(THRESHOLD_SHARE * positive_integer("num_teachers", num_teachers))
        share, mu = probability("test_share", test_share), gaussian_mu(epsilon, delta) * (1 - MARGIN)
        draft = cls(
            threshold=threshold,
            threshold_scale=Fraction(1),
            query_scale=Fraction(1),
            num_queries=asked,
            max_answers=answers,
            vote_change=vote_change,
        )
        test_mu, answer_mu = mu * math.sqrt(share / asked), mu * math.sqrt((1 - share) / (draft.moved_counts * answers))
        return dataclasses.replace(
            draft,
            threshold_scale=least_scale(lambda scale: discrete_gaussian_mu(scale) <= test_mu),
            query_scale=least_scale(lambda scale: discrete_gaussian_mu(scale) <= answer_mu),
        )


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class LNMax(PureCost, OneScaleMax):
    """Argmax of counts plus discrete Laplace noise."""

    mechanism: ClassVar[str] = "lnmax"
    vote_noise: ClassVar[str | None] = "laplace"

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Noise on each count."""
        return (Draw("discrete_laplace", self.scale, "count"),)

    def law(self, counts: Integers) -> Floats:
        """Return the law of the argmax, ties to the lowest label."""
        return argmax_law(counts, discrete_laplace(self.scale))

    @property
    def pure_parts(self) -> tuple[float, int]:
        """Discrete Laplace noise turns each move of a count by one into a loss of +-1/scale."""
        return 1 / float(self.scale), self.moved_counts * self.max_answers


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Exponential(OneScaleMax):
    """The exponential mechanism: P(class) proportional to exp(count / scale).

    An exact draw takes about exp(1 / scale) rounds, so a scale below 1/4, which only a meaningless epsilon would need, is
    refused.
    """

    mechanism: ClassVar[str] = "exponential"
    vote_noise: ClassVar[str | None] = "gumbel"
    FINEST: ClassVar[Fraction] = Fraction(1, 4)

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Draws for each class, repeated until they decide."""
        return (Draw("discrete_laplace", self.scale, "count", decides=False),)

    def law(self, counts: Integers) -> Floats:
        """Return the softmax of count / scale."""
        return np.asarray(special.softmax(np.asarray(counts, dtype=np.float64) / float(self.scale)))

    @property
    def pure_parts(self) -> tuple[float, int]:
        """Each answer is (moved counts / scale)-DP."""
        return self.moved_counts / float(self.scale), self.max_answers

    def epsilon(self, delta: float) -> float:
        """Return the epsilon certified at `delta`: from the Renyi divergence, or from basic composition if that is less."""
        loss, count = self.pure_parts
        return min(loss * count, to_epsilon(self.rdp, probability("delta", delta)))

    def delta(self, epsilon: float) -> float:
        """Return the delta certified at `epsilon`."""
        loss, count = self.pure_parts
        return 0.0 if epsilon >= loss * count else to_delta(self.rdp, epsilon)

    def rdp(self, orders: Sequence[float] | Floats) -> Floats:
        """Return the Renyi divergence of answers whose loss has range (moved counts) / scale.

        ln P(class) changes by the change of its count over scale, minus a constant that all classes share. The changes of the
        counts lie between -1 and 1 if a vote is replaced, between 0 and 1 if one is added.
        """
        return bounded_range_rdp(*self.pure_parts, orders)
