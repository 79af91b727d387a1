"""Utility of private soft labels: from on-average stability to concentration to scores close to the learner's mean.

Statements by label: Theorem slc-gen-util, Lemma unif-stab, Corollary conc, Lemma strng-qual, Theorem mainUtil. What differs
from the print:

- Threshold w = 2 lambda ln(4m/delta) (the print lacks the factor 2) and a budget of U = 2T units; distances are halved.
- *Theorem slc-gen-util*: T queries that fail both tests cost all 2T units, and the session halts: one unit must be left over.
- *Lemma unif-stab*: Markov's inequality for the coins and Chebyshev's for the data give radius 4 alpha sqrt(2n'). Averaging
  Chebyshev's over the coins needs no Markov step: E_r Var_D <= n' alpha^2 / 2 (Steele), hence radius alpha sqrt(2n').
- *Lemma strng-qual* outputs exactly nu' or 1 - nu', while strong quality asks for a score strictly beyond. Read "at most".
- *Theorem mainUtil*: where the mean lies just beside a bin's edge, the first test may release the neighbouring bin. Its midpoint
  is within gamma/2 + radius of the mean, not within the printed gamma/2. (Mean just left of an edge, 80 % of the teachers just
  right of it: the histogram is stable, and its answer is off by more than gamma/2.)
"""

from __future__ import annotations

import math

from research.theory.bound import Bound
from research.theory.release_utility import teachers_for_distance
from teacher_student.arguments import (
    ArgumentError,
    finite_number,
    positive_integer,
    positive_number,
    probability,
    true_or_false,
)

_MOST_EXAMPLES = 2**53
"""Doubles hold every integer up to this."""


def soft_scale(epsilon: float, delta: float, cutoff: int) -> float:
    """Scale lambda = sqrt(64 T ln(2/delta)) / epsilon of A_SL-Quer's threshold noise."""
    limit = positive_integer("cutoff", cutoff)
    return math.sqrt(64 * limit * math.log(2 / probability("delta", delta))) / positive_number("epsilon", epsilon)


def soft_threshold(epsilon: float, delta: float, num_queries: int, cutoff: int) -> Bound:
    """Threshold w of A_SL-Quer: 2 lambda ln(4m/delta); the print, lambda ln(4m/delta), leaks.

    >>> round(soft_threshold(1.0, 1e-5, 1000, 50).value, 1)
    7829.1
    """
    printed = soft_scale(epsilon, delta, cutoff) * math.log(4 * positive_integer("num_queries", num_queries) / delta)
    return Bound(2 * printed, printed, "Algorithm A_SL-Quer, line 1", "the print lacks the factor 2 and leaks")


def soft_distance(epsilon: float, delta: float, num_queries: int, cutoff: int, failure: float) -> float:
    """Distance at which all of up to 2m sub-queries are answered with probability 1 - failure: w + 4 lambda ln(8 m T / failure).

    At most 2m query noises and U = 2T threshold noises: 2 lambda ln(4m/failure) + lambda ln(4T/failure) is less than that.
    """
    scale = soft_scale(epsilon, delta, cutoff)
    queries = positive_integer("num_queries", num_queries)
    margin = 4 * scale * math.log(8 * queries * cutoff / probability("failure", failure))
    return soft_threshold(epsilon, delta, num_queries, cutoff).value + margin


def stable_histogram_gap(epsilon: float, delta: float, num_queries: int, cutoff: int, failure: float) -> Bound:
    """Gap d above which a histogram's winner is released, for all queries with probability 1 - failure: Theorem slc-gen-util.

    Premise: more than m - T queries pass on the plain histogram (or one of the others on the shifted one), so that fewer than
    U = 2T units are paid.
    """
    distance = soft_distance(epsilon, delta, num_queries, cutoff, failure)
    logarithm = math.log(8) + math.log(num_queries) + math.log(cutoff) - math.log(min(delta, failure))
    printed = 32 * logarithm * math.sqrt(4 * cutoff * math.log(2 / delta)) / epsilon
    note = "gap 2 (distance + 1); corrected threshold; one unit of the budget must be left over"
    return Bound(2 * (distance + 1), printed, "Theorem slc-gen-util", note)


def concentration_radius(stability: float, num_examples: int, *, sharp: bool = False) -> Bound:
    """Radius around its mean (for its coins) that a teacher's score stays in with probability 3/4: Lemma unif-stab.

    Args:
        stability: alpha, the on-average stability (a root mean square) of the learner on `num_examples` records.
        num_examples: n', records of one teacher.
        sharp: whether `value` is to be the sharp radius, a quarter of the printed one.

    >>> concentration_radius(0.001, 5000).value, concentration_radius(0.001, 5000, sharp=True).value
    (0.4, 0.1)
    """
    examples = positive_integer("num_examples", num_examples, maximum=_MOST_EXAMPLES)
    printed = 4 * _stability(stability) * math.sqrt(2 * examples)
    note = "printed radius is valid; Chebyshev's inequality averaged over the coins gives a quarter of it"
    return Bound(printed / 4 if true_or_false("sharp", sharp) else printed, printed, "Lemma unif-stab", note, printed / 4)


