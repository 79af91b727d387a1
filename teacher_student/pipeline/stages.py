"""The stages of a run: shards, teachers, votes, students. Each keeps what it made, so that a killed run resumes where it stopped.

Nothing flows back. Teachers see their own shard, votes see public points, labels see votes through a session, the student sees
the release. How teachers are asked, and what is released, is in `rounds` and `modes`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from torch import nn

from teacher_student.aggregation.release import AnyRelease
from teacher_student.aggregation.statistic import Table
from teacher_student.aggregation.votes import add_votes, empty_counts, keep_allowed
from teacher_student.arguments import ArgumentError, Integers
from teacher_student.data import PrivateDataset, PublicSizes, ShardManifest, Shards, shard_dataset
from teacher_student.monitoring.console import Advance
from teacher_student.monitoring.tensorboard import TimelessCurves
from teacher_student.pipeline.folder import RunFolder, read_array, write_array
from teacher_student.pipeline.processes import ALONE, Ranks
from teacher_student.pipeline.settings import EachRecord, Estimator, GradientDescent, NetworkClass, RecordVoters, RunSettings
from teacher_student.privacy.noisy_sums import STEPS
from teacher_student.student import (
    BoostingStep,
    Standardized,
    Student,
    StudentSettings,
    Targets,
    boost_student,
    fit_student,
)
from teacher_student.student.descent import Descent
from teacher_student.teachers import (
    LearnerEnsemble,
    TeacherEnsemble,
    check_learner,
    check_training,
    predict_votes,
    train_learners,
    train_teachers,
)
from teacher_student.teachers.record_gradients import RecordGradients, WholeFeatures
from teacher_student.teachers.record_voters import vote_of_records

Teachers = TeacherEnsemble | LearnerEnsemble | EachRecord
"""Who gives a statistic in a round."""

LONG = 15 * 60
"""Seconds of training from which a run says beforehand how long it will take."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: its settings, its data, and where its files are.

    Attributes:
        settings: public.
        dataset: private records and public points.
        folder: of the run.
        students: one for each round, as far as they were made: each is fitted once (`rounds`).
    """

    settings: RunSettings
    dataset: PrivateDataset
    folder: RunFolder
    students: list[Student] = dataclasses.field(default_factory=list, compare=False)

    @functools.cached_property
    def shards(self) -> Shards:
        """Every record in its shard, by a keyed hash; a resumed run's shards are made again. Verified either way."""
        path = self.folder.private / "shards.json"
        if not path.exists():
            shards, manifest = shard_dataset(self.dataset, self.settings.num_teachers)
            try:
                manifest.save(path)
            except FileExistsError:  # another process was first, and its key counts
                pass
            else:
                return shards
        try:
            manifest = ShardManifest.load(path)
        except ArgumentError as error:
            raise ArgumentError(
                f"{path} is damaged, and its key cannot be made again; start a new run in another folder"
            ) from error
        return manifest.remake(self.dataset)

    @functools.cached_property
    def gradients(self) -> RecordGradients:
        """The private records, for gradients of any model."""
        data = self.dataset
        return RecordGradients(
            data.private_features, data.private_labels, data.public_features, steps=STEPS, ids=data.private_users
        )

    @functools.cached_property
    def descent(self) -> Descent:
        """What follows the released gradients of records: a function of public points and settings."""
        learner, points = self.settings.learner, self.dataset.public_features
        assert isinstance(learner, GradientDescent)
        return Descent(WholeFeatures(points, STEPS).unit(points), learner.learning_rate, learner.momentum)

    def student_network(self) -> Standardized:
        """Return an untrained student whose input scaling comes from the public points."""
        points = self.dataset.student_points
        network = build_network(self.settings.student_network, points.shape[1:], self.dataset.num_classes)
        return Standardized(network(), points.shape[1:]).fit(points)


def check_teachers(sizes: PublicSizes, settings: RunSettings) -> list[str]:
    """Refuse a learner or a training that is impossible, or that would couple teachers; say so if the training takes long."""
    if settings.each_record:
        return []
    if isinstance(settings.learner, Estimator):
        check_learner(settings.learner.estimator, weighted=settings.boosting.rounds > 0)
        return []
    seconds = check_training(
        build_network(settings.learner, sizes.record_shape, sizes.num_classes),
        settings.training,
        record_shape=sizes.record_shape,
        num_teachers=settings.num_teachers,
        trainer_options=settings.trainer,
    )
    seconds *= 1 + settings.boosting.rounds
    if seconds < LONG:
        return []
    quicker = "a GPU (trainer=gpu), fewer teachers.training.steps, or a smaller learner such as learner=mlp"
    return [f"training {settings.num_teachers:,} teachers takes about {seconds / 60:,.0f} minutes here; quicker: {quicker}"]


def train(
    run: Run,
    advance: Advance,
    ranks: Ranks = ALONE,
    *,
    weights: npt.NDArray[np.float32] | None = None,
    name: str = "teachers",
) -> Teachers:
    """Train one teacher on each shard. A resumed run keeps finished chunks of networks; estimators are fitted again.

    Every rank trains its own part, into the same folder.

    Args:
        run: networks are kept in its private folder `name`.
        advance: shows progress.
        ranks: the processes of the run.
        weights: (n,) the weight of each record, or None for 1 each.
        name: of the folder.
    """
    settings, dataset = run.settings, run.dataset
    if settings.each_record:
        return settings.each_record
    shards = run.shards

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
        build_network(settings.learner, dataset.public_features.shape[1:], dataset.num_classes),
        settings.training,
        weights=weights,
        master_seed=settings.seed,
        trainer_options=ranks.trainer_options(settings.trainer),
        checkpoint_dir=run.folder.private / name,
        logger=TensorBoardLogger(run.folder.private, name="tensorboard", version="") if settings.tensorboard else None,
        report=report,
    )


