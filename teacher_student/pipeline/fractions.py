"""Noisy fractions: teachers vote for a class, and the session says with noise how many did. See `answers.Answers`.

Votes are those of `hard_labels`; what differs is what is released of them. Every query is answered and paid for, in the order of
the file, and the student learns from the shares of the votes themselves: its loss is linear in them, so noise that is zero on
average leaves the loss right on average, and shares below 0 or above 1 are as good as others. With `correction.rounds` the same
points are asked again, in the same session, of teachers that correct the student so far (`corrections`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from teacher_student.aggregation.fractions import FractionSession
from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import FractionRelease
from teacher_student.aggregation.statistic import Table
from teacher_student.arguments import positive_integer
from teacher_student.data import PublicSizes
from teacher_student.monitoring.console import Advance
from teacher_student.pipeline import hard_labels, stages
from teacher_student.pipeline.correction_rounds import check_rounds, corrected, release_rounds, student_after, targets_of_round
from teacher_student.pipeline.corrections import silent
from teacher_student.pipeline.folder import SESSION
from teacher_student.pipeline.hard_labels import count_votes
from teacher_student.pipeline.query_rounds import QUERIES_PER_ANSWER
from teacher_student.pipeline.ranks import ALONE, Ranks
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import Run, Teachers, make_shards
from teacher_student.privacy import Parameters
from teacher_student.student import ByVotes, Student, Targets
from teacher_student.teachers.nearest import nearest_points

ANSWERS = "fractions"
MECHANISM = "noisy_fraction"
FEW = "votes_per_teacher"
"""The mechanism's option: points on which a teacher votes in each round, those nearest to its records; None for all."""

__all__ = ["ANSWERS", "check", "collect_votes", "count_votes", "facts", "noiseless_targets", "release_labels", "teach"]


def check(settings: RunSettings, sizes: PublicSizes) -> Parameters:
    """Refuse options that it does not have and an infeasible budget: a session that is never asked spends nothing."""
    check_rounds(settings, sizes, FEW)
    asked = settings.queries.asked(sizes.num_points)
    if (few := settings.privacy.options.get(FEW)) is not None:
        positive_integer(f"mechanism.{FEW}", few, maximum=asked)
    with open_session(settings, sizes, None) as session:
        return session.mechanism.parameters


def open_session(
    settings: RunSettings, sizes: PublicSizes, state: Path | None, account: Account | None = None
) -> FractionSession:
    """Return the session of a run, calibrated from public sizes; in memory without a state file."""
    few, rounds = settings.privacy.options.get(FEW), 1 + settings.correction.rounds
    return FractionSession(
        num_classes=sizes.num_classes,
        epsilon=settings.privacy.epsilon,
        delta=settings.privacy.delta,
        max_answers=settings.queries.asked(sizes.num_points) * rounds,
        num_teachers=settings.num_teachers,
        votes_per_teacher=None if few is None else few * rounds,
        neighbours=settings.privacy.neighbours or sizes.neighbours,
        state=state,
        account=account,
        hyperparameters=settings.privacy.hyperparameters,
    )


def collect_votes(run: Run, teachers: Teachers, advance: Advance, ranks: Ranks, name: str = "counts.npy") -> Table:
    """Return the counts that hard labels are made of; where few are wanted, of the votes nearest to a teacher's records."""
    allowed = None
    if (few := run.settings.privacy.options.get(FEW)) is not None:
        shards, points = make_shards(run), run.dataset.public_features
        asked = points[: run.settings.queries.asked(len(points))]
        allowed = nearest_points(run.dataset.private_features, shards.order, shards.offsets, asked, few)
    return hard_labels.collect_votes(run, teachers, advance, ranks, name, allowed)


def release_labels(run: Run, votes: Table, advance: Advance, account: Account | None = None) -> FractionRelease:
    """Ask the session about the first public points, as many as are wanted, in every round. What was answered stays so."""
    with open_session(run.settings, run.sizes, run.folder.private / SESSION, account) as session:
        release: FractionRelease = release_rounds(run, Rounds(), session, votes, advance)
    return release


def teach(run: Run, release: FractionRelease, advance: Advance) -> Student:
    """Train the student on the shares of the first round and correct it by those of the others."""
    return student_after(run, Rounds(), run.settings.correction.rounds, release, advance)


class Rounds:
    """Rounds of votes. See `correction_rounds.Way`."""

    def ask(self, run: Run, session: FractionSession, votes: Table, number: int, advance: Advance) -> None:
        wanted, rounds = run.settings.queries.asked(len(votes)), run.settings.correction.rounds
        for start in range(0, wanted, QUERIES_PER_ANSWER):
            part = range(start, min(wanted, start + QUERIES_PER_ANSWER))
            names = [f"{number}:{point}" if number else str(point) for point in part]
            session.answer_codes(counts=votes[part.start : part.stop], query_ids=names)
            advance(part.stop, f"round {number + 1} of {rounds + 1}" if rounds else "")

    def vote(self, run: Run, teachers: Teachers, number: int) -> Table:
        return collect_votes(run, teachers, silent, ALONE, name=f"counts_{number}.npy")

    def follow(self, run: Run, before: nn.Module | None, release: FractionRelease, number: int, advance: Advance) -> Student:
        shares = targets_of_round(release.fractions, run, number, unasked=1 / run.dataset.num_classes)
        if before is None:
            return stages.teach_student(run, shares, advance)
        return corrected(run, before, shares, ByVotes(run.settings.correction.step), number, advance)


def noiseless_targets(counts: Table, settings: RunSettings) -> Targets:  # noqa: ARG001
    """Return the plain shares of every point's votes."""
    total = np.maximum(1, counts.sum(axis=1, keepdims=True, dtype=np.int64))
    ones = np.ones(len(counts), dtype=np.float32)
    return Targets((counts / total).astype(np.float32), ones, np.zeros(len(counts), dtype=bool))


def facts(release: FractionRelease, settings: RunSettings, num_classes: int) -> dict[str, Any]:  # noqa: ARG001
    """Return the noisy shares; the planner compares mechanisms that answer with a class."""
    return {"labels": None, "scores": release.fractions, "comparison": {}}
