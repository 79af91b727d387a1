"""Parameters of the noisy maxima: tight calibration, and exact divergences of the whole mechanism on small worst cases."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.privacy import ConfidentGNMax, Exponential, GNMax, LNMax, calibrate, parameters_from_dict
from teacher_student.privacy.paid_answers import least_scale

SIZES = {"num_queries": 40}
NAMES = ("gnmax", "confident_gnmax", "lnmax", "exponential")
SINGLE = (GNMax, LNMax, Exponential)


def made(name: str, epsilon: float = 1.0, delta: float = 1e-5, **options: Any) -> Any:
    extra = {"threshold": 30} if name == "confident_gnmax" else {}
    return calibrate(name, epsilon=epsilon, delta=delta, **{**SIZES, **extra, **options})


def one_step_less(parameters: Any) -> list[Any]:
    """The same parameters with one scale a step smaller."""
    scales = [field.name for field in dataclasses.fields(parameters) if field.name.endswith("scale")]
    return [dataclasses.replace(parameters, **{name: getattr(parameters, name) - Fraction(1, 256)}) for name in scales]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-8), (8.0, 1e-3)])
def test_calibration_is_within_the_request_and_not_a_step_wasted(name: str, epsilon: float, delta: float) -> None:
    parameters = made(name, epsilon, delta)
    assert parameters.epsilon(delta) <= epsilon
    assert parameters.delta(epsilon) <= delta
    for smaller in one_step_less(parameters):
        share = 0.98 if name == "confident_gnmax" else 1.0  # its two scales are rounded up apart
        assert smaller.epsilon(delta) > share * epsilon


@pytest.mark.parametrize("name", NAMES)
def test_json_keeps_every_number(name: str) -> None:
    parameters = made(name)
    assert parameters_from_dict(json.loads(json.dumps(parameters.to_dict()))) == parameters


def test_the_cost_of_an_answer() -> None:
    """mu^2 = 2 / sigma^2 for an answer and 1 / sigma_1^2 for a test, up to the discrete law's 1 / (24 sigma^2)."""
    gnmax = GNMax(scale=Fraction(100), max_answers=50)
    assert gnmax.mu**2 == pytest.approx(2 * 50 / 100**2, rel=1e-5)
    assert gnmax.mu**2 > 2 * 50 / 100**2
    confident = ConfidentGNMax(
        threshold=10, threshold_scale=Fraction(200), query_scale=Fraction(100), num_queries=500, max_answers=50
    )
    assert confident.mu**2 == pytest.approx(500 / 200**2 + 2 * 50 / 100**2, rel=1e-5)


# Exact divergences. A transcript of identical, independent answers: its probability is a product.


def law(parameters: Any, counts: tuple[int, ...]) -> np.ndarray:
    """Probability of each class for one query, by summation over the noise."""
    scale, votes = float(parameters.scale), np.array(counts)
    if isinstance(parameters, Exponential):
        weights = np.exp((votes - votes.max()) / scale)
        return weights / weights.sum()
    reach = math.ceil(40 * scale) + int(votes.max()) + 2
    support = np.arange(-reach, reach + 1)
    power = np.abs(support) / scale if isinstance(parameters, LNMax) else (support / scale) ** 2 / 2
    mass = np.exp(-power) / np.exp(-power).sum()
    below = np.cumsum(mass) - mass  # P(noise < j)
    found = np.empty(len(votes))
    for label, own in enumerate(votes):
        product = mass.copy()
        for other, theirs in enumerate(votes):
            if other != label:
                index = np.clip(np.arange(len(support)) + own - theirs + (other > label), 0, len(support) - 1)
                product *= below[index]  # a tie is lost to a lower label
        found[label] = product.sum()
    return found / found.sum()


def divergence(parameters: Any, here: tuple[int, ...], there: tuple[int, ...], epsilon: float, answers: int) -> float:
    ours, theirs = law(parameters, here), law(parameters, there)
    transcripts = list(itertools.product(range(len(here)), repeat=answers))
    p = np.array([math.prod(ours[label] for label in transcript) for transcript in transcripts])
    q = np.array([math.prod(theirs[label] for label in transcript) for transcript in transcripts])
    return float(np.maximum(0, p - math.exp(epsilon) * q).sum())


PAIRS = [((5, 4), (4, 5)), ((8, 1), (7, 2)), ((3, 3, 3), (2, 3, 4)), ((6, 3, 1), (5, 4, 1)), ((4, 2), (4, 1)), ((0, 0), (0, 1))]


