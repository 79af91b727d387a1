"""The exact law of the noisy maxima against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.auditing.laws import IntegerLaw
from teacher_student.auditing.noisy import NoisyMaxLaw, label_chances, session_law, session_outcomes


@pytest.mark.parametrize("counts", [[3, 3, 2], [0, 4], [5], [1, 1, 1, 1], [2, 0, 3]])
def test_label_chances_equal_brute_force(counts):
    law = IntegerLaw(-2, np.array([0.1, 0.2, 0.4, 0.2, 0.1]), 0.0)
    expected = np.zeros(len(counts))
    for noise in itertools.product(range(5), repeat=len(counts)):
        winner = int(np.argmax(np.array(counts) + np.array(noise) - 2))
        expected[winner] += math.prod(law.mass[index] for index in noise)
    assert label_chances(np.array(counts), law) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("test", [(None, None), (6, 2.0)], ids=["no test", "test"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_sessions_equal_brute_force(test, epsilon):
    law = NoisyMaxLaw("discrete_gaussian", 1.5, 2, *test)
    rows, others = [[6, 3], [2, 7], [5, 4]], [[5, 4], [3, 6], [5, 3]]
    one, two = session_law(law, np.array(rows)), session_law(law, np.array(others))
    direct = sum(max(0.0, mass - math.exp(epsilon) * two[key]) for key, mass in one.items())
    exact = session_outcomes(law, np.array(rows), np.array(others))
    assert exact.probability.sum() == pytest.approx(1, abs=1e-12)
    assert exact.divergence(epsilon).lower == pytest.approx(direct, abs=1e-11)


def test_a_description_is_checked():
    with pytest.raises(ArgumentError, match="noise must be one of"):
        NoisyMaxLaw("cauchy", 1.0, 2)
    with pytest.raises(ArgumentError, match="test_threshold and test_scale"):
        NoisyMaxLaw("discrete_gaussian", 1.0, 2, 5)