def teachers_for_concentration(failure: float) -> int:
    """Teachers of which two thirds lie within the radius with probability 1 - failure: Corollary conc, k >= 72 ln(1/failure)."""
    return math.ceil(72 * math.log(1 / probability("failure", failure)))


def bin_width(stability: float, num_examples: int, quality: float, *, sharp: bool = False) -> Bound:
    """Bin width gamma = 4 radius + nu of Theorem mainUtil: 16 alpha sqrt(2n') + nu as printed.

    Args:
        stability: alpha of the learner.
        num_examples: n'.
        quality: nu in [0, 1/2], the weak quality.
        sharp: whether to use the sharp radius.
    """
    radius, nu = concentration_radius(stability, num_examples, sharp=sharp), _quality(quality)
    printed = 4 * (radius.printed or 0.0) + nu
    return Bound(4 * radius.value + nu, printed, "Theorem mainUtil, gamma", radius.note)


def num_bins(width: float) -> int:
    """Largest number of equal bins that are at least `width` wide. Fewer than 3 are refused: the width is too large to be useful.

    >>> num_bins(0.15)
    6
    """
    bins = math.floor(1 / positive_number("width", width) + 1e-12)
    if bins < 3:
        raise ArgumentError(f"width must be at most 1/3 (three bins), got {width:.6g}; a more stable learner is needed")
    return bins


def score_error(stability: float, num_examples: int, quality: float, *, sharp: bool = False) -> Bound:
    """Distance of a released score from the learner's mean score, at bin width `bin_width`: Theorem mainUtil.

    gamma/2 + radius = 12 alpha sqrt(2n') + nu/2. On queries of weak quality nu, and on all answers of the shifted test, the
    printed gamma/2 = 8 alpha sqrt(2n') + nu/2 holds.
    """
    radius = concentration_radius(stability, num_examples, sharp=sharp)
    width = bin_width(stability, num_examples, quality, sharp=sharp)
    note = "the first test may release the bin beside the mean's: gamma/2 + radius"
    return Bound(width.value / 2 + radius.value, (width.printed or 0.0) / 2, "Theorem mainUtil", note)


def strong_quality(stability: float, num_examples: int, quality: float, *, sharp: bool = False) -> Bound:
    """Strong quality nu' = gamma/2 of the private classifier where its learner has weak quality nu: Lemma strng-qual."""
    width = bin_width(stability, num_examples, quality, sharp=sharp)
    note = "the score is at most nu' or at least 1 - nu'; equality occurs"
    return Bound(width.value / 2, (width.printed or 0.0) / 2, "Lemma strng-qual", note)


def strong_quality_teachers(scale: float, threshold: float, failure: float) -> Bound:
    """Teachers for strong quality at one point with probability 1 - failure: Lemma strng-qual.

    The noise stays above -2 lambda ln(4 / (3 failure)) with probability 1 - failure/2, since P(nu - rho <= -t) is at most
    (2/3) e^(-t / 2 lambda) for nu of scale 2 lambda and rho of scale lambda; agreement takes the other half.

    Args:
        scale: lambda, the scale of the threshold's noise.
        threshold: w.
        failure: beta'.
    """
    scale, threshold = positive_number("scale", scale), positive_number("threshold", threshold)
    failure = probability("failure", failure)
    printed = 3 * (math.sqrt(5) * scale * math.log(2 / failure) + threshold)
    margin = 2 * scale * math.log(4 / (3 * failure))
    note = "distance k/6 - 1 instead of k/3; the sampling term is not implied"
    return Bound(teachers_for_distance(threshold + margin, 1, failure), printed, "Lemma strng-qual", note)


def soft_num_teachers(epsilon: float, delta: float, num_queries: int, cutoff: int, failure: float) -> Bound:
    """Teachers that A_SL-Quer needs to answer as Theorem mainUtil says, with probability 1 - failure."""
    distance = soft_distance(epsilon, delta, num_queries, cutoff, probability("failure", failure) / 2)
    logarithm = math.log(8 * num_queries * cutoff / min(failure, delta))
    printed = 136 * logarithm * math.sqrt(2 * cutoff * math.log(2 / delta)) / epsilon
    note = "distance k/6 - 1 instead of k/3, corrected threshold, sampling term stated"
    return Bound(teachers_for_distance(distance, num_queries, failure), printed, "Theorem mainUtil, k", note)


def _stability(stability: float) -> float:
    if finite_number("stability", stability) < 0:
        raise ArgumentError(f"stability must be at least 0, got {stability!r}")
    return float(stability)


def _quality(quality: float) -> float:
    if not 0 <= finite_number("quality", quality) <= 0.5:
        raise ArgumentError(f"quality must lie between 0 and 1/2, got {quality!r}")
    return float(quality)
