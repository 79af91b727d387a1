"""The warning before a run: given where hardly any label is to be expected, silent elsewhere, its advice true."""

from __future__ import annotations

import dataclasses
import re

import pytest

from teacher_student.planning.preflight import UNSTABLE, few_answers, remedy
from teacher_student.planning.request import Request, choose_parameters


def request(num_teachers: int, num_queries: int, epsilon: float = 1.0, num_classes: int = 2) -> Request:
    return Request(num_teachers=num_teachers, num_queries=num_queries, epsilon=epsilon, delta=1e-5, num_classes=num_classes)


def test_enough_teachers_are_not_warned_of() -> None:
    wanted = request(2000, 10_000)
    assert few_answers(wanted.calibrate("stability", cutoff=100), wanted) == ""


def test_a_small_set_of_queries_is_enough_when_half_of_it_is_answered() -> None:
    wanted = request(2000, 8)
    assert few_answers(wanted.calibrate("stability", cutoff=4), wanted) == ""


@pytest.mark.parametrize(("teachers", "queries", "cutoff"), [(250, 10_000, 100), (50, 500, 50)])
def test_few_teachers_are_warned_of_with_advice_that_holds(teachers: int, queries: int, cutoff: int) -> None:
    wanted = request(teachers, queries)
    parameters = wanted.calibrate("stability", cutoff=cutoff)
    text = few_answers(parameters, wanted)
    assert "\n" not in text
    expected = wanted.expected(parameters, UNSTABLE).agreeing
    assert f"about {expected:,.0f} labels" in text
    mechanism, promised = re.search(r"mechanism=(\w+) privacy.cutoff=null would get about ([\d,]+)", text).groups()  # type: ignore[union-attr]
    other = wanted.expected(choose_parameters(mechanism, wanted), UNSTABLE).agreeing
    assert int(promised.replace(",", "")) == pytest.approx(other, abs=1)
    assert other > 2 * expected
    more, then = (
        int(found.replace(",", "")) for found in re.search(r"([\d,]+) teachers would get about ([\d,]+)", text).groups()
    )  # type: ignore[union-attr]
    reached = dataclasses.replace(wanted, num_teachers=more).expected(parameters, UNSTABLE).agreeing
    assert reached == pytest.approx(then, rel=0.15)


def test_what_would_not_help_is_not_advised() -> None:
    wanted = request(2000, 10_000)
    best = choose_parameters("gnmax", wanted)
    assert remedy(best, wanted) == "a larger epsilon."
