"""Rounds that correct the student, of votes (`fractions`) or of scores (`scores`): ask, let the student follow, ask again.

All rounds are paid for by one session, and every student is made of its answers, so a killed run makes the same ones again.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import nn

from teacher_student.aggregation.statistic import Table
from teacher_student.arguments import ArgumentError
from teacher_student.data import PublicSizes
from teacher_student.monitoring.console import Advance
from teacher_student.pipeline.corrections import correcting_teachers, silent
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import Run, Teachers, keep, one_process
from teacher_student.student import ByScores, ByVotes, Student, Targets, correct_student


class Way(Protocol):
    """How one kind of answers corrects the student: `fractions` and `scores` are such."""

    def ask(self, run: Run, session: Any, votes: Table, number: int, advance: Advance) -> None:
        """Ask the session about the points of round `number`. What was answered stays so."""

    def vote(self, run: Run, teachers: Teachers, number: int) -> Table:
        """Return what the teachers of round `number` say about the public points; it is kept. Private."""

    def follow(self, run: Run, before: nn.Module | None, release: Any, number: int, advance: Advance) -> Student:
        """Return the student that round `number` of a release makes of `before`: a function of public things alone."""


def student_after(run: Run, way: Way, number: int, release: Any, advance: Advance) -> Student:
    """Return the student that rounds 0 to `number` of the release make. Each round is fitted once and kept in the run.

    Answers stay what they were, so that a student of fewer rounds is a function of any later release, too.
    """
    for following in range(len(run.students), number + 1):
        before = run.students[-1].publishable if run.students else None
        run.students.append(way.follow(run, before, release, following, advance))
    return run.students[number]


def release_rounds(run: Run, way: Way, session: Any, votes: Table, advance: Advance) -> Any:
    """Return the release of all rounds: the first of votes that are there, the others of teachers that correct the student."""
    way.ask(run, session, votes, 0, advance)
    for number in range(1, run.settings.correction.rounds + 1):

        def before(last: int = number - 1) -> nn.Module:
            return student_after(run, way, last, session.release(), silent).publishable

        way.ask(run, session, way.vote(run, correcting_teachers(run, before, number), number), number, advance)
    release = session.release()
    keep(run, release)
    return release


def corrected(run: Run, before: nn.Module, released: Targets, by: ByVotes | ByScores, number: int, advance: Advance) -> Student:
    """Return the student that was `before`, corrected by what was released of round `number`."""
    settings = run.settings
    return correct_student(
        before,
        run.dataset.student_points,
        released,
        settings.student,
        by,
        seed=settings.seed + number,
        trainer_options=one_process(settings.trainer) | {"logger": False},
        report=lambda epoch, loss: advance(epoch, f"loss {loss:.3f}"),
    )


def targets_of_round(values: npt.NDArray[np.floating], run: Run, number: int, unasked: float) -> Targets:
    """Return (num_points, num_classes) what was released of round `number`; points that were not asked have no target.

    Args:
        values: (rounds * asked, num_classes) of all rounds.
        run: says how many points are asked.
        number: of the round, from 0.
        unasked: a value for points without target.
    """
    points = len(run.dataset.public_features)
    asked = run.settings.queries.asked(points)
    found = np.full((points, values.shape[1]), unasked, dtype=np.float32)
    found[:asked] = values[number * asked : (number + 1) * asked]
    known = np.arange(points) < asked
    return Targets(found, known.astype(np.float32), ~known)


def check_rounds(settings: RunSettings, sizes: PublicSizes, option: str) -> None:
    """Refuse options of the mechanism but one, an order of queries, and rounds whose records the student cannot see."""
    mechanism = settings.privacy.mechanism
    for name in settings.privacy.options:
        if name != option:
            raise ArgumentError(
                f"mechanism.{name} must not be given: {mechanism} has the option {option}; queries.total says how many are asked"
            )
    if settings.queries.order != "file":
        raise ArgumentError(f"queries.order must be file for {mechanism}, got {settings.queries.order}")
    if settings.correction.rounds and not sizes.student_sees_records:
        raise ArgumentError("student_private_features must be given where the student corrects teachers and sees other columns")
