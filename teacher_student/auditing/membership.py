"""Membership audit: guess from a trained model who was in its training data, and bound epsilon from below by the success rate.

Worlds. In every world each candidate record takes part if a fair coin says so, and the world's model then gives every candidate a
score. Some worlds are *references*: the attacker knows their coins and learns from them how a candidate's score is distributed
with and without it. The other worlds are *judged*: the attacker guesses their coins.

The attack is the likelihood-ratio attack (Carlini, Chien, Nasr, Song, Terzis, Tramer 2022, "Membership Inference Attacks From
First Principles", section V), with Gaussian scores, one mean for each candidate, and a variance shared by the candidates.

The bound is Corollary 5.4 of Steinke, Nasr, Jagielski 2023, "Privacy Auditing with One (1) Training Run", arXiv:2305.08846. For
an (epsilon, delta)-private mechanism of m independent fair coins, r guesses made from its outcome alone, q = 1/(1 + e^-epsilon),

    P(at least v of r guesses are right) <= P(B >= v) + 2 m delta max_{i = 1..v} P(v > B >= v - i) / i,    B ~ Binomial(r, q).

It applies to many worlds at once because each coin enters one world only, so all judged worlds together are one such mechanism of
(worlds times candidates) coins. It needs coins that are fair and independent (they are tossed here), guesses that see only
outcomes and reference worlds (they do), and a number of guesses that is fixed beforehand (it is chosen on the references).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

from teacher_student.arguments import ArgumentError, Floats, positive_integer, probability

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
"""Candidate shares of the coins to guess; the references decide which share promises most."""

_LARGEST = 50.0

Coins = npt.NDArray[np.bool_]


def p_value(correct: int, guesses: int, coins: int, *, epsilon: float, delta: float) -> float:
    """Return the largest probability of `correct` right guesses among `guesses` under (epsilon, delta)-privacy of `coins` coins.

    >>> round(p_value(75, 100, 100, epsilon=math.log(3), delta=0.0), 3)
    0.553
    """
    law = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    if correct == 0 or delta == 0:
        return float(law.sf(correct - 1))
    below = np.cumsum(law.pmf(np.arange(correct - 1, -1, -1)))
    steepest = float((below / np.arange(1, correct + 1)).max())
    return min(1.0, float(law.sf(correct - 1)) + 2 * coins * delta * steepest)


def certain_epsilon(correct: int, guesses: int, coins: int, *, delta: float, error: float) -> float:
    """Return the largest epsilon that is refuted with confidence 1 - `error`, or 0 if none is."""
    low, high = 0.0, _LARGEST
    if p_value(correct, guesses, coins, epsilon=low, delta=delta) >= error:
        return 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        refuted = p_value(correct, guesses, coins, epsilon=middle, delta=delta) < error
        low, high = (middle, high) if refuted else (low, middle)
    return low


@dataclasses.dataclass(frozen=True)
class MembershipBound:
    """A lower bound on epsilon from guessing coins, wrong with probability at most `error`.

    Attributes:
        epsilon: the lower bound; 0 if the guesses refute nothing.
        correct: number of right guesses.
        guesses: number of coins that were guessed.
        coins: number of coins in the judged worlds.
        worlds: number of judged worlds.
        references: number of worlds from which the attacker learned.
        error: probability that the bound is wrong.
    """

    epsilon: float
    correct: int
    guesses: int
    coins: int
    worlds: int
    references: int
    error: float


def log_ratios(scores: Floats, known: Floats, members: Coins) -> Floats:
    """Return the attack's statistic, log P(score | in) / P(score | out), for each judged world and candidate.

    Args:
        scores: (worlds, candidates) of the judged worlds.
        known: (references, candidates) scores of the reference worlds.
        members: (references, candidates) their coins.
    """
    inside, outside = (_moments(known, coins) for coins in (members, ~members))
    return _log_density(scores, *inside) - _log_density(scores, *outside)


def _moments(scores: Floats, chosen: Coins) -> tuple[Floats, float]:
    """Return each candidate's mean over the chosen worlds, (candidates,), and the shared variance around it.

    The mean over all worlds counts as one more world, so that a candidate that was never chosen also has a mean.
    """
    number = chosen.sum(axis=0)
    mean = (np.where(chosen, scores, 0).sum(axis=0) + scores.mean(axis=0)) / (number + 1)
    spread = np.where(chosen, scores - mean, 0) ** 2
    return mean, float(spread.sum() / max(1, number.sum() - len(number))) + 1e-6


def _log_density(scores: Floats, mean: Floats, variance: float) -> Floats:
    return -((scores - mean) ** 2) / (2 * variance) - math.log(variance) / 2


def membership_bound(scores: Floats, members: Coins, *, references: int, delta: float, error: float) -> MembershipBound:
    """Attack the worlds after the first `references` ones, and bound epsilon from below.

    Args:
        scores: (worlds, candidates) finite scores.
        members: (worlds, candidates) the coins.
        references: worlds to learn from.
        delta: at which epsilon is bounded.
        error: probability with which the bound may exceed a true epsilon.

    Raises:
        ArgumentError: shapes that disagree, too few worlds, or scores that are not finite.
    """
    scores, members = np.asarray(scores, dtype=np.float64), np.asarray(members, dtype=bool)
    probability("error", error)
    if scores.ndim != 2 or scores.shape != members.shape or not np.isfinite(scores).all():
        raise ArgumentError(f"scores must be finite and one for each coin, got shapes {scores.shape} and {members.shape}")
    positive_integer("references", references, minimum=8, maximum=len(scores) - 1)
    known, coins, judged = scores[:references], members[:references], members[references:]
    first, second = slice(None, references // 2), slice(references // 2, None)
    crossed = [log_ratios(known[one], known[other], coins[other]) for one, other in ((first, second), (second, first))]
    share = _best_share(np.concatenate(crossed), coins, delta=delta, error=error)
    guesses = max(1, round(share * judged.size))
    correct = _correct(log_ratios(scores[references:], known, coins), judged, guesses)
    epsilon = certain_epsilon(correct, guesses, judged.size, delta=delta, error=error)
    return MembershipBound(epsilon, correct, guesses, judged.size, len(judged), references, error)


def _best_share(ratios: Floats, coins: Coins, *, delta: float, error: float, shares: Sequence[float] = SHARES) -> float:
    """Return the share of guesses with the best bound on the references, the largest if several do equally well."""

    def bound(share: float) -> float:
        guesses = max(1, round(share * coins.size))
        return certain_epsilon(_correct(ratios, coins, guesses), guesses, coins.size, delta=delta, error=error)

    return max(reversed(shares), key=bound)


def _correct(ratios: Floats, coins: Coins, guesses: int) -> int:
    """Guess the coins with the largest absolute statistic, and return the number of right guesses."""
    surest = np.argsort(-np.abs(ratios), axis=None, kind="stable")[:guesses]
    return int(((ratios > 0) == coins).ravel()[surest].sum())
