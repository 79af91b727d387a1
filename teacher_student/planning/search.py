"""`choose`: number of teachers, mechanism, cutoff and number of queries together, before anything private is touched.

For each candidate number of teachers somebody trains that many on public or synthetic data that resemble the private ones, and
brings their votes (`yields.PublicVotes`). Every mechanism is then set where it promises most labels that are the plurality's, or
most that are right, where the truth of the stand-in is known; all are ranked by that. A noisy maximum answers whatever it is
asked, and more noisily the more it may be asked: of its labels at most a share `wrong` may be expected not to be the plurality's.

Nothing here depends on private records, so a choice may be repeated at will; the certificate calls its settings
`public_surrogate`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

from teacher_student.arguments import (
    ArgumentError,
    choice,
    fraction_of_one,
    listed,
    positive_integer,
    positive_number,
    probability,
)
from teacher_student.planning.report import aligned, limit_in_words, parameters_in_words
from teacher_student.planning.request import TEST_SHARES, grid, peak
from teacher_student.planning.yields import PublicVotes, Yield
from teacher_student.privacy.calibration import calibrate
from teacher_student.privacy.parameters import LabelSpec
from teacher_student.privacy.registry import LABELS

THRESHOLDS = (0.5, 0.6, 0.75)
"""Shares of the teachers that may be wanted behind a class, where that is tested first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """One mechanism, set for one number of teachers.

    Attributes:
        num_teachers: teachers.
        parameters: of the mechanism; `parameters.epsilon(delta)` recomputes the guarantee.
        outlook: what it would answer.
    """

    num_teachers: int
    parameters: LabelSpec
    outlook: Yield

    @property
    def worth(self) -> float:
        """Labels that are right, or the plurality's where the truth is not known."""
        return self.outlook.agreeing if math.isnan(self.outlook.right) else self.outlook.right


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices:
    """What could be done, best first.

    Attributes:
        ranked: mechanisms and numbers of teachers.
        num_queries: that wait for a label.
    """

    ranked: tuple[Choice, ...]
    num_queries: int

    def __str__(self) -> str:
        if not self.ranked:
            return "Nothing useful is possible: take more teachers, a larger epsilon, or a larger share of wrong labels."
        rows = [["teachers", "mechanism", "ends after", "parameters", "answers", "the plurality's", "right"]]
        for option in self.ranked:
            words = [f"{option.num_teachers:,}", option.parameters.mechanism, limit_in_words(option.parameters)]
            rows.append([*words, parameters_in_words(option.parameters), *map(_number, option.outlook)])
        best = self.ranked[0]
        advice = f"Take {best.num_teachers:,} teachers and {best.parameters.mechanism} ({limit_in_words(best.parameters)})"
        return f"{aligned(rows, left=4)}\n\n{advice}: about {best.worth:,.0f} good labels of {self.num_queries:,} queries."


def choose(
    standins: Sequence[object],
    *,
    num_queries: int,
    epsilon: float,
    delta: float,
    truth: object = None,
    wrong: float = 0.1,
    mechanisms: Sequence[str] | None = None,
) -> Choices:
    """Rank mechanisms and numbers of teachers by what they would answer on public stand-ins for the private votes.

    Args:
        standins: for each candidate number of teachers, votes per class (rows, num_classes) on public queries; the number of
            teachers is the largest sum of a row.
        num_queries: public points that wait for a label.
        epsilon: to spend.
        delta: to spend.
        truth: (rows,) true classes of those queries, the same for all stand-ins; None ranks by agreement with the plurality.
        wrong: largest share of the labels of a noisy maximum that may be expected not to be the plurality's.
        mechanisms: names to look at; None for all.

    Raises:
        ArgumentError: an argument out of range.

    >>> votes = [[95, 5], [40, 60], [3, 97], [99, 1]]
    >>> choose([votes], num_queries=50, epsilon=2.0, delta=1e-5, mechanisms=["gnmax"]).ranked[0].parameters.max_answers
    50
    """
    queries, share = positive_integer("num_queries", num_queries), fraction_of_one("wrong", wrong)
    positive_number("epsilon", epsilon)
    probability("delta", delta)
    wanted = LABELS if mechanisms is None else listed("mechanisms", mechanisms)
    names = [choice("mechanism", name, LABELS) for name in wanted]
    tables = listed("standins", standins)
    if not tables:
        raise ArgumentError("standin must name at least one table of votes, got none")
    found = []
    for counts in tables:
        standin = PublicVotes(counts, truth)
        problem = _Problem(standin, queries, epsilon, delta, share)
        found += [
            option
            for name in names
            for option in problem.best(name)
            if option.worth >= 0.5  # less than one label is none
        ]
    return Choices(ranked=tuple(sorted(found, key=lambda choice: -choice.worth)), num_queries=queries)


