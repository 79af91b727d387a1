"""`plan`: which mechanism to take and what to expect of it, before any vote is cast.

Only public sizes go in, so a plan may be made, shown and repeated freely. Answers are expectations under the model of votes in
`request`: a query is either clear, its plurality leading by `clear_share` of the teachers, or unstable, a tie.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction

from teacher_student.arguments import ArgumentError, choice, listed, positive_integer
from teacher_student.planning.request import SHARES, Request, choose_parameters
from teacher_student.privacy.parameters import REPLACED, LabelSpec, MechanismSpec
from teacher_student.privacy.registry import LABELS

_LEGEND = (
    "(labels to expect, by the share of queries on which the teachers are split; in brackets: those that most teachers said)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One mechanism, calibrated for the request.

    Attributes:
        mechanism: name.
        parameters: the chosen parameters; `parameters.epsilon(delta)` recomputes the guarantee.
        smallest_gap: smallest lead, in votes, at which a query gets its plurality's label with probability 1 - failure. If it is
            above num_teachers, not even a unanimous vote does.
        teachers_needed: teachers whose unanimous vote gets its label with that probability if the whole budget is spent on one
            answer or one refusal.
        expected_answers: expected labels, by share of unstable queries.
        expected_agreeing: those of them that are the plurality.
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

    def answers(self, share: float) -> str:
        """Return the expected labels at this share of unstable queries and, if they differ, those that are the plurality."""
        answers, agreeing = f"{self.expected_answers[share]:,.0f}", f"{self.expected_agreeing[share]:,.0f}"
        return answers if agreeing == answers else f"{answers} ({agreeing})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What each mechanism could do with given public sizes.

    Attributes:
        request: the sizes and the assumptions.
        table: one row for each mechanism (and cutoff) that can be calibrated.
        infeasible: the reason for each mechanism that cannot be calibrated.
    """

    request: Request
    table: tuple[PlanRow, ...]
    infeasible: Mapping[str, str]

    def best(self, share: float) -> PlanRow | None:
        """Return the row with the most agreeing answers at this share of unstable queries, or None if none expects any."""
        reachable = [row for row in self.table if row.teachers_needed <= self.request.num_teachers]
        useful = [row for row in reachable if row.expected_agreeing[share] >= 0.5]
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
            gap = f"{row.smallest_gap:,}" + ("" if row.smallest_gap <= self.request.num_teachers else " (too many)")
            answers = [row.answers(share) for share in self.request.shares]
            rows.append([row.mechanism, row.limit, parameters_in_words(row.parameters), gap, *answers])
        return rows

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


def plan(  # noqa: D417 - the sizes are documented at `Request`
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
    vote_change: str = REPLACED,
) -> Plan:
    """Return what each mechanism could answer, from public sizes only.

    Args:
        cutoffs: cutoffs to show for the stability mechanisms; None chooses one for each.
        mechanisms: names to look at; None for all.
        num_teachers, num_queries, epsilon, delta, failure, num_classes, clear_share, shares, vote_change: see `Request`.

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
        vote_change=vote_change,
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
    """Return one row, or one for each given cutoff if the mechanism has one."""
    wanted: Sequence[int | None] = [None]
    if LABELS[mechanism].pays_for == "abstentions":
        least = request.calibrate(mechanism, cutoff=1)
        wanted = wanted if cutoffs is None else cutoffs
    else:
        least = choose_parameters(mechanism, dataclasses.replace(request, num_queries=1))
    needed = request.smallest_gap(least)
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


def limit_in_words(parameters: MechanismSpec) -> str:
    """Return what ends a session."""
    _, most, unit = parameters.limit
    return f"{most:,} {unit}" + ("" if most == 1 else "s")


def parameters_in_words(parameters: MechanismSpec) -> str:
    """Return the scales and the threshold."""
    scales = [f"{float(v):.1f}" for v in dataclasses.asdict(parameters).values() if isinstance(v, Fraction)]
    threshold = getattr(parameters, "threshold", None)
    return f"noise {' and '.join(scales)}" + ("" if threshold is None else f", threshold {threshold:,}")


def aligned(rows: list[list[str]], left: int = 3) -> str:
    """Return the rows as a table whose first columns are left-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows = [rows[0], ["-" * width for width in widths], *rows[1:]]
    edges = ["<"] * left + [">"] * (len(widths) - left)
    lines = ["  ".join(f"{cell:{edge}{width}}" for cell, edge, width in zip(row, edges, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
