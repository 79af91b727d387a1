"""Known label noise: the corrected loss finds the clean probabilities, and broken corrections do not."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from teacher_student import ArgumentError
from teacher_student.student import StudentSettings, fit_student, predict_probabilities, targets_from_labels
from teacher_student.student.evaluation import evaluate
from teacher_student.student.label_noise import TransitionMatrix, symmetric_noise

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
