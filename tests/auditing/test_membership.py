"""The membership audit's bound is the theorem's, holds for a mechanism that attains its epsilon, and has power."""

from __future__ import annotations

import math

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.auditing.membership import certain_epsilon, log_ratios, membership_bound, p_value


def test_published_values():
    """Steinke, Nasr, Jagielski 2023: 75 of 100 at e^epsilon = 3; and perfect guesses against their closed form."""
    assert p_value(75, 100, 100, epsilon=math.log(3), delta=0) == pytest.approx(0.5535, abs=1e-3)
    for guesses in (10, 1000):
        right = 0.05 ** (1 / guesses)  # P(B = r) = q^r
        assert certain_epsilon(guesses, guesses, guesses, delta=0, error=0.05) == pytest.approx(
            math.log(right / (1 - right)), abs=1e-4
        )
    assert certain_epsilon(50, 100, 100, delta=0, error=0.05) == 0


def test_delta_is_paid_for():
    """A mechanism of epsilon 0 that reveals a coin with probability delta: 2 m delta / i for the best i."""
    assert p_value(100, 100, 100, epsilon=0.0, delta=0.01) == pytest.approx(2 * 100 * 0.01 / 50, rel=0.2)
    without, with_delta = (certain_epsilon(900, 1000, 1000, delta=delta, error=0.05) for delta in (0.0, 1e-3))
    assert 0 < with_delta < without
    assert certain_epsilon(900, 1000, 1000, delta=1e-2, error=1e-6) == 0


def randomized_response(epsilon, worlds, candidates, seed):
    """Scores that tell each coin rightly with probability e^epsilon / (1 + e^epsilon): exactly epsilon-private."""
    rng = np.random.default_rng(seed)
    members = rng.random((worlds, candidates)) < 0.5
    told = members ^ (rng.random(members.shape) < 1 / (1 + math.exp(epsilon)))
    return 2.0 * told - 1, members


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_mechanism_that_attains_its_epsilon_is_not_refuted_and_its_half_is(epsilon):
    """Fixed seeds. Over fresh ones: false alarm at most 1e-3 each; half of epsilon is refuted with power above 0.99."""
    for seed in range(5):
        scores, members = randomized_response(epsilon, 150, 20, seed)
        bound = membership_bound(scores, members, references=50, delta=0.0, error=1e-3)
        assert epsilon / 2 < bound.epsilon <= epsilon
        assert bound.coins == 2000


def test_the_attack_finds_what_each_candidate_gives_away():
    """Candidates with different scores that move in different directions: a common threshold would guess at random."""
    rng = np.random.default_rng(1)
    members = rng.random((120, 10)) < 0.5
    scores = 50.0 * np.arange(10) + np.where(np.arange(10) % 2, 3.0, -3.0) * members + rng.normal(size=members.shape)
    ratios = log_ratios(scores[60:], scores[:60], members[:60])
    assert ((ratios > 0) == members[60:]).mean() > 0.9
    assert membership_bound(scores, members, references=60, delta=1e-6, error=1e-3).epsilon > 1.5


def test_bounds_see_nothing_in_noise():
    rng = np.random.default_rng(2)
    for _ in range(20):
        scores, members = rng.normal(size=(90, 10)), rng.random((90, 10)) < 0.5
        assert membership_bound(scores, members, references=30, delta=1e-6, error=1e-3).epsilon < 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"references": 3}, "references must be an integer from 8 to 89, got 3"),
        ({"references": 90}, "references must be"),
        ({"error": 0.0}, "error must lie strictly between 0 and 1, got 0"),
        ({"scores": np.full((90, 4), np.nan)}, "scores must be finite"),
        ({"scores": np.zeros((90, 5))}, "one for each coin"),
    ],
)
def test_bad_arguments_give_one_clear_line(change, message):
    members = np.random.default_rng(0).random((90, 4)) < 0.5
    given = {"scores": np.zeros((90, 4)), "members": members, "references": 30, "delta": 1e-6, "error": 0.05, **change}
    with pytest.raises(ArgumentError, match=message):
        membership_bound(given.pop("scores"), given.pop("members"), **given)