def collect_counts(
    run: Run, teachers: Teachers, advance: Advance, ranks: Ranks, number: int, allowed: Integers | None = None
) -> Table:
    """Return (num_queries, num_classes) vote counts on the public points, streamed block by block and kept in the folder.

    Every rank counts its own teachers' votes; the first one gets the sum, and it alone writes it.

    Args:
        run: whose teachers vote.
        teachers: of the round.
        advance: shows progress.
        ranks: the processes of the run.
        number: of the round.
        allowed: (num_teachers, votes_per_teacher) points on which a teacher does not abstain; None for all. For record voters:
            the points that are asked.
    """
    settings, dataset = run.settings, run.dataset
    path = run.folder.votes / (f"counts_{number}.npy" if number else "counts.npy")
    if ranks.from_first(path.exists()):
        return read_array(path)
    if isinstance(teachers, RecordVoters):
        assert allowed is not None
        counts = count_records(run, teachers, allowed, ranks)
    else:
        assert not isinstance(teachers, EachRecord)
        counts = empty_counts(len(dataset.public_features), dataset.num_classes, num_teachers=settings.num_teachers)
        done = 0
        options = ranks.trainer_options(settings.trainer)
        for block in predict_votes(teachers, dataset.public_features, trainer_options=options, joined=False):
            votes = block if allowed is None else keep_allowed(block, allowed, done)
            add_votes(counts[done : done + len(block)], votes)
            done += len(block)
            advance(done, "")
    ranks.sum_to_first(counts)
    if ranks.first:
        write_array(path, counts)
    return counts


def count_records(run: Run, voters: RecordVoters, asked: Integers, ranks: Ranks) -> Table:
    """Return (num_points, num_classes) counts of this rank's records, which vote on the `asked` points alone."""
    dataset, users = run.dataset, run.dataset.private_users
    voter = np.arange(len(dataset.private_labels)) if users is None else np.unique(users, return_inverse=True)[1]
    part = np.flatnonzero(voter % ranks.world_size == ranks.rank)
    counts = np.zeros((len(dataset.public_features), dataset.num_classes), dtype=np.int64)
    counts[asked] = vote_of_records(
        dataset.private_features[part],
        dataset.private_labels[part],
        dataset.public_features[asked],
        min(voters.votes, len(asked)),
        num_classes=dataset.num_classes,
        ids=None if users is None else users[part],
    )
    return counts


def teach_student(run: Run, targets: Targets, advance: Advance, settings: StudentSettings | None = None) -> Student:
    """Train the student on released answers alone; its curves may be published."""
    logger = TimelessCurves(run.folder.release / "tensorboard") if run.settings.tensorboard else False
    return fit(run, targets, settings=settings, logger=logger, advance=advance)


def fit(
    run: Run,
    targets: Targets,
    *,
    points: npt.NDArray[np.float32] | None = None,
    settings: StudentSettings | None = None,
    seed: int = 0,
    logger: Logger | bool = False,
    advance: Advance | None = None,
) -> Student:
    """Fit a student in this process; by default on the public points and with the run's settings.

    Args:
        run: whose student it is.
        targets: of the points.
        points: (n, *shape) in the student's features; the public points if None.
        settings: how to learn; the run's if None.
        seed: added to the run's seed.
        logger: of the curves.
        advance: shows progress.
    """
    return fit_student(
        run.student_network,
        run.dataset.student_points if points is None else points,
        targets,
        settings or run.settings.student,
        graph_features=run.dataset.public_features
        if points is None
        else None,  # alike to the teachers, who were asked about them
        seed=run.settings.seed + seed,
        trainer_options={**one_process(run.settings.trainer), "logger": logger},
        report=_reporter(advance),
    )


def boost(run: Run, before: nn.Module, released: Targets, by: BoostingStep, number: int, advance: Advance) -> Student:
    """Return the student `before`, corrected by what round `number` released."""
    return boost_student(
        before,
        run.dataset.student_points,
        released,
        run.settings.student,
        by,
        seed=run.settings.seed + number,
        trainer_options={**one_process(run.settings.trainer), "logger": False},
        report=_reporter(advance),
    )


def _reporter(advance: Advance | None) -> Callable[[int, float], None] | None:
    return None if advance is None else lambda epoch, loss: advance(epoch, f"loss {loss:.3f}")


def untrained_student(run: Run) -> nn.Module:
    """Return the student's network before it has learned anything: a function of public points and the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.settings.seed)
        return run.student_network()


def keep(run: Run, release: AnyRelease) -> None:
    """Save a release once: a later certificate of the same answers would list sessions on the same data since then."""
    if not (run.folder.release / "certificate.json").exists():
        release.save(run.folder.release)


def one_process(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trainer's options for the first rank alone."""
    devices = options.get("devices", 1)
    mine = list(devices)[:1] if isinstance(devices, Sequence) and not isinstance(devices, str) else 1
    return {**{name: value for name, value in options.items() if name not in ("strategy", "num_nodes")}, "devices": mine}


def build_network(network: NetworkClass, shape: tuple[int, ...], num_classes: int) -> Callable[[], nn.Module]:
    """Return what makes one network: those of images take an input's shape, all others its number of features."""
    takes_images = "image_shape" in inspect.signature(network).parameters
    return functools.partial(network, shape if takes_images else math.prod(shape), num_classes)
