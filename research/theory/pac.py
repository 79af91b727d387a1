"""Error bounds for a learner of a class of VC dimension V, with every constant written out.

The paper says "standard uniform convergence arguments" and O(.). The rest of this package is computed from these textbook
inequalities:

- *Growth function* (Sauer-Shelah; Shalev-Shwartz and Ben-David 2014, Lemma 6.10): at most sum_{i <= V} C(n, i) labellings.
- *Realizable* (Blumer, Ehrenfeucht, Haussler, Warmuth 1989, Theorem 2.1, the double sample): a consistent hypothesis has
  error above a with probability at most 2 growth(2n) 2^(-a n / 2), if n >= 8/a.
- *Agnostic* (Shalev-Shwartz and Ben-David 2014, Theorem 26.5 without its slack, and Massart's Lemma 26.8): with probability
  1 - f, true minus empirical error is at most sqrt(8 ln growth(n) / n) + sqrt(ln(1/f) / (2n)) for all hypotheses at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp

from teacher_student.arguments import ArgumentError, positive_integer, probability

LARGEST_DIMENSION = 10**7
"""Largest VC dimension: binomials are summed up to it, and longer sums would not finish."""

LARGEST_SAMPLE = 10**30
"""Sample sizes are searched up to here."""


def log_growth(num_points: int, vc_dimension: int) -> float:
    """Natural logarithm of the Sauer-Shelah bound on the number of labellings of `num_points` points.

    >>> round(math.exp(log_growth(10, 1)), 6)
    11.0
    """
    points = positive_integer("num_points", num_points)
    dimension = positive_integer("vc_dimension", vc_dimension, maximum=LARGEST_DIMENSION)
    if points <= dimension:
        return points * math.log(2)
    index = np.arange(dimension)
    steps = np.log(float(points) - index) - np.log(index + 1)
    return float(logsumexp(np.concatenate([[0.0], np.cumsum(steps)])))


def realizable_error(num_examples: int, vc_dimension: int, failure: float) -> float:
    """Error that any consistent hypothesis stays below with probability 1 - failure; above 1 it is vacuous."""
    examples = positive_integer("num_examples", num_examples)
    exponent = math.log(2 / probability("failure", failure)) + log_growth(2 * examples, vc_dimension)
    return max(2 * exponent / math.log(2), 8.0) / examples


def realizable_sample_size(alpha: float, failure: float, vc_dimension: int) -> int:
    """Examples that make every consistent hypothesis alpha-accurate with probability 1 - failure.

    The smaller of the inverted `realizable_error` and the closed form of Blumer et al.,
    max((4/alpha) log2(2/failure), (8V/alpha) log2(13/alpha)).
    """
    alpha, failure = probability("alpha", alpha), probability("failure", failure)
    vc_dimension = positive_integer("vc_dimension", vc_dimension, maximum=LARGEST_DIMENSION)
    closed = max(4 / alpha * math.log2(2 / failure), 8 * vc_dimension / alpha * math.log2(13 / alpha))
    return min(math.ceil(closed), _smallest(lambda size: realizable_error(size, vc_dimension, failure) <= alpha))


def uniform_deviation(num_examples: int, vc_dimension: int, failure: float) -> float:
    """Largest |true - empirical error| over the class, with probability 1 - failure."""
    examples, failure = positive_integer("num_examples", num_examples), probability("failure", failure)
    growth = math.sqrt(8 * log_growth(examples, vc_dimension) / examples)
    return growth + math.sqrt(math.log(2 / failure) / (2 * examples))


def agnostic_error(num_examples: int, vc_dimension: int, failure: float) -> float:
    """Error above the best hypothesis that an empirical minimiser stays below with probability 1 - failure.

    One side of the uniform deviation for the minimiser, Hoeffding's inequality for the best hypothesis, half the failure each.
    """
    examples, failure = positive_integer("num_examples", num_examples), probability("failure", failure)
    growth = math.sqrt(8 * log_growth(examples, vc_dimension) / examples)
    return growth + 2 * math.sqrt(math.log(2 / failure) / (2 * examples))


def agnostic_sample_size(alpha: float, failure: float, vc_dimension: int) -> int:
    """Examples that bring an empirical minimiser within alpha of the best hypothesis with probability 1 - failure."""
    alpha, failure = probability("alpha", alpha), probability("failure", failure)
    return _smallest(lambda size: agnostic_error(size, vc_dimension, failure) <= alpha)


def threshold_error(num_examples: int, failure: float) -> float:
    """Error of a consistent threshold on the line, sharper than the bound from its VC dimension: ln(2/failure) / n.

    The hypothesis errs by more than a only if one of the two stretches of mass a beside the true threshold has no record:
    2 (1 - a)^n <= 2 e^(-a n) (Shalev-Shwartz and Ben-David 2014, Lemma 6.1, both sides).
    """
    return math.log(2 / probability("failure", failure)) / positive_integer("num_examples", num_examples)


def threshold_excess_error(num_examples: int, failure: float) -> float:
    """Error above the best threshold that an empirical minimiser stays below: 4 sqrt(ln(4/failure) / (2n)), any label noise.

    The error of a threshold t is a constant plus P(y = 1, x < t) - P(y = 0, x < t). Each of the two is estimated within
    sqrt(ln(4/failure) / (2n)) for all t at once (Dvoretzky, Kiefer, Wolfowitz, with Massart's constant), and enters at the
    minimiser and at the best threshold.
    """
    return 4 * math.sqrt(math.log(4 / probability("failure", failure)) / (2 * positive_integer("num_examples", num_examples)))


def _smallest(enough: Callable[[int], bool]) -> int:
    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
        if high > LARGEST_SAMPLE:
            raise ArgumentError("alpha must be larger: no sample size below 1e30 suffices")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
