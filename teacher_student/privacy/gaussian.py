"""Exact Gaussian differential privacy for integer noise.

The continuous Gaussian mechanism of sensitivity 1 and standard deviation sigma is mu-GDP with mu = 1/sigma (Dong, Roth, Su
2019). Integer noise is not: moving a discrete Gaussian by one changes it by P(Z = 0) in total variation, and that is *more*
than 2 Phi(1 / 2 sigma) - 1. What holds, and what this project accounts with:

**Theorem.** Z with P(Z = z) proportional to exp(-z^2 / 2 scale^2), against Z + 1, is mu-GDP with

    mu = 2 Phi^-1( (1 + P(Z = 0)) / 2 )  =  (1 / scale) (1 + 1 / (24 scale^2) + ...),

and no smaller mu is valid, since at epsilon = 0 the divergence of both sides is P(Z = 0).

*Proof.* Let T(j) = P(Z >= j) and x_j the point with P(N(0,1) > x_j) = T(j). Both pairs have monotone likelihood ratios, so the
best tests are thresholds; the trade-off curve of (Z, Z + 1) is a polygon with the corners (T(j), 1 - T(j-1)), and the Gaussian's
is convex. So the claim is x_j - x_{j-1} <= mu for all j. By symmetry x_{1-j} = -x_j; hence x_1 - x_0 = 2 x_1 = mu, and j >= 1
is left. Induction from j to j + 1:

1. Lay a lattice of intervals of width mu through x_j: interval i is [x_j + (i-j) mu, x_j + (i-j+1) mu], with centre
   y_i = mu i - d and d = mu (j - 1/2) - x_j. By hypothesis x_j <= mu / 2 + (j-1) mu, so d >= 0; and y_{j-1} = x_j - mu/2 >= 0.
   Let I_i be the normal mass of interval i; the sum of I_i over i >= j is T(j).
2. As a function of s = y^2, y >= 0, ln P(Z = i) - ln I_i is linear in s, minus d * const * sqrt(s), minus ln M(sqrt(s)), where
   M(y) is the integral of exp(y t - t^2 / 2) over |t| <= mu/2. The derivative of ln M in y is the mean of a normal law truncated
   to |t| <= mu/2 and tilted by y, which is concave in y >= 0 and 0 at 0 (the GHS inequality for one site: Ellis, Monroe, Newman
   1976), so ln M(sqrt(s)) is concave in s. Thus ln P(Z = i) - ln I_i is convex in s.
3. It is <= 0 at i = j - 1 (that is x_j - x_{j-1} <= mu). Were it > 0 at i = j, it would be > 0 at all i >= j, and the sums over
   i >= j, both T(j), could not be equal. So P(Z = j) <= I_j, which says x_{j+1} - x_j <= mu. QED

**Composition.** mu-GDP parts compose to sqrt(sum of mu^2), and this stays exact when the next question, and whether it is asked,
depends on the answers, as long as the sum of mu^2 never passes a fixed number: a mu-GDP answer is computable from the increment
of B(t) + drift * t over a time mu^2, drift 0 under one data set and 1 under the other, so the whole conversation is computable
from that path up to the fixed time, which is a single Gaussian. Hence caps on the number of questions, fixed beforehand.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy import special
from scipy.optimize import brentq

_SLACK = 1e-11
"""Relative slack, upwards, for rounding errors of double arithmetic."""

_LAST_DIGITS = 4e-15
"""Relative error of a logarithm of the normal tail, including the rounding of its argument; several times the measured error."""


def discrete_gaussian_mu(scale: Fraction) -> float:
    """Return the exact mu of a discrete Gaussian of this scale under a shift by one.

    >>> round(discrete_gaussian_mu(Fraction(10)), 9), round(discrete_gaussian_mu(Fraction(1)), 6)
    (0.100041703, 1.04576)
    """
    at_zero, elsewhere = _mass_at_zero(float(scale))
    quantile = special.erfinv(at_zero) if at_zero < 0.5 else special.erfcinv(elsewhere)
    return 2 * math.sqrt(2) * float(quantile) * (1 + _SLACK)


def mu_from_squares(*squares: float) -> float:
    """Return the mu of a composition of parts with these sums of mu^2.

    >>> mu_from_squares(9.0, 16.0)
    5.0
    """
    return math.sqrt(math.fsum(squares))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the smallest delta at which a mu-GDP mechanism is (epsilon, delta)-DP (Balle and Wang 2018, theorem 8).

    >>> round(gaussian_delta(1.0, 0.0), 12) == round(math.erf(0.5 / math.sqrt(2)), 12)
    True
    """
    return math.exp(_log_delta(mu, epsilon))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which a mu-GDP mechanism is (epsilon, delta)-DP.

    dp-accounting has the same function, but importing it takes longer than a thousand sessions. The tests compare the two.

    >>> gaussian_epsilon(1.0, gaussian_delta(1.0, 2.0))
    2.0000000...
    """
    if not math.isfinite(mu):
        return math.inf
    wanted, high = math.log(delta), 1.0
    if _log_delta(mu, 0.0) <= wanted:
        return 0.0
    while _log_delta(mu, high) > wanted:
        high *= 2
    return float(brentq(lambda epsilon: _log_delta(mu, epsilon) - wanted, 0.0, high, xtol=1e-13)) * (1 + _SLACK) + 1e-12


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu whose mechanisms are all (epsilon, delta)-DP.

    >>> round(gaussian_mu(1.0, 1e-5), 6)
    0.268051
    """
    wanted, low, high = math.log(delta), 1.0, 1.0
    while _log_delta(low, epsilon) > wanted:
        low /= 2
    while _log_delta(high, epsilon) <= wanted:
        high *= 2
    return float(brentq(lambda mu: _log_delta(mu, epsilon) - wanted, low, high, xtol=1e-14)) * (1 - _SLACK)


def _log_delta(mu: float, epsilon: float) -> float:
    """Return ln(P_true - e^epsilon P_false). For small mu the two hardly differ, so their last digits matter."""
    if mu == 0:
        return -math.inf
    if not math.isfinite(mu) or math.isnan(epsilon):
        return 0.0
    log_true = float(special.log_ndtr(mu / 2 - epsilon / mu))
    if log_true == -math.inf:
        return log_true
    log_false = epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu))
    apart = log_true - log_false + _LAST_DIGITS * (1 + abs(log_true) + abs(log_false - epsilon))
    if math.isnan(apart):
        return 0.0
    return -math.inf if apart <= 0 else log_true + math.log(-math.expm1(-apart))


def _mass_at_zero(scale: float) -> tuple[float, float]:
    """Return P(Z = 0) and P(Z != 0): by direct summation for a small scale, by Poisson's summation formula for a large one."""
    if scale < 1:
        elsewhere = 2 * float(np.exp(-((np.arange(1, 40) / scale) ** 2) / 2).sum())
        return 1 / (1 + elsewhere), elsewhere / (1 + elsewhere)
    ripple = math.fsum(math.exp(-2 * (math.pi * scale * k) ** 2) for k in range(1, 4))
    total = scale * math.sqrt(2 * math.pi) * (1 + 2 * ripple)
    return 1 / total, 1 - 1 / total
