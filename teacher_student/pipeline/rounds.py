"""A round: teachers give a statistic of public points, the session answers, and the student learns from what was released.

Hard and soft labels are one round; noisy sums may have 1 + R of them (`boosting`), all in one session, in which teachers of later
rounds correct the student of the rounds before. Only this loop calls forward, and nothing flows back but released answers: every
student is a function of them, of public points and of public settings, so a killed run makes the same ones again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import nn

from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import AnyRelease
from teacher_student.aggregation.session import Session
from teacher_student.arguments import ArgumentError
from teacher_student.data import PublicSizes
from teacher_student.monitoring.console import Advance
from teacher_student.pipeline.boosting import residual_teachers, silent
from teacher_student.pipeline.folder import SESSION
from teacher_student.pipeline.ranks import ALONE, Ranks
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import Run, Teachers, keep, one_process
from teacher_student.planning.request import Request
from teacher_student.privacy import MechanismSpec
from teacher_student.student import BoostingStep, Student, Targets, boost_student

QUERIES_PER_ANSWER = 4096
"""Queries answered in one transaction of the session."""


class Mode(ABC):
    """What is particular to one kind of answers; the loop over rounds is the same for all.

    Attributes:
        answers: what is released, in words.
        form: of what a session's `answer` is given: counts, scores or sums.
        option: the mechanism's option for rounds, for modes that may have several; None for modes of one round.
        several_processes: whether teachers may be spread over processes.
        whole_rounds: whether a round is asked in one call.
    """

    answers: ClassVar[str]
    form: ClassVar[str]
    option: ClassVar[str | None] = None
    several_processes: ClassVar[bool] = True
    whole_rounds: ClassVar[bool] = False

    @abstractmethod
    def open_session(
        self, settings: RunSettings, sizes: PublicSizes, state: Path | None, account: Account | None = None
    ) -> Session[Any]:
        """Return the session of a run, calibrated from public sizes; in memory without a state file."""

    @abstractmethod
    def collect_votes(self, run: Run, teachers: Teachers, advance: Advance, ranks: Ranks, number: int = 0) -> npt.NDArray[Any]:
        """Return what the teachers of round `number` say on the public points, one row each, kept in the folder. Private.

        Every rank asks its own teachers; only the first one gets all votes.
        """

    @abstractmethod
    def follow(self, run: Run, before: nn.Module | None, release: Any, number: int, advance: Advance) -> Student:
        """Return the student that round `number` of a release makes of `before`: a function of public things alone."""

    @abstractmethod
    def count_votes(self, votes: npt.NDArray[Any], settings: RunSettings) -> npt.NDArray[np.integer]:
        """Return (num_queries, columns) votes for each class, or scores in each bin. Private."""

    @abstractmethod
    def noiseless_targets(self, counts: npt.NDArray[np.integer], settings: RunSettings) -> Targets | None:
        """Return what a student would learn from, were every query answered without noise; None without labels. Private."""

    @abstractmethod
    def facts(self, release: Any, settings: RunSettings, num_classes: int) -> dict[str, Any]:
        """Return what the publishable report says of the release: `labels`, `scores` and `comparison`."""

    def request(self, settings: RunSettings, sizes: PublicSizes) -> Request | None:
        """Return what the planner is asked; None for answers that it does not plan."""
        del settings, sizes
        return None

    def check(self, settings: RunSettings, sizes: PublicSizes) -> MechanismSpec:
        """Refuse what could only fail after the training (an infeasible budget, data of another kind); return what it costs.

        A session that is never asked spends nothing.
        """
        if self.option is not None:
            check_rounds(settings, sizes, self.option)
        with self.open_session(settings, sizes, None) as session:
            return session.mechanism.parameters

    def ask(self, run: Run, session: Any, votes: npt.NDArray[Any], number: int, advance: Advance) -> None:
        """Ask the session about the first public points, as many as are wanted. What was answered stays so."""
        wanted, rounds = run.settings.queries.asked(len(run.dataset.public_features)), 1 + run.settings.boosting.rounds
        prefix = f"{number}:" if number or self.whole_rounds else ""
        size = wanted if self.whole_rounds else QUERIES_PER_ANSWER
        for start in range(0, wanted, size):
            part = range(start, min(wanted, start + size))
            session.answer(**{self.form: votes[part.start : part.stop]}, query_ids=[f"{prefix}{point}" for point in part])
            left = f"{session.remaining_units:,} payments left"
            advance(part.stop, f"round {number + 1} of {rounds}" if rounds > 1 else left)

    def release_labels(self, run: Run, votes: npt.NDArray[Any], advance: Advance, account: Account | None = None) -> Any:
        """Return the release of all rounds: the first of votes that are there, the others of teachers that correct the student.

        The session pays from `account`. Asking again gives the recorded answers.
        """
        with self.open_session(run.settings, run.sizes, run.folder.private / SESSION, account) as session:
            self.ask(run, session, votes, 0, advance)
            for number in range(1, run.settings.boosting.rounds + 1):

                def before(last: int = number - 1) -> nn.Module:
                    return self.student_after(run, last, session.release(), silent).publishable

                teachers = residual_teachers(run, before, number)
                self.ask(run, session, self.collect_votes(run, teachers, silent, ALONE, number), number, advance)
            release: AnyRelease = session.release()
        keep(run, release)
        return release

    def teach(self, run: Run, release: Any, advance: Advance) -> Student:
        """Return the student of all rounds, a function of the release, of public points and of public settings alone."""
        return self.student_after(run, run.settings.boosting.rounds, release, advance)

    def student_after(self, run: Run, number: int, release: Any, advance: Advance) -> Student:
        """Return the student that rounds 0 to `number` of the release make. Each round is fitted once and kept in the run.

        Answers stay what they were, so that a student of fewer rounds is a function of any later release, too.
        """
        for following in range(len(run.students), number + 1):
            before = run.students[-1].publishable if run.students else None
            run.students.append(self.follow(run, before, release, following, advance))
        return run.students[number]


def corrected(run: Run, before: nn.Module, released: Targets, by: BoostingStep, number: int, advance: Advance) -> Student:
    """Return the student that was `before`, corrected by what was released of round `number`."""
    settings = run.settings
    return boost_student(
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
    if settings.boosting.rounds and not sizes.student_sees_records:
        raise ArgumentError("student_private_features must be given where the student corrects teachers and sees other columns")
