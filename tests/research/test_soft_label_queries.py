"""Soft labels in one piece, from shards to scores; and the printed threshold leaks where the corrected one does not."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from research.soft_label_queries import soft_label_law, soft_label_queries
from teacher_student.auditing.exact import ThresholdLaw, outcomes
from teacher_student.auditing.pairs import all_split, halved_distance
from teacher_student.mechanisms import RecordedNoise
from teacher_student.privacy import Stability
from teacher_student.privacy.calibration import calibrate_soft

SCALE, QUERY_SCALE = Fraction(2), Fraction(3)
PARAMETERS = Stability(threshold_scale=SCALE, query_scale=QUERY_SCALE, threshold=6, cutoff=3)


def test_paper_in_one_piece():
    shards = [[value] * 3 for value in [0.2] * 30 + [0.8] * 2]
    learner = lambda shard: lambda query: query * float(np.mean(shard))  # noqa: E731
    noise = RecordedNoise({SCALE: [0], QUERY_SCALE: [0] * 8})
    scores = list(soft_label_queries(shards, learner, [1.0, 0.1, float("nan")], bins=4, parameters=PARAMETERS, noise=noise))
    assert scores[:2] == [0.125, 0.125]
    assert math.isnan(scores[2])


@pytest.mark.parametrize(("sub_answers", "leak"), [(52, 173e-5), (100, 333e-5)])
def test_the_printed_threshold_leaks(sub_answers, leak):
    """m = 1000, delta = 1e-5, T = 50: the printed loop releases a split label with probability 1.7e-3, 173 delta."""
    numbers = {"epsilon": 1.0, "delta": 1e-5, "cutoff": 50, "num_queries": 1000}
    split = all_split(sub_answers).seen(halved_distance)
    printed = outcomes(soft_label_law(**numbers, sub_answers=sub_answers, factor=1), split).divergence(1.0)
    assert printed.lower == pytest.approx(leak, rel=0.01)
    assert printed.lower > 100 * numbers["delta"]
    corrected = soft_label_law(**numbers, sub_answers=100)
    assert outcomes(corrected, all_split(100).seen(halved_distance)).divergence(1.0).upper < numbers["delta"] / 10


def test_the_corrected_law_is_that_of_the_calibration():
    parameters = calibrate_soft("stability_paper", epsilon=1.0, delta=1e-5, cutoff=50, num_queries=1000)
    numbers = {"epsilon": 1.0, "delta": 1e-5, "cutoff": 50, "num_queries": 1000}
    assert ThresholdLaw.of(parameters) == soft_label_law(**numbers, sub_answers=100)
