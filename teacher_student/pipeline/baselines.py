"""What privacy cost: the same student without noise, without teachers, and the majority class. Private figures, all of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.votes import Table
from teacher_student.data import PrivateDataset
from teacher_student.mechanisms import distance_to_instability
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import student_network
from teacher_student.student import fit_student, predict_probabilities, targets_from_labels
from teacher_student.student.evaluation import evaluate

STEPS = 1500
"""Most optimiser steps of a comparison model: many more labels need fewer passes than the student's few."""


def baselines(dataset: PrivateDataset, counts: Table, settings: RunSettings) -> dict[str, float]:
    """Return accuracies on the evaluation set, by name; empty without one.

    The student learns again from every plurality label without noise, and once more from the private records themselves.
    """
    if dataset.evaluation_labels is None:
        return {}
    winners, _ = distance_to_instability(counts)
    return {
        "majority class": float(np.bincount(dataset.evaluation_labels).max() / len(dataset.evaluation_labels)),
        "student of noiseless labels": _accuracy(dataset, dataset.student_public_features, winners, settings),
        "non-private model": _accuracy(dataset, dataset.student_private_features, dataset.private_labels, settings),
    }


def _accuracy(
    dataset: PrivateDataset, features: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], settings: RunSettings
) -> float:
    usable = np.isfinite(features.reshape(len(features), -1)).all(1)
    features, labels = features[usable], labels[usable]
    passes = max(1, STEPS * settings.student.batch_size // len(labels))
    student = dataclasses.replace(settings.student, epochs=min(settings.student.epochs, passes), pseudo_weight=0.0)
    network = student_network(settings.student_network, dataset.student_public_features, dataset.num_classes)
    model = fit_student(
        network,
        features,
        targets_from_labels(labels, dataset.num_classes),
        student,
        seed=settings.seed,
        trainer_options=settings.trainer,
    )
    probabilities = predict_probabilities(model.publishable, dataset.student_evaluation_features)
    return evaluate(probabilities, dataset.evaluation_labels)["accuracy"]
