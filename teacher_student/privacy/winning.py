"""Probabilities that a class wins a noisy vote, and expected numbers of answers. Uses no data and draws no noise.

`win_probability` treats noise as continuous and fresh for every class. It is fast, off by about the probability of a tie, and
meant for planners. `argmax_law` is the exact law of integer noise, with ties to the lowest label.

| law | density of the noise on a count, in units of its scale |
|---|---|
| gaussian | proportional to exp(-x^2 / 2) |
| laplace | exp(-abs(x)) / 2 |
| gumbel | the argmax has the law of the exponential mechanism |
| exponential | exp(-x) for x >= 0; the argmax has the law of permute-and-flip |
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from teacher_student.arguments import Floats, Integers
from teacher_student.privacy.distributions import Window

LAWS = ("gaussian", "laplace", "gumbel", "exponential")

_FINE, _COARSE, _FEW_ROWS = 4000, 64, 4
"""Points of an integral over the winner's noise for few rows and for many, and the largest number of few rows."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def win_probability(law: str, leads: Floats, times: Floats | None = None) -> Floats:
    """Return (rows,) probabilities that a class wins.

    Args:
        law: of the noise on each count, one of `LAWS`.
        leads: (rows, n) by how much the class leads each of n groups of other classes, in units of the noise's scale.
        times: (rows, n) number of classes in each group; None for one in each.

    >>> win_probability("gumbel", np.array([[0.0, 0.0, 0.0]]))
    array([0.25])
    """
    times = np.ones(leads.shape) if times is None else times
    if law == "gumbel":
        return np.asarray(special.expit(-special.logsumexp(-leads, b=times, axis=1)))
    if law == "exponential":
        return _exponential(leads, times)
    if law == "gaussian" and leads.shape[1] == 1 and (times == 1).all():
        return np.asarray(special.ndtr(leads[:, 0] / math.sqrt(2)))
    size = _FINE if len(leads) <= _FEW_ROWS else _COARSE
    unit = (np.arange(1, size + 1) - 0.5) / size
    if law == "gaussian":
        below = special.ndtr(special.ndtri(unit)[:, np.newaxis, np.newaxis] + leads)
    else:
        noise = np.where(unit < 0.5, np.log(2 * unit), -np.log(2 * (1 - unit)))
        behind = noise[:, np.newaxis, np.newaxis] + leads
        below = np.where(behind < 0, np.exp(np.minimum(behind, 0)) / 2, 1 - np.exp(-np.maximum(behind, 0)) / 2)
    return np.asarray((below**times).prod(axis=2).mean(axis=0))


def _exponential(leads: Floats, times: Floats) -> Floats:
    """Return P = e^-m times the integral over u in (0, 1) of prod (1 - e^-(m + lead) u), m = max(0, -leads).

    The class wins with noise t if every other class has less than t + lead; u is e^-(t - m). The integrand is a polynomial, for
    which 64 Gauss-Legendre points are exact up to 128 other classes.
    """
    behind = np.maximum(0, -leads.min(axis=1, initial=0))[:, np.newaxis]
    u = ((_NODES + 1) / 2)[:, np.newaxis, np.newaxis]
    product = ((1 - np.exp(-(behind + leads)) * u) ** times).prod(axis=2)
    return np.asarray(np.minimum(1, np.exp(-behind[:, 0]) * (_WEIGHTS / 2 @ product)))


def argmax_law(counts: Integers, noise: Window) -> Floats:
    """Return the exact (C,) probabilities that a count of `counts` (C,) plus fresh integer noise is largest, ties to the lowest.

    P(c) = sum over x of P(count_c + N = x) times the product over j < c of P(count_j + N < x), over j > c of P(... <= x).
    """
    cumulative = np.concatenate([[0.0], np.cumsum(noise.mass)])
    first, last = int(noise.support[0]), int(noise.support[-1])
    found = np.empty(len(counts))
    for label, own in enumerate(counts.tolist()):
        mass = noise.mass.copy()
        for other, theirs in enumerate(counts.tolist()):
            if other != label:
                most = noise.support + own - theirs - (other < label)  # the other's noise must be at most this
                mass *= cumulative[np.clip(most, first - 1, last) - first + 1]
        found[label] = mass.sum()
    return found


def expected_minimum(most: int, trials: int, probability: Floats) -> Floats:
    """Return E[min(most, Bin(trials, p))] for each p of `probability`.

    >>> expected_minimum(1, 2, np.array([0.5]))
    array([0.75])
    """
    if most >= trials:
        return trials * probability
    below = trials * probability * special.bdtr(most - 1, trials - 1, probability)
    return np.asarray(below + most * special.bdtrc(most, trials, probability))
