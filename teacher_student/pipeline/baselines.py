"""What privacy cost: a student of labels without noise, and a model without teachers. Both are private."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from teacher_student.data import PrivateDataset
from teacher_student.pipeline.evaluation import evaluate
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import one_process, student_network
from teacher_student.student import Targets, fit_student, targets_from_labels

Figures = dict[str, float]

STEPS = 1500
"""Most optimiser steps of a comparison model: many more labels need fewer passes than the student's few."""


def baselines(dataset: PrivateDataset, noiseless: Targets | None, settings: RunSettings) -> dict[str, Callable[[], Figures]]:
    """Return what makes each model's figures on the evaluation set; empty without one. Each may fail on odd records.

    The student learns again from what was asked, were it answered without noise, and once more from the private records
    themselves.

    Args:
        dataset: the data.
        noiseless: for each public point what the teachers say, or None for no such student. Private.
        settings: of the run.
    """
    if dataset.evaluation_labels is None:
        return {}
    models = (
        {}
        if noiseless is None
        else {"student of noiseless labels": lambda: _figures(dataset, dataset.student_points, noiseless, settings)}
    )
    return {**models, "non-private model": lambda: _figures(dataset, *_records(dataset), settings)}


def _records(dataset: PrivateDataset) -> tuple[npt.NDArray[np.float32], Targets]:
    """Return the private records with finite features and a label, and their labels as targets."""
    records = dataset.private_features if dataset.student_private_features is None else dataset.student_private_features
    usable = np.asarray(np.isfinite(records.reshape(len(records), -1)).all(axis=1)) & (dataset.private_labels >= 0)
    return records[usable], targets_from_labels(dataset.private_labels[usable], dataset.num_classes)


def _figures(dataset: PrivateDataset, features: npt.NDArray[np.float32], targets: Targets, settings: RunSettings) -> Figures:
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
    return evaluate(model.publishable, dataset).metrics
