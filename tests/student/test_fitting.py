"""The student learns what was released, repeatably, and refuses what it cannot learn from."""

import numpy as np
import pytest
import torch
from torch import nn

from teacher_student import ABSTAIN, HALTED, ArgumentError
from teacher_student.student import (
    METHODS,
    Augmentation,
    StudentSettings,
    Targets,
    fit_student,
    predict_probabilities,
    targets_from_labels,
)


def blobs(points: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=points)
    return (rng.normal(size=(points, 3)) + 2 * labels[:, None]).astype(np.float32), labels


def network() -> nn.Module:
    return nn.Linear(3, 2)


def accuracy(student, features, labels) -> float:
    return float((predict_probabilities(student.publishable, features).argmax(1) == labels).mean())


def test_student_learns_released_labels_and_repeats_itself():
    features, labels = blobs()
    released = np.where(np.arange(400) % 7 == 0, ABSTAIN, labels)
    settings = StudentSettings(epochs=20, batch_size=50, learning_rate=0.05, average_decay=0.9)
    students = [fit_student(network, features, targets_from_labels(released, 2), settings, seed=4) for _ in range(2)]
    assert accuracy(students[0], features, labels) > 0.93
    for one, other in zip(*(student.publishable.parameters() for student in students), strict=True):
        assert torch.equal(one, other)


def test_fitting_leaves_the_global_random_state_alone():
    features, labels = blobs()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    fit_student(network, features, targets_from_labels(labels, 2), StudentSettings(epochs=1), seed=4)
    assert torch.equal(before, torch.get_rng_state())


def test_targets_are_plain_numbers_and_the_loss_is_linear_in_them():
    """A de-noised fraction may be -0.2 or 1.3: it pulls as far as it says, and no further."""
    features, labels = blobs(100)
    settings = StudentSettings(epochs=1, batch_size=100)
    losses = []
    for share in (0.0, 1.0, 1.5):
        probabilities = ((1 - share) * np.full((100, 2), 0.5) + share * np.eye(2)[labels]).astype(np.float32)
        targets = Targets(probabilities, np.ones(100, np.float32), np.zeros(100, bool))
        losses.append(fit_student(network, features, targets, settings).losses[0])
    assert losses[2] == pytest.approx(1.5 * losses[1] - 0.5 * losses[0], abs=1e-5)


def test_a_point_without_weight_counts_for_nothing():
    features, labels = blobs(100)
    plain = targets_from_labels(labels, 2)
    wrong = Targets(plain.probabilities.copy(), plain.weights.copy(), plain.unlabeled)
    wrong.probabilities[:50], wrong.weights[:50] = np.nan, 0
    settings = StudentSettings(epochs=2)
    students = [
        fit_student(network, features, wrong, settings),
        fit_student(network, features[50:], plain[np.arange(100) >= 50], settings),
    ]
    assert torch.equal(*(student.network.weight for student in students))


def broken(**changes):
    features, labels = blobs(20)
    plain = targets_from_labels(np.where(np.arange(20) < 5, HALTED, labels), 2)
    parts = {"features": features, "probabilities": plain.probabilities, "weights": plain.weights} | changes
    return parts["features"], Targets(parts["probabilities"], parts["weights"], plain.unlabeled)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": np.zeros(20, np.float32)}, "at least one point a weight above 0"),
        ({"weights": np.full(20, np.nan, np.float32)}, "finite weights"),
        ({"weights": np.full(20, -1, np.float32)}, "finite weights"),
        ({"probabilities": np.full((20, 2), np.nan, np.float32)}, "NaN or infinity"),
        ({"features": np.full((20, 3), np.inf, np.float32)}, "NaN or infinity"),
        ({"features": np.zeros((19, 3), np.float32)}, "one row for each of the 19 points"),
    ],
)
def test_what_cannot_be_learned_from_is_one_line(changes, message):
    with pytest.raises(ArgumentError, match=message) as refusal:
        fit_student(network, *broken(**changes), StudentSettings(epochs=1))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("learning_rate", -1.0),
        ("unanswered", "guess"),
        ("weight_decay", -0.1),
        ("method", "magic"),
        ("unlabeled_weight", -1),
        ("ramp_up", "late"),
        ("label_noise", 1.0),
        ("label_noise", "much"),
        ("label_noise", [[0.9, 0.2], [0.1, 0.9]]),
        ("label_noise", [[0.9, 0.1]]),
        ("label_noise", [0.1, 0.9]),
        ("label_noise", [[0.5, 0.5], [0.5, 0.5]]),
    ],
)
def test_bad_settings_are_one_line(name, value):
    with pytest.raises(ArgumentError, match=rf"student\.settings\.{name}|unanswered") as refusal:
        StudentSettings(**{name: value})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("pseudo_label", "confidence", 1.5),
        ("fixmatch", "confidence", "much"),
        ("self_training", "confidence", -0.1),
        ("self_training", "rounds", 0),
        ("mixmatch", "temperature", 0.0),
        ("mixmatch", "mixing", float("nan")),
        ("virtual_adversarial", "radius", 0),
        ("virtual_adversarial", "entropy_weight", -1),
    ],
)
def test_bad_settings_of_methods_are_one_line(method, name, value):
    with pytest.raises(ArgumentError, match=rf"student\.settings\.method\.{name} must") as refusal:
        METHODS[method](**{name: value})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("name", "value"), [("shift", -1), ("flip", "no"), ("jitter", -0.1), ("cutout", 2), ("corruption", -1)])
def test_bad_augmentations_are_one_line(name, value):
    with pytest.raises(ArgumentError, match=rf"student\.settings\.augmentation\.{name}"):
        Augmentation(**{name: value})
