"""`calibrate` meets every request or names, in one line, one that it could meet."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.privacy import MECHANISMS, Stability, calibrate, calibrate_soft, parameters_from_dict
from teacher_student.privacy.parameters import check_scale, round_up, smallest_scale
from teacher_student.privacy.svt_fixed_threshold import smallest_gaussian

STABILITY = ["stability", "stability_laplace", "stability_redraw", "stability_paper"]
GOOD = {"epsilon": 1.0, "delta": 1e-5, "cutoff": 50, "num_queries": 1000}


@pytest.mark.parametrize("mechanism", STABILITY)
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 7.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-3])
def test_what_is_asked_is_met_and_used_up(mechanism, epsilon, delta):
    for cutoff in (1, 60, 3000):
        found = calibrate(mechanism, epsilon=epsilon, delta=delta, cutoff=cutoff, num_queries=10_000)
        assert found.epsilon(delta) <= epsilon
        assert found.delta(epsilon) <= delta * (1 + 1e-9)
        assert found.cutoff == cutoff
        if mechanism != "stability_paper" and epsilon <= 7:  # at large epsilons the grid is coarse
            assert found.epsilon(delta) >= 0.985 * epsilon


@pytest.mark.parametrize("mechanism", ["stability", "stability_laplace", "stability_redraw"])
def test_every_certified_scale_is_the_smallest_on_the_grid(mechanism):
    found = calibrate(mechanism, **GOOD)
    step = Fraction(1, 256)
    finer = {"query_scale": found.query_scale - step * (2 if found.redraw else 1)}
    if found.redraw:
        finer["threshold_scale"] = found.threshold_scale - step
    smaller = dataclasses.replace(found, **finer)
    assert smaller.epsilon(0.9e-5 + smaller.release_delta) > 1
    assert dataclasses.replace(found, threshold=found.threshold - 1).release_delta > 1e-6


def test_a_mechanism_gives_the_cost_of_any_order_and_any_delta():
    found = calibrate("stability", **GOOD)
    orders = [1.01, 2, 3.7, 64, 1000.0]
    rdp = found.rdp(orders)
    assert rdp.shape == (5,)
    assert (np.diff(rdp) > 0).all()
    for order, value in zip(orders, rdp, strict=True):
        assert (
            found.epsilon(1e-5)
            <= value + math.log1p(-1 / order) - math.log((1e-5 - found.release_delta) * order) / (order - 1) + 1e-6
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mechanism": "stabilty"}, "mechanism must be one of confident_gnmax, "),
        ({"mechanism": None}, "mechanism must be one of "),
        ({"epsilon": 0}, "epsilon must be a number above 0, got 0"),
        ({"epsilon": -1.0}, "epsilon must be a number above 0, got -1.0"),
        ({"epsilon": math.nan}, "epsilon must be a number above 0, got nan"),
        ({"epsilon": math.inf}, "epsilon must be a number above 0, got inf"),
        ({"epsilon": "1"}, "epsilon must be a number above 0, got '1'"),
        ({"delta": 0}, "delta must lie strictly between 0 and 1, got 0"),
        ({"delta": 1}, "delta must lie strictly between 0 and 1, got 1"),
        ({"delta": 1e-320}, "delta must be at least 1e-303"),
        ({"delta": 1e-302}, "delta must leave the failure event at least 1e-30"),
        ({"cutoff": 0}, "cutoff must be a positive integer, got 0"),
        ({"cutoff": None}, "cutoff must be a positive integer, got None"),
        ({"cutoff": 2.0}, "cutoff must be a positive integer, got 2.0"),
        ({"cutoff": True}, "cutoff must be a positive integer, got True"),
        ({"cutoff": 10**9}, "cutoff must be at most 1000000"),
        ({"cutoff": 10**400}, "cutoff must be an integer below"),
        ({"num_queries": -3}, "num_queries must be a positive integer, got -3"),
        ({"threshold_ratio": math.nan}, "threshold_ratio must be a number above 0, got nan"),
        ({"treshold_ratio": 2}, "treshold_ratio is no option of stability; it has threshold_ratio"),
        ({"epsilon": 1e-7}, "epsilon must be at least .* at this delta, got 1e-07"),
        (
            {"mechanism": "stability_redraw", "threshold_ratio": 2},
            "threshold_ratio is no option of stability_redraw",
        ),
        (
            {"mechanism": "stability_redraw", "epsilon": 1e-7},
            "epsilon must be at least .* at cutoff 50 and this delta, got 1e-07",
        ),
        ({"mechanism": "stability_paper", "num_queries": None}, "num_queries must be a positive integer, got None"),
        ({"mechanism": "stability_paper", "epsilon": 1e-7}, "epsilon must be at least .* at cutoff 50 and this delta, got 1e-07"),
    ],
)
def test_bad_requests_are_one_clear_line(change, message):
    arguments = {"mechanism": "stability", **GOOD, **change}
    with pytest.raises(ArgumentError, match=f"^{message}") as refused:
        calibrate(**arguments)
    assert "\n" not in str(refused.value)


def test_the_smallest_feasible_epsilon_is_named():
    with pytest.raises(ArgumentError, match="epsilon must be at least") as refused:
        smallest_gaussian(1e-6, 1e-5, 50.0)
    feasible = float(str(refused.value).split("at least ")[1].split()[0])
    assert smallest_gaussian(1.1 * feasible, 1e-5, 50.0) <= 50


@pytest.mark.slow
def test_a_refused_epsilon_names_one_that_is_feasible():
    with pytest.raises(ArgumentError, match="epsilon must be at least") as refused:
        calibrate("stability", epsilon=1e-6, delta=1e-5, cutoff=50)
    feasible = float(str(refused.value).split("at least ")[1].split()[0])
    assert calibrate("stability", epsilon=1.1 * feasible, delta=1e-5, cutoff=50).epsilon(1e-5) <= 1.1 * feasible


def test_soft_labels_refuse_the_same():
    with pytest.raises(ArgumentError, match="cutoff must be a positive integer, got 0"):
        calibrate_soft("stability", epsilon=1.0, delta=1e-5, cutoff=0)
    with pytest.raises(ArgumentError, match="delta must lie strictly between 0 and 1, got 2"):
        calibrate_soft("stability_paper", epsilon=1.0, delta=2, cutoff=5, num_queries=10)


@pytest.mark.parametrize("mechanism", STABILITY)
def test_parameters_survive_a_dictionary_exactly(mechanism):
    found = calibrate(mechanism, **GOOD)
    again = parameters_from_dict(found.to_dict())
    assert again == found
    assert (again.epsilon(1e-5), again.delta(1.0)) == (found.epsilon(1e-5), found.delta(1.0))
    assert mechanism in MECHANISMS


FIELDS = {"threshold_scale": Fraction(7), "query_scale": Fraction(58), "threshold": 30, "cutoff": 50}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold_scale": 0.1}, "threshold_scale must be a positive multiple of 1/256"),
        ({"threshold_scale": Fraction(0)}, "threshold_scale must be a positive multiple of 1/256"),
        ({"query_scale": -4}, "query_scale must be a positive multiple of 1/256"),
        ({"query_scale": True}, "query_scale must be a positive multiple of 1/256"),
        ({"query_scale": math.nan}, "query_scale must be a positive multiple of 1/256"),
        ({"query_scale": 10**500}, "query_scale must be a positive multiple of 1/256, at most 1099511627776"),
        ({"query_scale": "58"}, "query_scale must be a positive multiple of 1/256"),
        ({"threshold": -1}, "threshold must be an integer from 0 to"),
        ({"threshold": 3.0}, "threshold must be an integer from 0 to"),
        ({"threshold": 10**500}, "threshold must be an integer from 0 to"),
        ({"cutoff": 0}, "cutoff must be a positive integer, got 0"),
        ({"cutoff": 10**9}, "cutoff must be at most 1000000"),
    ],
)
def test_fields_check_themselves(change, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        Stability(**(FIELDS | change))


def test_fields_are_plain_python_numbers():
    made = Stability(threshold_scale=7, query_scale=np.float64(58.5), threshold=np.int64(30), cutoff=np.int32(50))
    assert [type(getattr(made, name)) for name in FIELDS] == [Fraction, Fraction, int, int]


def test_the_grid():
    assert float(round_up(58.41)) * 256 == math.ceil(58.41 * 256)
    assert check_scale("scale", 58.5) == Fraction(117, 2)
    assert smallest_scale(lambda scale: scale > Fraction(1, 256)) == Fraction(2, 256)
    assert smallest_scale(lambda scale: True) == Fraction(1, 256)
    assert smallest_scale(lambda scale: False) is None