def worst_excess(sampled: Any, claimed: Any) -> float:
    """Largest of (divergence of what is sampled) - (delta claimed), over pairs, both ways, and epsilons."""
    worst = -math.inf
    for here, there in [*PAIRS, *((b, a) for a, b in PAIRS)]:
        for epsilon in (0.0, 0.2, 0.5, 1.0, 2.0):
            exact = divergence(sampled, here, there, epsilon, claimed.max_answers)
            worst = max(worst, exact - claimed.delta(epsilon))
    return worst


@pytest.mark.parametrize("kind", SINGLE)
@pytest.mark.parametrize("answers", [1, 4])
def test_no_pair_of_neighbours_diverges_more_than_claimed(kind: type, answers: int) -> None:
    parameters = kind(scale=Fraction(3), max_answers=answers)
    assert worst_excess(parameters, parameters) <= 1e-9


@pytest.mark.parametrize("kind", SINGLE)
def test_noise_halved_is_caught(kind: type) -> None:
    claimed = kind(scale=Fraction(3), max_answers=4)
    sampled = kind(scale=Fraction(3, 2), max_answers=4)
    assert worst_excess(sampled, claimed) > 1e-3


@pytest.mark.parametrize("kind", SINGLE)
def test_paying_for_one_answer_of_four_is_caught(kind: type) -> None:
    """A cap that is not enforced."""
    claimed = dataclasses.replace(kind(scale=Fraction(3), max_answers=4), max_answers=1)
    four = kind(scale=Fraction(3), max_answers=4)
    excess = max(
        divergence(four, here, there, epsilon, 4) - claimed.delta(epsilon) for here, there in PAIRS for epsilon in (0.0, 0.5, 1.0)
    )
    assert excess > 1e-2


def test_confident_gnmax_with_its_test() -> None:
    """All transcripts of two queries, each an abstention or a class."""
    parameters = ConfidentGNMax(threshold=5, threshold_scale=Fraction(3), query_scale=Fraction(3), num_queries=2, max_answers=2)
    gnmax = GNMax(scale=Fraction(3), max_answers=1)
    support = np.arange(-60, 61)
    mass = np.exp(-((support / 3) ** 2) / 2)
    mass /= mass.sum()

    def outcome(counts: tuple[int, ...]) -> np.ndarray:
        passed = mass[max(counts) + support >= parameters.threshold].sum()
        return np.append(passed * law(gnmax, counts), 1 - passed)

    for here, there in [*PAIRS, *((b, a) for a, b in PAIRS)]:
        p, q = (np.multiply.outer(outcome(counts), outcome(counts)).ravel() for counts in (here, there))
        for epsilon in (0.0, 0.3, 1.0, 2.0):
            assert np.maximum(0, p - math.exp(epsilon) * q).sum() <= parameters.delta(epsilon)


# Bad input.


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gnmax", {"num_queries": None}, "max_answers (or num_queries) must be given for gnmax"),
        ("gnmax", {"max_answers": 41}, "max_answers must be an integer from 1 to 40, got 41"),
        ("gnmax", {"max_answers": 0}, "max_answers must be"),
        ("lnmax", {"thresold": 3}, "thresold is no option of lnmax"),
        ("confident_gnmax", {"threshold": None}, "threshold must be given for confident_gnmax"),
        ("confident_gnmax", {"threshold": -1}, "threshold must be"),
        ("confident_gnmax", {"test_share": 1.0}, "test_share must lie strictly between 0 and 1"),
        ("exponential", {"epsilon": 0}, "epsilon must be a number above 0"),
        ("exponential", {"delta": 1}, "delta must lie strictly between 0 and 1"),
    ],
)
def test_bad_requests_get_one_clear_line(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        made(name, **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_threshold_by_default_from_the_number_of_teachers() -> None:
    assert made("confident_gnmax", threshold=None, num_teachers=250).threshold == 188


def test_fields_are_checked() -> None:
    with pytest.raises(ArgumentError, match="scale must be a positive multiple of 1/256"):
        GNMax(scale=Fraction(1, 3), max_answers=1)
    with pytest.raises(ArgumentError, match="max_answers must be at most num_queries = 2, got 3"):
        ConfidentGNMax(threshold=1, threshold_scale=Fraction(1), query_scale=Fraction(1), num_queries=2, max_answers=3)
    with pytest.raises(ArgumentError, match="epsilon must be within reach"):
        least_scale(lambda scale: False)
