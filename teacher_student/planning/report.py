"""`plan`: which mechanism to take, and what to expect of it, before any vote is cast.

Only public sizes go in (see `request`), so a plan may be made, shown and repeated freely. Answers are expectations under a model
of the stream (see `yields`): a query is clear, its plurality leading by `clear_share` of the teachers, or unstable, a tie.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction

from teacher_student.arguments import ArgumentError, choice, listed, positive_integer
from teacher_student.planning.request import SHARES, Request, choose_cutoff, choose_parameters
from teacher_student.privacy.parameters import LabelSpec
from teacher_student.privacy.registry import LABELS

__all__ = ["Plan", "PlanRow", "choose_cutoff", "choose_parameters", "plan"]


_LEGEND = (
    "(labels to expect, by the share of queries on which the teachers are split; in brackets: those that most teachers said)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One mechanism, calibrated for the request.

    Attributes:
        mechanism: name.
        parameters: as chosen; `parameters.epsilon(delta)` recomputes the guarantee.
        smallest_gap: smallest lead, in votes, at which a query gets its plurality's label with probability 1 - failure. A number
            above num_teachers means that not even a unanimous vote does.
        teachers_needed: teachers whose unanimous vote is answered so where the budget is spent on one answer or one refusal.
        expected_answers: labels expected, by share of unstable queries.
        expected_agreeing: those of them that are the plurality's label.
    """

    mechanism: str
    parameters: LabelSpec
    smallest_gap: int
    teachers_needed: int
    expected_answers: Mapping[float, float]
    expected_agreeing: Mapping[float, float]

    @property
    def limit(self) -> str:
        """What ends a session, in words."""
        return limit_in_words(self.parameters)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What each mechanism could do with given public sizes.

    Attributes:
        request: the sizes and the assumptions.
        table: one row for each mechanism (and cutoff) that can be calibrated.
        infeasible: for each mechanism that cannot, the reason.
    """

    request: Request
    table: tuple[PlanRow, ...]
    infeasible: Mapping[str, str]

    def best(self, share: float) -> PlanRow | None:
        """Return the row with most agreeing answers at this share of unstable queries, or None if none can hope for one."""
        useful = [row for row in self.table if row.expected_agreeing[share] >= 0.5 and self._reachable(row)]
        return max(useful, key=lambda row: row.expected_agreeing[share], default=None)

    @property
    def recommendation(self) -> str:
        """Which mechanism to take when, in words."""
        winners = {share: self.best(share) for share in self.request.shares}
        lines = [self._advice(share, row) for share, row in winners.items() if row is not None]
        return "\n".join(lines) if lines else self._nothing()

    def __str__(self) -> str:
        wanted = self.request
        title = (
            f"{wanted.num_teachers:,} teachers, {wanted.num_queries:,} queries, {wanted.num_classes} classes, epsilon "
            f"{wanted.epsilon:g}, delta {wanted.delta:g}\nclear vote: a lead of {wanted.clear_gap:,} votes; "
            f"smallest gap: answered rightly with probability {1 - wanted.failure:g}"
        )
        reasons = "".join(f"\n{name}: not possible: {reason}" for name, reason in self.infeasible.items())
        return f"{title}\n\n{aligned(self._cells())}\n{_LEGEND}{reasons}\n\n{self.recommendation}"

    def _cells(self) -> list[list[str]]:
        shares = [f"{share:.1%} split" for share in self.request.shares]
        rows = [["mechanism", "ends after", "parameters", "smallest gap", *shares]]
        for row in self.table:
            answers = [_answers(row, share) for share in self.request.shares]
            rows.append([row.mechanism, row.limit, parameters_in_words(row.parameters), self._gap(row), *answers])
        return rows

    def _gap(self, row: PlanRow) -> str:
        return f"{row.smallest_gap:,}" + ("" if row.smallest_gap <= self.request.num_teachers else " (too many)")

    def _reachable(self, row: PlanRow) -> bool:
        return row.teachers_needed <= self.request.num_teachers

    def _advice(self, share: float, row: PlanRow) -> str:
        expects = f"about {row.expected_answers[share]:,.0f} of {self.request.num_queries:,} labels"
        wrong = row.expected_answers[share] - row.expected_agreeing[share]
        caveat = f", about {wrong:,.0f} of them not what most teachers said" if wrong >= 1 else ""
        return f"If the teachers are split on {share:.1%} of the queries, take {row.mechanism}: {expects}{caveat}."

    def _nothing(self) -> str:
        needs = sorted((row.teachers_needed, row.mechanism) for row in self.table)
        least = ", ".join(f"{mechanism} {teachers:,}" for teachers, mechanism in needs)
        return (
            f"Nothing useful is possible with {self.request.num_teachers:,} teachers at epsilon {self.request.epsilon:g}, delta "
            f"{self.request.delta:g}: not even a unanimous vote is answered with probability {1 - self.request.failure:g}.\n"
            f"Teachers needed for a first answer: {least or 'none will do'}. Take more teachers, or a larger epsilon."
        )


def plan(
    num_teachers: int,
    num_queries: int,
    epsilon: float,
    delta: float,
    failure: float = 0.05,
    num_classes: int = 2,
    *,
    cutoffs: Sequence[int] | None = None,
    mechanisms: Sequence[str] | None = None,
    clear_share: float = 0.9,
    shares: Sequence[float] = SHARES,
) -> Plan:
    """Return what each mechanism could answer, from public sizes only.

    Args:
        num_teachers: votes of each query.
        num_queries: queries that wait for a label.
        epsilon: to spend.
        delta: to spend.
        failure: probability with which a query at the stated smallest gap may go without its plurality's label.
        num_classes: classes.
        cutoffs: for the stability mechanisms, the cutoffs to show; None chooses one for each.
        mechanisms: names to look at; None for all.
        clear_share: gap of a clear vote as a share of the teachers.
        shares: shares of unstable queries to look at.

    Raises:
        ArgumentError: an argument out of range.

    >>> found = plan(num_teachers=200, num_queries=100, epsilon=1.0, delta=1e-5, mechanisms=["gnmax", "stability_redraw"])
    >>> print(found.recommendation.splitlines()[0])
    If the teachers are split on 0.1% of the queries, take gnmax: about 100 of 100 labels.
    """
    request = Request(
        num_teachers=num_teachers,
        num_queries=num_queries,
        epsilon=epsilon,
        delta=delta,
        failure=failure,
        num_classes=num_classes,
        clear_share=clear_share,
        shares=listed("shares", shares),
    )
    if cutoffs is not None:
        cutoffs = [positive_integer("cutoffs", cutoff) for cutoff in listed("cutoffs", cutoffs)]
    wanted = LABELS if mechanisms is None else listed("mechanisms", mechanisms)
    rows, infeasible = [], {}
    for mechanism in [choice("mechanism", name, LABELS) for name in wanted]:
        try:
            rows += _rows(mechanism, request, cutoffs)
        except ArgumentError as reason:
            infeasible[mechanism] = str(reason)
    return Plan(request=request, table=tuple(rows), infeasible=infeasible)


def _rows(mechanism: str, request: Request, cutoffs: Sequence[int] | None) -> list[PlanRow]:
    """Return one row, or one for each given cutoff that `mechanism` has."""
    cheapest = _cheapest(mechanism, request)
    wanted: Sequence[int | None] = [None]
    if cutoffs is not None and cheapest.pays_for == "abstentions":
        wanted = cutoffs
    needed = request.smallest_gap(cheapest)
    return [_row(choose_parameters(mechanism, request, cutoff=cutoff), request, needed) for cutoff in wanted]


def _row(parameters: LabelSpec, request: Request, needed: int) -> PlanRow:
    outlook = {share: request.expected(parameters, share) for share in request.shares}
    smallest = request.smallest_gap(parameters)
    return PlanRow(
        mechanism=parameters.mechanism,
        parameters=parameters,
        smallest_gap=smallest,
        teachers_needed=min(needed, smallest),
        expected_answers={share: found.answers for share, found in outlook.items()},
        expected_agreeing={share: found.agreeing for share, found in outlook.items()},
    )


def _cheapest(mechanism: str, request: Request) -> LabelSpec:
    """Return the parameters that spend everything on one answer, or on one refusal."""
    if LABELS[mechanism].pays_for == "abstentions":
        return request.calibrate(mechanism, cutoff=1)
    return choose_parameters(mechanism, dataclasses.replace(request, num_queries=1))


def limit_in_words(parameters: LabelSpec) -> str:
    """Return what ends a session."""
    _, most, unit = parameters.limit
    return _counted(most, unit)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def parameters_in_words(parameters: LabelSpec) -> str:
    """Return the scales and the threshold, short."""
    scales = [f"{float(v):.1f}" for v in dataclasses.asdict(parameters).values() if isinstance(v, Fraction)]
    threshold = getattr(parameters, "threshold", None)
    return f"noise {' and '.join(scales)}" + ("" if threshold is None else f", threshold {threshold:,}")


def _answers(row: PlanRow, share: float) -> str:
    answers, agreeing = f"{row.expected_answers[share]:,.0f}", f"{row.expected_agreeing[share]:,.0f}"
    return answers if agreeing == answers else f"{answers} ({agreeing})"


def aligned(rows: list[list[str]], left: int = 3) -> str:
    """Return the rows as a table, the first columns to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows = [rows[0], ["-" * width for width in widths], *rows[1:]]
    lines = []
    for row in rows:
        first = [cell.ljust(width) for cell, width in zip(row[:left], widths[:left], strict=True)]
        others = [cell.rjust(width) for cell, width in zip(row[left:], widths[left:], strict=True)]
        lines.append("  ".join([*first, *others]))
    return "\n".join(line.rstrip() for line in lines)
