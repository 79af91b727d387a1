"""Choosing a mechanism's parameters from public sizes only: the cutoff, the cap on answers, the shares of the budget.

Nothing here may look at votes: what is chosen from private votes would have to be paid for. Instead a `Request` says how many
teachers and queries there are, and what a clear vote is assumed to look like. For the stability mechanisms the cutoff trades the
number of refusals that can be paid against the noise on each query; it is set where the expected number of answers, in the
geometric mean over several shares of unstable queries, is largest. The noisy maxima pay for every answer; their cap is the
largest at which a clear vote still gets its plurality's label with probability 1 - failure.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

from scipy import special

from teacher_student.arguments import ArgumentError, choice, fraction_of_one, positive_integer, positive_number, probability
from teacher_student.planning.yields import Yield, correct, expected, smallest_gap
from teacher_student.privacy.calibration import calibrate
from teacher_student.privacy.parameters import LabelSpec
from teacher_student.privacy.registry import LABELS

SHARES = (0.001, 0.01, 0.1, 0.3)
"""Shares of unstable queries that a plan looks at."""

TEST_SHARES = (0.3, 0.5, 0.7)
ASKED_PER_ANSWER = (1.0, 1.25, 1.6, 2.5)
"""Candidates where a test comes first: the share of mu^2 for the tests, and the queries asked for each answer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What is wanted, in public numbers.

    Attributes:
        num_teachers: votes of each query; no gap is larger.
        num_queries: queries that wait for a label.
        epsilon: to spend.
        delta: to spend.
        failure: probability with which a query at the smallest gap may go without its plurality's label.
        num_classes: classes.
        clear_share: gap of a clear vote, as a share of the teachers.
        shares: shares of unstable queries to look at.
    """

    num_teachers: int
    num_queries: int
    epsilon: float
    delta: float
    failure: float = 0.05
    num_classes: int = 2
    clear_share: float = 0.9
    shares: tuple[float, ...] = SHARES

    def __post_init__(self) -> None:
        positive_integer("num_teachers", self.num_teachers)
        positive_integer("num_queries", self.num_queries)
        positive_number("epsilon", self.epsilon)
        probability("delta", self.delta)
        probability("failure", self.failure)
        positive_integer("num_classes", self.num_classes, minimum=2)
        if fraction_of_one("clear_share", self.clear_share) == 0:
            raise ArgumentError("clear_share must be above 0, got 0")
        if not self.shares:
            raise ArgumentError("shares must hold at least one share of unstable queries, got none")
        object.__setattr__(self, "shares", tuple(fraction_of_one("shares", share) for share in self.shares))

    @property
    def clear_gap(self) -> int:
        """Votes by which a clear plurality leads."""
        return max(1, math.floor(self.clear_share * self.num_teachers))

    def calibrate(self, mechanism: str, *, cutoff: int | None = None, **options: object) -> LabelSpec:
        """Calibrate within this request."""
        made = calibrate(
            mechanism, epsilon=self.epsilon, delta=self.delta, cutoff=cutoff, num_queries=self.num_queries, **options
        )
        assert isinstance(made, LabelSpec)
        return made

    def correct(self, parameters: LabelSpec, gap: float) -> float:
        """Probability that a query with this gap gets its plurality's label."""
        return correct(parameters, gap, num_teachers=self.num_teachers, num_classes=self.num_classes)

    def smallest_gap(self, parameters: LabelSpec) -> int:
        """Smallest gap answered with probability 1 - failure; more than num_teachers if there is none."""
        return smallest_gap(parameters, failure=self.failure, num_teachers=self.num_teachers, num_classes=self.num_classes)

    def expected(self, parameters: LabelSpec, unstable: float) -> Yield:
        """Return the answers to expect if this share of the queries is unstable."""
        return expected(
            parameters,
            unstable=unstable,
            clear_gap=self.clear_gap,
            num_queries=self.num_queries,
            num_teachers=self.num_teachers,
            num_classes=self.num_classes,
        )

    def worth(self, parameters: LabelSpec) -> float:
        """Return the sum over the shares of ln(1 + expected labels that are the plurality's)."""
        return math.fsum(math.log1p(self.expected(parameters, share).agreeing) for share in self.shares)


def choose_parameters(mechanism: str, request: Request, *, cutoff: int | None = None) -> LabelSpec:
    """Return the parameters of `mechanism` to take for `request`.

    Args:
        mechanism: one of `MECHANISMS`.
        request: what is wanted.
        cutoff: of a stability mechanism, if it is given already.

    Raises:
        ArgumentError: no such mechanism, or it cannot be calibrated within epsilon and delta at all.
    """
    kind = LABELS[choice("mechanism", mechanism, LABELS)]
    if kind.asks_first:
        return _testing(mechanism, request)
    if kind.pays_for == "answers":
        return _capped(mechanism, request)
    if cutoff is not None:
        return request.calibrate(mechanism, cutoff=cutoff, **_best_ratio(mechanism, request, cutoff))
    cutoff = _best_cutoff(mechanism, request, grid(1, request.num_queries, 2.0))
    ratio = _best_ratio(mechanism, request, cutoff)
    cutoff = _best_cutoff(mechanism, request, _around(cutoff, request.num_queries), **ratio)
    return request.calibrate(mechanism, cutoff=cutoff, **ratio)


