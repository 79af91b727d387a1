"""`plan_records`: how many points to ask and how many votes a record gets, where every record is a teacher (learner=nearest).

Of N records each votes on the B of Q asked points that are nearest to it, so a point has about N B / Q votes. Two assumptions
stand in for the votes themselves, and both are public statements of the user:

- *Reach.* Neighbours agree within a part of a class. B is a quarter of the Q / C points of one of C classes, if it is not given.
- *Agreement.* Points lie in the middle of a class or on its edge, and some have few neighbours. The leads of the pluralities
  are taken to be spread evenly between 0 and twice `agreement`, as a share of the votes on an average point; no lead is larger
  than all votes. The second class has the rest.

On MNIST (60,000 records, 60 principal components of the pixels) what `stability` could release of the true votes was within a
factor of two of the plan with the default agreement, and noisy counts were within a tenth (`tests/planning/test_local_votes.py`
has the votes on 250 points).

The search goes through the numbers of queries and lets the planner set each mechanism at each (`search`). Noisy counts have no
cap to choose, and a student learns from all of them. The class of the largest count is the plurality with some probability; write
it (1 - q) / C + q. Then Q labels teach about as much as Q q^2 that are certain (Angluin, Laird 1988), and the Q for which this is
largest is taken.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

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
)
from teacher_student.planning.report import aligned, limit_in_words, parameters_in_words
from teacher_student.planning.request import Yield, choose_cutoff, choose_parameters, grid
from teacher_student.planning.search import PublicGoal, PublicVotes
from teacher_student.privacy.calibration import calibrate
from teacher_student.privacy.noisy_max import GNMax
from teacher_student.privacy.noisy_sums import NoisyFraction
from teacher_student.privacy.parameters import NEIGHBOURS, REPLACED, WITHDRAWING, WITHDRAWN, LabelSpec
from teacher_student.privacy.registry import LABELS

AGREEMENT = 0.5
"""Default lead of the plurality on an average point, as a share of its votes."""

REACH = 0.25
"""Votes of a record, as a share of the asked points of one class."""

COUNTS = NoisyFraction.mechanism
"""The mechanism of noisy counts, which stands beside those that release labels."""

KNOWN = (COUNTS, *(name for name, kind in LABELS.items() if not kind.asks_first))
"""Mechanisms that can be planned: all those that label, except confident_gnmax."""

USUAL = (COUNTS, "stability", "exponential", "gnmax")
"""Mechanisms of a plan; the others seldom label more."""

LARGEST, MOST_CLASSES = 10**9, 10_000
"""Bounds on the public sizes of a plan."""

_ROWS = 40
"""Leads that stand for all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordChoice:
    """One mechanism, set for records that vote.

    Attributes:
        asked: points to ask, Q (`queries.total`).
        votes: asked points on which a record votes, B (`learner.votes`).
        voters: votes on an average point.
        parameters: of the mechanism; `parameters.epsilon(delta)` recomputes the guarantee.
        outlook: what it is expected to answer. For noisy counts, a label is the class with the largest one.
    """

    asked: int
    votes: int
    voters: int
    parameters: LabelSpec | NoisyFraction
    outlook: Yield


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordPlan:
    """The best choice of each mechanism, the most labels first.

    Attributes:
        ranked: choices.
        records: public order of magnitude of the number of records.
    """

    ranked: tuple[RecordChoice, ...]
    records: int

    def __str__(self) -> str:
        if not self.ranked:
            return "Nothing useful is possible: take a larger epsilon, or ask for data of more records."
        rows = [
            ["mechanism", "ends after", "parameters", "points asked", "votes each", "voters a point", "labels", "plurality's"]
        ]
        for option in self.ranked:
            words = [option.parameters.mechanism, limit_in_words(option.parameters), parameters_in_words(option.parameters)]
            sizes = (option.asked, option.votes, option.voters, *option.outlook[:2])
            rows.append([*words, *(f"{size:,.0f}" for size in sizes)])
        best = self.ranked[0]
        order = "" if best.parameters.mechanism == COUNTS else " queries.order=representative"
        limit = f" privacy.cutoff={best.parameters.limit.most}" if best.parameters.pays_for == "abstentions" else ""
        return (
            f"{self.records:,} records, each of which votes on the points nearest to it\n\n{aligned(rows)}\n\n"
            f"Take learner=nearest mechanism={best.parameters.mechanism}{limit}{order} queries.total={best.asked} "
            f"learner.votes={best.votes} teachers.number={self.records}: about {best.outlook.agreeing:,.0f} labels that most "
            "records nearby have."
        )


