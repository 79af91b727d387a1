"""The modes of a run, by the kind of answers that the mechanism's spec names: labels, soft labels, noisy fractions, mean scores.

| mode | statistic | rounds | the student learns |
|---|---|---|---|
| `HardLabels` | votes | 1; its queries may be chosen batch by batch (`query_rounds`) | classes |
| `SoftLabels` | histograms of scores, two classes | 1 | the scores |
| `Fractions` | votes | 1 + R | shares of the votes, and then in which direction it errs |
| `MeanScores` | bounded class scores | 1 + R, all of which correct it | how much its beliefs lack |
"""

# ruff: noqa: D102 - what the methods of a mode do is said once, in `Mode`
from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from teacher_student.aggregation.fractions import FractionSession
from teacher_student.aggregation.labels import LabelSession
from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import FractionRelease, Release, ScoreRelease, SoftRelease
from teacher_student.aggregation.scores import ScoreSession, add_scores, empty_sums
from teacher_student.aggregation.soft_label import SoftLabelSession
from teacher_student.aggregation.statistic import Table
from teacher_student.aggregation.votes import add_votes, empty_counts, keep_allowed
from teacher_student.arguments import ArgumentError, Integers, choice, positive_integer, positive_number
from teacher_student.data import PublicSizes
from teacher_student.labels import ABSTAIN
from teacher_student.mechanisms import distance_to_instability
from teacher_student.mechanisms.soft_histogram import check_bins, histograms, split
from teacher_student.monitoring.console import Advance
from teacher_student.pipeline import stages
from teacher_student.pipeline.folder import growing_array, read_array, write_array
from teacher_student.pipeline.query_rounds import ask_in_rounds, spread
from teacher_student.pipeline.ranks import Ranks
from teacher_student.pipeline.rounds import Mode, corrected, targets_of_round
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import Run, Teachers, votes_on
from teacher_student.planning.report import plan
from teacher_student.planning.request import Request
from teacher_student.privacy import MechanismSpec, NoisyMaxParameters
from teacher_student.privacy.registry import ANSWERING, LABELS, SOFT_LABELS
from teacher_student.student import (
    NewtonStep,
    NoisyArgmaxLikelihood,
    QuerySettings,
    Student,
    Targets,
    VoteStep,
    targets_from_labels,
    targets_from_scores,
)
from teacher_student.student.label_noise import LAWS, MECHANISM
from teacher_student.teachers import LearnerEnsemble, TeacherEnsemble, predict_class_scores, predict_scores
from teacher_student.teachers.nearest import nearest_points


def mode_for(settings: RunSettings) -> Mode:
    """Return the mode by what the mechanism releases; labels are soft where bins are set."""
    kind = ANSWERING.get(settings.privacy.mechanism)
    if kind is not None and kind.releases in MODES:
        return MODES[kind.releases]
    return HardLabels() if settings.privacy.bins is None else SoftLabels()


def common(settings: RunSettings, sizes: PublicSizes, state: Path | None, account: Account | None) -> dict[str, Any]:
    """Return the arguments that the sessions of all modes take."""
    privacy = settings.privacy
    return {
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "num_teachers": settings.num_teachers,
        "neighbours": privacy.neighbours or sizes.neighbours,
        "state": state,
        "account": account,
        "hyperparameters": privacy.hyperparameters,
    }


def collect_counts(
    run: Run, teachers: Teachers, advance: Advance, ranks: Ranks, number: int, allowed: Integers | None = None
) -> Table:
    """Return (num_queries, num_classes) vote counts on the public points, streamed block by block and kept in the folder.

    Every rank counts its own teachers' votes; the first one gets the sum, and it alone writes it. Where `allowed` names points
    for each teacher (num_teachers, votes_per_teacher), it abstains on all others.
    """
    settings, dataset = run.settings, run.dataset
    path = run.folder.votes / (f"counts_{number}.npy" if number else "counts.npy")
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


