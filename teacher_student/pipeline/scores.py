"""Noisy scores: teachers say how much for each class, and the session gives the mean with noise. See `answers.Answers`.

Every round corrects the student so far, the first one the untrained network: a teacher is trained on its shard, records weighted
by how little the student believes their labels (`corrections`), and its class scores on all points are one vector, bounded before
it is summed (`aggregation.scores`). Private gradient boosting by way of public points: nothing but bounded vectors is asked of a
teacher, and nothing but logits of a student, so both may be anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import ScoreRelease
from teacher_student.aggregation.scores import ScoreSession, add_scores, empty_sums
from teacher_student.aggregation.statistic import Table
from teacher_student.arguments import positive_number
from teacher_student.data import PublicSizes
from teacher_student.monitoring.console import Advance
from teacher_student.pipeline import stages
from teacher_student.pipeline.correction_rounds import check_rounds, corrected, release_rounds, student_after, targets_of_round
from teacher_student.pipeline.corrections import silent
from teacher_student.pipeline.folder import SESSION, read_array, write_array
from teacher_student.pipeline.ranks import ALONE, Ranks
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import Run, Teachers
from teacher_student.privacy import Parameters
from teacher_student.student import ByScores, Student
from teacher_student.teachers import LearnerEnsemble, predict_class_scores

ANSWERS = "mean scores"
MECHANISM = "noisy_scores"
NORM = "norm"
"""The mechanism's option: root mean square at which a teacher's scores of a round are cut off, before any noise."""

__all__ = ["ANSWERS", "check", "collect_votes", "count_votes", "facts", "noiseless_targets", "release_labels", "teach"]


def check(settings: RunSettings, sizes: PublicSizes) -> Parameters:
    """Refuse options that it does not have and an infeasible budget: a session that is never asked spends nothing."""
    check_rounds(settings, sizes, NORM)
    _norm(settings)
    with open_session(settings, sizes, None) as session:
        return session.mechanism.parameters


def _norm(settings: RunSettings) -> float:
    return positive_number(f"mechanism.{NORM}", settings.privacy.options.get(NORM))


def open_session(settings: RunSettings, sizes: PublicSizes, state: Path | None, account: Account | None = None) -> ScoreSession:
    """Return the session of a run, calibrated from public sizes; in memory without a state file."""
    return ScoreSession(
        num_classes=sizes.num_classes,
        epsilon=settings.privacy.epsilon,
        delta=settings.privacy.delta,
        num_queries=settings.queries.asked(sizes.num_points),
        num_teachers=settings.num_teachers,
        norm=_norm(settings),
        rounds=1 + settings.correction.rounds,
        neighbours=settings.privacy.neighbours or sizes.neighbours,
        state=state,
        account=account,
        hyperparameters=settings.privacy.hyperparameters,
    )


def collect_votes(run: Run, teachers: Teachers, advance: Advance, ranks: Ranks, number: int = 0) -> Table:
    """Return (num_queries, num_classes) int64 sums of the bounded scores; beside the first round's also votes, for the report.

    The first round's teachers learn from unweighted records: an untrained student believes every label by 1 / num_classes.
    """
    del ranks  # a run of several processes was refused
    settings, dataset, folder = run.settings, run.dataset, run.folder
    path, classes = folder.votes / f"sums_{number}.npy", dataset.num_classes
    if path.exists():
        return read_array(path)
    points = dataset.public_features[: settings.queries.asked(len(dataset.public_features))]
    sums, votes, done = empty_sums(len(points), classes), empty_sums(len(points), classes), 0
    weight = 1.0 if number else 1 - 1 / classes
    for scores in _scores_on(points, teachers, settings):
        add_scores(sums, np.moveaxis(weight * scores, 0, 1), _norm(settings))
        if number == 0:
            _add_favourites(votes, scores)
        done += len(scores)
        advance(done * len(dataset.public_features) // settings.num_teachers, "")
    table = sums if number else np.concatenate([sums, votes], axis=1)
    write_array(path, table)
    return table


def _add_favourites(votes: Table, scores: npt.NDArray[np.float32]) -> None:
    """Count (teachers, points, num_classes) scores as votes for the class with the largest one; a row of zeros abstains."""
    for vector in scores:
        votes[np.arange(len(votes)), vector.argmax(axis=1)] += vector.any(axis=1)


def _scores_on(points: npt.NDArray[np.float32], teachers: Teachers, settings: RunSettings) -> Iterator[npt.NDArray[np.float32]]:
    if isinstance(teachers, LearnerEnsemble):
        return teachers.predict_class_scores(points)
    return predict_class_scores(teachers, points, trainer_options=settings.trainer)


def release_labels(run: Run, votes: Table, advance: Advance, account: Account | None = None) -> ScoreRelease:
    """Ask the session about the first public points in every round. What was answered stays so."""
    with open_session(run.settings, run.sizes, run.folder.private / SESSION, account) as session:
        release: ScoreRelease = release_rounds(run, Rounds(), session, votes, advance)
    return release


def teach(run: Run, release: ScoreRelease, advance: Advance) -> Student:
    """Move the untrained student by the mean scores of every round."""
    return student_after(run, Rounds(), run.settings.correction.rounds, release, advance)


class Rounds:
    """Rounds of scores. See `correction_rounds.Way`."""

    def ask(self, run: Run, session: ScoreSession, votes: Table, number: int, advance: Advance) -> None:
        sums = votes[:, : run.dataset.num_classes]
        session.answer(sums, query_ids=[f"{number}:{point}" for point in range(len(sums))])
        advance(len(sums), f"round {number + 1} of {run.settings.correction.rounds + 1}")

    def vote(self, run: Run, teachers: Teachers, number: int) -> Table:
        return collect_votes(run, teachers, silent, ALONE, number)

    def follow(self, run: Run, before: nn.Module | None, release: ScoreRelease, number: int, advance: Advance) -> Student:
        means = targets_of_round(release.means, run, number, unasked=0.0)
        by = ByScores(run.settings.correction.step, run.settings.correction.shrinkage)
        start = stages.untrained_student(run) if before is None else before
        return corrected(run, start, means, by, number, advance)


def count_votes(votes: Table, settings: RunSettings) -> Table:  # noqa: ARG001
    """Return the votes of the first round, for the private report."""
    return votes[:, votes.shape[1] // 2 :]


def noiseless_targets(counts: Table, settings: RunSettings) -> None:
    """Return nothing: scores say what a student lacks, and the votes of teachers of one step are no labels."""


def facts(release: ScoreRelease, settings: RunSettings, num_classes: int) -> dict[str, Any]:  # noqa: ARG001
    """Return the noisy scores; the planner compares mechanisms that answer with a class."""
    return {"labels": None, "scores": release.means, "comparison": {}}
