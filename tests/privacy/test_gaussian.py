"""A discrete Gaussian is exactly mu-GDP, at a mu just above the continuous one; its compositions, summed without a theorem."""

from __future__ import annotations

import math
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from scipy import special

from teacher_student.privacy.gaussian import discrete_gaussian_mu, gaussian_delta, gaussian_epsilon, gaussian_mu, mu_from_squares

SCALES = [Fraction(1, 4), Fraction(1, 2), Fraction(200, 256), Fraction(1), Fraction(2), Fraction(5), Fraction(30)]


def masses(scale: float, reach: int) -> np.ndarray:
    weights = np.exp(-((np.arange(-reach, reach + 1) / scale) ** 2) / 2)
    return weights / weights.sum()


def exact_delta(parts: list[tuple[float, int]], epsilon: float) -> float:
    """Hockey-stick divergence of independent discrete Gaussians, each moved by one: the law of the summed losses, convolved.

    Moving N draws of scale s by one each has loss (N - 2 S) / (2 s^2), S their sum. Values below 1e-40 are cut off.
    """
    losses, mass = np.zeros(1), np.ones(1)
    for scale, count in parts:
        one = masses(scale, math.ceil(12 * scale) + 2)
        total = one
        for _ in range(count - 1):
            total = np.convolve(total, one)
        sums = np.arange(len(total)) - len(total) // 2
        kept = total > 1e-40
        loss = (count - 2 * sums[kept]) / (2 * scale**2)
        losses, mass = np.add.outer(losses, loss).ravel(), np.multiply.outer(mass, total[kept]).ravel()
    return float((mass * np.maximum(0, -np.expm1(epsilon - losses))).sum())


@pytest.mark.parametrize("scale", SCALES)
def test_quantile_steps_stay_below_mu_and_the_first_reaches_it(scale: Fraction) -> None:
    """The theorem's claim x_j - x_{j-1} <= mu for every j, out to 30 standard deviations, and equality at j = 1."""
    s = float(scale)
    reach = max(40, math.ceil(40 * s))
    log_weights = -((np.arange(0, reach) / s) ** 2) / 2
    log_tails = np.logaddexp.accumulate(log_weights[::-1])[::-1]  # ln of the sum over z >= j
    log_total = np.log(2 * np.exp(log_tails[0]) - 1)
    x = -special.ndtri_exp(log_tails[1 : math.ceil(30 * s) + 2] - log_total)
    steps = np.diff(np.concatenate([[-x[0]], x]))
    mu = discrete_gaussian_mu(scale)
    assert steps[0] == pytest.approx(mu, rel=1e-9)
    assert steps.max() <= mu * (1 + 1e-10)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(3)])
def test_no_smaller_mu_will_do(scale: Fraction) -> None:
    exact = exact_delta([(float(scale), 1)], 0.0)
    assert gaussian_delta(discrete_gaussian_mu(scale), 0.0) == pytest.approx(exact, rel=1e-9)
    assert gaussian_delta(1 / float(scale), 0.0) < exact  # the continuous law's mu claims too much


@pytest.mark.parametrize(("scale", "count"), [(1, 1), (1, 6), (2, 4), (4, 20)])
def test_composed_discrete_gaussians_cost_what_mu_says(scale: int, count: int) -> None:
    mu = mu_from_squares(count * discrete_gaussian_mu(Fraction(scale)) ** 2)
    for epsilon in np.linspace(0, 4 * mu, 33):
        exact = exact_delta([(scale, count)], float(epsilon))
        assert exact <= gaussian_delta(mu, float(epsilon)) * (1 + 1e-9) + 1e-15


def test_composed_with_the_continuous_mu_some_delta_is_claimed_too_small() -> None:
    claimed = [gaussian_delta(math.sqrt(6), epsilon) for epsilon in np.linspace(0, 6, 200)]
    exact = [exact_delta([(1, 6)], float(epsilon)) for epsilon in np.linspace(0, 6, 200)]
    assert max(e / c for e, c in zip(exact, claimed, strict=True)) > 1.005


def test_two_scales_together() -> None:
    """Confident-GNMax's shape: three tests at one scale, two answers (four counts) at another."""
    mu = mu_from_squares(3 * discrete_gaussian_mu(Fraction(2)) ** 2, 4 * discrete_gaussian_mu(Fraction(3)) ** 2)
    for epsilon in (0.0, 0.5, 1.5, 3.0):
        exact = exact_delta([(2, 3), (3, 4)], epsilon)
        assert 0.9 * gaussian_delta(mu, epsilon) <= exact <= gaussian_delta(mu, epsilon)


@pytest.mark.parametrize("scale", [4, 40, 224, 5000])
def test_the_distance_from_continuous_noise_is_a_24th_of_the_inverse_variance(scale: int) -> None:
    excess = discrete_gaussian_mu(Fraction(scale)) * scale - 1
    assert excess * 24 * scale**2 == pytest.approx(1, abs=0.01 + 24 * scale**2 * 2e-11)


@pytest.mark.parametrize("mu", [0.01, 0.27, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.01])
def test_conversion_is_that_of_dp_accounting(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert epsilon == pytest.approx(dp_accounting.get_epsilon_gaussian(1 / mu, delta), rel=1e-10, abs=1e-10)
    assert gaussian_delta(mu, epsilon) <= delta
    if epsilon > 0:
        assert gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=1e-8)


def test_limits() -> None:
    assert gaussian_delta(0.0, 1.0) == 0.0
    assert gaussian_delta(math.inf, 1.0) == 1.0
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_epsilon(math.inf, 1e-5) == math.inf
    assert discrete_gaussian_mu(Fraction(1, 256)) == math.inf


@pytest.mark.parametrize("mu", [1e-10, 1e-8, 1e-6, 1e-3, 0.3, 2.0])
@pytest.mark.parametrize("deviations", [0.0, 0.1, 2.0, 6.0])
def test_no_digit_is_lost_to_the_side_of_a_smaller_delta(mu: float, deviations: float) -> None:
    """Against 60 digits. For small mu the two tails differ only in the last digits of a double, so slack is added."""
    mp = pytest.importorskip("mpmath").mp.clone()
    mp.dps = 60
    epsilon = mu * deviations
    true, false = mp.mpf(mu) / 2 - mp.mpf(epsilon) / mu, -mp.mpf(mu) / 2 - mp.mpf(epsilon) / mu
    exact = float((mp.erfc(-true / mp.sqrt(2)) - mp.exp(epsilon) * mp.erfc(-false / mp.sqrt(2))) / 2)
    found = gaussian_delta(mu, epsilon)
    assert exact * (1 - 1e-15) <= found <= exact * (1 + 1e-10 + 2e-12 / mu)


def test_nan_is_a_certain_failure() -> None:
    assert gaussian_delta(math.nan, 1.0) == gaussian_delta(1.0, math.nan) == 1.0
    assert gaussian_epsilon(math.nan, 1e-5) == math.inf
    assert gaussian_delta(1e-3, 1e308) == 0.0