class HardLabels(Mode):
    """Teachers vote for a class, and the session says which class they agree on."""

    answers, form = "labels", "counts"

    def open_session(
        self, settings: RunSettings, sizes: PublicSizes, state: Path | None, account: Account | None = None
    ) -> LabelSession:
        privacy = settings.privacy
        return LabelSession(
            sizes.num_classes,
            cutoff=privacy.cutoff,
            mechanism=privacy.mechanism,
            num_queries=settings.queries.asked(sizes.num_points),
            **{**common(settings, sizes, state, account), **privacy.options},
        )

    def request(self, settings: RunSettings, sizes: PublicSizes) -> Request:
        return Request(
            num_teachers=settings.num_teachers,
            num_queries=settings.queries.asked(sizes.num_points),
            num_classes=sizes.num_classes,
            epsilon=settings.privacy.epsilon,
            delta=settings.privacy.delta,
        )

    def collect_votes(self, run: Run, teachers: Teachers, advance: Advance, ranks: Ranks, number: int = 0) -> Table:
        return collect_counts(run, teachers, advance, ranks, number)

    def ask(self, run: Run, session: LabelSession, votes: Table, number: int, advance: Advance) -> None:
        del number
        known = with_known_noise(run.settings, session.mechanism.parameters)
        ask_in_rounds(session, run.dataset, votes, known, advance)

    def follow(self, run: Run, before: nn.Module | None, release: Release, number: int, advance: Advance) -> Student:
        del before, number
        known = with_known_noise(run.settings, release.certificate.parameters)
        return stages.teach_student(dataclasses.replace(run, settings=known), self.targets(release, run), advance)

    def targets(self, release: Release, run: Run) -> Targets:
        """Return one-hot targets, and for paid non-answers what the setting says."""
        labels, settings = spread(release, len(run.dataset.public_features)), run.settings
        return targets_from_labels(labels, run.dataset.num_classes, unanswered=settings.student.unanswered, seed=settings.seed)

    def count_votes(self, votes: Table, settings: RunSettings) -> Table:
        del settings
        return votes  # they are counts already

    def noiseless_targets(self, counts: Table, settings: RunSettings) -> Targets:
        """Return the plurality label of every point."""
        del settings
        return targets_from_labels(distance_to_instability(counts)[0], counts.shape[1])

    def facts(self, release: Release, settings: RunSettings, num_classes: int) -> dict[str, Any]:
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


def with_known_noise(settings: RunSettings, parameters: MechanismSpec) -> RunSettings:
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
    noise = NoisyArgmaxLikelihood(parameters.vote_noise, parameters.vote_scale / settings.num_teachers)
    return dataclasses.replace(settings, student=dataclasses.replace(settings.student, label_noise=noise))


class SoftLabels(Mode):
    """Teachers of two classes give probabilities, and the session says on which bin they agree."""

    answers, form = "scores", "scores"

    def check(self, settings: RunSettings, sizes: PublicSizes) -> MechanismSpec:
        """Refuse more than two classes, learners without probabilities, a mechanism without a threshold, and other queries."""
        if settings.queries != QuerySettings():
            raise ArgumentError(
                f"queries must be left as they are (order: file, all points) for soft labels, got {settings.queries}"
            )
        if sizes.num_classes != 2:
            raise ArgumentError(
                f"privacy.bins must be null for {sizes.num_classes} classes: soft labels need two, got bins = "
                f"{settings.privacy.bins}"
            )
        if not callable(settings.learner):
            kind = type(settings.learner).__name__
            raise ArgumentError(
                f"learner must be a network for soft labels, got {kind}; set privacy.bins to null for hard labels"
            )
        choice("mechanism", settings.privacy.mechanism, SOFT_LABELS)
        return super().check(settings, sizes)

    def open_session(
        self, settings: RunSettings, sizes: PublicSizes, state: Path | None, account: Account | None = None
    ) -> SoftLabelSession:
        privacy = settings.privacy
        return SoftLabelSession(
            _bins(settings),
            cutoff=positive_integer("privacy.cutoff", privacy.cutoff),
            mechanism=privacy.mechanism,
            num_queries=sizes.num_points,
            **{**common(settings, sizes, state, account), **privacy.options},
        )

    def collect_votes(self, run: Run, teachers: Any, advance: Advance, ranks: Ranks, number: int = 0) -> npt.NDArray[np.float32]:
        """Return (num_queries, num_teachers) probabilities of class 1, NaN where a teacher abstains; written as they are made.

        Ranks put their teachers' scores side by side; the first one alone writes them.
        """
        del number
        ensemble: TeacherEnsemble = teachers  # `check` refused other learners
        settings, dataset, path = run.settings, run.dataset, run.folder.votes / "scores.npy"
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

    def follow(self, run: Run, before: nn.Module | None, release: SoftRelease, number: int, advance: Advance) -> Student:
        del before, number
        return stages.teach_student(run, self.targets(release, run.settings), advance)

    def targets(self, release: SoftRelease, settings: RunSettings) -> Targets:
        """Return the scores as targets, and for paid non-answers what the setting says."""
        abstained, unanswered = np.asarray(release.codes == ABSTAIN), settings.student.unanswered
        return targets_from_scores(release.scores, abstained=abstained, unanswered=unanswered, seed=settings.seed)

    def count_votes(self, votes: npt.NDArray[np.float32], settings: RunSettings) -> Integers:
        """Return (num_queries, bins) plain histograms."""
        return split(histograms(votes, check_bins(_bins(settings), len(votes))))[1]

    def noiseless_targets(self, counts: npt.NDArray[np.integer], settings: RunSettings) -> Targets:
        """Return the midpoint of every point's fullest bin."""
        fullest, _ = distance_to_instability(counts)
        return targets_from_scores((2 * fullest + 1) / (2 * _bins(settings)))

    def facts(self, release: SoftRelease, settings: RunSettings, num_classes: int) -> dict[str, Any]:
        del settings, num_classes
        return {"labels": None, "scores": release.scores, "comparison": {}}


