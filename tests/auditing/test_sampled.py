"""Sampling checks: false alarm as stated, power as stated, and bounds that are right.

Fixed seeds make these tests repeatable; over fresh seeds a true mechanism would fail one of them with probability at most 1e-9
for each check.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.auditing.exact import ThresholdLaw
from teacher_student.auditing.sampled import (
    certain_epsilon,
    choose_event,
    clopper_pearson,
    compare,
    compare_law,
    lower_bound,
    noise_law,
    noise_power,
    power,
    transcript_law,
    unanswered_law,
)
from teacher_student.auditing.wrapped_noise import DrawnAhead
from teacher_student.mechanisms import GeneratorNoise, RecordedNoise, SystemNoise
from teacher_student.privacy.parameters import round_up

LAWS = [("discrete_laplace", 12.0), ("discrete_gaussian", 7.33), ("two_geometrics", 9.5)]
LAW = ThresholdLaw("discrete_gaussian", "two_geometrics", 3.0, 4.0, 8, 2)


@pytest.mark.parametrize(("law", "scale"), LAWS)
@pytest.mark.parametrize("source", ["system", "generator"])
def test_true_scale_is_accepted_and_30_percent_off_is_rejected(law, scale, source):
    """False alarm 1e-9; power at least 1 - 1e-6 at 8,000 draws, computed from the laws."""
    noise = SystemNoise() if source == "system" else GeneratorNoise(np.random.default_rng(5))
    draws = 8000
    true = float(round_up(scale))
    assert compare_law(noise.draw(law, round_up(scale), draws), noise_law(law, true)).accepted
    for factor in (0.7, 1.3):
        assert noise_power(law, true, factor, draws) > 1 - 1e-6
        assert not compare_law(noise.draw(law, round_up(scale * factor), draws), noise_law(law, true)).accepted


def test_the_comparison_rejects_a_true_law_no_more_often_than_stated():
    """At a false alarm of 5 %: of 400 true samples at most 20 + 5 standard deviations may be rejected."""
    generator = np.random.default_rng(1)
    chances = np.array([0.5, 0.3, 0.15, 0.05])
    rejected = 0
    for _ in range(400):
        seen = generator.multinomial(500, chances)
        rejected += not compare(["a", "b", "c", "d"], seen, chances, 500, 0.05).accepted
    assert rejected <= 20 + 5 * math.sqrt(20)


def test_power_grows_to_one():
    chances, wrong = np.array([0.5, 0.5]), np.array([0.4, 0.6])
    values = [power(chances, wrong, trials) for trials in (100, 1000, 5000)]
    assert values == sorted(values)
    assert values[0] < 0.01
    assert values[-1] > 1 - 1e-9
    assert power(chances, chances, 1000) <= 1e-9


def test_clopper_pearson_covers():
    assert clopper_pearson(0, 50, 0.05) == (0.0, pytest.approx(1 - 0.05 ** (1 / 50)))
    assert clopper_pearson(50, 50, 0.05) == (pytest.approx(0.05 ** (1 / 50)), 1.0)
    generator = np.random.default_rng(2)
    missed = sum(clopper_pearson(int(generator.binomial(200, 0.03)), 200, 0.05)[0] > 0.03 for _ in range(2000))
    assert missed <= 100 + 5 * math.sqrt(100)


def test_a_bound_on_randomised_response():
    """A mechanism of known epsilon ln 3: the bound lies below it and, with 20,000 samples, above ln 2."""
    generator = np.random.default_rng(3)
    labels, other = (np.where(generator.random((20_000, 1)) < chance, 0, 1) for chance in (0.75, 0.25))
    bound = lower_bound(labels, other, 0.0)
    assert math.log(2) < bound.epsilon <= math.log(3)
    assert lower_bound(labels, other, 0.9).epsilon == 0.0


def test_events_are_chosen_by_ratio():
    labels, other = np.array([[0]] * 90 + [[1]] * 10), np.array([[0]] * 10 + [[1]] * 90)
    assert choose_event(labels, other, 0.0, 0.1) == {np.array([0]).tobytes()}
    assert certain_epsilon(0, 0, 100, 1e-5, 1e-9) == 0.0


def test_transcripts_and_counts_are_one_law():
    law = transcript_law(LAW, [(0, 12)] * 5)
    assert sum(law.values()) == pytest.approx(1, abs=1e-12)
    counts = unanswered_law(LAW, 12, 5)
    for paid in range(3):
        mass = sum(chance for key, chance in law.items() if key.count(-1) == paid)
        assert counts[paid] == pytest.approx(mass, abs=1e-12)


def test_unknown_noise_is_refused():
    with pytest.raises(ArgumentError, match="law must be one of"):
        noise_law("cauchy", 1.0)


def test_noise_drawn_ahead_is_handed_out_once_and_in_order():
    inner = RecordedNoise(range(100))
    ahead = DrawnAhead(inner, block=7)
    taken = [ahead.draw("discrete_laplace", Fraction(1), size) for size in (3, 3, 9, 1, 0, 4)]
    assert np.concatenate(taken).tolist() == list(range(20))
