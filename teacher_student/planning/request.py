"""Choosing a mechanism's parameters from public numbers: the cutoff, the cap on answers, the shares of the budget.

Nothing here may look at private votes: a choice that depends on them would have to be paid for. A `Goal` says instead which votes
to expect. `choose_parameters` runs the same search for every goal. For a stability mechanism the cutoff trades the number of
refusals against the noise on each query, and the most valuable cutoff is taken. A noisy maximum pays for every answer; it gets
the largest cap at which the goal accepts its labels.

A `Request` assumes a simple stream of votes, given by public sizes. A query's *gap* is its plurality's lead over the runner-up,
in votes. Each query is independently *unstable* (a tie of two classes) with some probability u, and otherwise *clear*, with one
large gap. With c the probability that a query is refused, and at most T refusals among at most m queries, Wald's identity gives

    E[refusals] = E[min(T, Bin(m, c))] = c E[asked],        E[answers] = (1 - c) E[asked].

The noise of noisy maxima is treated as continuous here, which is off by about the square of 1 / scale. Costs are never computed
from this model.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from teacher_student.arguments import ArgumentError, choice, fraction_of_one, positive_integer, positive_number, probability
from teacher_student.privacy.calibration import calibrate
from teacher_student.privacy.parameters import REPLACED, WITHDRAWN, LabelSpec, smallest_integer
from teacher_student.privacy.registry import LABELS

SHARES = (0.001, 0.01, 0.1, 0.3)
"""Shares of unstable queries that a plan looks at."""

TEST_SHARES = (0.3, 0.5, 0.7)
ASKED_PER_ANSWER = (1.0, 1.25, 1.6, 2.5)
"""Candidates for mechanisms that test first: the share of mu^2 for the tests, and the queries asked for each answer."""

CapSearch = Callable[[int], LabelSpec]
"""From a cap on answers to the parameters with this cap."""


class Yield(NamedTuple):
    """Labels expected before the session halts.

    Attributes:
        answers: all labels.
        agreeing: labels that are the plurality.
        right: labels that are the true class; NaN if that is not known.
    """

    answers: float
    agreeing: float
    right: float = math.nan


class Goal(ABC):
    """What parameters are chosen for."""

    num_queries: int
    epsilon: float
    delta: float
    vote_change: str

    @abstractmethod
    def worth(self, parameters: LabelSpec) -> float:
        """Return the value of the labels to expect, which the search maximises."""

    @abstractmethod
    def acceptable(self, parameters: LabelSpec) -> bool:
        """Return whether enough labels of a mechanism that pays for answers are the plurality."""

    @property
    @abstractmethod
    def caps(self) -> Sequence[int]:
        """Caps on answers that the search considers, in rising order."""

    @abstractmethod
    def tests(self, mechanism: str) -> Iterator[CapSearch]:
        """Yield the ways to set a mechanism that tests first."""

    def ratio_worth(self, parameters: LabelSpec) -> float:
        """Return the value by which a threshold ratio is chosen."""
        return self.worth(parameters)

    def calibrate(
        self, mechanism: str, *, cutoff: int | None = None, num_queries: int | None = None, **options: Any
    ) -> LabelSpec:
        """Calibrate within the budget, for all queries unless a number is given."""
        asked = self.num_queries if num_queries is None else num_queries
        if self.vote_change != REPLACED:
            options["vote_change"] = self.vote_change
        made = calibrate(mechanism, epsilon=self.epsilon, delta=self.delta, cutoff=cutoff, num_queries=asked, **options)
        assert isinstance(made, LabelSpec)
        return made


def choose_parameters(mechanism: str, goal: Goal, *, cutoff: int | None = None) -> LabelSpec:
    """Return the best parameters of `mechanism` for `goal`.

    Args:
        mechanism: one of `MECHANISMS`.
        goal: what is wanted, such as a `Request`.
        cutoff: of a stability mechanism, if it is already fixed.

    Raises:
        ArgumentError: no such mechanism, or it cannot be calibrated within epsilon and delta at all.
    """
    kind = LABELS[choice("mechanism", mechanism, LABELS)]
    if kind.asks_first:
        made = [_largest_cap(at, goal) for at in goal.tests(mechanism)]
        return max([parameters for parameters in made if goal.acceptable(parameters)] or made, key=goal.worth)
    if kind.pays_for == "answers":
        return _largest_cap(lambda answers: goal.calibrate(mechanism, max_answers=answers), goal)
    chosen = _best_cutoff(mechanism, goal, grid(1, goal.num_queries, 2.0)) if cutoff is None else cutoff
    ratio: dict[str, Any] = {}
    if kind.ratios:
        worth = [_value(goal.ratio_worth, goal, mechanism, cutoff=chosen, threshold_ratio=tried) for tried in kind.ratios]
        ratio = {"threshold_ratio": kind.ratios[int(np.argmax(worth))]}
    if cutoff is None:
        chosen = _best_cutoff(mechanism, goal, _around(chosen, goal.num_queries), **ratio)
    return goal.calibrate(mechanism, cutoff=chosen, **ratio)


def choose_cutoff(mechanism: str, goal: Goal) -> int:
    """Return the cutoff of a stability mechanism, or the cap on answers of a noisy maximum.

    The cutoff is the best one at the calibration's default `threshold_ratio`; `choose_parameters` chooses the ratio as well.

    >>> choose_cutoff("stability", Request(num_teachers=100, num_queries=1000, epsilon=2.0, delta=1e-5)) < 20
    True
    """
    if LABELS[choice("mechanism", mechanism, LABELS)].pays_for == "answers":
        return choose_parameters(mechanism, goal).limit.most
    cutoff = _best_cutoff(mechanism, goal, grid(1, goal.num_queries, 2.0))
    return _best_cutoff(mechanism, goal, _around(cutoff, goal.num_queries))


def _best_cutoff(mechanism: str, goal: Goal, candidates: Sequence[int], **options: Any) -> int:
    """Return the most valuable of rising candidates. The value has one peak, so stop at the second candidate that is worse."""
    best, most, worse = 0, -math.inf, 0
    for cutoff in candidates:
        value = _value(goal.worth, goal, mechanism, cutoff=cutoff, **options)
        if best == 0 or value > most + 1e-3:
            best, most, worse = cutoff, value, 0
        else:
            worse += 1
        if worse == 2:
            break
    return best


def _value(worth: Callable[[LabelSpec], float], goal: Goal, mechanism: str, **options: Any) -> float:
    """Return the worth of parameters, or minus infinity if they cannot be had (the printed constants do not always hold)."""
    try:
        return worth(goal.calibrate(mechanism, **options))
    except ArgumentError:
        return -math.inf


def grid(first: int, last: int, factor: float) -> list[int]:
    """Return numbers from `first` to `last`, each about `factor` times the one before."""
    found = []
    while first < last:
        found.append(first)
        first = max(first + 1, round(first * factor))
    return [*found, last]


def _around(cutoff: int, most: int) -> list[int]:
    return grid(max(1, round(cutoff / 1.7)), min(most, round(cutoff * 1.7)), 1.2)


def _largest_cap(at: CapSearch, goal: Goal) -> LabelSpec:
    """Return the parameters with the largest cap that the goal accepts, or with the smallest cap if it accepts none."""
    caps = goal.caps
    most = at(caps[-1])
    if goal.acceptable(most):
        return most
    low, high = 0, len(caps) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if goal.acceptable(at(caps[middle])) else (low, middle)
    return at(caps[low])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(Goal):
    """What is wanted, in public numbers, under the model of votes that the module describes.

    Attributes:
        num_teachers: votes of each query; no gap is larger.
        num_queries: queries to label.
        epsilon: to spend.
        delta: to spend.
        failure: probability with which a query at the smallest gap may not get its plurality's label.
        num_classes: number of classes.
        clear_share: gap of a clear vote, as a share of the teachers.
        shares: shares of unstable queries to look at.
        vote_change: what a neighbour does to a vote, as in `privacy.parameters.VoteSpec`.
    """

    num_teachers: int
    num_queries: int
    epsilon: float
    delta: float
    failure: float = 0.05
    num_classes: int = 2
    clear_share: float = 0.9
    shares: tuple[float, ...] = SHARES
    vote_change: str = REPLACED

    def __post_init__(self) -> None:
        positive_integer("num_teachers", self.num_teachers)
        positive_integer("num_queries", self.num_queries)
        positive_number("epsilon", self.epsilon)
        probability("delta", self.delta)
        probability("failure", self.failure)
        positive_integer("num_classes", self.num_classes, minimum=2)
        if fraction_of_one("clear_share", self.clear_share) == 0:
            raise ArgumentError("clear_share must be above 0, got 0")
        choice("vote_change", self.vote_change, (REPLACED, WITHDRAWN))
        if not self.shares:
            raise ArgumentError("shares must hold at least one share of unstable queries, got none")
        object.__setattr__(self, "shares", tuple(fraction_of_one("shares", share) for share in self.shares))

    @property
    def clear_gap(self) -> int:
        """Votes by which the plurality of a clear vote leads."""
        return max(1, math.floor(self.clear_share * self.num_teachers))

    def correct(self, parameters: LabelSpec, gap: float) -> float:
        """Return the probability that a query with this gap gets its plurality's label.

        The other classes are assumed to tie behind the first, which is the worst case for the noisy maxima.
        """
        counts, times = self._votes(gap)
        return float(parameters.first_answer(np.array([counts]), np.array([times]))[0, 0])

    def _votes(self, gap: float) -> tuple[list[float], list[float]]:
        """Return the votes of the plurality and of each other class, and how many classes those are."""
        rest = (max(self.num_teachers, gap) - gap) / self.num_classes
        return [gap + rest, rest], [1.0, self.num_classes - 1.0]

    def smallest_gap(self, parameters: LabelSpec) -> int:
        """Return the smallest gap at which a query gets its plurality's label with probability 1 - failure.

        If it is more than num_teachers, not even a unanimous vote does, and that many teachers would be needed.
        """
        found = smallest_integer(lambda gap: self.correct(parameters, gap) >= 1 - self.failure, 1 << 40)
        if found is None:
            raise ArgumentError(f"failure must be reachable by some gap, got {self.failure}")
        return found

    def expected(self, parameters: LabelSpec, unstable: float) -> Yield:
        """Return the answers to expect if this share of the queries is unstable."""
        clear, clear_times = self._votes(self.clear_gap)
        tie = [self.num_teachers / 2, self.num_teachers / 2]  # other classes have no votes and are left out
        counts, times = np.array([clear, tie]), np.array([clear_times, [1.0, 1.0]])
        found = parameters.expected_labels(counts, np.array([1 - unstable, unstable]), self.num_queries, times)
        return Yield(found.answers, min(found.answers, float(found.labels[:, 0].sum())))  # equal up to the last digit

    def worth(self, parameters: LabelSpec) -> float:
        """Return the sum over the shares of ln(1 + expected labels that are the plurality)."""
        return math.fsum(math.log1p(self.expected(parameters, share).agreeing) for share in self.shares)

    def acceptable(self, parameters: LabelSpec) -> bool:
        """Return whether a clear vote gets its plurality's label with probability 1 - failure."""
        return self.correct(parameters, self.clear_gap) >= 1 - self.failure

    @property
    def caps(self) -> Sequence[int]:
        """Every cap up to the number of queries."""
        return range(1, self.num_queries + 1)

    def ratio_worth(self, parameters: LabelSpec) -> float:
        """Prefer the smallest gap that is answered."""
        return -self.smallest_gap(parameters)

    def tests(self, mechanism: str) -> Iterator[CapSearch]:
        """Yield a few budgets, each with the highest threshold that a clear vote passes (at least half of the teachers).

        Half of the failure probability is spent on the test.
        """
        top = self._votes(self.clear_gap)[0][0]
        needed = float(special.ndtri(1 - self.failure / 2))
        least = math.ceil(self.num_teachers / 2)

        def at(answers: int, test_share: float, per_answer: float) -> LabelSpec:
            asked = min(self.num_queries, math.ceil(per_answer * answers))
            draft: Any = self.calibrate(mechanism, num_queries=asked, max_answers=answers, threshold=least, test_share=test_share)
            threshold = max(least, math.floor(top - needed * float(draft.threshold_scale)))
            made: LabelSpec = dataclasses.replace(draft, threshold=threshold)
            return made

        for share in TEST_SHARES:
            for ratio in ASKED_PER_ANSWER:
                yield lambda answers, share=share, ratio=ratio: at(answers, share, ratio)  # type: ignore[misc]