def _bins(settings: RunSettings) -> int:
    return positive_integer("privacy.bins", settings.privacy.bins, minimum=3)


class Fractions(Mode):
    """Teachers vote for a class, and the session says with noise how many did.

    Every query is answered and paid for, in the order of the file, and the student learns from the shares of the votes
    themselves: its loss is linear in them, so noise that is zero on average leaves the loss right on average, and shares below 0
    or above 1 are as good as others.
    """

    answers, form = "fractions", "counts"
    option = "votes_per_teacher"  # points on which a teacher votes in each round, those nearest to its records; None for all

    def open_session(
        self, settings: RunSettings, sizes: PublicSizes, state: Path | None, account: Account | None = None
    ) -> FractionSession:
        asked, rounds = settings.queries.asked(sizes.num_points), 1 + settings.boosting.rounds
        if (few := settings.privacy.options.get(self.option)) is not None:
            positive_integer(f"mechanism.{self.option}", few, maximum=asked)
        return FractionSession(
            sizes.num_classes,
            max_answers=asked * rounds,
            votes_per_teacher=None if few is None else few * rounds,
            **common(settings, sizes, state, account),
        )

    def collect_votes(self, run: Run, teachers: Teachers, advance: Advance, ranks: Ranks, number: int = 0) -> Table:
        """Return counts; where few votes are wanted, of those nearest to a teacher's records."""
        allowed = None
        if (few := run.settings.privacy.options.get(self.option)) is not None:
            shards, points = stages.make_shards(run), run.dataset.public_features
            asked = points[: run.settings.queries.asked(len(points))]
            allowed = nearest_points(run.dataset.private_features, shards.order, shards.offsets, asked, few)
        return collect_counts(run, teachers, advance, ranks, number, allowed)

    def follow(self, run: Run, before: nn.Module | None, release: FractionRelease, number: int, advance: Advance) -> Student:
        shares = targets_of_round(release.fractions, run, number, unasked=1 / run.dataset.num_classes)
        if before is None:
            return stages.teach_student(run, shares, advance)
        return corrected(run, before, shares, VoteStep(run.settings.boosting.step), number, advance)

    def count_votes(self, votes: Table, settings: RunSettings) -> Table:
        del settings
        return votes

    def noiseless_targets(self, counts: Table, settings: RunSettings) -> Targets:
        """Return the plain shares of every point's votes."""
        del settings
        total = np.maximum(1, counts.sum(axis=1, keepdims=True, dtype=np.int64))
        ones = np.ones(len(counts), dtype=np.float32)
        return Targets((counts / total).astype(np.float32), ones, np.zeros(len(counts), dtype=bool))

    def facts(self, release: FractionRelease, settings: RunSettings, num_classes: int) -> dict[str, Any]:
        del settings, num_classes
        return {"labels": None, "scores": release.fractions, "comparison": {}}


