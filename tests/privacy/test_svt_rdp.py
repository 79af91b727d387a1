"""kappa is a bound and hardly above the supremum: brute force, 90-digit decimals, and sessions that attain it."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacher_student.privacy import svt_rdp as module
from teacher_student.privacy.distributions import log_refusal, log_refusal_ratio
from teacher_student.privacy.svt_rdp import kappa, kappa_limit, log_price

LAWS = ["two_geometrics", "discrete_laplace"]
ALPHAS = np.array([1.01, 1.5, 2, 4, 5, 12, 60, 900, 20_001.0])


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [Fraction(1, 256), Fraction(1), Fraction(73, 4), Fraction(14958, 256), Fraction(700)])
def test_kappa_is_the_supremum_over_every_integer(law, scale):
    y = np.arange(-math.ceil(60 * scale) - 9, math.ceil(150 * scale) + 300)
    ratio, log_q = log_refusal_ratio(law, y, scale), log_refusal(law, y, scale)
    highest = np.array([max(0.0, log_price(np.full(y.shape, a), ratio, log_q).max()) for a in ALPHAS])
    expected = np.maximum(highest, kappa_limit(ALPHAS, float(scale)))
    found = kappa(law, scale, ALPHAS)
    assert (found >= expected).all()
    assert found == pytest.approx(expected, rel=2e-5, abs=1e-10)


@pytest.mark.parametrize("law", LAWS)
def test_it_is_a_bound_however_early_the_halving_stops(law, monkeypatch):
    scale = Fraction(300)
    y = np.arange(-20_000, 40_000)
    ratio, log_q = log_refusal_ratio(law, y, scale), log_refusal(law, y, scale)
    highest = [max(0.0, log_price(np.full(y.shape, a), ratio, log_q).max()) for a in ALPHAS]
    for slack in (3.0, 0.3, 0.03):
        monkeypatch.setattr(module, "_TIGHT", slack)
        monkeypatch.setattr(module, "_INTERVALS", 5)
        found = np.array(module._kappa.__wrapped__(law, scale, tuple(ALPHAS.tolist())))
        assert (found >= highest).all()
        assert (found > np.multiply(highest, 1 + slack / 100)).any()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [Fraction(2), Fraction(64), Fraction(50_000), Fraction(1 << 30)])
def test_no_integer_passes_it_in_fifty_digits(law, scale):
    """Double arithmetic loses digits where kappa is tiny; whatever it loses must be on the safe side."""
    found = kappa(law, scale, ALPHAS)
    for y in sorted({*range(-3, 8), *(round(scale * share) for share in (0.1, 0.3, 0.7, 1, 1.7, 2.5, 4, 10, 50))}):
        for a, bound in zip(ALPHAS, found, strict=True):
            assert exact_price(law, y, scale, Decimal(float(a))) <= bound


def exact_price(law: str, y: int, scale: Fraction, a: Decimal) -> float:
    with localcontext() as context:
        context.prec = 90
        p, q = exact_refusal(law, y - 2, scale), exact_refusal(law, y, scale)
        if q == 1:
            return 0.0
        answered = (1 - p) ** a * (1 - q) ** (1 - a) if p < 1 else Decimal(0)
        return float((p**a * q ** (1 - a) / (1 - answered)).ln())


def exact_refusal(law: str, y: int, scale: Fraction) -> Decimal:
    b = Decimal(scale.numerator) / scale.denominator
    t = (-1 / b).exp()
    if law == "two_geometrics":
        return (1 + y * (1 - t)) * (-y / b).exp() if y > 0 else Decimal(1)
    return (-y / b).exp() / (1 + t) if y >= 0 else 1 - (-(1 - y) / b).exp() / (1 + t)


def test_a_finite_maximum_wins_at_small_orders_and_the_limit_at_large_ones():
    """At scale 18.25 they change places between orders 3.8 and 4."""
    orders = np.array([1.5, 3.0, 3.8, 4.0, 5.0, 30.0])
    wins = kappa("two_geometrics", Fraction(73, 4), orders) > kappa_limit(orders, 18.25) * (1 + 1e-4)
    assert wins.tolist() == [True, True, True, False, False, False]


@given(
    a=st.floats(1.001, 500),
    log_q=st.floats(-30, -1e-3),
    log_ratio=st.floats(1e-3, 3),
    more_q=st.floats(0, 1),
    more_ratio=st.floats(0, 1),
)
def test_the_price_rises_in_the_ratio_and_in_the_refusal_probability(a, log_q, log_ratio, more_q, more_ratio):
    """Lines 15 and 16 of the proof: what the interval bound rests on."""

    def price(ratio: float, q: float) -> float:
        return float(log_price(np.array([a]), np.array([ratio]), np.array([q]))[0])

    here, slack = price(log_ratio, log_q), 1e-9 * (1 + a)
    assert price(log_ratio + more_ratio, log_q) >= here - slack
    assert price(log_ratio, min(0.0, log_q + more_q)) >= here - slack


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("cutoff", [1, 3])
def test_a_session_attains_it(law, cutoff):
    """Asking the worst query until it is refused: the moment's limit is e^(kappa T); half of kappa would not cover it."""
    scale, a = Fraction(9), 1.7
    y = np.arange(1, 200)
    worst = y[log_price(np.full(y.shape, a), log_refusal_ratio(law, y, scale), log_refusal(law, y, scale)).argmax()]
    p, q = np.exp(log_refusal(law, np.array([worst - 2, worst]), scale))
    moments = [1.0] * (cutoff + 1)  # by payments left; after the last one nothing is asked
    for _ in range(4000):
        for left in range(cutoff, 0, -1):
            moments[left] = p**a * q ** (1 - a) * moments[left - 1] + (1 - p) ** a * (1 - q) ** (1 - a) * moments[left]
    claimed = cutoff * float(kappa(law, scale, np.array([a]))[0])
    assert math.log(moments[cutoff]) <= claimed
    assert math.log(moments[cutoff]) >= 0.999 * claimed
