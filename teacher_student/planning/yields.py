"""What a mechanism with given parameters answers: from public sizes and an assumed vote, never from data.

A query's gap is its plurality's lead over the runner-up, in votes. `correct` is the probability that a query of a given gap gets
its plurality's label. `expected` models a stream in which each query independently is *unstable* (a tie of two classes) with
probability u and otherwise *clear*, with one and the same large gap, and returns the expected number of answers before the
session halts. With c the probability that a query is refused, and at most T refusals among at most m queries (Wald's identity):

    E[refusals] = E[min(T, Bin(m, c))] = c E[asked],        E[answers] = (1 - c) E[asked].

The noisy maxima are computed as if their integer noise were continuous, which is off by about the square of 1 / scale; costs are
never computed here.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import special

from teacher_student.arguments import ArgumentError, Floats, Integers
from teacher_student.privacy.distributions import log_refusal
from teacher_student.privacy.noisy_max import ConfidentGNMax, Exponential, GNMax, LNMax, NoisyMaxParameters
from teacher_student.privacy.parameters import Parameters
from teacher_student.privacy.threshold import WINDOWS, ThresholdParameters

_QUANTILES: Floats = (np.arange(1, 4001) - 0.5) / 4000


class Expected(NamedTuple):
    """Expected number of labels before the session halts, and how many of them are the plurality's."""

    answers: float
    agreeing: float


def correct(parameters: Parameters, gap: float, *, num_teachers: int, num_classes: int) -> float:
    """Return the probability that a query whose plurality leads by `gap` votes gets the plurality's label.

    All other classes are taken to tie behind the first, which is the worst case for the noisy maxima.
    """
    if isinstance(parameters, ThresholdParameters):
        refused, mass = _refusal(parameters, gap)
        return 1 - float(mass @ refused)
    if isinstance(parameters, ConfidentGNMax):
        return _passes(parameters, gap, num_teachers, num_classes) * _wins(parameters, gap, num_classes)
    return _wins(parameters, gap, num_classes)


def smallest_gap(parameters: Parameters, *, failure: float, num_teachers: int, num_classes: int) -> int:
    """Return the smallest gap at which a query gets its plurality's label with probability at least 1 - failure.

    It may be more than num_teachers: then not even a unanimous vote does, and that many teachers would be needed.
    """

    def suffices(gap: int) -> bool:
        teachers = max(num_teachers, gap)
        return correct(parameters, gap, num_teachers=teachers, num_classes=num_classes) >= 1 - failure

    high = 1
    while not suffices(high):
        high *= 2
        if high > 1 << 40:
            raise ArgumentError(f"failure must be reachable by some gap, got {failure}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def expected(
    parameters: Parameters, *, unstable: float, clear_gap: float, num_queries: int, num_teachers: int, num_classes: int
) -> Expected:
    """Return the expected answers to `num_queries` queries, a share `unstable` of them ties of two classes.

    Args:
        parameters: of any mechanism.
        unstable: probability that a query is a tie.
        clear_gap: gap of all other queries.
        num_queries: queries that wait for an answer.
        num_teachers: votes of each query.
        num_classes: classes.
    """
    if isinstance(parameters, ThresholdParameters):
        answers = _until_cutoff(parameters, unstable, clear_gap, num_queries)
        return Expected(answers, answers)
    assert isinstance(parameters, NoisyMaxParameters)
    passed_clear = passed_tie = 1.0
    if isinstance(parameters, ConfidentGNMax):
        passed_clear = _passes(parameters, clear_gap, num_teachers, num_classes)
        passed_tie = float(special.ndtr((num_teachers / 2 - parameters.threshold) / float(parameters.threshold_scale)))
    clear, tie = (1 - unstable) * passed_clear, unstable * passed_tie
    asked = min(num_queries, parameters.max_asked)
    answers = float(expected_minimum(parameters.max_answers, asked, np.array([clear + tie]))[0])
    agreeing = clear * _wins(parameters, clear_gap, num_classes) + tie / 2
    return Expected(answers, answers * agreeing / (clear + tie) if answers > 0 else 0.0)


def expected_minimum(most: int, trials: int, probability: Floats) -> Floats:
    """Return E[min(most, Bin(trials, p))] for each p of `probability`.

    >>> expected_minimum(1, 2, np.array([0.5]))
    array([0.75])
    """
    if most >= trials:
        return trials * probability
    below = trials * probability * special.bdtr(most - 1, trials - 1, probability)
    return np.asarray(below + most * special.bdtrc(most, trials, probability))


def _until_cutoff(parameters: ThresholdParameters, unstable: float, clear_gap: float, num_queries: int) -> float:
    """One threshold: the expectation over it. Redrawn thresholds: as if every query had its own, with the mean refusal."""
    tie, mass = _refusal(parameters, 0)
    clear, _ = _refusal(parameters, clear_gap)
    refused = unstable * tie + (1 - unstable) * clear
    if parameters.redraw:
        refused, mass = np.array([float(mass @ refused)]), np.ones(1)
    refused = np.clip(refused, 1e-15, 1)
    asked = expected_minimum(parameters.cutoff, num_queries, refused) / refused
    return float(mass @ ((1 - refused) * asked))


def _refusal(parameters: ThresholdParameters, gap: float) -> tuple[Floats, Floats]:
    """Return P(refused) given each value of the threshold's noise, and those values' probabilities."""
    support, mass = threshold_noise(parameters.threshold_noise, parameters.threshold_scale)
    distance = max(0, math.ceil(gap / 2) - 1)
    short = distance - parameters.threshold - support
    return np.exp(log_refusal(parameters.query_noise, short, parameters.query_scale)), mass


@functools.lru_cache(maxsize=64)
def threshold_noise(law: str, scale: object) -> tuple[Integers, Floats]:
    """Return the threshold's noise, thinned to at most some thousand values: utility needs no more."""
    window = WINDOWS[law](scale)  # type: ignore[arg-type]
    stride = max(1, len(window.support) // 2000)
    support, mass = window.support[stride // 2 :: stride], np.add.reduceat(window.mass, np.arange(0, len(window.mass), stride))
    return support[: len(mass)], mass[: len(support)] / mass[: len(support)].sum()


def _passes(parameters: ConfidentGNMax, gap: float, num_teachers: int, num_classes: int) -> float:
    """Return the probability that the noisy largest count reaches the threshold; the other classes share what is left."""
    top = gap + (num_teachers - gap) / num_classes
    return float(special.ndtr((top - parameters.threshold) / float(parameters.threshold_scale)))


def _wins(parameters: Parameters, gap: float, num_classes: int) -> float:
    """Return the probability that the noisy plurality is the plurality, the other classes all `gap` behind."""
    others = num_classes - 1
    if isinstance(parameters, Exponential):
        return 1 / (1 + others * math.exp(-gap / float(parameters.scale)))
    if isinstance(parameters, LNMax):
        scale = float(parameters.scale)
        noise = np.where(_QUANTILES < 0.5, np.log(2 * _QUANTILES), -np.log(2 * (1 - _QUANTILES)))
        behind = noise + gap / scale
        below = np.where(behind < 0, np.exp(np.minimum(behind, 0)) / 2, 1 - np.exp(-np.maximum(behind, 0)) / 2)
        return float(np.mean(below**others))
    assert isinstance(parameters, GNMax | ConfidentGNMax)
    scale = float(parameters.scale if isinstance(parameters, GNMax) else parameters.query_scale)
    if others == 1:
        return float(special.ndtr(gap / (scale * math.sqrt(2))))
    return float(np.mean(special.ndtr(special.ndtri(_QUANTILES) + gap / scale) ** others))