class MeanScores(Mode):
    """Teachers say how much for each class, and the session gives the mean with noise.

    Every round corrects the student so far, the first one the untrained network: a teacher is trained on its shard, records
    weighted by how little the student believes their labels (`boosting`), and its class scores on all points are one vector,
    bounded before it is summed (`aggregation.scores`). This is private gradient boosting by way of public points: nothing but
    bounded vectors is asked of a teacher, and nothing but logits of a student, so both may be anything.
    """

    answers, form = "mean scores", "sums"
    option = "norm"  # root mean square at which a teacher's scores of a round are cut off, before any noise
    several_processes, whole_rounds = False, True

    def open_session(
        self, settings: RunSettings, sizes: PublicSizes, state: Path | None, account: Account | None = None
    ) -> ScoreSession:
        return ScoreSession(
            sizes.num_classes,
            num_queries=settings.queries.asked(sizes.num_points),
            norm=self._norm(settings),
            rounds=1 + settings.boosting.rounds,
            **common(settings, sizes, state, account),
        )

    def _norm(self, settings: RunSettings) -> float:
        return positive_number(f"mechanism.{self.option}", settings.privacy.options.get(self.option))

    def collect_votes(self, run: Run, teachers: Teachers, advance: Advance, ranks: Ranks, number: int = 0) -> Table:
        """Return (asked, num_classes) int64 sums of the bounded scores; beside the first round's also votes, for the report.

        The first round's teachers learn from unweighted records: an untrained student believes every label by 1 / num_classes.
        """
        del ranks  # a run of several processes was refused
        settings, dataset = run.settings, run.dataset
        path, classes = run.folder.votes / f"sums_{number}.npy", dataset.num_classes
        if path.exists():
            return read_array(path)
        points = dataset.public_features[: settings.queries.asked(len(dataset.public_features))]
        sums, votes, done = empty_sums(len(points), classes), empty_sums(len(points), classes), 0
        weight = 1.0 if number else 1 - 1 / classes
        for scores in _scores_on(points, teachers, settings):
            add_scores(sums, np.moveaxis(weight * scores, 0, 1), self._norm(settings))
            for vector in scores if number == 0 else ():  # a vote for the class with the largest score; zeros abstain
                votes[np.arange(len(votes)), vector.argmax(axis=1)] += vector.any(axis=1)
            done += len(scores)
            advance(done * len(dataset.public_features) // settings.num_teachers, "")
        table = sums if number else np.concatenate([sums, votes], axis=1)
        write_array(path, table)
        return table

    def ask(self, run: Run, session: ScoreSession, votes: Table, number: int, advance: Advance) -> None:
        super().ask(run, session, votes[:, : run.dataset.num_classes], number, advance)

    def follow(self, run: Run, before: nn.Module | None, release: ScoreRelease, number: int, advance: Advance) -> Student:
        means = targets_of_round(release.means, run, number, unasked=0.0)
        by = NewtonStep(run.settings.boosting.step, run.settings.boosting.shrinkage)
        start = stages.untrained_student(run) if before is None else before
        return corrected(run, start, means, by, number, advance)

    def count_votes(self, votes: Table, settings: RunSettings) -> Table:
        """Return the votes of the first round, for the private report."""
        del settings
        return votes[:, votes.shape[1] // 2 :]

    def noiseless_targets(self, counts: Table, settings: RunSettings) -> None:
        """Return None: the scores of one round say what a student lacks; they are not labels."""

    def facts(self, release: ScoreRelease, settings: RunSettings, num_classes: int) -> dict[str, Any]:
        del settings, num_classes
        return {"labels": None, "scores": release.means, "comparison": {}}


def _scores_on(points: npt.NDArray[np.float32], teachers: Teachers, settings: RunSettings) -> Iterator[npt.NDArray[np.float32]]:
    """Yield (teachers of a block, points, num_classes) class scores."""
    if isinstance(teachers, LearnerEnsemble):
        return teachers.predict_class_scores(points)
    return predict_class_scores(teachers, points, trainer_options=settings.trainer)


MODES: dict[str, Mode] = {"counts": Fractions(), "scores": MeanScores()}
"""Modes by what a mechanism releases, if not labels."""
