"""Noise in shares: the lemma against exact convolutions, the cost against exact divergences, and twins that pay too little."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from teacher_student.arguments import ArgumentError
from teacher_student.privacy import NoisyFraction, NoisyScores, calibrate
from teacher_student.privacy.noise_shares import log_ratio, share_scale, shared_epsilon, summed_scale

DELTA = 1e-3


def single(scale: float, reach: int) -> NDArray[np.float64]:
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * scale**2))
    return weights / weights.sum()


def summed(scale: float, shares: int, reach: int) -> NDArray[np.float64]:
    """The exact law of a sum of shares, on -shares * reach to shares * reach."""
    law = one = single(scale, reach)
    for _ in range(shares - 1):
        law = np.convolve(law, one)
    return law


@pytest.mark.parametrize("scale", [0.7, 0.9, 1.0, 1.5])
@pytest.mark.parametrize("shares", [1, 2, 3, 7])
def test_the_sum_is_as_close_to_a_single_draw_as_the_lemma_says(scale: float, shares: int) -> None:
    reach = 14
    law, t = summed(scale, shares, reach), log_ratio(Fraction(scale), shares)
    alone = single(scale * shares**0.5, shares * reach)
    middle = slice(shares * reach - 12, shares * reach + 13)  # where doubles are exact enough
    apart = np.abs(np.log(law[middle] / alone[middle])).max()
    assert apart <= t + 1e-12
    if shares == 2 and scale < 1:
        assert apart > t / 10  # the bound is not idle: at these scales the sum is visibly another law


def test_a_bound_that_forgets_the_factor_of_the_number_of_shares_is_caught() -> None:
    scale, shares, reach = 0.7, 7, 14
    law, alone = summed(scale, shares, reach), single(scale * shares**0.5, shares * reach)
    middle = slice(shares * reach - 8, shares * reach + 9)
    apart = np.abs(np.log(law[middle] / alone[middle])).max()
    single_ripple = 2 * math.exp(-2 * math.pi**2 * scale**2)  # of one draw, in the place of v = s^2 i / (i + 1)
    assert 2 * math.atanh(single_ripple) < apart <= log_ratio(Fraction(scale), shares)


def delta_of(law: NDArray[np.float64], moved: int, epsilon: float) -> float:
    """The exact hockey-stick divergence of `moved` sums that each move by one, by convolving the privacy loss."""
    shifted = np.roll(law, 1)
    inside = (law > 1e-300) & (shifted > 1e-300)
    loss, mass = np.log(law[inside] / shifted[inside]), law[inside]
    losses, masses = loss, mass
    for _ in range(moved - 1):
        losses, masses = np.add.outer(losses, loss).ravel(), np.multiply.outer(masses, mass).ravel()
        kept = masses > 1e-16
        losses, masses = losses[kept], masses[kept]
    return float((masses * np.maximum(0, -np.expm1(epsilon - losses))).sum())


SPEC = calibrate("noisy_fraction", epsilon=1.0, delta=DELTA, num_queries=1, num_classes=2)


def claimed(shares: int) -> Fraction:
    return share_scale(SPEC, shares, epsilon=1.0, delta=DELTA)


@pytest.mark.parametrize("shares", [2, 3, 5])
def test_honest_shares_keep_the_claim_exactly(shares: int) -> None:
    scale = claimed(shares)
    assert delta_of(summed(float(scale), shares, 60), moved=2, epsilon=1.0) <= DELTA


@pytest.mark.parametrize("shares", [2, 3, 5])
def test_a_missing_share_or_a_colluder_more_than_stated_is_caught(shares: int) -> None:
    """The twin counts an owner's share that is not there, or that a colluding owner has told the server."""
    scale = claimed(shares)
    assert delta_of(summed(float(scale), shares - 1, 60), moved=2, epsilon=1.0) > DELTA
    assert shared_epsilon(SPEC, scale, shares - 1, DELTA) > 1.0


def test_a_twin_that_divides_the_scale_by_the_number_and_not_its_root_is_caught() -> None:
    scale = SPEC.scale / 4
    assert delta_of(summed(float(scale), 4, 60), moved=2, epsilon=1.0) > DELTA
    assert shared_epsilon(SPEC, scale, 4, DELTA) > 1.0


@pytest.mark.parametrize("shares", [1, 2, 7, 50])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_a_share_is_the_smallest_that_keeps_the_claim(shares: int, epsilon: float) -> None:
    spec = calibrate("noisy_fraction", epsilon=epsilon, delta=1e-5, num_queries=300, num_classes=2)
    assert isinstance(spec, NoisyFraction)
    scale = share_scale(spec, shares, epsilon=epsilon, delta=1e-5)
    assert summed_scale(scale, shares) >= spec.scale
    assert shared_epsilon(spec, scale, shares, 1e-5) <= epsilon
    smaller = scale - Fraction(1, 256)
    assert summed_scale(smaller, shares) < spec.scale or shared_epsilon(spec, smaller, shares, 1e-5) > epsilon


def test_scores_have_shares_too_and_narrow_ones_have_no_guarantee() -> None:
    spec = calibrate("noisy_scores", epsilon=1.0, delta=1e-5, num_queries=4, num_classes=2)
    assert isinstance(spec, NoisyScores)
    assert shared_epsilon(spec, share_scale(spec, 9, epsilon=1.0, delta=1e-5), 9, 1e-5) <= 1.0
    assert log_ratio(Fraction(1, 8), 2) == math.inf
    assert shared_epsilon(SPEC, Fraction(1, 8), 2, DELTA) == math.inf
    with pytest.raises(ArgumentError, match="shares must be"):
        log_ratio(Fraction(4), 0)
    with pytest.raises(ArgumentError, match="scale must be"):
        shared_epsilon(SPEC, Fraction(1, 3), 2, DELTA)
