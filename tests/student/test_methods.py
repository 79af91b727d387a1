"""Every method beats the supervised student where it should, repeats itself, and works on tables, images and many classes."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from teacher_student import HALTED, ArgumentError
from teacher_student.app import compose, settings_from_config
from teacher_student.student import (
    METHODS,
    Augmentation,
    StudentSettings,
    fit_student,
    predict_probabilities,
    targets_from_labels,
)
from teacher_student.student.augmentations import views_of
from teacher_student.student.label_noise import TransitionMatrix
from teacher_student.student.methods import Labeled, Learning
from teacher_student.student.methods.consistency import FixMatch, confident_loss
from teacher_student.student.methods.freematch import class_thresholds
from teacher_student.student.methods.mixmatch import MixMatch
from teacher_student.student.methods.supervised import SelfTraining
from teacher_student.student.methods.virtual_adversarial import VirtualAdversarial

SEMI_SUPERVISED = sorted(set(METHODS) - {"supervised"})
SLOW = {"freematch", "mean_teacher", "mixmatch", "self_training", "virtual_adversarial"}
"""They are measured against the supervised student in the slow suite alone."""
BASE = StudentSettings(epochs=30, batch_size=64, learning_rate=0.03, average_decay=0.9)
OPTIONS = {
    "fixmatch": {"confidence": 0.8},
    "pseudo_label": {"confidence": 0.8},
    "self_training": {"rounds": 2, "confidence": 0.9},
    "virtual_adversarial": {"radius": 0.3, "entropy_weight": 0.5},
}
"""Of the methods, where they are not the defaults."""
CHANGES = {"supervised": {"epochs": 90}, "mean_teacher": {"unlabeled_weight": 5.0}}
"""What differs from `BASE`: as many steps as the others take, and weights that suit the loss."""


def settings_of(method: str) -> StudentSettings:
    made = METHODS[method](**OPTIONS.get(method, {}))
    return dataclasses.replace(BASE, method=made, **CHANGES.get(method, {}))


def clusters(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three clusters in twelve dimensions, and one label each: which way they lie apart shows in the unlabeled points alone."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(3, 12))
    classes = rng.integers(3, size=192)
    features = 2.2 * (centers / np.linalg.norm(centers, axis=1, keepdims=True))[classes] + 0.6 * rng.normal(size=(192, 12))
    return features.astype(np.float32), classes, labels_of(rng, classes, 1)


def labels_of(rng: np.random.Generator, classes: np.ndarray, number: int) -> np.ndarray:
    released = np.full(len(classes), HALTED)
    for label in np.unique(classes):
        released[rng.choice(np.flatnonzero(classes == label), number, replace=False)] = label
    return released


def network(num_features: int = 12, num_classes: int = 3) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(num_features, 32), nn.ReLU(), nn.Linear(32, num_classes))


@functools.cache
def accuracy(settings: StudentSettings) -> float:
    """Mean over three tasks."""
    right = []
    for seed in range(3):
        features, classes, released = clusters(seed)
        student = fit_student(network, features, targets_from_labels(released, 3), settings, seed=1)
        probabilities = predict_probabilities(student.publishable, features)
        assert np.isfinite(probabilities).all()
        assert np.isfinite(student.losses).all()
        right.append((probabilities.argmax(1) == classes).mean())
    return float(np.mean(right))


@pytest.mark.parametrize("method", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in SEMI_SUPERVISED])
def test_unlabeled_points_teach(method):
    assert accuracy(settings_of(method)) > accuracy(settings_of("supervised")) + 0.02


@pytest.mark.parametrize("method", sorted(METHODS))
def test_same_seed_same_student_and_another_seed_another(method):
    features, _, released = clusters(0)
    settings = dataclasses.replace(settings_of(method), epochs=2, augmentation=Augmentation(jitter=0.1))
    weights = [
        torch.cat([weight.flatten() for weight in student.publishable.parameters()])
        for seed in (3, 3, 4)
        for student in [fit_student(network, features, targets_from_labels(released, 3), settings, seed=seed)]
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("method", sorted(METHODS))
def test_images_and_batches_larger_than_the_pool(method):
    rng = np.random.default_rng(0)
    classes = np.arange(40) % 2
    images = rng.random((40, 1, 6, 6)).astype(np.float32)
    images[classes == 1, :, :3] += 1
    settings = dataclasses.replace(settings_of(method), epochs=40, batch_size=500, augmentation=Augmentation(shift=1))
    targets = targets_from_labels(labels_of(rng, classes, 2), 2)
    student = fit_student(lambda: network(36, 2), images, targets, settings)
    assert (predict_probabilities(student.publishable, images).argmax(1) == classes).mean() > 0.8


def test_a_small_labeled_batch_is_drawn_again_beside_every_unlabeled_one():
    features, _, released = clusters(0)
    settings = dataclasses.replace(settings_of("pseudo_label"), epochs=2, batch_size=20)
    student = fit_student(network, features, targets_from_labels(released, 3), settings)
    assert student.total_steps == 2 * 10  # 189 points without a label, 3 with one
    assert student.global_step == student.total_steps


@pytest.mark.parametrize("method", SEMI_SUPERVISED)
def test_nothing_unlabeled_is_supervised_with_a_warning(method):
    features, classes, _ = clusters(0)
    settings = dataclasses.replace(settings_of(method), epochs=1)
    with pytest.warns(UserWarning, match=f"no point is left unlabeled: the student learns as supervised, not by {method}"):
        student = fit_student(network, features, targets_from_labels(classes, 3), settings)
    alone = fit_student(network, features, targets_from_labels(classes, 3), dataclasses.replace(settings, method="supervised"))
    for one, other in zip(student.parameters(), alone.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_composes_from_the_command_line(method):
    """With the settings of `conf/student/method`, which are the defaults."""
    settings = settings_from_config(compose("run", ["experiment=blobs", f"student/method={method}"])).student
    assert settings.method == METHODS[method]() == dataclasses.replace(BASE, method=method).method
    assert (settings.average_decay > 0) == METHODS[method].needs_average


def test_a_method_composes_by_its_name_alone():
    settings = settings_from_config(compose("run", ["experiment=blobs", "student.settings.method=mixmatch"])).student
    assert settings.method == METHODS["mixmatch"]()


def test_a_method_has_its_own_settings():
    chosen = settings_from_config(compose("run", ["student/method=fixmatch", "student.settings.method.confidence=0.7"])).student
    assert chosen.method == FixMatch(confidence=0.7)
    with pytest.raises(ArgumentError, match=r"student\.settings\.method\.confidence must lie between 0 and 1, got 2"):
        settings_from_config(compose("run", ["student/method=fixmatch", "student.settings.method.confidence=2"]))


def test_settings_of_methods_that_stood_beside_them_are_accepted_with_one_notice():
    given = ["student.settings.method=fixmatch", "student.settings.confidence=0.7", "student.settings.radius=0.1"]
    with pytest.warns(FutureWarning, match=r"student\.settings\.method\.NAME .*; fixmatch has no radius") as notices:
        chosen = settings_from_config(compose("run", given)).student
    assert len(notices) == 1
    assert chosen.method == FixMatch(confidence=0.7)
    assert dataclasses.replace(chosen, epochs=1).method == chosen.method  # without another


@pytest.mark.parametrize("student", ["logistic", "mlp", "cnn"])
def test_every_student_takes_the_same_knobs(student):
    knobs = {"unlabeled_weight": 2.0, "propagation": 0.1}
    overrides = [f"student.settings.{name}={value}" for name, value in knobs.items()]
    settings = settings_from_config(compose("run", [f"student={student}", *overrides])).student
    assert {name: getattr(settings, name) for name in knobs} == knobs


def test_a_matrix_composes_from_the_command_line():
    chosen = settings_from_config(compose("run", ["student.settings.label_noise=[[0.9,0.1],[0.2,0.8]]"])).student
    assert chosen.label_noise == ((0.9, 0.1), (0.2, 0.8))


def test_an_unknown_method_names_the_known_ones():
    with pytest.raises(ArgumentError, match=r"student\.settings\.method must be one of .*fixmatch.*; got 'fixmach'"):
        settings_from_config(compose("run", ["student.settings.method=fixmach"]))


def test_confident_guesses_alone_count():
    logits = torch.tensor([[5.0, 0.0], [0.1, 0.0], [0.0, 9.0]], requires_grad=True)
    confident_loss(logits, logits, 0.9).backward()
    assert logits.grad is not None
    assert (logits.grad.abs().sum(1) > 0).tolist() == [True, False, True]


def learning(network: nn.Module | None, pool: torch.Tensor, label_noise=0.0) -> Learning:
    return Learning(network, None, TransitionMatrix(label_noise, 2), views_of(pool, Augmentation()))


def test_the_worst_step_is_the_steepest_one_and_as_long_as_asked():
    """For a linear student the direction is known: along the weights' difference, in units of the spread."""
    torch.manual_seed(0)
    pool = torch.randn(500, 3) * torch.tensor([1.0, 10.0, 0.0])
    linear = nn.Linear(3, 2)
    spread = pool.std(dim=0, correction=0)
    steps = VirtualAdversarial(radius=0.3).worst_step(linear, pool[:50], views_of(pool, Augmentation()))
    gradient = (linear.weight[0] - linear.weight[1]) * spread
    expected = 0.3 * 2**0.5 * spread * gradient / gradient.norm()
    signs = torch.sign((steps * expected).sum(1, keepdim=True))
    assert torch.allclose(steps, signs * expected, rtol=1e-2, atol=1e-3)
    assert (steps[:, 2] == 0).all()  # a constant column says nothing