def plan_records(
    records: int,
    num_points: int,
    num_classes: int,
    epsilon: float,
    delta: float,
    *,
    queries: int | None = None,
    votes: int | None = None,
    agreement: float = AGREEMENT,
    neighbours: str = "add_remove",
    wrong: float = 0.1,
    mechanisms: object = None,
) -> RecordPlan:
    """Return how many points to ask, how many votes to give each record, and what each mechanism can be expected to label.

    Args:
        records: public order of magnitude of the number of records. The number itself is private under add_remove.
        num_points: public points, of which at most all are asked.
        num_classes: number of classes.
        epsilon: to spend.
        delta: to spend.
        queries: points to ask; None chooses.
        votes: votes of a record; None for a quarter of the asked points of one class.
        agreement: assumed lead of the plurality on an average point, as a share of its votes.
        neighbours: the relation. Votes are withdrawn, not replaced, under add_remove and zero_out.
        wrong: largest share of the labels of a noisy maximum that may be expected not to be the plurality's.
        mechanisms: some of `KNOWN`; None for those that label most.

    Raises:
        ArgumentError: an argument out of range.

    >>> best = plan_records(60_000, 9_000, 10, 0.25, 1e-5, queries=250, mechanisms=["noisy_fraction"]).ranked[0]
    >>> best.asked, best.votes, best.voters, round(best.outlook.agreeing)
    (250, 6, 1440, 247)
    """
    positive_integer("records", records, maximum=LARGEST)
    points = positive_integer("num_points", num_points, maximum=LARGEST)
    classes = positive_integer("num_classes", num_classes, minimum=2, maximum=MOST_CLASSES)
    positive_number("epsilon", epsilon)
    probability("delta", delta)
    if fraction_of_one("agreement", agreement) == 0:
        raise ArgumentError("agreement must be above 0, got 0")
    most = points if queries is None else positive_integer("queries", queries, maximum=points)
    least = 1 if votes is None else positive_integer("votes", votes, maximum=most)
    least = most if queries is not None else min(most, max(least, 5 * classes))
    change = WITHDRAWN if choice("neighbours", neighbours, NEIGHBOURS) in WITHDRAWING else REPLACED
    wanted = USUAL if mechanisms is None else listed("mechanisms", mechanisms)
    names = [choice("mechanism", name, KNOWN) for name in wanted]
    share = fraction_of_one("wrong", wrong)

    def goal(total: int) -> _RecordGoal:
        each = min(total, max(1, round(REACH * total / classes)) if votes is None else votes)
        voters = max(1, records * each // total)
        table = PublicVotes(expected_votes(voters, classes, agreement))
        return _RecordGoal(table, total, epsilon, delta, share, change, each, voters)

    found = []
    for name in names:
        sizes = grid(least, most, 1.25 if name == COUNTS or LABELS[name].pays_for == "answers" else 2.0)
        found += _best(name, map(goal, sizes))
    return RecordPlan(ranked=tuple(sorted(found, key=lambda option: -option.outlook.agreeing)), records=records)


def expected_votes(voters: int, num_classes: int, agreement: float) -> Integers:
    """Return (40, num_classes) votes on points whose leads are spread evenly between 0 and twice `agreement`.

    >>> expected_votes(100, 3, 0.5)[[0, 20, -1]].tolist()
    [[51, 49, 0], [76, 24, 0], [99, 1, 0]]
    """
    lead = np.minimum((np.arange(_ROWS) + 0.5) / _ROWS * 2 * agreement, 1.0) * voters
    counts = np.zeros((_ROWS, num_classes))
    counts[:, 0], counts[:, 1] = (voters + lead) / 2, (voters - lead) / 2
    return np.rint(counts).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class _RecordGoal(PublicGoal):
    """Votes of records on one number of points."""

    each: int = 1
    voters: int = 1

    def value(self, mechanism: str) -> float:
        """Return what the number of queries is chosen by; minus infinity if the mechanism cannot be had, or is mostly wrong.

        A stability mechanism is taken at its default ratio of scales, which is quicker to find.
        """
        try:
            if mechanism in LABELS and LABELS[mechanism].pays_for == "abstentions":
                return self.worth(self.calibrate(mechanism, cutoff=choose_cutoff(mechanism, self)))
            outlook = self.option(mechanism).outlook
        except ArgumentError:
            return -math.inf
        if mechanism != COUNTS:
            return outlook.agreeing if outlook.agreeing >= (1 - self.wrong) * outlook.answers else -math.inf
        chance = 1 / self.votes.counts.shape[1]
        sure = (outlook.agreeing / outlook.answers - chance) / (1 - chance)
        return float(outlook.answers * max(0.0, sure) ** 2)

    def option(self, mechanism: str) -> RecordChoice:
        """Return this mechanism, set for all of the queries.

        Raises:
            ArgumentError: it cannot be calibrated.
        """
        chosen = {"asked": self.num_queries, "votes": self.each, "voters": self.voters}
        if mechanism != COUNTS:
            labels = (
                choose_parameters(mechanism, self) if LABELS[mechanism].pays_for == "abstentions" else self.calibrate(mechanism)
            )
            return RecordChoice(parameters=labels, outlook=self.votes.expected(labels, self.num_queries), **chosen)
        spec = calibrate(
            COUNTS,
            epsilon=self.epsilon,
            delta=self.delta,
            num_queries=self.num_queries,
            num_classes=self.votes.counts.shape[1],
            votes_per_teacher=self.each,
            vote_change=self.vote_change,
        )
        assert isinstance(spec, NoisyFraction)
        largest = GNMax(scale=spec.scale, max_answers=spec.max_answers)  # the class of the largest noisy count
        return RecordChoice(parameters=spec, outlook=self.votes.expected(largest, self.num_queries), **chosen)


def _best(mechanism: str, goals: Iterable[_RecordGoal]) -> list[RecordChoice]:
    """Return the choice after which more points stop being worth asking: the next step would give less than 5 % more."""
    best, most = None, 0.5
    for goal in goals:
        value = goal.value(mechanism)
        if best is not None and value < 1.05 * most:
            break
        if value >= most:
            best, most = goal, value
    return [] if best is None else [best.option(mechanism)]
