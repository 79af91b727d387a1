"""The laws against other summations: probabilities convolved term by term, and 60-digit decimals."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.privacy.distributions import (
    LARGEST_SUMMED,
    discrete_gaussian,
    discrete_laplace,
    laplace_difference_tail,
    log_answer,
    log_refusal,
    log_refusal_ratio,
)

SCALES = [Fraction(1, 2), Fraction(7, 4), Fraction(18), Fraction(117, 2)]


def refusal_by_convolution(law: str, scale: Fraction, y: int) -> float:
    """P(nu <= -y), summing the convolution of two geometric laws or the two-sided law over its window."""
    t, reach = math.exp(-1 / float(scale)), math.ceil(60 * float(scale))
    if law == "two_geometrics":
        one = (1 - t) * t ** np.arange(reach)
        return float(np.convolve(one, one)[max(0, y) : reach].sum())
    window = discrete_laplace(scale)
    return float(window.mass[window.support <= -y].sum())


@pytest.mark.parametrize("law", ["two_geometrics", "discrete_laplace"])
@pytest.mark.parametrize("scale", SCALES)
def test_refusal_is_the_convolved_tail(law, scale):
    for y in (-40, -3, -1, 0, 1, 2, 3, 17, 60):
        expected = refusal_by_convolution(law, scale, y)
        assert math.exp(log_refusal(law, np.array([y]), scale)[0]) == pytest.approx(expected, rel=1e-9, abs=1e-25)


@pytest.mark.parametrize("law", ["two_geometrics", "discrete_laplace"])
@pytest.mark.parametrize("scale", SCALES)
def test_the_ratio_is_the_difference_never_falls_and_stays_below_its_limit(law, scale):
    y = np.arange(-200, 900)
    ratio = log_refusal_ratio(law, y, scale)
    assert ratio == pytest.approx(log_refusal(law, y - 2, scale) - log_refusal(law, y, scale), abs=1e-12)
    assert (np.diff(ratio) >= -1e-16).all()
    assert (ratio <= 2 / float(scale)).all()


def test_answer_complements_refusal():
    refused = np.array([-1e-18, -1e-9, -0.3, -math.log(2), -5.0, -80.0])
    expected = [math.log(-math.expm1(value)) for value in refused]
    assert log_answer(refused) == pytest.approx(expected, rel=1e-12)
    assert log_answer(np.zeros(1))[0] == -math.inf


@pytest.mark.parametrize("scale", SCALES[:3])
def test_windows_hold_all_but_what_they_admit(scale):
    for window, weight in ((discrete_gaussian(scale), gaussian_weight), (discrete_laplace(scale), laplace_weight)):
        with localcontext() as context:
            context.prec = 60
            s = Decimal(scale.numerator) / scale.denominator
            reach = 3 * int(window.support[-1]) + 300
            weights = {x: weight(x, s) for x in range(reach)}
            total = 2 * sum(weights.values()) - weights[0]
            outside = 2 * sum(value for x, value in weights.items() if x > window.support[-1]) / total
            exact = [float(weights[abs(x)] / total) for x in window.support.tolist()]
        assert outside <= window.outside
        assert window.mass == pytest.approx(exact, rel=1e-11)


def gaussian_weight(x: int, s: Decimal) -> Decimal:
    return (-((x / s) ** 2) / 2).exp()


def laplace_weight(x: int, s: Decimal) -> Decimal:
    return (-x / s).exp()


@pytest.mark.parametrize(
    ("query", "threshold"),
    [(Fraction(8), Fraction(4)), (Fraction(3), Fraction(11)), (Fraction(5), Fraction(5)), (Fraction(24), Fraction(20))],
)
def test_difference_tail_is_the_double_sum(query, threshold):
    noise, shift = discrete_laplace(query), discrete_laplace(threshold)
    table = noise.mass[:, None] * shift.mass[None, :]
    difference = noise.support[:, None] - shift.support[None, :]
    for least in (1, 2, 9, 40):
        expected = table[difference >= least].sum()
        tail = laplace_difference_tail(least, query, threshold)
        assert expected * (1 - 1e-13) <= tail <= expected * (1 + 1e-9)


def test_difference_tail_tends_to_the_continuous_one():
    """P(Lap(2 L) - Lap(L) > t) = (4 e^(-t / 2L) - e^(-t / L)) / 6."""
    scale, t = 5000, 20_000
    continuous = (4 * math.exp(-t / (2 * scale)) - math.exp(-t / scale)) / 6
    assert laplace_difference_tail(t, Fraction(2 * scale), Fraction(scale)) == pytest.approx(continuous, rel=1e-3)


def test_a_scale_too_large_to_be_summed_is_refused():
    with pytest.raises(ArgumentError, match="threshold_scale must be at most 65536"):
        discrete_gaussian(Fraction(LARGEST_SUMMED + 1))
