"""The numerical accountant of the sparse vector: it bounds every session, and lies below the Renyi bound."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.auditing.exact import ThresholdLaw
from teacher_student.auditing.pairs import exact_epsilon, worst_flips
from teacher_student.privacy import Stability, calibrate, parameters_from_dict
from teacher_student.privacy.distributions import discrete_gaussian, log_refusal
from teacher_student.privacy.svt_exact import Worth, refusals, session_delta, worth

LAWS = ("two_geometrics", "discrete_laplace")
LOWEST = -2.0


def pairs_of(law: str, scale: Fraction, far: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """(p, q) of every integer from far below the threshold to far above it."""
    y = np.arange(-math.ceil(8 * scale), math.ceil(far * scale))
    return np.exp(log_refusal(law, y - 2, scale)), np.exp(log_refusal(law, y, scale))


def right_hand_side(before: Worth, now: Worth, charge: np.ndarray, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """(charges, pairs): the left-hand side of (*) in line 22 of docs/tight_guarantee.md."""
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.where(p < 1, charge[:, np.newaxis] * (1 - q) / (1 - p), np.inf)
    return p * before.at(charge[:, np.newaxis] * q / p) + (1 - p) * now.at(left)


def excess(bounds: tuple[Worth, ...], p: np.ndarray, q: np.ndarray, scale: Fraction) -> float:
    charge = np.exp(np.random.default_rng(1).uniform(LOWEST - 2, 2 * len(bounds) / float(scale), 400))
    worst = [
        (right_hand_side(before, now, charge, p, q) - now.at(charge)[:, np.newaxis]).max()
        for before, now in itertools.pairwise(bounds)
    ]
    return float(max(worst))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [Fraction(5, 4), Fraction(10)])
def test_the_bound_is_at_least_its_own_right_hand_side(law: str, scale: Fraction) -> None:
    """Lines 22 to 25: at random charges, on the grid and between its points, for every integer."""
    bounds = worth(law, scale, 3, LOWEST)
    assert excess(bounds, *pairs_of(law, scale), scale) <= 1e-12
    assert excess(tuple(bound._replace(value=0.999 * bound.value) for bound in bounds), *pairs_of(law, scale), scale) <= 1e-12
    lower = (bounds[0], *(bound._replace(value=np.maximum(bound.value - 1e-3, 0)) for bound in bounds[1:]))
    assert excess(lower, *pairs_of(law, scale), scale) > 1e-4  # a bound a thousandth lower is none


@pytest.mark.parametrize("law", LAWS)
def test_bounds_are_convex_and_decrease_and_more_refusals_are_worth_more(law: str) -> None:
    bounds = worth(law, Fraction(3), 4, LOWEST)
    for before, now in itertools.pairwise(bounds):
        slopes = np.diff(now.value) / np.diff(now.charge)
        assert (slopes <= 1e-12).all()
        assert (np.diff(slopes) >= -1e-9 * np.abs(slopes[1:])).all()
        assert (now.value >= before.value).all()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [Fraction(5, 4), Fraction(4)])
def test_few_pairs_stand_for_all_integers(law: str, scale: Fraction) -> None:
    """Line 24: each integer's pair is a multiple of a listed one, or lies between the diagonal and such a multiple."""
    listed_p, listed_q = refusals(law, scale)
    for p, q in zip(*pairs_of(law, scale, far=60), strict=True):
        ratio, covers = listed_p / listed_q, listed_q >= min(q, 1)
        capped = (listed_p >= 1 - 1e-12) & (ratio >= p / q - 1e-12)
        assert ((covers & (ratio >= p / q - 1e-12)) | capped).any() or p == pytest.approx(q)


def exact_worth(refusals_left: int, queries: int, charge: float, pairs: tuple[tuple[float, float], ...]) -> float:
    """V(n, t, g) of line 21 by trying every pair."""

    @functools.cache
    def value(queries: int, left: int, charge: float) -> float:
        best = max(0.0, 1 - charge)
        if not queries or not left:
            return best
        for p, q in pairs:
            answered = (1 - p) * value(queries - 1, left, charge * (1 - q) / (1 - p)) if p < 1 else 0.0
            best = max(best, p * value(queries - 1, left - 1, charge * q / p) + answered)
        return best

    return value(queries, refusals_left, charge)


