"""The printed loop: runs that are pure, composed by theorem or optimally, and the printed constants."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.privacy import StabilityPaper, StabilityRedraw, calibrate, calibrate_soft


def test_basic_composition_needs_no_delta():
    five = StabilityRedraw(threshold_scale=Fraction(200), query_scale=Fraction(400), threshold=90_000, cutoff=5)
    assert five.epsilon(1e-12) <= 0.05


@pytest.mark.parametrize("scale", [1, 3])
def test_a_run_in_integers_is_pure_at_two_over_lambda(scale):
    """Every run of five queries, ended by a refusal or not: no likelihood ratio passes eps0, and some come close."""
    t1, t2 = math.exp(-1 / scale), math.exp(-1 / (2 * scale))
    z = np.arange(-60 * scale, 60 * scale + 1)
    weight = (1 - t1) / (1 + t1) * t1 ** np.abs(z)

    def refused(distance):
        y = distance - 2 - z  # nu <= w + z - distance, w = 2
        return np.where(y >= 0, t2 ** np.maximum(y, 0) / (1 + t2), 1 - t2 ** (1 - np.minimum(y, 0)) / (1 + t2))

    def runs(distances):
        alive, found = weight.copy(), []
        for distance in distances:
            found.append(float((alive * refused(distance)).sum()))
            alive = alive * (1 - refused(distance))
        return np.array([*found, alive.sum()])

    losses = []
    for distances in itertools.product([0, 4], repeat=4):
        for moves in itertools.product([-1, 0, 1], repeat=4):
            other = [max(0, d + move) for d, move in zip(distances, moves, strict=True)]
            here, there = runs([*distances, 30, 3]), runs([*other, 31, 4])
            losses.append(np.abs(np.log(here / there)).max())
    assert max(losses) <= 2 / scale + 1e-12
    assert max(losses) >= 0.8 * 2 / scale


@pytest.mark.parametrize(("scale", "threshold", "cutoff"), [(2, 0, 1), (2, 9, 3), (5, 60, 40)])
def test_the_failure_event_is_each_runs_chance_to_answer_at_distance_0(scale, threshold, cutoff):
    """Every pair of noise values is looked at: answered iff 0 + nu > w + rho."""
    reach = np.arange(-90 * scale, 90 * scale + 1)
    rho, nu = np.exp(-np.abs(reach) / scale), np.exp(-np.abs(reach) / (2 * scale))
    answered = reach[:, None] > threshold + reach[None, :]
    tau = float((nu[:, None] * rho[None, :])[answered].sum() / (nu.sum() * rho.sum()))
    fields = {"threshold_scale": Fraction(scale), "query_scale": Fraction(2 * scale), "threshold": threshold, "cutoff": cutoff}
    assert StabilityRedraw(**fields).release_delta == pytest.approx(cutoff * tau, rel=1e-9)
    assert StabilityPaper(**fields, num_queries=10).release_delta == pytest.approx(cutoff * tau, rel=1e-9)


def test_the_printed_constants():
    found = calibrate("stability_paper", epsilon=1.0, delta=1e-5, cutoff=50, num_queries=1000)
    printed = math.sqrt(32 * 50 * math.log(2e5))
    assert printed <= float(found.threshold_scale) < printed + 1 / 256
    assert found.query_scale == 2 * found.threshold_scale
    assert found.threshold == math.ceil(2 * float(found.threshold_scale) * math.log(2e8))
    assert found.epsilon(1e-5) <= 1
    tau = found.release_delta / 50
    assert tau == pytest.approx(1e-5 / 3000, rel=0.01)


def test_the_printed_soft_constants_and_their_missing_factor():
    """U = 2 T units; the printed w lacks a factor 2: at m = 1000, T = 50 it leaks 1.7e-3 for 50 units, 3.3e-3 for 100."""
    found = calibrate_soft("stability_paper", epsilon=1.0, delta=1e-5, cutoff=50, num_queries=1000)
    printed = math.sqrt(64 * 50 * math.log(2e5))
    assert printed <= float(found.threshold_scale) < printed + 1 / 256
    assert found.threshold == math.ceil(2 * float(found.threshold_scale) * math.log(4e8))
    assert found.cutoff == 100
    assert found.num_queries == 1000
    assert found.epsilon(1e-5) <= 1
    as_printed = dataclasses.replace(found, threshold=math.ceil(float(found.threshold_scale) * math.log(4e8)))
    assert as_printed.release_delta / 1e-5 == pytest.approx(333, rel=0.02)
    assert dataclasses.replace(as_printed, cutoff=50).release_delta / 1e-5 == pytest.approx(173, rel=0.05)
    assert as_printed.epsilon(1e-5) == math.inf


def test_soft_labels_of_the_other_calibrations_have_two_units_for_each_unstable_query():
    for mechanism in ("stability", "stability_redraw", "stability_laplace"):
        wanted = {"epsilon": 1.0, "delta": 1e-5}
        assert calibrate_soft(mechanism, cutoff=20, **wanted) == calibrate(mechanism, cutoff=40, **wanted)


def test_the_printed_theorem_is_refused_where_it_is_false_with_the_epsilon_that_would_do():
    wanted = {"delta": 1e-5, "cutoff": 200, "num_queries": 1000}
    with pytest.raises(ArgumentError, match=r"epsilon must be at most .* for the printed constants") as refused:
        calibrate("stability_paper", epsilon=60.0, **wanted)
    feasible = float(str(refused.value).split("at most ")[1].split()[0])
    assert calibrate("stability_paper", epsilon=0.999 * feasible, **wanted).epsilon(1e-5) <= feasible
    with pytest.raises(ArgumentError, match="at most"):
        calibrate("stability_paper", epsilon=1.02 * feasible, **wanted)
    few = calibrate("stability_paper", epsilon=500.0, delta=1e-5, cutoff=90, num_queries=1000)  # T <= 8 ln(2/delta)
    assert few.epsilon(1e-5) <= 500


def test_more_refusals_than_the_printed_threshold_covers_are_refused():
    with pytest.raises(ArgumentError, match=r"cutoff must be about .* or less for 10 queries at the printed w, got 100"):
        calibrate("stability_paper", epsilon=1.0, delta=1e-5, cutoff=100, num_queries=10)


@pytest.mark.parametrize("kind", [StabilityPaper, StabilityRedraw])
def test_costs_move_the_right_way(kind):
    more = {"num_queries": 1000} if kind is StabilityPaper else {}
    base = kind(threshold_scale=Fraction(140), query_scale=Fraction(280), threshold=5400, cutoff=50, **more)
    cost = base.epsilon(1e-5)
    assert base.epsilon(1e-6) > cost > base.epsilon(1e-3) > base.epsilon(0.5) >= 0
    assert dataclasses.replace(base, cutoff=60).epsilon(1e-5) > cost > dataclasses.replace(base, cutoff=40).epsilon(1e-5)
    assert dataclasses.replace(base, threshold=100).epsilon(1e-5) == math.inf
    assert base.delta(cost) == pytest.approx(1e-5, rel=1e-6)
    assert base.delta(1.01 * cost) < base.delta(cost) < base.delta(0.99 * cost)
    assert base.epsilon(1.5) == 0.0


def test_optimal_composition_never_costs_more_than_the_theorem():
    for cutoff in (1, 10, 50, 400):
        paper = calibrate("stability_paper", epsilon=1.0, delta=1e-5, cutoff=cutoff, num_queries=1000)
        fields = {name: getattr(paper, name) for name in ("threshold_scale", "query_scale", "threshold", "cutoff")}
        assert StabilityRedraw(**fields).epsilon(1e-5) <= paper.epsilon(1e-5)
