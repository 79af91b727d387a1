"""What differs between kinds of answers, and nothing else; `hard_labels`, `soft_labels`, `fractions` and `scores` offer these."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import FractionRelease, Release, ScoreRelease, SoftRelease
from teacher_student.data import PublicSizes
from teacher_student.monitoring.console import Advance
from teacher_student.pipeline import fractions, hard_labels, scores, soft_labels
from teacher_student.pipeline.ranks import Ranks
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import Run, Teachers
from teacher_student.privacy import Parameters
from teacher_student.privacy.registry import ANSWERING
from teacher_student.student import Student, Targets

AnyRelease = Release | SoftRelease | FractionRelease | ScoreRelease


class Answers(Protocol):
    """One way to ask the teachers and to release what they say; `ANSWERS` is the name of that, and of its file."""

    ANSWERS: str

    def check(self, settings: RunSettings, sizes: PublicSizes) -> Parameters:
        """Refuse what could only fail after the training (an infeasible budget, data of another kind); return what it costs."""

    def collect_votes(self, run: Run, teachers: Teachers, advance: Advance, ranks: Ranks) -> npt.NDArray[Any]:
        """Return votes on the public points, one row each, streamed block by block and kept in the folder. Private.

        Every rank asks its own teachers; only the first one gets all votes.
        """

    def release_labels(self, run: Run, votes: npt.NDArray[Any], advance: Advance, account: Account | None) -> Any:
        """Ask the session, which pays from `account`, about the public points. Asking again gives the recorded answer."""

    def teach(self, run: Run, release: Any, advance: Advance) -> Student:
        """Return the student, a function of the release, of public points and of public settings alone."""

    def count_votes(self, votes: npt.NDArray[Any], settings: RunSettings) -> npt.NDArray[np.integer]:
        """Return (num_queries, columns) votes for each class, or scores in each bin. Private."""

    def noiseless_targets(self, counts: npt.NDArray[np.integer], settings: RunSettings) -> Targets | None:
        """Return what a student would learn from, were every query answered without noise; None without labels. Private."""

    def facts(self, release: Any, settings: RunSettings, num_classes: int) -> dict[str, Any]:
        """Return what the publishable report says of the release: `labels`, `scores` and `comparison`."""


def answers_of(settings: RunSettings) -> Answers:
    """Return the way that the settings ask for: noisy sums by their mechanism, soft labels where bins are set, else labels."""
    kind = ANSWERING.get(settings.privacy.mechanism)
    if kind is not None and kind.releases == "counts":
        return fractions
    if kind is not None and kind.releases == "scores":
        return scores
    return hard_labels if settings.privacy.bins is None else soft_labels