@pytest.mark.parametrize("law", LAWS)
def test_never_below_the_exact_worth_of_short_sessions(law: str) -> None:
    scale = Fraction(4)
    pairs = tuple(zip(*(part[::6].tolist() for part in pairs_of(law, scale, far=8)), strict=True))
    bounds = worth(law, scale, 2, LOWEST)
    for left in (1, 2):
        for charge in (0.5, 1.0, 1.3):
            exact = exact_worth(left, 4, charge, pairs)
            assert exact <= bounds[left].at(np.array([charge]))[0]


def test_an_adversary_who_asks_one_kind_of_query_until_it_is_refused_comes_close() -> None:
    """The exact worth at charge 1 of asking a pair again and again: the largest sum of positive parts."""
    scale = Fraction(4)
    bound = worth("two_geometrics", scale, 1, LOWEST)[1].at(np.array([1.0]))[0]
    asked = np.arange(4000)[:, np.newaxis]
    p, q = pairs_of("two_geometrics", scale)
    kept = (p < 1) & (q < 1)
    p, q = p[kept], q[kept]
    found = np.maximum(0, (1 - p) ** asked * p - (1 - q) ** asked * q).sum(axis=0).max()
    assert bound >= found >= 0.95 * bound


POINTS = [(1, 1.0, 1e-5), (2, 0.25, 1e-5), (4, 1.0, 1e-3), (3, 4.0, 1e-5)]


@pytest.mark.parametrize(("cutoff", "epsilon", "delta"), POINTS)
def test_it_saves_noise_and_sessions_stay_within_the_claim(cutoff: int, epsilon: float, delta: float) -> None:
    renyi = calibrate("stability", epsilon=epsilon, delta=delta, cutoff=cutoff)
    spec = calibrate("stability", epsilon=epsilon, delta=delta, cutoff=cutoff, accountant="numerical")
    assert spec.query_scale <= 0.95 * renyi.query_scale
    assert epsilon >= spec.epsilon(delta) > 0.98 * epsilon
    assert dataclasses.replace(spec, accountant="renyi").epsilon(delta) > epsilon
    assert spec.delta(spec.epsilon(delta)) == pytest.approx(delta, rel=1e-3)
    found = worst_flips(ThresholdLaw.of(spec), exact_epsilon(delta), ups=(0, 5))
    assert found.outcomes.worst_divergence(epsilon).upper <= delta


def test_a_session_with_half_the_noise_or_more_refusals_is_caught() -> None:
    spec = calibrate("stability", epsilon=1.0, delta=1e-3, cutoff=1, accountant="numerical")
    assert isinstance(spec, Stability)
    for wrong in (spec.rescaled(query_scale=0.5, threshold_scale=0.5), dataclasses.replace(spec, cutoff=3)):
        found = worst_flips(ThresholdLaw.of(wrong), exact_epsilon(1e-3), ups=(0, 5))
        assert found.outcomes.worst_divergence(spec.epsilon(1e-3)).lower > 1e-3


def test_it_is_written_down_and_has_a_limit() -> None:
    spec = calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=2, accountant="numerical")
    kept = json.loads(json.dumps(spec.to_dict()))
    assert kept["accountant"] == "numerical"
    assert parameters_from_dict(kept) == spec
    assert "accountant" not in calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=2).to_dict()
    with pytest.raises(ArgumentError, match="cutoff must be at most 10 for accountant=numerical, got 11"):
        calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=11, accountant="numerical")
    with pytest.raises(ArgumentError, match="accountant must be one of numerical, renyi"):
        calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=2, accountant="exact")


def test_an_epsilon_beyond_doubles_costs_no_delta() -> None:
    spec = calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=2, accountant="numerical")
    assert spec.delta(1e6) == pytest.approx(spec.release_delta)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [Fraction(1, 256), Fraction(1, 64)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_where_the_bound_is_not_a_number_nothing_is_certified(law: str, scale: Fraction) -> None:
    delta = session_delta(law, scale, 10, discrete_gaussian(Fraction(2)), Fraction(2), 1.0)
    assert 0 < delta <= 1.0 + 1e-9