def test_a_flat_student_has_no_worst_step():
    flat = nn.Linear(3, 2)
    nn.init.zeros_(flat.weight)
    pool = torch.randn(50, 3)
    steps = VirtualAdversarial().worst_step(flat, pool, views_of(pool, Augmentation()))
    assert torch.isfinite(steps).all()


def test_guesses_of_mixmatch_are_sharpened_means():
    linear = nn.Linear(3, 2)
    views = torch.randn(8, 3)
    guesses = MixMatch(temperature=0.5).guesses(learning(linear, views), views)
    mean = F.softmax(linear(views), dim=1).reshape(2, 4, 2).mean(0)
    assert torch.allclose(guesses, mean**2 / (mean**2).sum(1, keepdim=True), atol=1e-6)


def test_mixed_points_are_nearer_to_their_own_label():
    """With one-dimensional features that equal the label, a mixed target is the mixed feature, at most half way."""
    torch.manual_seed(0)
    features = torch.cat([torch.zeros(100, 1), torch.ones(100, 1)])
    targets = torch.cat([1 - features, features], dim=1)
    mixed, labels = MixMatch()._mixed(features, targets)
    assert torch.allclose(mixed, labels[:, 1:], atol=1e-6)
    assert ((mixed - features).abs() <= 0.5).all()
    assert mixed.unique().numel() > 50


