"""The mechanisms of the field: a noisy maximum of the votes. Their parameters, which own the cost.

One record moves one teacher, and so one vote of each query: at most one count goes up by 1 and one down by 1. Every answered
query costs something here, however clear the vote; the session halts at a cap on the answers that is fixed beforehand.

| mechanism | answer | cost of n answers, whatever the votes |
|---|---|---|
| GNMax | argmax of counts + discrete Gaussian(scale) | mu^2 = 2 n mu1(scale)^2, exact (see `gaussian`) |
| Confident-GNMax | GNMax, if max count + discrete Gaussian >= threshold | that + mu1(threshold_scale)^2 for each query asked |
| LNMax | argmax of counts + discrete Laplace(scale) | 2 n randomised responses of loss 1/scale, exact (see `pure`) |
| exponential | P(class) proportional to exp(count / scale) | n answers whose loss has range 2/scale: Renyi (see `pure`) |

GNMax, Confident-GNMax and LNMax are computed from the noisy counts, two of which move, each by 1. So their cost is that of the
noisy counts. For continuous noise an answer of GNMax would cost mu^2 = 2 / sigma^2; for the discrete noise that is drawn, mu1 is
larger than 1 / sigma by a factor of about 1 + 1 / (24 sigma^2), which must be paid (docs/privacy.md, "The discrete Gaussian").
GNMax and Confident-GNMax: Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson 2018 (arXiv:1802.08908); LNMax: Papernot,
Abadi, Erlingsson, Goodfellow, Talwar 2017; exponential mechanism: McSherry, Talwar 2007.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special

from teacher_student.arguments import ArgumentError, Floats, Integers, positive_integer, positive_number, probability
from teacher_student.privacy.distributions import discrete_gaussian, discrete_laplace
from teacher_student.privacy.gaussian import compose_mu, discrete_gaussian_mu, gaussian_delta, gaussian_epsilon, gaussian_mu
from teacher_student.privacy.kappa import to_delta, to_epsilon
from teacher_student.privacy.parameters import (
    GRID,
    Draw,
    Expectation,
    LabelSpec,
    Limit,
    MechanismSpec,
    check_scale,
    smallest_scale,
)
from teacher_student.privacy.pure import bounded_range_rdp, pure_delta, pure_epsilon, pure_rdp
from teacher_student.privacy.registry import register
from teacher_student.privacy.winning import argmax_law, expected_minimum, win_probability

TEST_SHARE = 0.5
"""Share of mu^2 that Confident-GNMax spends on asking whether the vote is clear."""

_MARGIN = 1e-9
"""Calibration aims this much below the request, so that recomputing it in double arithmetic never lands above."""

_LARGEST = 10**9

LARGEST_QUERIES = 10_000_000
"""Most answers of a session, and most queries asked; what more of them cost is not computed (see `pure`)."""

LARGEST_THRESHOLD = 1 << 53
"""Largest number of votes that can be wanted: as many as can be counted."""

THRESHOLD_SHARE = 0.75
"""Share of the teachers that Confident-GNMax wants behind a class, where nothing else is said: half-way from a tie of two."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaidAnswers(MechanismSpec):
    """A mechanism that pays for every answer, asked until `max_answers` are given.

    Attributes:
        max_answers: answers after which the session halts.
    """

    pays_for: ClassVar[str] = "answers"
    soft_labels: ClassVar[bool] = False

    max_answers: int

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name.endswith("scale"):
                object.__setattr__(self, field.name, check_scale(field.name, getattr(self, field.name)))
        positive_integer("max_answers", self.max_answers, maximum=LARGEST_QUERIES)

    @property
    def max_asked(self) -> int:
        """Queries after which the session halts."""
        return self.max_answers

    @property
    def limit(self) -> Limit:
        """Answers that are paid."""
        return Limit("max_answers", self.max_answers, "answer")

    @classmethod
    def audit_options(cls, cutoff: int, num_queries: int | None, **options: Any) -> dict[str, Any]:
        """Return sessions of `cutoff` answers."""
        queries = cutoff if num_queries is None else num_queries
        return {"num_queries": queries, "max_answers": min(cutoff, queries), **options}

    def mutants(self) -> dict[str, Self]:
        """Return wrong scales, and one answer more than is paid."""
        scales = [field.name for field in dataclasses.fields(self) if field.name.endswith("scale")]
        wrong = {"noise_halved": 0.5, "scale_0.7": 0.7, "scale_1.3": 1.3}
        found = {name: self.rescaled(**dict.fromkeys(scales, factor)) for name, factor in wrong.items()}
        return {**found, "one_answer_more": self.with_one_answer_more()}

    def with_one_answer_more(self) -> Self:
        """Return parameters that answer once more than these pay for."""
        return dataclasses.replace(self, max_answers=self.max_answers + 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyMaxParameters(PaidAnswers, LabelSpec):
    """A class for every answered query, drawn afresh from the votes of that query alone."""

    ratios: ClassVar[tuple[float, ...]] = ()

    @property
    def vote_scale(self) -> float:
        """Scale of the noise that decides which class wins, in votes."""
        return float(next(draw.scale for draw in self.draws if draw.per == "count"))

    @abstractmethod
    def law(self, counts: Integers) -> Floats:
        """Return the exact probability of each class for an answered query with these votes (C,), shape (C,).

        The audit compares sessions and the claimed cost with it, unless it has written the law down a second time itself.
        """

    @classmethod
    def says_who_wins(cls) -> bool:
        """Whether planners can tell who wins: by the law of the noise on a count, or by a method of its own."""
        return cls.vote_noise is not None or cls.win_probability is not NoisyMaxParameters.win_probability

    def win_probability(self, leads: Floats, times: Floats | None = None) -> Floats:
        """Return (rows,) probabilities that an answer is the class that leads others by `leads` (rows, n) votes.

        Args:
            leads: may be negative.
            times: (rows, n) number of classes with this lead; None for one each.
        """
        assert self.vote_noise is not None  # `register` saw to it
        return win_probability(self.vote_noise, leads / self.vote_scale, times)

    def passes(self, counts: Floats) -> Floats:
        """Return (rows,) probabilities that a query with these votes (rows, C) is answered, not abstained from."""
        return np.ones(len(counts))

    def wins(self, counts: Floats, times: Floats | None = None) -> Floats:
        """Return (rows, C) probabilities of one class of each column, given that the query is answered."""
        times = np.ones(counts.shape) if times is None else times
        found = np.empty(counts.shape)
        for label in range(counts.shape[1]):
            rivals = times - np.eye(counts.shape[1])[label]
            leads = np.where(rivals > 0, counts[:, [label]] - counts, 0.0)
            kept = (rivals > 0).any(axis=0)
            found[:, label] = self.win_probability(leads[:, kept], np.maximum(rivals, 0)[:, kept])
        return found

    def first_answer(self, counts: Floats, times: Floats | None = None) -> Floats:
        """Return the probabilities of the classes: the query is answered, and the class wins."""
        return np.asarray(self.passes(counts)[:, np.newaxis] * self.wins(counts, times))

    def expected_labels(self, counts: Floats, weights: Floats, num_queries: int, times: Floats | None = None) -> Expectation:
        """Return the labels until the caps on answers and on queries are reached."""
        passed = weights * self.passes(counts)
        share = float(passed.sum())
        asked = min(num_queries, self.max_asked)
        answers = float(expected_minimum(self.max_answers, asked, np.array([share]))[0])
        each = answers / max(share, 1e-300) * passed
        return Expectation(answers, each[:, np.newaxis] * self.wins(counts, times))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneScale(PaidAnswers):
    """A mechanism with one scale, which answers whatever it is asked.

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
        """Return the least scale at which `max_answers` (by default `num_queries`) answers cost at most `epsilon`.

        Args:
            epsilon: above 0.
            delta: between 0 and 1.
            cutoff: not used.
            num_queries: queries that may be asked.
            max_answers: queries that may be answered.
            num_teachers: not used.
            fields: what the class has beside `scale` and `max_answers`; those with a default may be left out.
        """
        del cutoff, num_teachers
        own = {field.name: field.default for field in dataclasses.fields(cls) if field.name not in ("scale", "max_answers")}
        unknown = {name: value for name, value in fields.items() if name not in own}
        refuse_options(unknown, cls.mechanism, "max_answers", "num_teachers", *own)
        for name, default in own.items():
            if fields.get(name) is None and default is dataclasses.MISSING:
                raise ArgumentError(f"{name} must be given for {cls.mechanism}, got None")
        answers = _answers(cls.mechanism, max_answers, num_queries)
        aim = positive_number("epsilon", epsilon) * (1 - _MARGIN)
        share = probability("delta", delta)

        def suffices(scale: Fraction) -> bool:
            return scale >= cls.FINEST and cls(max_answers=answers, scale=scale, **fields).delta(aim) <= share

        return cls(max_answers=answers, scale=least_scale(suffices), **fields)


class GaussianCost(MechanismSpec):
    """The cost of whatever is computed from discrete Gaussian answers: exact at every delta, by its mu alone."""

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

    def rdp(self, orders: Sequence[float] | Floats) -> Floats:
        """Return order * mu^2 / 2: what is mu-GDP has at most the Renyi divergence of that Gaussian."""
        return np.asarray(np.asarray(orders, dtype=np.float64) * self.mu**2 / 2)


class PureCost(MechanismSpec):
    """The cost of adaptive answers, each pure, composed optimally: by `pure_parts` alone."""

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

    def rdp(self, orders: Sequence[float] | Floats) -> Floats:
        """Return the Renyi divergence of so many randomised responses."""
        return pure_rdp(*self.pure_parts, orders)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneScaleMax(OneScale, NoisyMaxParameters):
    """A class for every query that is asked, by noise of one scale."""

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
        """Each answer moves two of the noisy counts by one."""
        return compose_mu(2 * self.max_answers * discrete_gaussian_mu(self.scale) ** 2)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfidentGNMax(GaussianCost, NoisyMaxParameters):
    """Argmax of counts plus discrete Gaussian noise, where the largest count plus noise reaches a threshold; else abstain.

    Attributes:
        threshold: votes that the noisy largest count must reach.
        threshold_scale: sigma of the noise on the largest count, which one vote moves by at most 1.
        query_scale: sigma of the noise on each count of an answered query.
        num_queries: queries after which the session halts; each pays for its test, answered or not.
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
        """Return sessions of `cutoff` answers, whose test wants 40 votes."""
        return {"threshold": 40, **super().audit_options(cutoff, num_queries, **options)}

    def mutants(self) -> dict[str, Self]:
        """Return those of every paid answer, and a test with too little noise."""
        return {**super().mutants(), "test_noise_0.7": self.rescaled(threshold_scale=0.7)}

    def with_one_answer_more(self) -> Self:
        """Return parameters that ask and answer once more than these pay for."""
        return dataclasses.replace(self, max_answers=self.max_answers + 1, num_queries=self.num_queries + 1)

    @property
    def mu(self) -> float:
        """One unit-sensitivity Gaussian for each query asked, two for each answer."""
        tests = self.num_queries * discrete_gaussian_mu(self.threshold_scale) ** 2
        return compose_mu(tests, 2 * self.max_answers * discrete_gaussian_mu(self.query_scale) ** 2)

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
        **options: Any,
    ) -> Self:
        """Return the least scales that ask `num_queries` and answer at most `max_answers` within `epsilon`.

        Args:
            epsilon: above 0.
            delta: between 0 and 1.
            cutoff: not used.
            num_queries: queries that may be asked.
            max_answers: queries that may be answered; by default all that are asked.
            threshold: votes wanted; by default three quarters of `num_teachers`.
            num_teachers: only for that default.
            test_share: share of mu^2 for the tests.
            options: none.
        """
        del cutoff
        refuse_options(options, cls.mechanism, "max_answers", "threshold", "num_teachers", "test_share")
        answers = _answers(cls.mechanism, max_answers, num_queries)
        asked = answers if num_queries is None else positive_integer("num_queries", num_queries, maximum=LARGEST_QUERIES)
        if threshold is None:
            if num_teachers is None:
                raise ArgumentError("threshold must be given for confident_gnmax (votes wanted behind a class), got None")
            threshold = math.ceil(THRESHOLD_SHARE * positive_integer("num_teachers", num_teachers))
        share, mu = probability("test_share", test_share), gaussian_mu(epsilon, delta) * (1 - _MARGIN)
        test_mu, answer_mu = mu * math.sqrt(share / asked), mu * math.sqrt((1 - share) / (2 * answers))
        return cls(
            threshold=threshold,
            threshold_scale=least_scale(lambda scale: discrete_gaussian_mu(scale) <= test_mu),
            query_scale=least_scale(lambda scale: discrete_gaussian_mu(scale) <= answer_mu),
            num_queries=asked,
            max_answers=answers,
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
        """Each answer moves two of the noisy counts by one, and discrete Laplace noise turns that into a loss of +-1/scale."""
        return 1 / float(self.scale), 2 * self.max_answers


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Exponential(OneScaleMax):
    """The exponential mechanism: P(class) proportional to exp(count / scale).

    Its exact draws take some exp(1 / scale) rounds, so that a scale below 1/4, which no epsilon of any meaning wants, is refused.
    """

    mechanism: ClassVar[str] = "exponential"
    vote_noise: ClassVar[str | None] = "gumbel"
    FINEST: ClassVar[Fraction] = Fraction(1, 4)

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Draws for each class, again and again until they decide."""
        return (Draw("discrete_laplace", self.scale, "count", decides=False),)

    def law(self, counts: Integers) -> Floats:
        """Return weights exp(count / scale), normalised."""
        return np.asarray(special.softmax(np.asarray(counts, dtype=np.float64) / float(self.scale)))

    @property
    def pure_parts(self) -> tuple[float, int]:
        """Each answer is (2 / scale)-DP."""
        return 2 / float(self.scale), self.max_answers

    def epsilon(self, delta: float) -> float:
        """Return the epsilon certified at `delta`: by the Renyi divergence, or by plain composition where that is less."""
        loss, count = self.pure_parts
        return min(loss * count, to_epsilon(self.rdp, probability("delta", delta)))

    def delta(self, epsilon: float) -> float:
        """Return the delta certified at `epsilon`."""
        loss, count = self.pure_parts
        return 0.0 if epsilon >= loss * count else to_delta(self.rdp, epsilon)

    def rdp(self, orders: Sequence[float] | Floats) -> Floats:
        """Return the Renyi divergence of answers whose loss has range 2 / scale.

        One vote moved changes ln P(class) by count changes / scale, from -1/scale to 1/scale, minus one constant for all classes.
        """
        return bounded_range_rdp(*self.pure_parts, orders)


def least_scale(suffices: Callable[[Fraction], bool]) -> Fraction:
    """Return the smallest multiple of 1/256 that suffices; every larger one must suffice too.

    >>> least_scale(lambda scale: scale >= 3)
    Fraction(3, 1)
    """
    scale = smallest_scale(suffices, _LARGEST)
    if scale is None:
        raise ArgumentError(f"epsilon must be within reach of noise of scale {_LARGEST:.0e}, got a request that is not")
    return scale


def _answers(mechanism: str, max_answers: int | None, num_queries: int | None) -> int:
    if max_answers is None and num_queries is None:
        raise ArgumentError(f"max_answers (or num_queries) must be given for {mechanism}: it pays for every answer, got None")
    if max_answers is None:
        return positive_integer("num_queries", num_queries, maximum=LARGEST_QUERIES)
    return positive_integer("max_answers", max_answers, maximum=min(num_queries or LARGEST_QUERIES, LARGEST_QUERIES))


def refuse_options(options: dict[str, Any], mechanism: str, *known: str) -> None:
    """Refuse options that a calibration does not know."""
    for name in options:
        raise ArgumentError(f"{name} is no option of {mechanism}; those are {', '.join(known)}")
