"""Noisy sums: counts, or sums of scores, plus the recorded noise, caps, codes, and the same argmax as GNMax."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from teacher_student import HALTED, ArgumentError
from teacher_student.mechanisms import GeneratorNoise, RecordedNoise, SystemNoise, build_mechanism
from teacher_student.mechanisms.noisy_sums import NoisySums, from_codes, to_codes
from teacher_student.privacy import GNMax, NoisyFraction, NoisyScores


def release(**changes):
    return build_mechanism(NoisyFraction(**({"num_classes": 2, "max_answers": 3, "scale": Fraction(4)} | changes)))


def test_counts_plus_noise_until_the_cap():
    mechanism = release()
    assert isinstance(mechanism, NoisySums)
    noise = RecordedNoise([1, -2, 0, -9, 5, 5])
    codes, state = mechanism.answer(np.array([[5], [1], [3], [4], [0], [6], [7], [7]]), mechanism.start(noise), noise)
    assert from_codes(codes[:6]).tolist() == [6, -1, 3, -5, 5, 11]
    assert codes[6:].tolist() == [HALTED, HALTED]
    assert (state.asked, state.answered, state.paid) == (3, 3, 3)
    assert mechanism.halted(state)
    with pytest.raises(ArgumentError):  # the noise is used up: a halted session must draw none
        noise.discrete_gaussian(Fraction(4), 1)
    assert mechanism.answer(np.array([[1], [1]]), state, noise)[0].tolist() == [HALTED, HALTED]


def test_sums_of_scores_may_be_negative_and_those_of_votes_not():
    scores = build_mechanism(NoisyScores(num_classes=2, max_answers=3, steps=3, scale=Fraction(4)))
    sums = np.array([[-5], [3]])
    codes, _ = scores.answer(sums, scores.start(None), RecordedNoise([1, -2]))
    assert from_codes(codes).tolist() == [-4, 1]
    with pytest.raises(ArgumentError, match="must not be negative"):
        release().answer(sums, release().start(None), RecordedNoise([1, -2]))
    with pytest.raises(ArgumentError, match="sums must lie between"):
        scores.answer(np.array([[-(2**53) - 1], [0]]), scores.start(None), RecordedNoise([1, -2]))


def test_argmax_is_gnmax_on_the_same_noise():
    counts = np.random.default_rng(0).integers(0, 30, (50, 3))
    noise = np.random.default_rng(1).integers(-9, 9, 150)
    codes, _ = release(num_classes=3, max_answers=50).answer(counts.reshape(-1, 1), release().start(None), RecordedNoise(noise))
    gnmax = build_mechanism(GNMax(scale=Fraction(4), max_answers=50))
    labels, _ = gnmax.answer(counts, gnmax.start(RecordedNoise([])), RecordedNoise(noise))
    assert np.array_equal(from_codes(codes).reshape(50, 3).argmax(1), labels)


def test_codes_are_never_negative_and_come_back():
    values = np.arange(-1000, 1001)
    codes = to_codes(values)
    assert codes.min() == 0
    assert len(set(codes.tolist())) == len(values)
    assert np.array_equal(from_codes(codes), values)


def test_half_a_query_is_refused():
    with pytest.raises(ArgumentError, match="2 rows for each query"):
        release().answer(np.array([[1], [2], [3]]), release().start(None), SystemNoise())


@pytest.mark.parametrize(("factor", "accepted"), [(0.7, False), (1.0, True), (1.3, False)])
def test_the_noise_has_its_scale(factor, accepted):
    """Chi-square on 20,000 counts, false-alarm rate 1e-9; 0.7 and 1.3 times the scale are over 50 standard errors away."""
    size, scale = 20_000, Fraction(8)
    mechanism = release(max_answers=size // 2, scale=Fraction(round(factor * 8 * 256), 256))
    noise = SystemNoise() if accepted else GeneratorNoise(np.random.default_rng(0))
    codes, _ = mechanism.answer(np.full((size, 1), 50), mechanism.start(noise), noise)
    statistic = float(((from_codes(codes) - 50.0) ** 2).sum() / float(scale) ** 2)
    tail = min(stats.chi2.cdf(statistic, size), stats.chi2.sf(statistic, size))
    assert (tail > 5e-10) == accepted
