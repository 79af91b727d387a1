"""Hard labels: teachers vote for a class, and the session says which class they agree on. See `answers.Answers`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from teacher_student.aggregation.labels import LabelSession
from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import Release
from teacher_student.aggregation.statistic import Table
from teacher_student.aggregation.votes import add_votes, empty_counts, keep_allowed
from teacher_student.arguments import ArgumentError, Integers
from teacher_student.data import PrivateDataset, PublicSizes
from teacher_student.mechanisms import distance_to_instability
from teacher_student.monitoring.console import Advance
from teacher_student.pipeline import stages
from teacher_student.pipeline.folder import SESSION, read_array, write_array
from teacher_student.pipeline.query_rounds import ask_in_rounds, spread
from teacher_student.pipeline.ranks import Ranks
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import Run, Teachers, votes_on
from teacher_student.planning.report import plan
from teacher_student.planning.request import Request
from teacher_student.privacy import NoisyMaxParameters, Parameters
from teacher_student.privacy.registry import LABELS
from teacher_student.student import NoisyMaximum, Student, Targets, targets_from_labels
from teacher_student.student.label_noise import MECHANISM
from teacher_student.student.noisy_maximum import LAWS

ANSWERS = "labels"


def open_session(settings: RunSettings, sizes: PublicSizes, state: Path | None, account: Account | None = None) -> LabelSession:
    """Return the session of a run, calibrated from public sizes; in memory without a state file."""
    privacy = settings.privacy
    return LabelSession(
        num_classes=sizes.num_classes,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        cutoff=privacy.cutoff,
        mechanism=privacy.mechanism,
        num_queries=settings.queries.asked(sizes.num_points),
        num_teachers=settings.num_teachers,
        neighbours=privacy.neighbours or sizes.neighbours,
        state=state,
        account=account,
        hyperparameters=privacy.hyperparameters,
        **privacy.options,
    )


def check(settings: RunSettings, sizes: PublicSizes) -> Parameters:
    """Refuse an infeasible budget: a session that is never asked spends nothing."""
    with open_session(settings, sizes, None) as session:
        return session.mechanism.parameters


def request(settings: RunSettings, sizes: PublicSizes) -> Request:
    """Return what the planner is asked: settings and public sizes."""
    return Request(
        num_teachers=settings.num_teachers,
        num_queries=settings.queries.asked(sizes.num_points),
        num_classes=sizes.num_classes,
        epsilon=settings.privacy.epsilon,
        delta=settings.privacy.delta,
    )


def collect_votes(
    run: Run,
    teachers: Teachers,
    advance: Advance,
    ranks: Ranks,
    name: str = "counts.npy",
    allowed: Integers | None = None,
) -> Table:
    """Return (num_queries, num_classes) vote counts on the public points, streamed block by block and kept under `name`.

    Every rank counts its own teachers' votes; the first one gets the sum, and it alone writes it. Where `allowed` names points
    for each teacher (num_teachers, votes_per_teacher), it abstains on all others.
    """
    settings, dataset, folder = run.settings, run.dataset, run.folder
    path = folder.votes / name
    if ranks.from_first(path.exists()):
        return read_array(path)
    num_queries = len(dataset.public_features)
    counts = empty_counts(num_queries, dataset.num_classes, num_teachers=settings.num_teachers)
    done = 0
    for block in votes_on(dataset.public_features, teachers, settings, ranks):
        votes = block if allowed is None else keep_allowed(block, allowed, done)
        add_votes(counts[done : done + len(block)], votes)
        done += len(block)
        advance(done, "")
    ranks.sum_to_first(counts)
    if ranks.first:
        write_array(path, counts)
    return counts


def release_labels(run: Run, votes: Table, advance: Advance, account: Account | None = None) -> Release:
    """Ask the session for the labels of the public points that are wanted. Asking again gives the recorded answer."""
    settings, dataset, folder = run.settings, run.dataset, run.folder
    with open_session(settings, run.sizes, folder.private / SESSION, account) as session:
        known = with_known_noise(settings, session.mechanism.parameters)
        release = ask_in_rounds(session, dataset, votes, known, advance)
    stages.keep(run, release)
    return release


def teach(run: Run, release: Release, advance: Advance) -> Student:
    """Train the student on the targets of the release."""
    known = with_known_noise(run.settings, release.certificate.parameters)
    return stages.teach_student(dataclasses.replace(run, settings=known), targets(release, known, run.dataset), advance)


def with_known_noise(settings: RunSettings, parameters: Parameters) -> RunSettings:
    """Return settings whose student knows the noise of its labels, where `label_noise` leaves that to the mechanism.

    Raises:
        ArgumentError: a mechanism whose labels are no noisy maximum of the votes.
    """
    if settings.student.label_noise != MECHANISM:
        return settings
    if not isinstance(parameters, NoisyMaxParameters) or parameters.vote_noise not in LAWS:
        known = [name for name, kind in LABELS.items() if kind.vote_noise in LAWS]
        raise ArgumentError(
            f"student.settings.label_noise must be a rate or rows for mechanism={parameters.mechanism}, got {MECHANISM}; "
            f"the noise is known of labels by {', '.join(known)}"
        )
    noise = NoisyMaximum(parameters.vote_noise, parameters.vote_scale / settings.num_teachers)
    return dataclasses.replace(settings, student=dataclasses.replace(settings.student, label_noise=noise))


def targets(release: Release, settings: RunSettings, dataset: PrivateDataset) -> Targets:
    """Return one-hot targets, and for paid non-answers what the setting says."""
    labels = spread(release, len(dataset.public_features))
    return targets_from_labels(labels, dataset.num_classes, unanswered=settings.student.unanswered, seed=settings.seed)


def count_votes(votes: Table, settings: RunSettings) -> Table:  # noqa: ARG001
    """Return the votes: they are counts already."""
    return votes


def noiseless_targets(counts: Table, settings: RunSettings) -> Targets:  # noqa: ARG001
    """Return the plurality label of every point."""
    return targets_from_labels(distance_to_instability(counts)[0], counts.shape[1])


def facts(release: Release, settings: RunSettings, num_classes: int) -> dict[str, Any]:
    """Return the labels, and what each mechanism would have answered (the planner's table, from public sizes)."""
    table = plan(
        num_teachers=settings.num_teachers,
        num_queries=len(release.labels),
        num_classes=num_classes,
        epsilon=settings.privacy.epsilon,
        delta=settings.privacy.delta,
    ).table
    comparison = {row.mechanism: dict(row.expected_agreeing) for row in table}
    return {"labels": release.labels, "scores": None, "comparison": comparison}
