"""Noise in shares: several parties each add a discrete Gaussian to their part of a sum, and others see the whole sum alone.

Owners that trust no server with their counts each add their own noise, and secure aggregation shows the server nothing but the
sum. Some of the owners may tell the server what they added, so only `shares` of the draws count: those of the honest owners that
are in the sum whatever happens.

**Lemma.** Let X be a discrete Gaussian of scale s, Y one of scale t, independent, and W one of scale (s^2 + t^2)^(1/2). Put
v = s^2 t^2 / (s^2 + t^2) and h = 2 (e^(-2 pi^2 v) + e^(-2 pi^2 v 4) + e^(-2 pi^2 v 9) + ...). If h < 1, then for every integer z

    |ln( P(X + Y = z) / P(W = z) )|  <=  2 artanh(h).

*Proof.* P(X + Y = z) is proportional to the sum over x of exp(-x^2 / 2 s^2 - (z - x)^2 / 2 t^2). Completing the square, this is

    exp(-z^2 / 2 (s^2 + t^2)) f(z),   f(z) = sum over x of exp(-(x - c z)^2 / 2 v),   c = s^2 / (s^2 + t^2).

By Poisson's summation formula f(z) = (2 pi v)^(1/2) (1 + 2 sum over j >= 1 of e^(-2 pi^2 v j^2) cos(2 pi j c z)), which lies
between (2 pi v)^(1/2) (1 - h) and (2 pi v)^(1/2) (1 + h) for every z. The first factor is proportional to P(W = z). So P(X + Y
= z) / P(W = z) is f(z) divided by a mean of f, and lies between (1 - h) / (1 + h) and (1 + h) / (1 - h). Its logarithm is at
most ln((1 + h) / (1 - h)) = 2 artanh(h) in absolute value. QED

**Sums of k shares.** Add them one by one. Convolving two laws with the same third law cannot increase the largest ratio of
their probabilities, so the sum of k discrete Gaussians of scale s has, at every integer, a probability within e^(-t) and e^t of
that of one discrete Gaussian of scale s k^(1/2), with t = 2 artanh(h_1) + ... + 2 artanh(h_(k-1)) and v_i = s^2 i / (i + 1) in
h_i. This is the argument of Kairouz, Liu and Steinke (2021, "The distributed discrete Gaussian mechanism for federated learning
with secure aggregation") with the constants that the proof gives.

**Cost.** Let a mechanism that adds single discrete Gaussians of scale s k^(1/2) to M sums be (epsilon, delta)-private. With
shares, every transcript is at most e^(t M) times as likely, and at least e^(-t M) times, on either data set. (The next sums may
depend on earlier noisy sums; the ratios multiply.) Hence P'(S) <= e^(tM) P(S) <= e^(tM) (e^epsilon Q(S) + delta) <= e^(epsilon
+ 2tM) Q'(S) + e^(tM) delta: the mechanism with shares is (epsilon + 2 t M, e^(tM) delta)-private. At s = 4 and k = 10, t is
below 1e-67.

The guarantee is against everybody who sees the sum and knows all other shares. It needs `shares` honest draws in every sum that
is seen, and that no part of the sum is seen: a missing share leaves less noise, and `shared_epsilon` of the shares that are
left says what remains.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

from teacher_student.arguments import ArgumentError, positive_integer
from teacher_student.privacy.noisy_sums import NoisySums
from teacher_student.privacy.parameters import GRID, check_scale, smallest_scale


def log_ratio(scale: Fraction, shares: int) -> float:
    """Return t: the sum of `shares` discrete Gaussians of this scale is within e^t of a single one, at every integer.

    >>> log_ratio(Fraction(2), 1), log_ratio(Fraction(2), 10) < 1e-15
    (0.0, True)
    """
    together = 0.0
    for added in range(1, positive_integer("shares", shares)):
        exponent = 2 * math.pi**2 * float(scale) ** 2 * added / (added + 1)
        ripple = 2 * math.fsum(math.exp(-exponent * j * j) for j in range(1, 40))
        if exponent < 1 or ripple >= 1:
            return math.inf
        together += 2 * math.atanh(ripple)
    return together * (1 + 1e-11)


def summed_scale(scale: Fraction, shares: int) -> Fraction:
    """Return the scale of the sum of `shares` discrete Gaussians, scale * shares^(1/2), rounded down to the grid.

    >>> summed_scale(Fraction(4), 4)
    Fraction(8, 1)
    """
    return Fraction(math.isqrt(int(scale * scale * shares * GRID * GRID)), GRID)


def shared_epsilon(spec: NoisySums, scale: Fraction, shares: int, delta: float) -> float:
    """Return the epsilon at `delta` of the sums of `spec` if their noise is the sum of shares of this scale.

    Args:
        spec: what is summed; its own scale does not matter.
        scale: of every share.
        shares: how many honest shares are in every sum.
        delta: as of the claim.
    """
    moved = 2 * log_ratio(check_scale("scale", scale), shares) * spec.max_answers * spec.num_classes
    if not moved < 1:
        return math.inf
    single = dataclasses.replace(spec, scale=summed_scale(scale, shares))
    return single.epsilon(delta * math.exp(-moved)) + moved


def share_scale(spec: NoisySums, shares: int, *, epsilon: float, delta: float) -> Fraction:
    """Return the smallest scale at which `shares` shares keep epsilon at delta and have at least the noise of `spec`.

    Raises:
        ArgumentError: no scale does.
    """

    def suffices(scale: Fraction) -> bool:
        return summed_scale(scale, shares) >= spec.scale and shared_epsilon(spec, scale, shares, delta) <= epsilon

    found = smallest_scale(suffices)
    if found is None:
        raise ArgumentError(f"epsilon must be large enough for a noise that can be drawn, got {epsilon}")
    return found
