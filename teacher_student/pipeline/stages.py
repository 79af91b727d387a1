"""The stages of a run. Each writes what it made, so that a run that was killed goes on where it was.

What flows back: nothing. Teachers see their own shard, votes see public points, labels see vote counts through a session,
the student sees the release.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn

from teacher_student.aggregation import LabelSession, Release
from teacher_student.aggregation.votes import add_votes, empty_counts
from teacher_student.data import PrivateDataset, ShardManifest, Shards, shard_dataset
from teacher_student.monitoring.console import Advance
from teacher_student.pipeline.folder import RunFolder, write_array
from teacher_student.pipeline.settings import NetworkClass, RunSettings
from teacher_student.student import Standardized, Student, fit_student, targets_from_labels
from teacher_student.teachers import TeacherEnsemble, predict_votes, train_teachers

QUERIES_PER_ANSWER = 4096
"""Queries answered in one transaction of the session."""


def make_shards(folder: RunFolder, dataset: PrivateDataset, settings: RunSettings) -> Shards:
    """Assign every record to its shard by a keyed hash, or make a killed run's shards again; verified either way."""
    path = folder.private / "shards.json"
    if path.exists():
        return ShardManifest.load(path).remake(dataset)
    shards, manifest = shard_dataset(dataset, settings.num_teachers)
    manifest.save(path)
    return shards


def train(folder: RunFolder, dataset: PrivateDataset, shards: Shards, settings: RunSettings, advance: Advance) -> TeacherEnsemble:
    """Train one teacher on each shard; finished chunks of a killed run are kept."""
    logger = TensorBoardLogger(folder.private, name="tensorboard", version="") if settings.tensorboard else None
    return train_teachers(
        dataset.private_features,
        dataset.private_labels,
        shards.order,
        shards.offsets,
        build_network(settings.learner, dataset.private_features.shape[1:], dataset.num_classes),
        settings.training,
        master_seed=settings.seed,
        trainer_options=settings.trainer,
        checkpoint_dir=folder.private / "teachers",
        logger=logger,
        report=lambda done, _, left: advance(done, f"{left:.0f} s left" if left else ""),
    )


def collect_votes(
    folder: RunFolder, dataset: PrivateDataset, ensemble: TeacherEnsemble, settings: RunSettings, advance: Advance
) -> npt.NDArray[np.unsignedinteger]:
    """Return (num_queries, num_classes) vote counts on the public points, streamed block by block."""
    path = folder.votes / "counts.npy"
    if path.exists():
        return np.load(path, allow_pickle=False)
    num_queries = len(dataset.public_features)
    counts = empty_counts(num_queries, dataset.num_classes, num_teachers=settings.num_teachers)
    done = 0
    for block in predict_votes(ensemble, dataset.public_features, trainer_options=settings.trainer):
        add_votes(counts[done : done + len(block)], block)
        done += len(block)
        advance(done, "")
    write_array(path, counts)
    return counts


def release_labels(
    folder: RunFolder, dataset: PrivateDataset, counts: npt.NDArray[np.unsignedinteger], settings: RunSettings, advance: Advance
) -> Release:
    """Ask the session for the label of every public point, in their order. Asking again gives the recorded answer."""
    privacy = settings.privacy
    with LabelSession(
        num_classes=dataset.num_classes,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        cutoff=privacy.cutoff,
        mechanism=privacy.mechanism,
        num_queries=len(counts),
        num_teachers=settings.num_teachers,
        neighbours=privacy.neighbours or dataset.neighbours,
        state=folder.private / "session.sqlite",
        **privacy.options,
    ) as session:
        for start in range(0, len(counts), QUERIES_PER_ANSWER):
            part = slice(start, start + QUERIES_PER_ANSWER)
            session.answer(counts=counts[part], query_ids=np.arange(len(counts))[part])
            advance(min(part.stop, len(counts)), f"{session.remaining_cutoff} of the cutoff left")
        release = session.release()
    if not (folder.release / "certificate.json").exists():
        release.save(folder.release)
    return release


def teach_student(
    folder: RunFolder, dataset: PrivateDataset, release: Release, settings: RunSettings, advance: Advance
) -> Student:
    """Train the student on the released labels alone; its curves may be published."""
    targets = targets_from_labels(release.labels, dataset.num_classes, unanswered=settings.student.unanswered, seed=settings.seed)
    logger = TensorBoardLogger(folder.release, name="tensorboard", version="") if settings.tensorboard else False
    return fit_student(
        student_network(settings.student_network, dataset.student_public_features, dataset.num_classes),
        dataset.student_public_features,
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
    """Return what makes one network for inputs of `shape`."""
    return functools.partial(network, math.prod(shape), num_classes)
