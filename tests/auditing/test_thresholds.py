"""Every mutant of the threshold mechanisms is rejected, and the tests say by which check."""

from __future__ import annotations

import numpy as np
import pytest

from teacher_student.auditing import audit
from teacher_student.auditing.checks import exact_divergence, sampled_epsilon
from teacher_student.auditing.thresholds import ThresholdUnderTest, exact_release
from teacher_student.auditing.under_test import AuditConfig
from teacher_student.mechanisms import GeneratorNoise
from teacher_student.privacy import calibrate

# With these rows every mutant is rejected without sampling, where a finite sum can tell it apart at all. Two wrong scales keep
# the claim (more noise on the queries; less on the threshold, which the accountant over-estimates at this cutoff): those must be
# heard in the draws.
REJECTED_BY = {
    "sensitivity_two": {"exact divergence", "sensitivity", "sampled law"},
    "one_payment_more": {"exact release", "cap", "sampled law"},
    "noise_halved": {"exact divergence", "draws", "threshold noise", "sampled law"},
    "threshold_scale_0.7": {"draws", "threshold noise"},
    "threshold_scale_1.3": {"exact release", "draws", "threshold noise"},
    "query_scale_0.7": {"exact release", "draws", "sampled law"},
    "query_scale_1.3": {"draws", "sampled law"},
    "query_noise_reused": {"exact divergence", "draws", "sampled law"},
    "threshold_redrawn": {"exact release", "draws", "threshold kept"},
}


@pytest.fixture(scope="module")
def report():
    return audit("stability", epsilon=1.0, delta=1e-5, cutoff=2, trials=200, seed=7)


def test_the_mechanism_passes_and_every_mutant_is_caught(report):
    assert report.sound, str(report)
    assert report.powerful, str(report)
    assert "audit passed" in str(report)


@pytest.mark.parametrize("mutant", sorted(REJECTED_BY))
def test_each_mutant_is_rejected_by_these_checks(report, mutant):
    assert set(report.caught) == set(REJECTED_BY)
    assert REJECTED_BY[mutant] <= set(report.caught[mutant])


def _config(epsilon, delta, trials=100):
    return AuditConfig(epsilon, delta, trials, 1e-9, lambda: GeneratorNoise(np.random.default_rng(11)))


# The printed constants spend less than half of epsilon, so that half the noise is still within the claim.
EXACTLY_REJECTED = {
    "stability_paper": set(),
    "stability_redraw": {"sensitivity_two", "noise_halved"},
    "stability_laplace": {"sensitivity_two", "noise_halved", "query_noise_reused"},
}


@pytest.mark.parametrize("mechanism", sorted(EXACTLY_REJECTED))
def test_exact_checks_reject_mutants_of_the_other_calibrations(mechanism):
    config = _config(1.0, 1e-4)
    parameters = calibrate(mechanism, epsilon=1.0, delta=1e-4, cutoff=1, num_queries=10)
    true = ThresholdUnderTest.of(parameters)
    assert exact_divergence(true, config).passed
    assert exact_release(true, config).passed
    mutants = {mutant.name: mutant for mutant in true.mutants()}
    assert not [name for name in EXACTLY_REJECTED[mechanism] if exact_divergence(mutants[name], config).passed]
    leaking = {name for name, mutant in mutants.items() if not exact_release(mutant, config).passed}
    assert {"one_payment_more", "threshold_scale_1.3"} <= leaking


@pytest.mark.slow
def test_sampled_bound_alone_rejects_halved_noise():
    """Clopper-Pearson at error 1e-9. `stability_redraw` at one payment attains its epsilon, so halving the noise doubles it."""
    parameters = calibrate("stability_redraw", epsilon=2.0, delta=1e-5, cutoff=1, num_queries=10)
    config = _config(2.0, 1e-5, trials=40_000)
    true = ThresholdUnderTest.of(parameters)
    halved = next(mutant for mutant in true.mutants() if mutant.name == "noise_halved")
    assert sampled_epsilon(true, config).passed
    assert not sampled_epsilon(halved, config).passed
