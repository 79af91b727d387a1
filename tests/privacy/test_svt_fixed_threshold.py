"""The default calibration: reference points, the failure event by another route, and whole sessions summed exactly."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.privacy import Stability, StabilityLaplace, calibrate

REFERENCE = [  # cutoff, epsilon, delta; then scales rounded up to 0.01: of the threshold, of a query; threshold, epsilon reached
    (50, 1.0, 1e-5, 7.33, 58.41, 30, 0.9990),
    (75, 1.0, 1e-5, 7.33, 73.79, 30, 0.9988),
    (8, 1.0, 1e-5, 7.33, 18.26, 31, 0.9978),
    (300, 1.0, 1e-5, 7.33, 165.72, 30, 0.9980),
    (100, 2.0, 1e-6, 4.31, 50.07, 20, 1.9961),
    (12, 2.0, 1e-6, 4.31, 13.42, 21, 1.9933),
]


@pytest.mark.parametrize(("cutoff", "epsilon", "delta", "s", "b", "w", "reached"), REFERENCE)
def test_reference_points(cutoff, epsilon, delta, s, b, w, reached):
    found = calibrate("stability", epsilon=epsilon, delta=delta, cutoff=cutoff)
    assert float(found.threshold_scale) == pytest.approx(s, rel=0.01)
    assert float(found.query_scale) == pytest.approx(b, rel=0.01)
    assert abs(found.threshold - w) <= 1
    assert reached - 0.002 * epsilon <= found.epsilon(delta) <= epsilon
    assert found.epsilon(delta) >= 0.99 * epsilon
    assert found.release_delta <= delta / 10
    assert 0.8 * delta <= found.delta(epsilon) <= delta


@pytest.mark.parametrize(("cutoff", "epsilon", "delta", "s", "b", "w", "reached"), REFERENCE)
def test_scales_rounded_up_to_hundredths_cost_what_the_table_says(cutoff, epsilon, delta, s, b, w, reached):
    """The table rounds scales up to 0.01; the grid is 1/256, so each lies between two points of it."""
    costs = [
        Stability(threshold_scale=rounding(s), query_scale=rounding(b), threshold=w, cutoff=cutoff).epsilon(delta)
        for rounding in (lambda x: Fraction(math.floor(x * 256), 256), lambda x: Fraction(math.ceil(x * 256), 256))
    ]
    assert costs[1] - 1e-3 <= reached <= costs[0] + 1e-3
    assert costs[1] <= epsilon


@pytest.mark.parametrize(
    ("cutoff", "epsilon", "delta", "needed"), [(50, 1.0, 1e-5, 35), (300, 1.0, 1e-5, 35), (100, 2.0, 1e-6, 22)]
)
def test_the_threshold_tail_alone_would_need_a_larger_threshold(cutoff, epsilon, delta, needed):
    found = calibrate("stability", epsilon=epsilon, delta=delta, cutoff=cutoff)
    x = np.arange(-200, 201)
    weight = np.exp(-((x / float(found.threshold_scale)) ** 2) / 2)
    tail = np.array([weight[x <= -w - 1].sum() for w in range(60)]) / weight.sum()
    assert abs(int((tail > delta / 10).sum()) - needed) <= 1
    assert found.threshold < needed


@pytest.mark.parametrize("kind", [Stability, StabilityLaplace])
@pytest.mark.parametrize(("s", "b", "w", "cutoff"), [(2, 3, 4, 1), (2, 3, 4, 5), (7, 18, 31, 8), (4, 50, 20, 100)])
def test_the_failure_event_is_the_chance_that_one_of_several_coins_shows_an_answer(kind, s, b, w, cutoff):
    """Another route: noise values added up one by one, refusals counted by a recursion over the split queries."""
    parameters = kind(threshold_scale=Fraction(s), query_scale=Fraction(b), threshold=w, cutoff=cutoff)
    t, reach = math.exp(-1 / b), 40 * b
    geometric = (1 - t) * t ** np.arange(reach)
    if kind is Stability:
        noise = {-j: mass for j, mass in enumerate(np.convolve(geometric, geometric)[:reach])}
    else:
        noise = {x: (1 - t) / (1 + t) * t ** abs(x) for x in range(-reach, reach)}
    weights = {z: math.exp(-(z**2) / (2 * s**2)) for z in range(-12 * s, 12 * s + 1)}
    leaked = 0.0
    for z, weight in weights.items():
        answered = math.fsum(mass for nu, mass in noise.items() if nu > w + z)
        chance = 0.0
        for _ in range(cutoff):
            chance = answered + (1 - answered) * chance
        leaked += weight * chance
    leaked /= sum(weights.values())
    assert parameters.release_delta == pytest.approx(leaked, rel=1e-6)
    assert parameters.release_delta >= leaked * (1 - 1e-9)


@pytest.mark.parametrize("kind", [Stability, StabilityLaplace])
def test_bounds_on_the_failure_event_hold(kind):
    one = kind(threshold_scale=Fraction(5), query_scale=Fraction(20), threshold=12, cutoff=1)
    many = dataclasses.replace(one, cutoff=9)
    assert one.release_delta < many.release_delta <= 9 * one.release_delta
    if kind is Stability:
        x = np.arange(-100, 101)
        weight = np.exp(-(x**2) / 50)
        assert many.release_delta <= weight[x <= -13].sum() / weight.sum()


@pytest.mark.parametrize("kind", [Stability, StabilityLaplace])
def test_costs_move_the_right_way(kind):
    base = kind(threshold_scale=Fraction(7), query_scale=Fraction(58), threshold=1500, cutoff=50)
    cost = base.epsilon(1e-5)
    assert base.epsilon(1e-7) > cost > base.epsilon(1e-3)
    assert dataclasses.replace(base, cutoff=51).epsilon(1e-5) > cost > dataclasses.replace(base, cutoff=49).epsilon(1e-5)
    assert dataclasses.replace(base, query_scale=Fraction(59)).epsilon(1e-5) < cost
    assert dataclasses.replace(base, threshold_scale=Fraction(8)).epsilon(1e-5) < cost
    assert dataclasses.replace(base, threshold=0).epsilon(1e-5) == math.inf
    assert base.delta(cost) == pytest.approx(1e-5, rel=1e-6)
    assert base.delta(1.1 * cost) < base.delta(cost) < base.delta(0.9 * cost)
    assert base.delta(0.0) <= 1


def test_the_number_of_queries_does_not_matter():
    wanted = {"epsilon": 1.0, "delta": 1e-5, "cutoff": 50}
    assert calibrate("stability", **wanted) == calibrate("stability", num_queries=10**9, **wanted)


def test_the_ratio_trades_the_threshold_against_the_noise_of_a_query():
    narrow, wide = (calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=50, threshold_ratio=r) for r in (1.4, 2.7))
    assert narrow.threshold < wide.threshold
    assert narrow.query_scale > wide.query_scale
    with pytest.raises(ArgumentError, match="threshold_ratio must be above 1, got 1"):
        calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=50, threshold_ratio=1)


def transcripts(parameters, distances):
    """P of every pattern of answers (True) and refusals of a session that is asked queries at these distances, exactly."""
    s, b, w = float(parameters.threshold_scale), float(parameters.query_scale), parameters.threshold
    z = np.arange(-math.ceil(14 * s), math.ceil(14 * s) + 1)
    weight = np.exp(-((z / s) ** 2) / 2)
    weight /= weight.sum()
    gap = -math.expm1(-1 / b)
    alive, ended = {(): weight}, {}
    for distance in distances:
        short = np.maximum(distance - w - z, 0)
        refused = (1 + short * gap) * np.exp(-short / b)
        asked = [(seen, chance, answer) for seen, chance in alive.items() for answer in (True, False)]
        alive = {(*seen, answer): chance * ((1 - refused) if answer else refused) for seen, chance, answer in asked}
        halted = [seen for seen in alive if seen.count(False) == parameters.cutoff]
        ended |= {seen: alive.pop(seen) for seen in halted}
    return {seen: float(chance.sum()) for seen, chance in (ended | alive).items()}


def worst_pairs(num_queries=25):
    """One teacher flips on every query: up by one for a while, then down."""
    for distance in (2, 5, 9):
        for ups in (0, 5, 15, num_queries):
            downs = num_queries - ups
            yield [distance] * ups + [distance + 1] * downs, [distance + 1] * ups + [distance] * downs


def renyi(order, left, right):
    loss = [order * math.log(p) - (order - 1) * math.log(right[key]) for key, p in left.items() if p > 0]
    return math.log(math.fsum(math.exp(value) for value in loss)) / (order - 1)


SMALL = Stability(threshold_scale=Fraction(2), query_scale=Fraction(3), threshold=3, cutoff=2)


def worst(parameters, order):
    sessions = [[transcripts(parameters, side) for side in pair] for pair in worst_pairs()]
    return max(renyi(order, *pair) for both in sessions for pair in (both, both[::-1]))


@pytest.mark.parametrize("order", [1.5, 2.0, 4.0, 16.0, 40.0])
def test_no_session_passes_the_renyi_bound(order):
    assert worst(SMALL, order) <= float(SMALL.rdp([order])[0])


@pytest.mark.parametrize("order", [4.0, 8.0, 16.0])
def test_a_session_with_half_the_noise_passes_it(order):
    halved = dataclasses.replace(SMALL, threshold_scale=Fraction(1), query_scale=Fraction(3, 2))
    assert worst(halved, order) > float(SMALL.rdp([order])[0])


def test_no_small_session_passes_epsilon_and_delta():
    """Includes split queries (distance 0 on both sides), whose answer shows which data it was."""
    splits = [
        ([0] * 5, [0] * 5, range(5)),
        ([9, 9, 0, 0, 4], [10, 8, 0, 0, 5], (2, 3)),
        ([3, 0, 3, 0, 3], [4, 0, 4, 0, 2], (1, 3)),
    ]
    for left_distances, right_distances, split in splits:
        left, right = transcripts(SMALL, left_distances), transcripts(SMALL, right_distances)
        shown = {key for key in left if any(at < len(key) and key[at] for at in split)}
        for epsilon in (0.3, 1.0, 2.5):
            apart = sum(p if key in shown else max(0.0, p - math.exp(epsilon) * right[key]) for key, p in left.items())
            assert apart <= SMALL.delta(epsilon)


def test_the_failure_event_is_attained():
    """As many split queries as the cutoff: the chance that one is answered is delta2, and one threshold lower it is more."""
    left = transcripts(SMALL, [0, 0])
    shown = sum(p for key, p in left.items() if any(key))
    assert shown == pytest.approx(SMALL.release_delta, rel=1e-9)
    assert shown > dataclasses.replace(SMALL, threshold=4).release_delta
