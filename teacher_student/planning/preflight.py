"""Before anything is trained or spent: will these parameters answer enough, and if not, what would?

Only public sizes go in. The votes assumed are kind ones: on 99 of 100 queries the winner leads by nine tenths of the teachers.
If even those get hardly any labels, real votes will get fewer.
"""

from __future__ import annotations

import dataclasses

from teacher_student.planning.report import plan
from teacher_student.planning.request import Request
from teacher_student.privacy.parameters import Parameters

UNSTABLE = 0.01
"""Share of the queries on which the teachers are assumed to be split."""

_LEAST_SHARE, _LEAST_PER_CLASS, _MOST_TEACHERS = 0.01, 5, 10**8


def few_answers(parameters: Parameters, request: Request) -> str:
    """Return a warning of one line where hardly any label is to be expected, else nothing.

    Hardly any is less than 1 % of the queries or five for each class, but never more than half of the queries.
    """
    hardly_any = max(_LEAST_SHARE * request.num_queries, _LEAST_PER_CLASS * request.num_classes)
    expected = request.expected(parameters, UNSTABLE)
    if expected.agreeing >= min(hardly_any, request.num_queries / 2):
        return ""
    wrong = expected.answers - expected.agreeing
    caveat = f" (and about {wrong:,.0f} others)" if wrong >= 1 else ""
    return (
        f"expect only about {expected.agreeing:,.0f} labels that most teachers agree on{caveat}, of {request.num_queries:,} "
        f"asked, even if 19 in 20 teachers agree. What would help: {remedy(parameters, request)}"
    )


def remedy(parameters: Parameters, request: Request) -> str:
    """Return in plain words what would answer more: another mechanism, more teachers, a larger epsilon."""
    ways = [way for way in (_other_mechanism(parameters, request), _more_teachers(parameters, request)) if way]
    return "; ".join([*ways, "a larger epsilon"]) + "."


def _other_mechanism(parameters: Parameters, request: Request) -> str:
    sizes = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    best = plan(**{**sizes, "shares": [UNSTABLE]}).best(UNSTABLE)
    if best is None or best.expected_agreeing[UNSTABLE] < 2 * request.expected(parameters, UNSTABLE).agreeing + 1:
        return ""
    return f"mechanism={best.mechanism} privacy.cutoff=null would get about {best.expected_agreeing[UNSTABLE]:,.0f}"


def _more_teachers(parameters: Parameters, request: Request) -> str:
    """The number at which these parameters get half of what they would get from any number of teachers."""

    def agreeing(teachers: int) -> float:
        return dataclasses.replace(request, num_teachers=teachers).expected(parameters, UNSTABLE).agreeing

    half = agreeing(_MOST_TEACHERS) / 2
    if half <= 2 * agreeing(request.num_teachers) + 1:
        return ""
    low, high = request.num_teachers, _MOST_TEACHERS
    while high > 1.02 * low:
        middle = round((low * high) ** 0.5)
        low, high = (low, middle) if agreeing(middle) >= half else (middle, high)
    return f"{float(f'{high:.2g}'):,.0f} teachers would get about {agreeing(high):,.0f} with {parameters.mechanism}"
