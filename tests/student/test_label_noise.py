"""Label noise: corrected losses find the clean probabilities or the shares of votes, and broken corrections do not."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from teacher_student import ArgumentError
from teacher_student.mechanisms import GeneratorNoise
from teacher_student.mechanisms.permute_and_flip import PermuteAndFlip
from teacher_student.privacy.noisy_max import Exponential, GNMax, LNMax
from teacher_student.privacy.registry import sampler_of
from teacher_student.student import (
    NoisyArgmaxLikelihood,
    StudentSettings,
    fit_student,
    predict_probabilities,
    targets_from_labels,
)
from teacher_student.student.evaluation import evaluate
from teacher_student.student.label_noise import LAWS, TransitionMatrix, symmetric_noise

CYCLE = [[0.7, 0.3, 0.0], [0.0, 0.7, 0.3], [0.3, 0.0, 0.7]]
"""30 % of the labels are those of the next class."""


def wheel(points: int = 900) -> tuple[np.ndarray, np.ndarray]:
    """Three sectors of the plane: the class is a function of the point."""
    rng = np.random.default_rng(0)
    classes = rng.integers(3, size=points)
    angle = 2 * np.pi * (classes + rng.uniform(0.1, 0.9, size=points)) / 3
    return 2 * np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32), classes


def flipped(classes: np.ndarray, matrix) -> np.ndarray:
    draws = np.random.default_rng(1).random(len(classes))[:, None]
    return (draws > np.cumsum(np.asarray(matrix)[classes], 1)).sum(1)


def figures(labels: np.ndarray, features, classes, label_noise) -> dict[str, float]:
    settings = StudentSettings(epochs=60, batch_size=900, learning_rate=0.2, weight_decay=0.0, label_noise=label_noise)
    student = fit_student(lambda: torch.nn.Linear(2, 3), features, targets_from_labels(labels, 3), settings)
    return evaluate(predict_probabilities(student.publishable, features), classes)


def test_correction_finds_the_clean_probabilities_and_broken_twins_do_not():
    features, classes = wheel()
    labels = flipped(classes, CYCLE)
    right = figures(labels, features, classes, CYCLE)
    assert right["brier score"] < 0.05
    assert right["calibration error"] < 0.05
    for twin in (0.0, np.transpose(CYCLE)):
        broken = figures(labels, features, classes, twin)
        assert broken["brier score"] > right["brier score"] + 0.1
        assert broken["calibration error"] > right["calibration error"] + 0.1


def test_a_rate_is_symmetric_noise():
    features, classes = wheel()
    labels = flipped(classes, symmetric_noise(0.3, 3))
    right, without = (figures(labels, features, classes, rate) for rate in (0.3, 0.0))
    assert right["brier score"] < 0.05 < without["brier score"] - 0.05
    assert right["calibration error"] < without["calibration error"] - 0.1
    assert figures(labels, features, classes, symmetric_noise(0.3, 3).tolist()) == right


def test_corrected_logits_are_the_transposed_matrix_times_the_probabilities():
    logits = torch.tensor([[2.0, -1.0, 0.5]])
    noise = TransitionMatrix(CYCLE, 3)
    expected = F.softmax(logits, dim=1) @ torch.tensor(CYCLE)
    assert torch.allclose(F.softmax(noise(logits), dim=1), expected, atol=1e-6)
    assert torch.allclose(noise.released(F.softmax(logits, dim=1)), expected, atol=1e-6)


@pytest.mark.parametrize("rate", [0.0, [[1.0, 0.0], [0.0, 1.0]]])
def test_no_noise_changes_nothing(rate):
    logits = torch.randn(4, 2)
    assert TransitionMatrix(rate, 2)(logits) is logits
    assert TransitionMatrix(rate, 2).released(logits) is logits


def test_gradients_stay_finite_where_a_label_is_impossible_and_the_student_is_certain():
    logits = torch.tensor([[80.0, -80.0, 0.0], [-200.0, 200.0, 0.0]], requires_grad=True)
    F.cross_entropy(TransitionMatrix(CYCLE, 3)(logits), torch.tensor([2, 0])).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize(("noise", "classes"), [(0.5, 2), (0.7, 3), (CYCLE, 2)])
def test_noise_of_other_classes_or_beyond_use_is_refused(noise, classes):
    with pytest.raises(ArgumentError, match=r"student\.settings\.label_noise must"):
        TransitionMatrix(noise, classes)


DENSITIES = {"gaussian": stats.norm, "laplace": stats.laplace, "exponential": stats.expon}


def integrated(law: str, counts: np.ndarray) -> np.ndarray:
    """P(argmax(counts + noise) = j) by the trapezoid rule on 8,000 cells of 1/100, in NumPy and SciPy."""
    density = DENSITIES[law]
    winning = np.linspace(counts.max() - 40, counts.max() + 40, 8_001)[:, None]
    below = density.logcdf(winning - counts)
    heights = np.exp(density.logpdf(winning - counts) + below.sum(1, keepdims=True) - below)
    return np.trapezoid(heights, winning[:, 0], axis=0)


def released(law: str, shares: np.ndarray, loudness: float, dtype=torch.float32) -> np.ndarray:
    return NoisyArgmaxLikelihood(law, 1 / loudness).released(torch.as_tensor(shares, dtype=dtype)[None])[0].double().numpy()


@pytest.mark.parametrize(
    ("classes", "loudness"), [(2, 1.0), (2, 30.0), (3, 10.0), (10, 0.01), (10, 10.0), (10, 300.0), (100, 1.0), (100, 30.0)]
)
@pytest.mark.parametrize(("law", "error"), [("gaussian", 5e-5), ("laplace", 1e-4)])
def test_probabilities_are_the_integrals(law, error, classes, loudness):
    shares = np.random.default_rng(0).dirichlet(np.full(classes, 2.0))
    expected = integrated(law, loudness * shares)
    found = released(law, shares, loudness)
    likely = expected > 1e-6
    assert np.abs(found / np.where(likely, expected, 1) - 1)[likely].max() < error
    assert np.abs(found - expected).max() < error / 5


@pytest.mark.parametrize("gap", [0.0, 0.01, 0.3, 0.7, 1.0])
def test_two_classes_have_closed_forms(gap):
    shares = np.array([(1 - gap) / 2, (1 + gap) / 2])
    gaussian = released("gaussian", shares, 8.0, torch.float64)
    assert gaussian[1] == pytest.approx(stats.norm.cdf(8 * gap / math.sqrt(2)), abs=1e-12)
    assert gaussian[0] == pytest.approx(stats.norm.sf(8 * gap / math.sqrt(2)), rel=1e-9)
    behind = math.exp(-8 * gap) * (1 + 8 * gap / 2) / 2  # the difference of two Laplace draws exceeds 8 gap
    assert released("laplace", shares, 8.0, torch.float64)[0] == pytest.approx(behind, rel=1e-5)
    assert released("gumbel", shares, 8.0, torch.float64)[0] == pytest.approx(1 / (1 + math.exp(8 * gap)), rel=1e-12)
    assert released("exponential", shares, 8.0, torch.float64)[0] == pytest.approx(math.exp(-8 * gap) / 2, rel=1e-12)


@pytest.mark.parametrize(
    ("parameters", "law"),
    [
        (GNMax(max_answers=1, scale=Fraction(200)), "gaussian"),
        (LNMax(max_answers=1, scale=Fraction(200)), "laplace"),
        (Exponential(max_answers=1, scale=Fraction(200)), "gumbel"),
        (PermuteAndFlip(max_answers=1, scale=Fraction(200)), "exponential"),
    ],
)
def test_the_mechanisms_release_labels_by_these_laws_and_no_other(parameters, law):
    """One fixed stream of noise; the limits would be passed by the right law with probability 1e-6, if it were fresh."""
    counts, draws = np.array([700, 550, 500, 250]), 100_000
    labels = sampler_of(parameters)(np.tile(counts, (draws, 1)), parameters, GeneratorNoise(np.random.default_rng(5)))
    seen = np.bincount(labels, minlength=4)

    def distance(law: str, loudness: float) -> float:
        return float(stats.chisquare(seen, released(law, counts / 2000, loudness, torch.float64) * draws).statistic)

    limit = stats.chi2.isf(1e-6, df=3)
    assert distance(law, 10.0) < limit
    for other in LAWS:
        assert other == law or distance(other, 10.0) > limit
    assert min(distance(law, 9.0), distance(law, 11.0)) > limit


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("loudness", [0.01, 1.0, 1000.0])
def test_loss_and_gradient_are_finite_wherever_the_student_is(law, classes, loudness):
    rows = torch.stack([100 * torch.eye(classes)[0], -100 * torch.eye(classes)[0], torch.zeros(classes), torch.randn(classes)])
    for label in (0, classes - 1):
        logits = rows.clone().requires_grad_()
        loss = F.cross_entropy(NoisyArgmaxLikelihood(law, 1 / loudness)(logits), torch.full((4,), label), label_smoothing=0.1)
        loss.backward()
        assert logits.grad is not None
        assert torch.isfinite(loss)
        assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("classes", [2, 5])
def test_gradients_are_the_functions(law, classes):
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(3, classes, dtype=torch.float64, generator=generator, requires_grad=True)
    for loudness in (0.5, 8.0):
        noise = NoisyArgmaxLikelihood(law, 1 / loudness)
        assert torch.autograd.gradcheck(lambda each: noise(each).log_softmax(1), (logits,), eps=1e-7)  # noqa: B023


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_gradients_of_the_grid_are_those_of_the_integral(law):
    shares, move = np.array([0.5, 0.3, 0.2]), np.array([-1e-3, 1e-3, 0.0])
    slope = (np.log(integrated(law, 10 * (shares + move))) - np.log(integrated(law, 10 * (shares - move)))) / 2e-3
    moved = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    at = torch.as_tensor(shares) + moved * torch.tensor([-1.0, 1.0, 0.0], dtype=torch.float64)
    logs = NoisyArgmaxLikelihood(law, 0.1).released(at[None])[0].log()
    found = [float(torch.autograd.grad(each, moved, retain_graph=True)[0]) for each in logs]
    assert found == pytest.approx(slope, rel=2e-3)


def test_rows_are_computed_in_parts_and_half_precision_is_widened():
    shares = torch.softmax(torch.randn(2500, 3, generator=torch.Generator().manual_seed(2)), dim=1)
    noise = NoisyArgmaxLikelihood("gaussian", 0.2)
    assert torch.equal(noise.released(shares)[2000:2010], noise.released(shares[2000:2010]))
    assert torch.allclose(noise(shares.log()).softmax(1), noise.released(shares), atol=1e-5)
    assert noise(shares.log().to(torch.bfloat16)).dtype == torch.float32


def test_a_student_that_knows_the_noise_finds_the_shares_and_broken_twins_do_not():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(8000, 2)).astype(np.float32)
    slopes = np.array([[1.5, -1.0, 0.0], [0.0, 1.0, -1.5]])
    shares = np.exp(features @ slopes) / np.exp(features @ slopes).sum(1, keepdims=True)
    parameters = GNMax(max_answers=8000, scale=Fraction(1000))
    labels = sampler_of(parameters)(np.round(1000 * shares).astype(np.int64), parameters, GeneratorNoise(rng))
    assert (labels != shares.argmax(1)).mean() > 0.4

    def error(label_noise) -> float:
        settings = StudentSettings(epochs=8, batch_size=500, learning_rate=0.2, weight_decay=0.0, label_noise=label_noise)
        student = fit_student(lambda: torch.nn.Linear(2, 3), features, targets_from_labels(labels, 3), settings)
        return float(((predict_probabilities(student.publishable, features) - shares) ** 2).mean())

    right = error(NoisyArgmaxLikelihood("gaussian", 1000 / 1000))
    assert right < 3e-3
    for twin in (0.0, NoisyArgmaxLikelihood("gumbel", 1.0)):
        assert error(twin) > 2.5 * right


@pytest.mark.parametrize(
    ("law", "scale", "name"),
    [
        ("cauchy", 1.0, "law"),
        (1, 1.0, "law"),
        ("laplace", 0.0, "scale"),
        ("laplace", float("nan"), "scale"),
        ("gaussian", "much", "scale"),
        ("gaussian", 1e-13, "scale"),
        ("gaussian", 1e13, "scale"),
    ],
)
def test_other_laws_and_scales_are_refused_in_one_line(law, scale, name):
    with pytest.raises(ArgumentError, match=f"{name} must be"):
        NoisyArgmaxLikelihood(law, scale)


def test_outside_of_a_run_no_mechanism_is_known():
    features = np.zeros((4, 2), dtype=np.float32)
    settings = StudentSettings(epochs=1, label_noise="mechanism")
    with pytest.raises(ArgumentError, match=r"label_noise must be a NoisyArgmaxLikelihood outside of a run, got 'mechanism'"):
        fit_student(lambda: torch.nn.Linear(2, 2), features, targets_from_labels([0, 1, 1, 0], 2), settings)


@pytest.mark.parametrize("label_noise", ["mechanism", NoisyArgmaxLikelihood("gaussian", 0.1)])
def test_propagated_labels_have_another_noise(label_noise):
    with pytest.raises(ArgumentError, match=r"student\.settings\.label_noise must be 0 where labels are propagated"):
        StudentSettings(propagation=1.0, label_noise=label_noise)
