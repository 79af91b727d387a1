"""How many teachers suffice, and a simulation that they do."""

import dataclasses
import math

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.privacy import calibrate
from teacher_student.privacy.bounds import (
    distance_answered,
    teachers_for_distance,
    teachers_needed,
    teachers_printed,
    teachers_tight,
)

CASE = {"epsilon": 1.0, "delta": 1e-5, "cutoff": 50, "num_queries": 1000}


def test_the_reference_numbers():
    """(m, T, epsilon, delta, beta) = (1000, 50, 1, 1e-5, 0.05): 4,296 teachers where the printed calibration needs 83,047."""
    assert teachers_printed(**CASE, failure=0.05) == 83_047
    found = teachers_tight(**CASE, failure=0.05)
    assert found.num_teachers == 4_296
    calibrated = calibrate("stability", **CASE, threshold_ratio=found.threshold_ratio)
    assert teachers_needed(calibrated, num_queries=1000, failure=0.05) == 4_296


def test_the_printed_number_is_its_formula():
    scale = math.sqrt(32 * 50 * math.log(2e5))
    threshold = 2 * scale * math.log(2e8)
    assert teachers_printed(**CASE, failure=0.05) == math.ceil(6 * (threshold + 4 * scale * math.log(4e6) + 1))


def test_no_other_ratio_needs_fewer():
    for ratio in (1.5, 1.8, 2.5, 3.0, 4.0, 6.0):
        calibrated = calibrate("stability", **CASE, threshold_ratio=ratio)
        assert teachers_needed(calibrated, num_queries=1000, failure=0.05) >= 4_296


@pytest.mark.parametrize("mechanism", ["stability", "stability_laplace", "stability_redraw", "stability_paper"])
def test_the_distance_is_the_smallest(mechanism):
    """All queries at this distance are answered but for `failure`; nearer by a tenth, not. Sampled: 40,000 sessions."""
    calibrated = calibrate(mechanism, epsilon=4.0, delta=1e-3, cutoff=3, num_queries=10)
    distance = distance_answered(calibrated, num_queries=10, failure=0.2)
    generator = np.random.default_rng(5)
    shape = (40_000, 10)

    def geometric(scale):
        return generator.geometric(-math.expm1(-1 / float(scale)), shape) - 1

    def laplace(scale):
        return geometric(scale) - geometric(scale)

    if calibrated.redraw:
        rho = laplace(calibrated.threshold_scale)
    else:
        rho = np.rint(generator.normal(0, float(calibrated.threshold_scale), (40_000, 1)))
    scale = calibrated.query_scale
    nu = -geometric(scale) - geometric(scale) if calibrated.query_noise == "two_geometrics" else laplace(scale)

    def refused(at):
        return (at + nu <= calibrated.threshold + rho).any(axis=1).mean()

    assert refused(distance) <= 0.2 + 0.01
    assert refused(distance) >= (0.14 if calibrated.redraw else 0.17)  # redrawn thresholds: a union bound
    assert refused(0.9 * distance) > 0.22


def test_what_more_queries_failures_and_noise_ask_for():
    calibrated = calibrate("stability", **CASE)
    usual = distance_answered(calibrated, num_queries=1000, failure=0.05)
    assert distance_answered(calibrated, num_queries=10_000, failure=0.05) > usual
    assert distance_answered(calibrated, num_queries=1000, failure=0.01) > usual
    raised = dataclasses.replace(calibrated, threshold=calibrated.threshold + 7)
    assert distance_answered(raised, num_queries=1000, failure=0.05) == usual + 7


def test_at_large_epsilon_the_votes_decide():
    """72 ln(2 m / failure): the term that the printed theorem leaves out."""
    calibrated = calibrate("stability", epsilon=100.0, delta=1e-2, cutoff=1)
    assert teachers_needed(calibrated, num_queries=1000, failure=0.05) == math.ceil(72 * math.log(40_000)) == 763
    assert teachers_for_distance(0, num_queries=1000, failure=0.05) == 763


def test_bad_sizes_are_refused():
    calibrated = calibrate("stability", **CASE)
    with pytest.raises(ArgumentError, match="failure must lie strictly between 0 and 1, got 0"):
        teachers_needed(calibrated, num_queries=1000, failure=0)
    with pytest.raises(ArgumentError, match="num_queries must be a positive integer, got 0"):
        teachers_needed(calibrated, num_queries=0, failure=0.1)
