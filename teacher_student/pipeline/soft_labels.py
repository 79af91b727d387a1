"""Soft labels of two classes: teachers give probabilities, the session says on which bin they agree. See `answers.Answers`."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import SoftRelease
from teacher_student.aggregation.soft_label import SoftLabelSession
from teacher_student.arguments import ArgumentError, Integers, choice, positive_integer
from teacher_student.data import PrivateDataset, PublicSizes
from teacher_student.labels import ABSTAIN
from teacher_student.mechanisms import distance_to_instability
from teacher_student.mechanisms.soft_histogram import check_bins, histograms, split
from teacher_student.monitoring.console import Advance
from teacher_student.pipeline import stages
from teacher_student.pipeline.folder import SESSION, growing_array, read_array
from teacher_student.pipeline.promises import PrivacySettings
from teacher_student.pipeline.ranks import Ranks
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import Run
from teacher_student.privacy import Parameters, calibrate_soft
from teacher_student.privacy.registry import SOFT_LABELS
from teacher_student.student import Student, Targets, targets_from_scores
from teacher_student.teachers import TeacherEnsemble, predict_scores

ANSWERS = "scores"
QUERIES_PER_ANSWER = 4096
"""Queries answered in one transaction of the session."""

Scores = npt.NDArray[np.float32]


def check(settings: RunSettings, sizes: PublicSizes) -> Parameters:
    """Refuse more than two classes, learners without probabilities, a mechanism without a threshold, and an infeasible budget."""
    privacy = settings.privacy
    if sizes.num_classes != 2:
        raise ArgumentError(
            f"privacy.bins must be null for {sizes.num_classes} classes: soft labels need two, got bins = {privacy.bins}"
        )
    if not callable(settings.learner):
        kind = type(settings.learner).__name__
        raise ArgumentError(f"learner must be a network for soft labels, got {kind}; set privacy.bins to null for hard labels")
    choice("mechanism", privacy.mechanism, SOFT_LABELS)
    return calibrate_soft(
        privacy.mechanism,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        cutoff=_cutoff(privacy),
        num_queries=sizes.num_points,
        **privacy.options,
    )


def _cutoff(privacy: PrivacySettings) -> int:
    return positive_integer("privacy.cutoff", privacy.cutoff)


def collect_votes(run: Run, ensemble: TeacherEnsemble, advance: Advance, ranks: Ranks) -> Scores:
    """Return (num_queries, num_teachers) probabilities of class 1, NaN where a teacher abstains; written as they are made.

    Ranks put their teachers' scores side by side; the first one alone writes them.
    """
    settings, dataset, folder = run.settings, run.dataset, run.folder
    path = folder.votes / "scores.npy"
    if ranks.from_first(path.exists()):
        return read_array(path, mapped=True)
    blocks = predict_scores(ensemble, dataset.public_features, trainer_options=ranks.trainer_options(settings.trainer))
    if not ranks.first:
        collections.deque(blocks, maxlen=0)  # this rank's teachers take part, the first rank keeps the scores
        return np.empty((0, settings.num_teachers), np.float32)
    done = 0
    with growing_array(path, (len(dataset.public_features), settings.num_teachers), np.float32) as table:
        for block in blocks:
            table[done : done + len(block)] = block
            done += len(block)
            advance(done, "")
    return read_array(path, mapped=True)


def release_labels(run: Run, votes: Scores, advance: Advance, account: Account | None = None) -> SoftRelease:
    """Ask the session for the score of every public point, in their order. Asking again gives the recorded answer."""
    settings, dataset, folder = run.settings, run.dataset, run.folder
    privacy = settings.privacy
    with SoftLabelSession(
        _bins(settings),
        privacy.epsilon,
        privacy.delta,
        _cutoff(privacy),
        privacy.mechanism,
        num_teachers=settings.num_teachers,
        num_queries=len(votes),
        neighbours=privacy.neighbours or dataset.neighbours,
        state=folder.private / SESSION,
        account=account,
        hyperparameters=privacy.hyperparameters,
        **privacy.options,
    ) as session:
        for start in range(0, len(votes), QUERIES_PER_ANSWER):
            part = slice(start, start + QUERIES_PER_ANSWER)
            session.answer(votes[part], query_ids=range(len(votes))[part])
            advance(min(part.stop, len(votes)), f"{session.remaining_units:,} payments left")
        release = session.release()
    stages.keep(run, release)
    return release


def _bins(settings: RunSettings) -> int:
    return positive_integer("privacy.bins", settings.privacy.bins, minimum=3)


def teach(run: Run, release: SoftRelease, advance: Advance) -> Student:
    """Train the student on the targets of the release."""
    return stages.teach_student(run, targets(release, run.settings, run.dataset), advance)


def targets(release: SoftRelease, settings: RunSettings, dataset: PrivateDataset) -> Targets:  # noqa: ARG001
    """Return the scores as targets, and for paid non-answers what the setting says."""
    abstained = np.asarray(release.codes == ABSTAIN)
    return targets_from_scores(release.scores, abstained=abstained, unanswered=settings.student.unanswered, seed=settings.seed)


def count_votes(votes: Scores, settings: RunSettings) -> Integers:
    """Return (num_queries, bins) plain histograms."""
    return split(histograms(votes, check_bins(_bins(settings), len(votes))))[1]


def noiseless_targets(counts: npt.NDArray[np.integer], settings: RunSettings) -> Targets:
    """Return the midpoint of every point's fullest bin."""
    fullest, _ = distance_to_instability(counts)
    return targets_from_scores((2 * fullest + 1) / (2 * _bins(settings)))


def facts(release: SoftRelease, settings: RunSettings, num_classes: int) -> dict[str, Any]:  # noqa: ARG001
    """Return the scores; the planner compares mechanisms for hard labels only."""
    return {"labels": None, "scores": release.scores, "comparison": {}}
