"""The exact divergence equals a brute-force sum over every transcript and every threshold."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.auditing.exact import QueryPair, ThresholdLaw, outcomes
from teacher_student.auditing.laws import discrete_gaussian, discrete_laplace, one_sided, two_geometrics_bottom
from teacher_student.auditing.outcomes import Outcomes, joined, product

TIGHT = ThresholdLaw("discrete_gaussian", "two_geometrics", 1.5, 2.0, 4, 2)
PAPER = ThresholdLaw("discrete_laplace", "discrete_laplace", 1.0, 2.0, 4, 2, redraw=True)
MIXED = [QueryPair(0, 3, 0, 4), QueryPair(0, 3, 0, 4), QueryPair(1, 5, 1, 4), QueryPair(0, 0, 1, 0), QueryPair(0, 6, 0, 6)]


def _brute_force(law, queries, side, restart):
    """Every transcript with its probability, by walking the algorithm as it is printed."""
    noise = law.noisy_threshold()
    found: dict[tuple, float] = {}

    def walk(step, transcript, paid, weights):
        if step == len(queries) or paid == law.cutoff:
            found[transcript] = found.get(transcript, 0.0) + float(weights.sum())
            return
        winner, distance = (
            (queries[step].winner, queries[step].distance)
            if side == 0
            else (queries[step].other_winner, queries[step].other_distance)
        )
        unanswered, answered = (np.exp(part) for part in law.log_unanswered(distance))
        walk(step + 1, (*transcript, winner), paid, weights * answered)
        after = weights * unanswered
        if law.redraw:
            after = noise.mass * after.sum()
        walk(0 if restart else step + 1, (*transcript, -1), paid + 1, after)

    walk(0, (), 0, noise.mass)
    return found


@pytest.mark.parametrize("law", [TIGHT, PAPER], ids=["one threshold", "redrawn"])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_sum_equals_brute_force(law, restart, epsilon):
    mine, theirs = (_brute_force(law, MIXED, side, restart) for side in (0, 1))
    exact = outcomes(law, MIXED, restart=restart)
    for one, two, measured in ((mine, theirs, exact), (theirs, mine, exact.reversed())):
        direct = sum(max(0.0, mass - math.exp(epsilon) * two.get(key, 0.0)) for key, mass in one.items())
        bracket = measured.divergence(epsilon)
        assert bracket.lower <= direct + 1e-12
        assert direct <= bracket.upper + 1e-12
        assert bracket.upper - bracket.lower < 1e-11


@pytest.mark.parametrize("law", [TIGHT, PAPER], ids=["one threshold", "redrawn"])
def test_probabilities_sum_to_one(law):
    exact = outcomes(law, MIXED * 4)
    assert exact.probability.sum() == pytest.approx(1, abs=1e-12)
    assert exact.other.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("scale", [0.5, 3.0, 40.0])
def test_laws_have_their_moments(scale):
    ratio = math.exp(-1 / scale)
    laplace, one = discrete_laplace(scale), one_sided(scale)
    assert laplace.mass.sum() == pytest.approx(1, abs=1e-12)
    assert laplace.mass @ laplace.support**2 == pytest.approx(2 * ratio / (1 - ratio) ** 2, rel=1e-9)
    assert one.mass @ one.support == pytest.approx(-2 * ratio / (1 - ratio), rel=1e-9)
    gaussian = discrete_gaussian(scale)
    assert gaussian.mass.sum() == pytest.approx(1, abs=1e-12)
    if scale >= 3:  # the discrete Gaussian's variance is s^2 up to e^(-2 pi^2 s^2) (Canonne, Kamath, Steinke 2020)
        assert gaussian.mass @ gaussian.support**2 == pytest.approx(scale**2, rel=1e-9)


def test_tail_of_two_geometrics_is_the_sum_of_its_mass():
    law = one_sided(3.0)
    for y in (-2, 0, 1, 2, 7, 30):
        assert two_geometrics_bottom(np.array([y]), 3.0)[0] == pytest.approx(law.mass[law.support <= -y].sum(), abs=1e-13)


@pytest.mark.parametrize("cutoff", [1, 3, 8])
def test_failure_event_is_attained_when_every_query_is_split(cutoff):
    law = ThresholdLaw("discrete_gaussian", "two_geometrics", 2.0, 5.0, 6, cutoff)
    noise = discrete_gaussian(2.0)
    bottom = two_geometrics_bottom(-6 - noise.support, 5.0)
    expected = float(noise.mass @ -np.expm1(cutoff * np.log(bottom)))
    exact = outcomes(law, [QueryPair(0, 0, 1, 0)] * (cutoff + 2))
    assert exact.divergence(0.7).lower == pytest.approx(expected, rel=1e-9)


def test_reused_noise_is_one_draw_per_session():
    law = ThresholdLaw("discrete_gaussian", "two_geometrics", 1.5, 2.0, 4, 2, reuse=True)
    same = outcomes(law, [QueryPair(0, 5, 0, 6)] * 4)
    assert np.count_nonzero(same.probability > 1e-15) == 2  # all answered, or the first `cutoff` all unanswered


def compose(outcomes, times, **limits):
    """The outcomes of `times` independent runs."""
    result = outcomes
    for _ in range(times - 1):
        result = joined([product(result, outcomes)], **limits)
    return result


def test_merging_brackets_the_unmerged_divergence():
    step = outcomes(PAPER, MIXED[:3], restart=True)
    whole, merged = compose(step, 4), compose(step, 4, width=1e-3, largest=50)
    for epsilon in (0.2, 0.8, 1.5):
        bracket, true = merged.divergence(epsilon), whole.divergence(epsilon)
        assert bracket.lower <= true.upper
        assert true.lower <= bracket.upper
        assert merged.width > 0


def test_epsilon_inverts_the_divergence():
    exact = outcomes(TIGHT, [QueryPair(0, 5, 0, 4)] * 6)
    epsilon = exact.epsilon(0.01)
    assert exact.worst_divergence(epsilon).upper == pytest.approx(0.01, rel=1e-3)
    assert Outcomes(np.array([0.5, 0.5, 0]), np.array([0, 0.5, 0.5])).epsilon(0.1) == math.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold_noise": "cauchy"}, "threshold_noise must be one of"),
        ({"query_noise": "cauchy"}, "query_noise must be one of"),
        ({"cutoff": 0}, "cutoff must be a positive integer, got 0"),
        ({"query_scale": 0.0}, "query_scale must be a number above 0"),
    ],
)
def test_a_description_is_checked(change, message):
    fields = {"threshold_noise": "discrete_gaussian", "query_noise": "two_geometrics", "threshold_scale": 1.0}
    with pytest.raises(ArgumentError, match=message):
        ThresholdLaw(**{**fields, "query_scale": 1.0, "threshold": 3, "cutoff": 1, **change})
    with pytest.raises(ArgumentError, match="queries must not be empty"):
        outcomes(TIGHT, [])


def test_every_transcript_is_there_once():
    listed = _brute_force(TIGHT, MIXED[:3], 0, restart=False)
    possible = list(itertools.product((0, 1), repeat=3))
    assert len(listed) == sum(1 for word in possible if sum(word) < 2 or (sum(word) == 2 and word[-1])) + 1
