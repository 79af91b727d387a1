"""The stages of a run. Each writes what it made, so that a run that was killed goes on where it was.

What flows back: nothing. Teachers see their own shard, votes see public points, labels see votes through a session, the
student sees the release. How teachers are asked, and what is released, is in `rounds` and `modes`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn

from teacher_student.aggregation.release import AnyRelease
from teacher_student.arguments import ArgumentError
from teacher_student.data import PrivateDataset, PublicSizes, ShardManifest, Shards, shard_dataset
from teacher_student.monitoring.console import Advance
from teacher_student.monitoring.curves import TimelessCurves
from teacher_student.pipeline.folder import RunFolder
from teacher_student.pipeline.ranks import ALONE, Ranks
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


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: what is wanted, of which data, and where it is kept.

    Attributes:
        settings: public.
        dataset: private records and public points.
        folder: where the run keeps what it makes.
        students: after each correcting round, as far as they were made: each is fitted once (`rounds`).
    """

    settings: RunSettings
    dataset: PrivateDataset
    folder: RunFolder
    students: list[Student] = dataclasses.field(default_factory=list, compare=False)

    @property
    def sizes(self) -> PublicSizes:
        """What checks may know of the data."""
        return self.dataset.public_sizes


def make_shards(run: Run) -> Shards:
    """Assign every record to its shard by a keyed hash, or make a killed run's shards again; verified either way."""
    path = run.folder.private / "shards.json"
    if path.exists():
        return _kept_manifest(path).remake(run.dataset)
    shards, manifest = shard_dataset(run.dataset, run.settings.num_teachers)
    try:
        manifest.save(path)
    except FileExistsError:  # another process was first, and its key counts
        return _kept_manifest(path).remake(run.dataset)
    return shards


def _kept_manifest(path: Path) -> ShardManifest:
    try:
        return ShardManifest.load(path)
    except ArgumentError as error:
        raise ArgumentError(f"{path} is damaged, and its key cannot be made again; start a new run in another folder") from error


def check_teachers(sizes: PublicSizes, settings: RunSettings) -> None:
    """Refuse a learner or a training that cannot be, or that would couple teachers."""
    if isinstance(settings.learner, Estimator):
        return check_learner(settings.learner.estimator, weighted=settings.boosting.rounds > 0)
    return check_training(
        build_network(settings.learner, sizes.record_shape, sizes.num_classes),
        settings.training,
        record_shape=sizes.record_shape,
        num_teachers=settings.num_teachers,
        trainer_options=settings.trainer,
    )


def train(
    run: Run,
    shards: Shards,
    advance: Advance,
    ranks: Ranks = ALONE,
    *,
    weights: npt.NDArray[np.float32] | None = None,
    name: str = "teachers",
) -> Teachers:
    """Train one teacher on each shard; finished chunks of networks of a killed run are kept, estimators are fitted again.

    Every rank trains its own part, into the same folder.

    Args:
        run: networks are kept in its private folder `name`.
        shards: of its records.
        advance: shows progress.
        ranks: the processes of the run.
        weights: (n,) what each record counts, or None for 1 each.
        name: of the folder.
    """
    settings, dataset, folder = run.settings, run.dataset, run.folder

    def report(done: int, _: int, left: float) -> None:
        ranks.check()
        advance(done, f"{left:.0f} s left" if done < settings.num_teachers else "one for each shard")

    records = (dataset.private_features, dataset.private_labels, shards.order, shards.offsets)
    if isinstance(settings.learner, Estimator):
        return train_learners(
            *records,
            settings.learner.estimator,
            num_classes=dataset.num_classes,
            weights=weights,
            master_seed=settings.seed,
            num_workers=settings.learner.num_workers,
        )
    return train_teachers(
        *records,
        build_network(settings.learner, run.sizes.record_shape, run.sizes.num_classes),
        settings.training,
        weights=weights,
        master_seed=settings.seed,
        trainer_options=ranks.trainer_options(settings.trainer),
        checkpoint_dir=folder.private / name,
        logger=TensorBoardLogger(folder.private, name="tensorboard", version="") if settings.tensorboard else None,
        report=report,
    )


def votes_on(
    points: npt.NDArray[np.float32], teachers: Teachers, settings: RunSettings, ranks: Ranks = ALONE
) -> Iterator[npt.NDArray[np.int16]]:
    """Yield (points in a block, num_teachers) votes on points, -1 where a teacher abstains or is another rank's."""
    if isinstance(teachers, LearnerEnsemble):
        return teachers.predict_votes(points)
    return predict_votes(teachers, points, trainer_options=ranks.trainer_options(settings.trainer), joined=False)


def keep(run: Run, release: AnyRelease) -> None:
    """Save a release once: asked again later, its certificate would list what the same data were used for since."""
    if not (run.folder.release / "certificate.json").exists():
        release.save(run.folder.release)


def teach_student(run: Run, targets: Targets, advance: Advance) -> Student:
    """Train the student on what was released alone; its curves may be published."""
    settings, dataset, folder = run.settings, run.dataset, run.folder
    logger = TimelessCurves(folder.release / "tensorboard") if settings.tensorboard else False
    return fit_student(
        student_network(settings.student_network, dataset.student_points, dataset.num_classes),
        dataset.student_points,
        targets,
        settings.student,
        seed=settings.seed,
        trainer_options={**one_process(settings.trainer), "logger": logger},
        report=lambda epoch, loss: advance(epoch, f"loss {loss:.3f}"),
    )


def untrained_student(run: Run) -> nn.Module:
    """Return the student's network before it has learned anything: a function of public points and the seed."""
    settings, dataset = run.settings, run.dataset
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return student_network(settings.student_network, dataset.student_points, dataset.num_classes)()


def one_process(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trainer's options without the other processes: what the first rank does alone."""
    devices = options.get("devices", 1)
    mine = list(devices)[:1] if isinstance(devices, Sequence) and not isinstance(devices, str) else 1
    return {**{name: value for name, value in options.items() if name not in ("strategy", "num_nodes")}, "devices": mine}


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