@dataclasses.dataclass(frozen=True)
class _Problem:
    """One stand-in and one budget."""

    standin: PublicVotes
    num_queries: int
    epsilon: float
    delta: float
    wrong: float

    def best(self, mechanism: str) -> Iterator[Choice]:
        """Yield the best choice with this mechanism, or nothing where it cannot be had."""
        kind = LABELS[mechanism]
        made: Sequence[LabelSpec | None]
        if kind.pays_for == "abstentions":
            made = self._threshold(mechanism)
        elif kind.asks_first:
            made = [self._capped(self._testing(mechanism, test, least)) for test in TEST_SHARES for least in THRESHOLDS]
        else:
            made = [self._capped(lambda answers: self.calibrate(mechanism, max_answers=answers))]
        choices = [self.choice(parameters) for parameters in made if parameters is not None]
        if choices:
            yield max(choices, key=lambda choice: choice.worth)

    def choice(self, parameters: LabelSpec) -> Choice:
        outlook = self.standin.expected(parameters, self.num_queries)
        return Choice(num_teachers=self.standin.num_teachers, parameters=parameters, outlook=outlook)

    def calibrate(self, mechanism: str, **options: object) -> LabelSpec:
        settings = {"num_queries": self.num_queries, **options}
        made = calibrate(mechanism, epsilon=self.epsilon, delta=self.delta, **settings)  # type: ignore[arg-type]
        assert isinstance(made, LabelSpec)
        return made

    def _threshold(self, mechanism: str) -> list[LabelSpec]:
        """Set the cutoff, then the threshold ratio, then the cutoff again."""

        def worth(cutoff: int, **options: object) -> float:
            try:
                return self.choice(self.calibrate(mechanism, cutoff=cutoff, **options)).worth
            except ArgumentError:  # printed constants do not hold at every cutoff
                return -math.inf

        cutoff = peak(worth, grid(1, self.num_queries, 2.0))
        ratios = LABELS[mechanism].ratios
        ratio = {"threshold_ratio": max(ratios, key=lambda ratio: worth(cutoff, threshold_ratio=ratio))} if ratios else {}
        around = grid(max(1, round(cutoff / 1.7)), min(self.num_queries, round(cutoff * 1.7)), 1.2)
        cutoff = peak(lambda value: worth(value, **ratio), around)
        return [self.calibrate(mechanism, cutoff=cutoff, **ratio)] if worth(cutoff, **ratio) > -math.inf else []

    def _testing(self, mechanism: str, test_share: float, least: float) -> Callable[[int], LabelSpec]:
        threshold = math.ceil(least * self.standin.num_teachers)
        passing = float((self.standin.counts.max(axis=1) >= threshold).mean())

        def at(answers: int) -> LabelSpec:
            asked = min(self.num_queries, math.ceil(answers / max(passing, 1 / self.num_queries)))
            options = {"max_answers": answers, "threshold": threshold, "test_share": test_share}
            return self.calibrate(mechanism, **{"num_queries": max(asked, answers), **options})

        return at

    def _capped(self, at: Callable[[int], LabelSpec]) -> LabelSpec | None:
        """Return the parameters with the largest cap on answers, of a grid, at which few enough of them are wrong."""
        caps = list(grid(1, self.num_queries, 1.25))
        found = None
        low, high = -1, len(caps)
        while high - low > 1:
            middle = (low + high) // 2
            made = at(caps[middle])
            outlook = self.standin.expected(made, self.num_queries)
            if outlook.agreeing >= (1 - self.wrong) * outlook.answers:
                low, found = middle, made
            else:
                high = middle
        return found


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f}"