def choose_cutoff(
    mechanism: str,
    *,
    num_teachers: int,
    num_queries: int,
    epsilon: float,
    delta: float,
    failure: float = 0.05,
    num_classes: int = 2,
    clear_share: float = 0.9,
    shares: tuple[float, ...] = SHARES,
) -> int:
    """Return the cutoff of a stability mechanism, or the cap on answers of a noisy maximum, from public sizes only.

    The cutoff is the best one for the calibration's default `threshold_ratio`; `choose_parameters` chooses that as well.

    >>> choose_cutoff("stability", num_teachers=100, num_queries=1000, epsilon=2.0, delta=1e-5) < 20
    True
    """
    request = Request(
        num_teachers=num_teachers,
        num_queries=num_queries,
        epsilon=epsilon,
        delta=delta,
        failure=failure,
        num_classes=num_classes,
        clear_share=clear_share,
        shares=shares,
    )
    kind = LABELS[choice("mechanism", mechanism, LABELS)]
    if kind.pays_for == "answers":
        return choose_parameters(mechanism, request).limit.most
    cutoff = _best_cutoff(mechanism, request, grid(1, num_queries, 2.0))
    return _best_cutoff(mechanism, request, _around(cutoff, num_queries))


def _best_cutoff(mechanism: str, request: Request, candidates: Iterable[int], **options: float) -> int:
    """Return the cutoff that is worth most; what a cutoff is worth rises to one peak and falls."""

    def worth(cutoff: int) -> float:
        try:
            return request.worth(request.calibrate(mechanism, cutoff=cutoff, **options))
        except ArgumentError:  # the printed constants do not hold at every cutoff
            return -math.inf

    return peak(worth, candidates)


def _around(cutoff: int, most: int) -> Iterable[int]:
    return grid(max(1, round(cutoff / 1.7)), min(most, round(cutoff * 1.7)), 1.2)


def grid(first: int, last: int, factor: float) -> Iterable[int]:
    """Yield `first` to `last`, each about `factor` times the one before."""
    while first < last:
        yield first
        first = max(first + 1, round(first * factor))
    yield last


def peak(worth: Callable[[int], float], candidates: Iterable[int]) -> int:
    """Return the best of rising candidates; stop at the second in a row that is worse."""
    best, most, worse = 0, -math.inf, 0
    for candidate in candidates:
        value = worth(candidate)
        if best == 0 or value > most + 1e-3:
            best, most, worse = candidate, value, 0
        else:
            worse += 1
        if worse == 2:
            break
    return best


def _best_ratio(mechanism: str, request: Request, cutoff: int) -> dict[str, float]:
    """Return the threshold ratio, if the mechanism has one, at which the smallest distance that is answered is smallest."""
    ratios = LABELS[mechanism].ratios
    if not ratios:
        return {}

    def smallest(ratio: float) -> int:
        return request.smallest_gap(request.calibrate(mechanism, cutoff=cutoff, threshold_ratio=ratio))

    return {"threshold_ratio": min(ratios, key=smallest)}


def _capped(mechanism: str, request: Request) -> LabelSpec:
    """Return the largest cap at which a clear vote is answered rightly with probability 1 - failure, or the cap 1."""

    def right(answers: int) -> bool:
        made = request.calibrate(mechanism, max_answers=answers)
        return request.correct(made, request.clear_gap) >= 1 - request.failure

    return request.calibrate(mechanism, max_answers=_largest(right, request.num_queries))


def _largest(suffices: Callable[[int], bool], most: int) -> int:
    """Return the largest number from 1 to `most` that suffices, or 1."""
    if suffices(most):
        return most
    low, high = 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if suffices(middle) else (low, middle)
    return low


def _testing(mechanism: str, request: Request) -> LabelSpec:
    """Return the parameters that are worth most among a few budgets; of the failure, half may happen at the test."""
    made = [_testing_at(mechanism, request, share, per_answer) for share in TEST_SHARES for per_answer in ASKED_PER_ANSWER]
    return max(made, key=request.worth)


def _testing_at(mechanism: str, request: Request, test_share: float, per_answer: float) -> LabelSpec:
    """Return the largest cap at which a clear vote passes a threshold of at least half the teachers, and is answered rightly."""
    top = request.clear_gap + (request.num_teachers - request.clear_gap) / request.num_classes
    needed = float(special.ndtri(1 - request.failure / 2))
    least = math.ceil(request.num_teachers / 2)

    def at(answers: int) -> LabelSpec:
        asked = min(request.num_queries, math.ceil(per_answer * answers))
        draft: Any = calibrate(
            mechanism,
            epsilon=request.epsilon,
            delta=request.delta,
            num_queries=asked,
            max_answers=answers,
            threshold=least,
            test_share=test_share,
        )
        threshold = max(least, math.floor(top - needed * float(draft.threshold_scale)))
        made: LabelSpec = dataclasses.replace(draft, threshold=threshold)
        return made

    def right(answers: int) -> bool:
        return request.correct(at(answers), request.clear_gap) >= 1 - request.failure

    return at(_largest(right, request.num_queries))
