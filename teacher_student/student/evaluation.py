"""Figures of merit on points with known labels: accuracy, calibration, Brier score, ranking."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BINS = 15
"""Equal-width confidence bins of the calibration error (Guo et al. 2017)."""


def evaluate(probabilities: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> dict[str, float]:
    """Return named figures.

    Args:
        probabilities: (num_points, num_classes), rows sum to 1.
        labels: (num_points,) true classes.

    Returns:
        `accuracy`; `brier score`, the mean squared distance to the one-hot label (for two classes: half of it, the usual
        binary score); `calibration error`, expected over confidence bins; `AUC` for two classes that both occur.
    """
    truth = np.eye(probabilities.shape[1])[labels]
    binary = probabilities.shape[1] == 2
    squared = ((probabilities - truth) ** 2).sum(1).mean() / (2 if binary else 1)
    figures = {
        "accuracy": float((probabilities.argmax(1) == labels).mean()),
        "brier score": float(squared),
        "calibration error": calibration_error(probabilities, labels),
    }
    if binary and 0 < labels.mean() < 1:
        from sklearn.metrics import roc_auc_score

        figures["AUC"] = float(roc_auc_score(labels, probabilities[:, 1]))
    return figures


def calibration_error(probabilities: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> float:
    """Return the expected calibration error: mean over confidence bins of |accuracy - confidence|, weighted by bin size."""
    confidence = probabilities.max(1)
    right = probabilities.argmax(1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    total = np.bincount(bins, minlength=BINS)
    off = np.bincount(bins, weights=right - confidence, minlength=BINS)
    return float(np.abs(off[total > 0]).sum() / len(labels))


def confusion_matrix(probabilities: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return (num_classes, num_classes) counts: rows are true classes, columns predicted ones."""
    num_classes = probabilities.shape[1]
    cells = labels * num_classes + probabilities.argmax(1)
    return np.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes)