@pytest.mark.parametrize("method", ["mixmatch", "self_training"])
def test_guesses_are_put_under_the_noise_of_labels(method):
    """A clean guess mixed into noisy labels must look like a noisy one; without that the fit would be too sure of nothing."""
    rows = ((0.8, 0.2), (0.4, 0.6))
    pool = torch.randn(20, 3)
    if method == "self_training":
        targets = targets_from_labels(np.array([0] + [HALTED] * 19), 2)
        probabilities = torch.tensor([[0.1, 0.9]]).expand(20, 2)
        following = SelfTraining(confidence=0.5).next_targets(targets, probabilities, TransitionMatrix(rows, 2), 1.0)
        assert np.allclose(following.probabilities, [[1, 0]] + [rows[1]] * 19)
        assert following.weights.tolist() == [1.0] * 20
        return
    certain = nn.Linear(3, 2)
    nn.init.zeros_(certain.weight)
    certain.bias.data = torch.tensor([-40.0, 40.0])
    labeled = Labeled(pool[:5], torch.tensor([rows[1]]).expand(5, 2), torch.ones(5))
    _, beside = MixMatch().losses(learning(certain, pool, rows), labeled, pool[5:])
    assert beside.item() < 1e-6


def test_thresholds_follow_confidence_and_are_lower_for_rare_classes():
    unsure = torch.tensor([[0.4, 0.3, 0.3]] * 8)
    sure = torch.tensor([[0.98, 0.01, 0.01]] * 6 + [[0.1, 0.8, 0.1]] * 2)
    assert torch.allclose(class_thresholds(unsure), torch.tensor([0.4, 0.3, 0.3]))
    often, rare, never = class_thresholds(sure).tolist()
    assert often > class_thresholds(unsure)[0] > rare > never
