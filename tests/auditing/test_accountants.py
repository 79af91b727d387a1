"""The accountants' building blocks against exact sums: sound, and attained where the page says so."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from teacher_student.auditing.exact import QueryPair, ThresholdLaw, outcomes
from teacher_student.auditing.laws import discrete_gaussian, discrete_laplace
from teacher_student.auditing.outcomes import Outcomes
from teacher_student.privacy import Stability, StabilityRedraw
from teacher_student.privacy.gaussian import discrete_gaussian_mu, gaussian_delta


def _shifted(law, by=1):
    """The outcomes "X" and "X + by"."""
    mass = np.concatenate([law.mass, np.zeros(by)])
    return Outcomes(mass, np.concatenate([np.zeros(by), law.mass]), 2 * law.outside)


@pytest.mark.parametrize("cutoff", [1, 3])
@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
def test_the_price_of_a_refusal_is_sound_and_attained(cutoff, order):
    """With a threshold that tells nothing, repeating the worst query until it is refused costs exactly T kappa.

    At small orders the worst query is near the threshold; at large ones it is ever farther away, and no finite sum attains kappa.
    """
    scale = Fraction(18)
    parameters = Stability(threshold_scale=Fraction(1 << 20), query_scale=scale, threshold=0, cutoff=cutoff)
    claimed = float(parameters.rdp([order])[0])
    reached = []
    for y in (3, 5, 6, 9, 20, 60):
        law = ThresholdLaw("discrete_gaussian", "two_geometrics", 0.01, float(scale), 0, cutoff)
        exact = outcomes(law, [QueryPair(0, y - 2, 0, y)] * 300)
        assert exact.renyi(order) <= claimed
        reached.append(exact.renyi(order))
    assert max(reached) >= (0.99 if order < 3 else 0.7) * claimed


def test_a_run_is_exactly_as_private_as_stated():
    """From a fresh threshold to the first refusal: epsilon 1 / lambda + 2 / (2 lambda), approached by many answers."""
    parameters = StabilityRedraw(threshold_scale=Fraction(2), query_scale=Fraction(4), threshold=4, cutoff=1)
    law = ThresholdLaw.of(parameters)
    queries = [QueryPair(0, 8, 0, 9)] * 40 + [QueryPair(0, 5, 0, 4)]
    exact = outcomes(law, queries)
    assert exact.worst_divergence(parameters.run_epsilon).upper < 1e-10
    assert exact.epsilon(1e-9) > 0.97 * parameters.run_epsilon


@pytest.mark.parametrize("scale", [0.6, 1.0, 2.5, 9.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 2.0])
def test_a_discrete_gaussian_is_gaussian_private_at_its_own_mu(scale, epsilon):
    """Sound everywhere, attained at epsilon 0; and mu = 1 / scale would not be sound."""
    scale = Fraction(round(256 * scale), 256)
    exact = _shifted(discrete_gaussian(float(scale))).worst_divergence(epsilon)
    claimed = gaussian_delta(discrete_gaussian_mu(scale), epsilon)
    assert exact.lower <= claimed + 1e-12
    if epsilon == 0:
        assert exact.upper == pytest.approx(claimed, rel=1e-6)
        assert exact.lower > gaussian_delta(1 / float(scale), 0.0)


def test_a_discrete_laplace_is_purely_private():
    exact = _shifted(discrete_laplace(3.0))
    assert exact.worst_divergence(1 / 3).upper < 1e-11
    assert exact.worst_divergence(0.99 / 3).lower > 1e-4
