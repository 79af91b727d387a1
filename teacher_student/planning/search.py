"""`choose`: the number of teachers and the mechanism together, before anything private is touched.

For each candidate number of teachers the caller trains that many on public or synthetic data that resemble the private ones, and
brings their votes. Every mechanism is then set to promise the most labels that are the plurality, or the most that are right if
the truth of these data is known, and all are ranked by that. A noisy maximum answers every query, more noisily the more it may be
asked; at most a share `wrong` of its labels may be expected to differ from the plurality.

Nothing here depends on private records, so a choice may be repeated freely; the certificate calls its settings
`public_surrogate`. Private votes must not go in: a choice that looks at them has to be paid for (`privacy.selection`).
"""

# ruff: noqa: D102 - what the methods of a goal do is said once, in `Goal`
from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from teacher_student.arguments import (
    ArgumentError,
    Integers,
    choice,
    fraction_of_one,
    listed,
    positive_integer,
    positive_number,
    probability,
    vote_counts,
    whole_numbers,
)
from teacher_student.planning.report import aligned, limit_in_words, parameters_in_words
from teacher_student.planning.request import TEST_SHARES, CapSearch, Goal, Yield, choose_parameters, grid
from teacher_student.privacy.parameters import REPLACED, LabelSpec
from teacher_student.privacy.registry import LABELS

THRESHOLDS = (0.5, 0.6, 0.75)
"""Candidate thresholds for mechanisms that test first, as shares of the teachers."""

MOST_ROWS = 1000
"""Rows of public votes that are used, evenly spaced; expectations need no more."""


class PublicVotes:
    """Public votes that stand in for private ones: a private query is modelled as one of these rows, drawn at random.

    Args:
        counts: (rows, num_classes) votes per class.
        truth: (rows,) true classes, or None.

    Raises:
        ArgumentError: not a table of votes, fewer than two classes, or a truth of another length or with other classes.
    """

    def __init__(self, counts: object, truth: object = None) -> None:
        table = vote_counts("standin", counts).astype(np.int64)
        if table.shape[1] < 2:
            raise ArgumentError(f"standin must have a column for each of two or more classes, got {table.shape[1]}")
        self.num_teachers = max(1, int(table.sum(axis=1).max()))
        rows = np.unique(np.linspace(0, len(table) - 1, min(len(table), MOST_ROWS)).astype(np.int64))
        self.counts = table[rows]
        self.truth: Integers | None = None if truth is None else _checked_truth(truth, table)[rows]

    def expected(self, parameters: LabelSpec, num_queries: int) -> Yield:
        """Return what a session with `parameters` would answer of `num_queries` queries like these."""
        rows = len(self.counts)
        found = parameters.expected_labels(self.counts.astype(np.float64), np.full(rows, 1 / rows), num_queries)
        agreeing = float(found.labels[np.arange(rows), self.counts.argmax(axis=1)].sum())
        right = math.nan if self.truth is None else float(found.labels[np.arange(rows), self.truth].sum())
        return Yield(found.answers, agreeing, right)


def _checked_truth(truth: object, counts: Integers) -> Integers:
    """Return `truth` as a class for each row of `counts`."""
    classes = whole_numbers("truth", truth).ravel()
    if len(classes) != len(counts) or not np.isin(classes, np.arange(counts.shape[1])).all():
        raise ArgumentError(f"truth must hold a class below {counts.shape[1]} for each of {len(counts)} rows, got {len(classes)}")
    return classes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """One mechanism, set for one number of teachers.

    Attributes:
        num_teachers: number of teachers.
        parameters: of the mechanism; `parameters.epsilon(delta)` recomputes the guarantee.
        outlook: what it is expected to answer.
    """

    num_teachers: int
    parameters: LabelSpec
    outlook: Yield

    @property
    def worth(self) -> float:
        """Expected labels that are right, or that are the plurality if the truth is not known."""
        return self.outlook.agreeing if math.isnan(self.outlook.right) else self.outlook.right


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices:
    """The choices, best first.

    Attributes:
        ranked: mechanisms and numbers of teachers.
        num_queries: queries to label.
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
        num_queries: public points to label.
        epsilon: to spend.
        delta: to spend.
        truth: (rows,) true classes of those queries, the same for all stand-ins; None ranks by agreement with the plurality.
        wrong: largest share of the labels of a noisy maximum that may be expected to differ from the plurality.
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
    goals = [PublicGoal(PublicVotes(counts, truth), queries, epsilon, delta, share) for counts in tables]
    found = [option for goal in goals for name in names if (option := goal.best(name)) is not None]
    return Choices(ranked=tuple(sorted(found, key=lambda choice: -choice.worth)), num_queries=queries)


@dataclasses.dataclass(frozen=True)
class PublicGoal(Goal):
    """One table of public votes and one budget."""

    votes: PublicVotes
    num_queries: int
    epsilon: float
    delta: float
    wrong: float
    vote_change: str = REPLACED

    def best(self, mechanism: str) -> Choice | None:
        """Return the best choice with this mechanism, or None if it cannot be expected to give even one good label."""
        kind = LABELS[mechanism]
        try:
            parameters = choose_parameters(mechanism, self)
        except ArgumentError:
            return None
        found = self.choice(parameters)
        useful = found.worth >= 0.5 and (kind.pays_for == "abstentions" or self.acceptable(parameters))
        return found if useful else None

    def choice(self, parameters: LabelSpec) -> Choice:
        outlook = self.votes.expected(parameters, self.num_queries)
        return Choice(num_teachers=self.votes.num_teachers, parameters=parameters, outlook=outlook)

    def worth(self, parameters: LabelSpec) -> float:
        return self.choice(parameters).worth

    def acceptable(self, parameters: LabelSpec) -> bool:
        outlook = self.votes.expected(parameters, self.num_queries)
        return outlook.agreeing >= (1 - self.wrong) * outlook.answers

    @property
    def caps(self) -> Sequence[int]:
        return grid(1, self.num_queries, 1.25)

    def tests(self, mechanism: str) -> Iterator[CapSearch]:
        """Yield a few budgets and thresholds; as many queries are asked as the cap needs at the rate at which votes pass."""

        def at(answers: int, test_share: float, least: float) -> LabelSpec:
            threshold = math.ceil(least * self.votes.num_teachers)
            passing = float((self.votes.counts.max(axis=1) >= threshold).mean())
            asked = min(self.num_queries, math.ceil(answers / max(passing, 1 / self.num_queries)))
            return self.calibrate(
                mechanism, num_queries=max(asked, answers), max_answers=answers, threshold=threshold, test_share=test_share
            )

        for share in TEST_SHARES:
            for least in THRESHOLDS:
                yield lambda answers, share=share, least=least: at(answers, share, least)  # type: ignore[misc]


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f}"
