"""The figures of merit, against numbers worked out by hand."""

import numpy as np
import pytest

from teacher_student.student.evaluation import calibration_error, confusion_matrix, evaluate

PROBABILITIES = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]], dtype=np.float32)
LABELS = np.array([0, 1, 1, 0])


def test_figures_by_hand():
    figures = evaluate(PROBABILITIES, LABELS)
    assert figures["accuracy"] == 0.5
    assert figures["brier score"] == pytest.approx((0.01 + 0.04 + 0.36 + 0.49) / 4, abs=1e-6)
    assert figures["AUC"] == pytest.approx(3 / 4)
    assert confusion_matrix(PROBABILITIES, LABELS).tolist() == [[1, 1], [1, 1]]


def test_calibration_error_is_zero_for_honest_confidence_and_large_for_boasting():
    rng = np.random.default_rng(0)
    labels = (rng.random(20_000) < 0.3).astype(np.int64)
    honest = np.tile(np.array([[0.7, 0.3]], dtype=np.float32), (20_000, 1))
    assert calibration_error(honest, labels) < 0.02
    boasting = np.tile(np.array([[0.99, 0.01]], dtype=np.float32), (20_000, 1))
    assert calibration_error(boasting, labels) == pytest.approx(0.29, abs=0.02)


def test_many_classes_have_no_auc():
    probabilities = np.full((3, 3), 1 / 3, dtype=np.float32)
    figures = evaluate(probabilities, np.array([0, 1, 2]))
    assert "AUC" not in figures
    assert figures["brier score"] == pytest.approx(2 / 3)
