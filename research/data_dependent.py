"""The data-dependent Renyi bound of PATE: what these votes would cost. A diagnostic; **not releasable**.

Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson 2018 (arXiv:1802.08908v1), theorem 6, propositions 7, 8, 10. The number
printed here depends on the private votes. Publishing it, stopping when it is spent, or choosing a parameter by it leaks; papers
that do so need an additional smooth-sensitivity release. This project's guarantees never use it (see `noisy_max`). It is here
because the published figures of the field are of this kind. It is the cost of the papers' continuous noise.

Theorem 6. Let the most likely outcome have probability 1 - q, and let the mechanism satisfy RDP (mu1, e1) and (mu2, e2). Then for
orders 1 < a <= mu1, if mu2 > 1 and q <= exp((mu2 - 1) e2) / (mu1/(mu1-1) * mu2/(mu2-1))^mu2, its RDP at a is at most

    1/(a-1) ln( (1-q) A^(a-1) + q B^(a-1) ),  A = (1-q) / (1 - (q e^e2)^((mu2-1)/mu2)),  B = e^e1 / q^(1/(mu1-1)).

For Gaussian noise of variance v on one count's worth of sensitivity sqrt(2): e = mu / v, mu2 = sqrt(v ln(1/q)), mu1 = mu2 + 1.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from scipy import special

from teacher_student.arguments import ArgumentError, Floats, finite_number, positive_number, probability, vote_counts

ORDERS: Floats = np.arange(2.0, 201.0)
"""Integer orders, as in the published tables."""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What given private votes would cost under continuous noise. Sensitive: keep it with the votes.

    Attributes:
        epsilon: data-dependent, by the classic conversion RDP + ln(1/delta) / (order - 1).
        order: the order at which it is smallest.
        expected_answers: queries expected to pass the test.
        releasable: whether it may be published: never.
    """

    epsilon: float
    order: float
    expected_answers: float

    releasable: ClassVar[bool] = False


def diagnose(
    counts: object, *, delta: float, query_scale: float, threshold: float | None = None, threshold_scale: float | None = None
) -> Diagnosis:
    """Return the expected data-dependent cost of GNMax, or with a threshold of Confident-GNMax, on these votes. Not releasable.

    Args:
        counts: votes per class, shape (num_queries, num_classes): private.
        delta: strictly between 0 and 1.
        query_scale: sigma of the noise on each count.
        threshold: noisy votes that the winner needs; None for GNMax.
        threshold_scale: sigma of the test's noise.

    Raises:
        ArgumentError: an argument out of range, or only one of threshold and threshold_scale.

    >>> sure = diagnose([[250, 0]] * 100, delta=1e-5, query_scale=40.0)
    >>> round(sure.epsilon, 2), sure.releasable
    (0.28, False)
    """
    votes = vote_counts("counts", counts).astype(np.float64)
    positive_number("query_scale", query_scale)
    if (threshold is None) != (threshold_scale is None):
        raise ArgumentError(f"threshold_scale must be given with threshold and only then, got {threshold_scale!r}")
    answered, total = np.ones(len(votes)), np.zeros(len(ORDERS))
    if threshold is not None and threshold_scale is not None:
        finite_number("threshold", threshold)
        sigma = positive_number("threshold_scale", threshold_scale)
        log_answered = special.log_ndtr((votes.max(axis=1) - threshold) / sigma)
        answered = np.exp(log_answered)
        total += _test_rdp(log_answered, special.log_ndtr((threshold - votes.max(axis=1)) / sigma), sigma).sum(axis=0)
    total += answered @ theorem_6(_log_other(votes, query_scale), query_scale**2)
    epsilons = total - math.log(probability("delta", delta)) / (ORDERS - 1)
    best = int(epsilons.argmin())
    return Diagnosis(float(epsilons[best]), float(ORDERS[best]), float(answered.sum()))


def _test_rdp(log_answered: Floats, log_abstained: Floats, sigma: float) -> Floats:
    """A test has sensitivity 1, so variance 2 sigma^2 on the scale of theorem 6; q is its less likely outcome's probability."""
    return theorem_6(np.minimum(log_answered, log_abstained), 2 * sigma**2)


def _log_other(votes: Floats, sigma: float) -> Floats:
    """Return ln of a bound on P(argmax of the noisy votes is not the plurality) (proposition 7), shape (num_queries,)."""
    ordered = np.sort(votes, axis=1)
    if votes.shape[1] == 1:
        return np.full(len(votes), -np.inf)
    gaps = ordered[:, -1:] - ordered[:, :-1]
    log_q = special.logsumexp(special.log_ndtr(-gaps / (math.sqrt(2) * sigma)), axis=1)
    return np.asarray(np.minimum(log_q, math.log1p(-1 / votes.shape[1])))


def theorem_6(log_q: Floats, variance: float) -> Floats:
    """Return the RDP bound at `ORDERS` for queries whose less likely outcomes have log probability `log_q`.

    Args:
        log_q: shape (num_queries,).
        variance: of the Gaussian noise, for sensitivity sqrt(2).

    Returns:
        shape (num_queries, len(ORDERS)): the smaller of the theorem's bound and the data-independent order / variance.
    """
    plain = np.broadcast_to(ORDERS / variance, (len(log_q), len(ORDERS)))
    log_q = log_q[:, None]
    mu2 = np.sqrt(-log_q * variance)
    mu1 = mu2 + 1
    with np.errstate(all="ignore"):  # the terms are arbitrary where the theorem does not apply
        e1, e2 = mu1 / variance, mu2 / variance
        ceiling = (mu2 - 1) * e2 - mu2 * (np.log1p(1 / (mu1 - 1)) + np.log1p(1 / (mu2 - 1)))
        applies = (mu2 > 1) & (log_q <= ceiling) & (log_q + e2 < 0) & (mu1 >= ORDERS)
        log_kept = _log1mexp(log_q)
        log_a = log_kept - _log1mexp((log_q + e2) * (1 - 1 / mu2))
        log_b = e1 - log_q / (mu1 - 1)
        bound = np.logaddexp(log_kept + (ORDERS - 1) * log_a, log_q + (ORDERS - 1) * log_b) / (ORDERS - 1)
    never = np.isneginf(log_q)  # the outcome is certain
    return np.where(never, 0.0, np.where(applies, np.fmin(bound, plain), plain))


def _log1mexp(x: Floats) -> Floats:
    """Return ln(1 - e^x) for x < 0."""
    return np.where(x > -math.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x)))
