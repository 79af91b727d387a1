"""The conversion of Renyi divergences: against the exact cost of a Gaussian, and safe where there is no number."""

import math

import pytest

from teacher_student.privacy.rdp import ORDERS, to_delta, to_epsilon


def test_conversion_gives_a_gaussian_its_known_cost():
    """Renyi conversion lies above the exact cost (scale 3.73 for (1, 1e-5)), by a few per cent, and inverts itself."""
    scale = 3.730632
    epsilon = to_epsilon(lambda a: a / (2 * scale**2), 1e-5)
    assert 1.0 < epsilon < 1.12
    assert to_delta(lambda a: a / (2 * scale**2), epsilon) == pytest.approx(1e-5, rel=0.02)
    assert to_epsilon(lambda a: 0 * a, 0.5) == 0.0
    assert ORDERS.min() >= 1.01 * (1 - 1e-12)


def test_a_divergence_that_is_not_a_number_certifies_nothing():
    assert to_epsilon(lambda orders: orders * math.nan, 1e-5) == math.inf
    assert to_delta(lambda orders: orders * math.nan, 1.0) == 1.0
