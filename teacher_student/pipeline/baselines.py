"""What privacy cost: a student without noise, a model without teachers, one teacher alone, the majority class. All private."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from teacher_student.data import PrivateDataset
from teacher_student.pipeline.judgement import judge
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import one_process, student_network
from teacher_student.student import Targets, fit_student, targets_from_labels

STEPS = 1500
"""Most optimiser steps of a comparison model: many more labels need fewer passes than the student's few."""


def baselines(
    dataset: PrivateDataset, noiseless: Targets | None, teachers: npt.NDArray[np.float64] | None, settings: RunSettings
) -> dict[str, dict[str, float]]:
    """Return each model's figures on the evaluation set; empty without one.

    The student learns again from what was asked, were it answered without noise, and once more from the private records
    themselves.

    Args:
        dataset: the data.
        noiseless: for each public point what the teachers say, or None for no such student. Private.
        teachers: (num_teachers,) accuracy of each; their mean is what the owner of one shard reaches alone. None leaves it out.
        settings: of the run.
    """
    if dataset.evaluation_labels is None:
        return {}
    labels = targets_from_labels(dataset.private_labels, dataset.num_classes)
    records = dataset.private_features if dataset.student_private_features is None else dataset.student_private_features
    alone = {} if teachers is None else {"one teacher alone, on average": {"accuracy": float(teachers.mean())}}
    followed = {}
    if noiseless is not None:
        followed = {"student of noiseless labels": _figures(dataset, dataset.student_points, noiseless, settings)}
    return {
        "majority class": {"accuracy": float(np.bincount(dataset.evaluation_labels).max() / len(dataset.evaluation_labels))},
        **alone,
        **followed,
        "non-private model": _figures(dataset, records, labels, settings),
    }


def _figures(
    dataset: PrivateDataset, features: npt.NDArray[np.float32], targets: Targets, settings: RunSettings
) -> dict[str, float]:
    usable = np.asarray(np.isfinite(features.reshape(len(features), -1)).all(axis=1))
    features, targets = features[usable], targets[usable]
    passes = max(1, STEPS * settings.student.batch_size // len(features))
    epochs = min(settings.student.epochs, passes)
    student = dataclasses.replace(settings.student, epochs=epochs, method="supervised", label_noise=0.0, propagation=0.0)
    network = student_network(settings.student_network, dataset.student_points, dataset.num_classes)
    model = fit_student(
        network,
        features,
        targets,
        student,
        seed=settings.seed,
        trainer_options=one_process(settings.trainer),
    )
    return judge(model.publishable, dataset).metrics
