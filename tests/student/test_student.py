"""The student learns what was released, repeatably, and unlabeled points help only when asked to."""

import numpy as np
import pytest
import torch
from torch import nn

from teacher_student import ABSTAIN, HALTED, ArgumentError
from teacher_student.student import StudentSettings, fit_student, predict_probabilities, targets_from_labels
from teacher_student.student.semi_supervised import pseudo_label_loss


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


def test_pseudo_labels_teach_the_points_that_were_not_answered():
    features, labels = blobs()
    released = np.where(np.arange(400) < 20, labels, HALTED)
    settings = StudentSettings(epochs=30, batch_size=50, learning_rate=0.05, pseudo_weight=1.0, pseudo_confidence=0.6)
    student = fit_student(network, features, targets_from_labels(released, 2), settings)
    confidence = predict_probabilities(student.publishable, features).max(1).mean()
    alone = fit_student(
        network, features, targets_from_labels(released, 2), StudentSettings(epochs=30, batch_size=50, learning_rate=0.05)
    )
    assert confidence > predict_probabilities(alone.publishable, features).max(1).mean()
    assert accuracy(student, features, labels) > 0.9


def test_pseudo_label_loss_counts_confident_unlabeled_points_only():
    logits = torch.tensor([[5.0, 0.0], [0.1, 0.0], [5.0, 0.0]], requires_grad=True)
    pseudo_label_loss(logits, torch.tensor([True, True, False]), 0.9).backward()
    assert logits.grad is not None
    moved = logits.grad.abs().sum(1) > 0
    assert moved.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", 0), ("learning_rate", -1.0), ("unanswered", "guess"), ("weight_decay", -0.1)]
)
def test_bad_settings_are_one_line(name, value):
    with pytest.raises(ArgumentError, match=rf"student\.{name}|unanswered"):
        StudentSettings(**{name: value})
