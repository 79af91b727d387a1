"""Warnings from public numbers: given only when they are due, with advice that holds."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from teacher_student import label
from teacher_student.arguments import ArgumentError, Integers, PrivacyWarning
from teacher_student.mechanisms import GeneratorNoise
from teacher_student.planning.preflight import (
    UNSTABLE,
    alerts,
    few_answers,
    few_records,
    mostly_noise,
    suggestion,
    weak_guarantee,
)
from teacher_student.planning.request import Request, choose_parameters
from teacher_student.privacy import calibrate


def request(num_teachers: int, num_queries: int, epsilon: float = 1.0, num_classes: int = 2) -> Request:
    return Request(num_teachers=num_teachers, num_queries=num_queries, epsilon=epsilon, delta=1e-5, num_classes=num_classes)


def test_enough_teachers_give_no_warning() -> None:
    wanted = request(2000, 10_000)
    assert few_answers(wanted.calibrate("stability", cutoff=100), wanted) == []


def test_a_small_set_of_queries_is_enough_when_half_of_it_is_answered() -> None:
    wanted = request(2000, 8)
    assert few_answers(wanted.calibrate("stability", cutoff=4), wanted) == []


@pytest.mark.parametrize(("teachers", "queries", "cutoff"), [(250, 10_000, 100), (50, 500, 50)])
def test_few_teachers_give_a_warning_with_advice_that_holds(teachers: int, queries: int, cutoff: int) -> None:
    wanted = request(teachers, queries)
    parameters = wanted.calibrate("stability", cutoff=cutoff)
    (text,) = few_answers(parameters, wanted)
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


@pytest.mark.parametrize("teachers", [1, 2, 3, 10, 30])
def test_very_few_teachers_get_advice_too(teachers: int) -> None:
    """The search for a number of teachers ended only where a step of one is less than 2 %: a run with three teachers hung."""
    request = Request(num_teachers=teachers, num_queries=20, num_classes=3, epsilon=4.0, delta=1e-5)
    assert "a larger epsilon" in suggestion(calibrate("stability", epsilon=4.0, delta=1e-5, cutoff=10), request)


def test_what_would_not_help_is_not_advised() -> None:
    wanted = request(2000, 1000)
    best = choose_parameters("gnmax", wanted)
    assert suggestion(best, wanted) == "a larger epsilon."


EPSILON = (
    "epsilon 12 is above 10: one record may change the odds of an outcome by a factor of e^12, which protects next to nobody. "
    "Take a smaller epsilon; 1 is usual."
)
DELTA = (
    "delta 0.001 is above 1 / population = 0.0001: publishing some records outright would satisfy it. "
    "Take a delta far below 0.0001."
)
NOISE = (
    "expect only 55% of the labels by gnmax to be what most teachers say, even if 19 in 20 teachers agree (50% would be by "
    "chance). What would help: at most 4 queries instead of 1,000, more teachers or a larger epsilon."
)


@pytest.mark.parametrize(
    ("epsilon", "delta", "population", "texts"),
    [
        (10.0, 1e-5, None, []),
        (12.0, 1e-5, None, [EPSILON]),
        (1.0, 1e-3, None, []),
        (1.0, 1e-4, 10_000, []),
        (1.0, 1e-3, 10_000, [DELTA]),
        (12, 1e-3, 10_000, [EPSILON, DELTA]),
    ],
)
def test_a_weak_guarantee_gives_a_warning(epsilon: float, delta: float, population: int | None, texts: list[str]) -> None:
    assert weak_guarantee(epsilon, delta, population) == texts


@pytest.mark.parametrize("population", [0, -1, 1.5, "many", True])
def test_a_population_is_a_positive_integer(population: object) -> None:
    with pytest.raises(ArgumentError, match="population must be a positive integer"):
        weak_guarantee(1.0, 1e-5, population)  # type: ignore[arg-type]


def test_more_teachers_than_records_give_a_warning() -> None:
    assert few_records(2000, None) == few_records(2000, 2000) == []
    (text,) = few_records(2000, 500)
    assert "teachers.number is 2,000 and privacy.population 500" in text
    assert text.endswith("What would help: teachers.number=500 or fewer.")


def test_labels_that_are_mostly_noise_give_a_warning_with_advice_that_holds() -> None:
    wanted = request(30, 1000)
    assert mostly_noise(wanted.calibrate("gnmax"), wanted) == [NOISE]
    fewer = request(30, 4)
    assert fewer.correct(fewer.calibrate("gnmax"), fewer.clear_gap) >= 1 - fewer.failure
    assert mostly_noise(fewer.calibrate("gnmax"), fewer) == []


@pytest.mark.parametrize("mechanism", ["gnmax", "confident_gnmax", "lnmax", "exponential"])
@pytest.mark.parametrize("num_classes", [2, 10])
def test_what_the_planner_takes_is_not_mostly_noise(mechanism: str, num_classes: int) -> None:
    wanted = request(300, 2000, num_classes=num_classes)
    assert mostly_noise(choose_parameters(mechanism, wanted), wanted) == []
    assert mostly_noise(calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=50), wanted) == []


def test_label_warns_before_any_noise_is_drawn() -> None:
    class NoNoise(GeneratorNoise):
        def discrete_gaussian(self, *_: object) -> Integers:
            raise AssertionError

    votes = np.zeros((1000, 30), dtype=int)
    given = {"mechanism": "gnmax", "population": 10_000, "noise": NoNoise(np.random.default_rng(0))}
    with pytest.warns(PrivacyWarning) as seen, pytest.raises(AssertionError):
        label(votes, num_classes=2, num_teachers=30, epsilon=1.0, delta=1e-3, cutoff=50, **given)
    assert str(seen[0].message) == DELTA
    assert str(seen[1].message).startswith("expect only")
    assert [warning.filename for warning in seen] == [__file__, __file__]


def test_ordinary_calls_of_label_give_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    label(np.zeros((5, 1000), dtype=int), num_classes=2, num_teachers=1000, epsilon=1.0, delta=1e-5, population=10_000)
    assert not [warning for warning in recwarn if issubclass(warning.category, PrivacyWarning)]


def votes_of(num_teachers: int, num_queries: int) -> Integers:
    return np.repeat(np.arange(num_queries)[:, None] % 2, num_teachers, axis=1)


def test_a_finished_release_says_what_speaks_against_it() -> None:
    good = label(votes_of(2000, 50), num_classes=2, num_teachers=2000, epsilon=1.0, delta=1e-5, mechanism="stability", cutoff=5)
    assert good.warnings == ()
    with pytest.warns(PrivacyWarning):
        noisy = label(votes_of(30, 1000), num_classes=2, num_teachers=30, epsilon=1.0, delta=1e-5, mechanism="gnmax", cutoff=50)
    assert noisy.warnings == (NOISE,)
    few = label(votes_of(5, 100), num_classes=2, num_teachers=5, epsilon=1.0, delta=1e-5, mechanism="stability", cutoff=1)
    (text,) = few.warnings
    one_class = label(np.zeros((50, 2000), dtype=int), num_classes=2, num_teachers=2000, epsilon=1.0, delta=1e-5, cutoff=5)
    assert any(text.startswith("all released labels are of one class") for text in one_class.warnings)
    assert re.match(r"only [01] of 100 queries have an answer, which is hardly enough for a student\. What would help", text)


def test_alerts_know_a_student_that_is_no_better_than_the_majority_class() -> None:
    made = label(votes_of(2000, 50), num_classes=2, num_teachers=2000, epsilon=1.0, delta=1e-5, mechanism="stability", cutoff=5)
    told = {accuracy: alerts(made.certificate, 50, 50, accuracy=accuracy, majority=0.75) for accuracy in (0.74, 0.75, 0.76)}
    assert told[0.76] == []
    assert told[0.75][0].startswith("the student's accuracy is 0.7500, and 0.7500 without any learning")
    assert len(told[0.74]) == 1
    assert alerts(made.certificate, 50, 50, population=10) == []
    assert alerts(dataclasses.replace(made.certificate, delta=0.2), 50, 50, population=10)[0].startswith("delta 0.2 is above")
