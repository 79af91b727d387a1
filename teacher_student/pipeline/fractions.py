"""Noisy fractions: teachers vote for a class, and the session says with noise how many did. See `answers.Answers`.

Votes are those of `hard_labels`; what differs is what is released of them. Every query is answered and paid for, in the order of
the file, and the student learns from the shares of the votes themselves: its loss is linear in them, so noise that is zero on
average leaves the loss right on average, and shares below 0 or above 1 are as good as others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from teacher_student.aggregation.fraction_release import FractionRelease
from teacher_student.aggregation.fractions import FractionSession
from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.votes import Table
from teacher_student.arguments import ArgumentError
from teacher_student.data import PrivateDataset
from teacher_student.monitoring.console import Advance
from teacher_student.pipeline.folder import SESSION, RunFolder
from teacher_student.pipeline.hard_labels import collect_votes, count_votes
from teacher_student.pipeline.query_rounds import QUERIES_PER_ANSWER
from teacher_student.pipeline.settings import RunSettings
from teacher_student.privacy import Parameters
from teacher_student.student import Targets

MECHANISM = "noisy_fraction"

__all__ = ["check", "collect_votes", "count_votes", "facts", "noiseless_targets", "release_labels", "targets"]


def check(settings: RunSettings, dataset: PrivateDataset) -> Parameters:
    """Refuse options that it does not have and an infeasible budget: a session that is never asked spends nothing."""
    for name in settings.privacy.options:
        raise ArgumentError(
            f"mechanism.{name} must not be given: {MECHANISM} has no options; queries.total says how many are asked"
        )
    if settings.queries.order != "file":
        raise ArgumentError(f"queries.order must be file for {MECHANISM}, got {settings.queries.order}")
    with open_session(settings, dataset, None) as session:
        return session.mechanism.parameters


def open_session(
    settings: RunSettings, dataset: PrivateDataset, state: Path | None, account: Account | None = None
) -> FractionSession:
    """Return the session of a run, calibrated from public sizes; in memory without a state file."""
    return FractionSession(
        num_classes=dataset.num_classes,
        epsilon=settings.privacy.epsilon,
        delta=settings.privacy.delta,
        max_answers=settings.queries.asked(len(dataset.public_features)),
        num_teachers=settings.num_teachers,
        neighbours=settings.privacy.neighbours or dataset.neighbours,
        state=state,
        account=account,
    )


def release_labels(
    folder: RunFolder,
    dataset: PrivateDataset,
    votes: Table,
    settings: RunSettings,
    advance: Advance,
    account: Account | None = None,
) -> FractionRelease:
    """Ask the session about the first public points, as many as are wanted. Asking again gives the recorded answer."""
    wanted = settings.queries.asked(len(votes))
    with open_session(settings, dataset, folder.private / SESSION, account) as session:
        for start in range(0, wanted, QUERIES_PER_ANSWER):
            part = range(start, min(wanted, start + QUERIES_PER_ANSWER))
            session.answer_codes(counts=votes[part.start : part.stop], query_ids=part)
            advance(part.stop, "")
        release = session.release()
    if not (folder.release / "certificate.json").exists():
        release.save(folder.release)
    return release


def targets(release: FractionRelease, settings: RunSettings, dataset: PrivateDataset) -> Targets:  # noqa: ARG001
    """Return the noisy shares of the points that were asked; the others have no target."""
    points, classes = len(dataset.public_features), dataset.num_classes
    shares = np.full((points, classes), 1 / classes, dtype=np.float32)
    asked = np.arange(points) < len(release.codes)
    shares[asked] = release.fractions
    return Targets(shares, asked.astype(np.float32), ~asked)


def noiseless_targets(counts: Table, settings: RunSettings) -> Targets:  # noqa: ARG001
    """Return the plain shares of every point's votes."""
    total = np.maximum(1, counts.sum(axis=1, keepdims=True, dtype=np.int64))
    ones = np.ones(len(counts), dtype=np.float32)
    return Targets((counts / total).astype(np.float32), ones, np.zeros(len(counts), dtype=bool))


def facts(release: FractionRelease, settings: RunSettings, num_classes: int) -> dict[str, Any]:  # noqa: ARG001
    """Return the classes with the largest noisy counts; the planner compares mechanisms that answer with a class."""
    return {"labels": release.labels, "scores": None, "comparison": {}}
