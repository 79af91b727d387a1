"""The stages of a run. Each writes what it made, so that a run that was killed goes on where it was.

What flows back: nothing. Teachers see their own shard, votes see public points, labels see votes through a session, the
student sees the release. How teachers are asked, and what is released, is in `hard_labels` and `soft_labels`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn

from teacher_student.data import PrivateDataset, ShardManifest, Shards, shard_dataset
from teacher_student.monitoring.console import Advance
from teacher_student.monitoring.curves import TimelessCurves
from teacher_student.pipeline.folder import RunFolder
from teacher_student.pipeline.settings import Estimator, NetworkClass, RunSettings
from teacher_student.student import Standardized, Student, Targets, fit_student
from teacher_student.teachers import (
    LearnerEnsemble,
    TeacherEnsemble,
    check_learner,
    check_training,
    predict_votes,
    train_learners,
    train_teachers,
)

Teachers = TeacherEnsemble | LearnerEnsemble


def make_shards(folder: RunFolder, dataset: PrivateDataset, settings: RunSettings) -> Shards:
    """Assign every record to its shard by a keyed hash, or make a killed run's shards again; verified either way."""
    path = folder.private / "shards.json"
    if path.exists():
        return ShardManifest.load(path).remake(dataset)
    shards, manifest = shard_dataset(dataset, settings.num_teachers)
    manifest.save(path)
    return shards


def check_teachers(dataset: PrivateDataset, settings: RunSettings) -> None:
    """Refuse a learner or a training that cannot be, or that would couple teachers."""
    if isinstance(settings.learner, Estimator):
        return check_learner(settings.learner.estimator)
    shape = dataset.private_features.shape[1:]
    return check_training(
        build_network(settings.learner, shape, dataset.num_classes),
        settings.training,
        record_shape=shape,
        num_teachers=settings.num_teachers,
        trainer_options=settings.trainer,
    )


def train(folder: RunFolder, dataset: PrivateDataset, shards: Shards, settings: RunSettings, advance: Advance) -> Teachers:
    """Train one teacher on each shard; finished chunks of networks of a killed run are kept, estimators are fitted again."""
    records = (dataset.private_features, dataset.private_labels, shards.order, shards.offsets)
    if isinstance(settings.learner, Estimator):
        return train_learners(
            *records,
            settings.learner.estimator,
            num_classes=dataset.num_classes,
            master_seed=settings.seed,
            num_workers=settings.learner.num_workers,
        )
    return train_teachers(
        *records,
        build_network(settings.learner, dataset.private_features.shape[1:], dataset.num_classes),
        settings.training,
        master_seed=settings.seed,
        trainer_options=settings.trainer,
        checkpoint_dir=folder.private / "teachers",
        logger=TensorBoardLogger(folder.private, name="tensorboard", version="") if settings.tensorboard else None,
        report=lambda done, _, left: advance(done, f"{left:.0f} s left" if left else ""),
    )


def votes_of(teachers: Teachers, dataset: PrivateDataset, settings: RunSettings) -> Iterator[npt.NDArray[np.int16]]:
    """Yield (points in a block, num_teachers) votes on the public points, -1 where a teacher abstains."""
    if isinstance(teachers, LearnerEnsemble):
        return teachers.predict_votes(dataset.public_features)
    return predict_votes(teachers, dataset.public_features, trainer_options=settings.trainer)


def teach_student(
    folder: RunFolder, dataset: PrivateDataset, targets: Targets, settings: RunSettings, advance: Advance
) -> Student:
    """Train the student on what was released alone; its curves may be published."""
    logger = TimelessCurves(folder.release / "tensorboard") if settings.tensorboard else False
    return fit_student(
        student_network(settings.student_network, dataset.student_points, dataset.num_classes),
        dataset.student_points,
        targets,
        settings.student,
        seed=settings.seed,
        trainer_options={**settings.trainer, "logger": logger},
        report=lambda epoch, loss: advance(epoch, f"loss {loss:.3f}"),
    )


def student_network(
    network: NetworkClass, public_features: npt.NDArray[np.float32], num_classes: int
) -> Callable[[], Standardized]:
    """Return what makes an untrained student whose input scaling comes from the public points."""
    shape = public_features.shape[1:]
    build = build_network(network, shape, num_classes)
    return lambda: Standardized(build(), shape).fit(public_features)


def build_network(network: NetworkClass, shape: tuple[int, ...], num_classes: int) -> Callable[[], nn.Module]:
    """Return what makes one network: those of images take an input's shape, all others its number of features."""
    takes_images = "image_shape" in inspect.signature(network).parameters
    return functools.partial(network, shape if takes_images else math.prod(shape), num_classes)
