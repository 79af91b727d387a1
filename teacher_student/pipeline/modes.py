"""The modes of a run, by the kind of answers that the mechanism's spec names: labels, soft labels, noisy fractions, mean scores.

| mode | statistic | rounds | the student learns |
|---|---|---|---|
| `HardLabels` | votes | 1; its queries may be chosen batch by batch | classes |
| `SoftLabels` | histograms of scores, two classes | 1 | the scores |
| `Fractions` | votes | 1 + R | shares of the votes, and then in which direction it errs |
| `MeanScores` | bounded class scores | 1 + R, all of which correct it | how much its beliefs lack |
| `Gradients` | bounded gradients of a linear model | one for each step | what the model says at last |
"""

# ruff: noqa: D102 - what the methods of a mode do is said once, in `Mode`
from __future__ import annotations

import collections
import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import nn

from teacher_student.aggregation.fractions import FractionSession
from teacher_student.aggregation.labels import LabelSession
from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import FractionRelease, Release, ScoreRelease, SoftRelease
from teacher_student.aggregation.scores import GradientSession, ScoreSession, add_scores, empty_sums
from teacher_student.aggregation.session import Session
from teacher_student.aggregation.soft_label import SoftLabelSession
from teacher_student.aggregation.statistic import Table
from teacher_student.arguments import ArgumentError, Floats, Integers, choice, positive_integer, positive_number
from teacher_student.data import PublicSizes
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms import distance_to_instability
from teacher_student.mechanisms.soft_histogram import check_bins, histograms, split
from teacher_student.monitoring.console import Advance
from teacher_student.pipeline import stages
from teacher_student.pipeline.folder import growing_array, read_array, write_array
from teacher_student.pipeline.processes import Ranks
from teacher_student.pipeline.rounds import QUERIES_PER_ANSWER, Checked, Mode
from teacher_student.pipeline.settings import EachRecord, GradientDescent, RecordVoters, RunSettings
from teacher_student.pipeline.stages import Run, Teachers
from teacher_student.planning.preflight import hidden_gradients
from teacher_student.planning.request import Request
from teacher_student.privacy import MechanismSpec, NoisyScores
from teacher_student.privacy.parameters import REPLACED
from teacher_student.privacy.registry import ANSWERING, SOFT_LABELS
from teacher_student.student import (
    NewtonStep,
    QuerySettings,
    Student,
    StudentSettings,
    Targets,
    VoteStep,
    next_points,
    predict_probabilities,
    representatives,
    resample,
    targets_from_labels,
    targets_from_scores,
)
from teacher_student.teachers import TeacherEnsemble, predict_class_scores, predict_scores
from teacher_student.teachers.nearest import nearest_points


def mode_class(settings: RunSettings) -> type[Mode]:
    """Return the mode of what the mechanism releases; labels are soft if bins are set."""
    kind = ANSWERING.get(settings.privacy.mechanism)
    if kind is not None and kind.releases in MODES:
        scores_of_records = kind.releases == "scores" and isinstance(settings.learner, GradientDescent)
        return Gradients if scores_of_records else MODES[kind.releases]
    return HardLabels if settings.privacy.bins is None else SoftLabels


def mode_for(settings: RunSettings, sizes: PublicSizes) -> Mode:
    """Return the mode of a run on data of these sizes."""
    return mode_class(settings)(settings, sizes)


class HardLabels(Mode):
    """Teachers vote for a class, and the session says which class they agree on.

    The session may be asked in batches: a batch, its labels, a student of all labels so far, the next batch. Only public features
    and released labels choose the points, so the choice is post-processing, and the session answers adaptively chosen queries
    anyway. The session's file names the points that were asked: a resumed run continues in the middle of a batch. The student is
    a function of the labels before the batch and of public seeds.
    """

    answers = "labels"
    records = RecordVoters

    def open_session(self, state: Path | None = None, account: Account | None = None) -> LabelSession:
        privacy = self.settings.privacy
        return LabelSession(
            self.sizes.num_classes,
            cutoff=privacy.cutoff,
            mechanism=privacy.mechanism,
            num_queries=self.asked,
            **{**self.common(state, account), **self.vote_options, **privacy.options},
        )

    def collect_votes(self, run: Run, teachers: Teachers, advance: Advance, ranks: Ranks, number: int = 0) -> Table:
        """Return counts; records vote on the points that are asked."""
        asked = ranks.from_first(self._asked_points(run) if ranks.first else None)
        return stages.collect_counts(run, teachers, advance, ranks, number, asked)

    def check(self) -> Checked:
        """Refuse an order that is not known before the votes, if records vote on the points that are asked."""
        order = self.settings.queries.order
        if self.settings.record_voters and order not in ("file", "representative"):
            raise ArgumentError(f"queries.order must be file or representative for learner=nearest, got {order}")
        return super().check()

    def _asked_points(self, run: Run) -> Integers | None:
        """Return the positions of the points on which records vote, kept in the folder; None for teachers, which vote on all."""
        path = run.folder.votes / "asked.npy"
        if self.settings.record_voters is None:
            return None
        if path.exists():
            return read_array(path)
        file_order = self.settings.queries.order == "file"
        points = run.dataset.public_features
        asked = np.arange(self.asked) if file_order else representatives(points, self.asked, self.settings.seed)
        write_array(path, asked)
        return asked

    def request(self) -> Request:
        return Request(
            num_teachers=self.voters,
            num_queries=self.asked,
            num_classes=self.sizes.num_classes,
            epsilon=self.settings.privacy.epsilon,
            delta=self.settings.privacy.delta,
            vote_change=self.vote_options.get("vote_change", REPLACED),
        )

    def ask(self, run: Run, session: LabelSession, votes: Table, number: int, advance: Advance) -> None:
        """Ask about public points, named by their positions, until all that are wanted are asked or the session halts."""
        del number
        learning = self.learning(session.mechanism.parameters)
        for batch, places in enumerate(self.settings.queries.batches(len(votes))):
            asked, labels = _asked_and_labels(session.release())
            if len(asked) == places.start > 0 and session.halted:
                break
            if len(asked) >= places.stop:
                continue
            before = _at_points(asked[: places.start], labels[: places.start], len(votes))
            open_points = np.setdiff1d(np.arange(len(votes)), asked[: places.start])
            chosen = self._next_points(run, learning, before, open_points, len(places), batch)
            fresh = chosen[~np.isin(chosen, asked)][: places.stop - len(asked)]
            for start in range(0, len(fresh), QUERIES_PER_ANSWER):
                part = fresh[start : start + QUERIES_PER_ANSWER]
                session.answer(counts=votes[part], query_ids=part.tolist())
                advance(places.stop - len(fresh) + start + len(part), f"{session.remaining_cutoff:,} payments left")

    def _next_points(
        self, run: Run, learning: StudentSettings, labels: Integers, open_points: Integers, size: int, batch: int
    ) -> Integers:
        """Return the points of the next batch; of several students each learns from its own resample of the labels."""
        queries, seed, predictions = self.settings.queries, self.settings.seed, None
        if queries.order == "representative":
            asked = self._asked_points(run)
            return representatives(run.dataset.public_features, size, seed) if asked is None else asked
        if queries.students and (labels >= 0).any():
            targets, points = self._targets(labels), run.dataset.student_points[open_points]
            found = []
            for member in range(queries.students):
                own = resample(targets, (seed, batch, member)) if queries.students > 1 else targets
                student = stages.fit(run, own, settings=learning, seed=member)
                found.append(predict_probabilities(student.publishable, points))
            predictions = np.stack(found)
        return next_points(queries.order, open_points, size, predictions, (seed, batch))

    def follow(self, run: Run, before: nn.Module | None, release: Release, number: int, advance: Advance) -> Student:
        del before, number
        learning = self.learning(release.certificate.parameters)
        return stages.teach_student(run, self.targets(release), advance, learning)

    def targets(self, release: Release) -> Targets:
        """Return one-hot targets of all public points; those that were not asked have none."""
        return self._targets(self.labels_of_points(release))

    def labels_of_points(self, release: Release) -> Integers:
        return _at_points(*_asked_and_labels(release), self.sizes.num_points)

    def _targets(self, labels: Integers) -> Targets:
        unanswered = self.settings.student.unanswered
        return targets_from_labels(labels, self.sizes.num_classes, unanswered=unanswered, seed=self.settings.seed)

    def noiseless_targets(self, counts: Table) -> Targets:
        """Return the plurality label of every point."""
        return targets_from_labels(distance_to_instability(counts)[0], counts.shape[1])

    def facts(self, release: Release) -> dict[str, Any]:
        """Return the labels."""
        return {"labels": release.labels}


def _asked_and_labels(release: Release) -> tuple[Integers, Integers]:
    """Return the positions asked so far, in the order of asking, and their labels."""
    names = range(len(release.labels)) if release.queries is None else release.queries
    return np.array([int(name) for name in names], dtype=np.int64), release.labels


def _at_points(asked: Integers, labels: Integers, num_points: int) -> Integers:
    """Return (num_points,) labels of all public points: those that were not asked are `HALTED`."""
    found = np.full(num_points, HALTED, dtype=np.int64)
    found[asked] = labels
    return found


class SoftLabels(Mode):
    """Teachers of two classes give probabilities, and the session says on which bin they agree."""

    answers, form = "scores", "scores"

    def check(self) -> Checked:
        """Refuse more than two classes, learners without probabilities, a mechanism without a threshold, and other queries."""
        settings = self.settings
        if settings.queries != QuerySettings():
            raise ArgumentError(
                f"queries must be left as they are (order: file, all points) for soft labels, got {settings.queries}"
            )
        if self.sizes.num_classes != 2:
            raise ArgumentError(
                f"privacy.bins must be null for {self.sizes.num_classes} classes: soft labels need two, got bins = "
                f"{settings.privacy.bins}"
            )
        if not callable(settings.learner):
            kind = type(settings.learner).__name__
            raise ArgumentError(
                f"learner must be a network for soft labels, got {kind}; set privacy.bins to null for hard labels"
            )
        choice("mechanism", settings.privacy.mechanism, SOFT_LABELS)
        return super().check()

    @property
    def bins(self) -> int:
        """Number of bins, B = 1 / gamma."""
        return positive_integer("privacy.bins", self.settings.privacy.bins, minimum=3)

    def open_session(self, state: Path | None = None, account: Account | None = None) -> SoftLabelSession:
        privacy = self.settings.privacy
        return SoftLabelSession(
            self.bins,
            cutoff=positive_integer("privacy.cutoff", privacy.cutoff),
            mechanism=privacy.mechanism,
            num_queries=self.sizes.num_points,
            **{**self.common(state, account), **privacy.options},
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
        return stages.teach_student(run, self.targets(release), advance)

    def targets(self, release: SoftRelease) -> Targets:
        """Return the scores as targets, and for paid non-answers what the setting says."""
        abstained, unanswered = np.asarray(release.codes == ABSTAIN), self.settings.student.unanswered
        return targets_from_scores(release.scores, abstained=abstained, unanswered=unanswered, seed=self.settings.seed)

    def count_votes(self, votes: npt.NDArray[np.float32]) -> Integers:
        """Return (num_queries, bins) plain histograms."""
        return split(histograms(votes, check_bins(self.bins, len(votes))))[1]

    def noiseless_targets(self, counts: npt.NDArray[np.integer]) -> Targets:
        """Return the midpoint of every point's fullest bin."""
        fullest, _ = distance_to_instability(counts)
        return targets_from_scores((2 * fullest + 1) / (2 * self.bins))

    def facts(self, release: SoftRelease) -> dict[str, Any]:
        return {"scores": release.scores}


class Fractions(Mode):
    """Teachers vote for a class, and the session says with noise how many did.

    Every query is answered and paid for, in the order of the file, and the student learns from the shares of the votes
    themselves: its loss is linear in them, so noise that is zero on average leaves the loss right on average, and shares below 0
    or above 1 are as good as others.
    """

    answers = "fractions"
    records = RecordVoters
    option = "votes_per_teacher"  # points on which a teacher votes in each round, those nearest to its records; None for all

    def open_session(self, state: Path | None = None, account: Account | None = None) -> FractionSession:
        few = self.few
        return FractionSession(
            self.sizes.num_classes,
            max_answers=self.asked * self.rounds,
            votes_per_teacher=None if few is None else few * self.rounds,
            **self.common(state, account),
            **self.vote_options,
        )

    @property
    def few(self) -> int | None:
        """Points on which a teacher votes in each round; None for all of them."""
        if voters := self.settings.record_voters:
            return min(voters.votes, self.asked)
        few = self.settings.privacy.options.get(self.option)
        return None if few is None else positive_integer(f"mechanism.{self.option}", few, maximum=self.asked)

    def collect_votes(self, run: Run, teachers: Teachers, advance: Advance, ranks: Ranks, number: int = 0) -> Table:
        """Return counts; where few votes are wanted, of those nearest to a teacher's records."""
        allowed = None
        if isinstance(teachers, RecordVoters):
            allowed = np.arange(self.asked)
        elif self.few is not None:
            shards, points = run.shards, run.dataset.public_features[: self.asked]
            allowed = nearest_points(run.dataset.private_features, shards.order, shards.offsets, points, self.few)
        return stages.collect_counts(run, teachers, advance, ranks, number, allowed)

    def follow(self, run: Run, before: nn.Module | None, release: FractionRelease, number: int, advance: Advance) -> Student:
        shares = self.targets_of_round(release.fractions, number, unasked=1 / self.sizes.num_classes)
        if before is None:
            return stages.teach_student(run, shares, advance)
        return stages.boost(run, before, shares, VoteStep(self.settings.boosting.step), number, advance)

    def labels_of_points(self, release: FractionRelease) -> Integers | None:
        """Return the class with the largest noisy share; None where the rounds say something else of each point."""
        if self.rounds > 1:
            return None
        return _at_points(np.arange(len(release.fractions)), release.fractions.argmax(axis=1), self.sizes.num_points)

    def noiseless_targets(self, counts: Table) -> Targets:
        """Return the plain shares of every point's votes."""
        total = np.maximum(1, counts.sum(axis=1, keepdims=True, dtype=np.int64))
        ones = np.ones(len(counts), dtype=np.float32)
        return Targets((counts / total).astype(np.float32), ones, np.zeros(len(counts), dtype=bool))

    def facts(self, release: FractionRelease) -> dict[str, Any]:
        return {"scores": release.fractions}


class MeanScores(Mode):
    """Teachers say how much for each class, and the session gives the mean with noise.

    Every round corrects the student so far, the first one the untrained network: a teacher is trained on its shard, records
    weighted by how little the student believes their labels (`rounds`), and its class scores on all points are one vector,
    bounded before it is summed (`aggregation.scores`). This is private gradient boosting by way of public points: a teacher gives
    nothing but bounded vectors, a student nothing but logits, so both may be anything.
    """

    answers, form = "mean scores", "sums"
    option = "norm"  # root mean square at which a teacher's scores of a round are cut off, before any noise
    several_processes, whole_rounds = False, True
    session: ClassVar[type[ScoreSession]] = ScoreSession

    @property
    def norm(self) -> float:
        """The bound on a teacher's scores."""
        return positive_number(f"mechanism.{self.option}", self.settings.privacy.options.get(self.option))

    def open_session(self, state: Path | None = None, account: Account | None = None) -> ScoreSession:
        return self.session(
            self.sizes.num_classes,
            num_queries=self.asked,
            norm=self.norm,
            rounds=self.rounds,
            **self.common(state, account),
            **self.vote_options,
        )

    def collect_votes(self, run: Run, teachers: Teachers, advance: Advance, ranks: Ranks, number: int = 0) -> Table:
        """Return (asked, num_classes) int64 sums of the bounded scores; beside the first round's also votes, for the report.

        The first round's teachers learn from unweighted records: an untrained student believes every label by 1 / num_classes.
        """
        del ranks  # a run of several processes was refused
        path, classes = run.folder.votes / f"sums_{number}.npy", self.sizes.num_classes
        if path.exists():
            return read_array(path)
        points = run.dataset.public_features[: self.asked]
        sums, votes, done = empty_sums(len(points), classes), empty_sums(len(points), classes), 0
        weight = 1.0 if number else 1 - 1 / classes
        assert not isinstance(teachers, EachRecord)  # `check` refused them
        for scores in predict_class_scores(teachers, points, trainer_options=self.settings.trainer):
            add_scores(sums, np.moveaxis(weight * scores, 0, 1), self.norm)
            for vector in scores if number == 0 else ():  # a vote for the class with the largest score; zeros abstain
                votes[np.arange(len(votes)), vector.argmax(axis=1)] += vector.any(axis=1)
            done += len(scores)
            advance(done * self.sizes.num_points // self.settings.num_teachers, "")
        table = sums if number else np.concatenate([sums, votes], axis=1)
        write_array(path, table)
        return table

    def ask(self, run: Run, session: ScoreSession, votes: Table, number: int, advance: Advance) -> None:
        super().ask(run, session, votes[:, : self.sizes.num_classes], number, advance)

    def follow(self, run: Run, before: nn.Module | None, release: ScoreRelease, number: int, advance: Advance) -> Student:
        means = self.targets_of_round(release.means, number, unasked=0.0)
        by = NewtonStep(self.settings.boosting.step, self.settings.boosting.shrinkage)
        start = stages.untrained_student(run) if before is None else before
        return stages.boost(run, start, means, by, number, advance)

    def count_votes(self, votes: Table) -> Table:
        """Return the votes of the first round, for the private report."""
        return votes[:, votes.shape[1] // 2 :]

    def noiseless_targets(self, counts: Table) -> None:
        """Return None: the scores of one round say what a student lacks; they are not labels."""

    def facts(self, release: ScoreRelease) -> dict[str, Any]:
        return {"scores": release.means}


class Gradients(MeanScores):
    """Every record gives a bounded gradient of one linear model, and the session gives their sums with noise.

    A round is a step of full-batch gradient descent, and its queries are the features of the model. The model before a step is a
    function of the sums that were released, of public points and of public settings (`student.descent`), so a record moves
    nothing but its own gradients. What the last model says about all public points teaches the student.
    """

    answers = "gradient rows"
    records = GradientDescent
    session = GradientSession

    def check(self) -> Checked:
        """Refuse an order or a number of points to ask, because none are asked; warn of noise that hides the gradients."""
        if self.settings.queries != QuerySettings():
            raise ArgumentError(
                f"queries must be left as they are for learner=gradients: no points are asked, got {self.settings.queries}"
            )
        checked = super().check()
        noise = self._noise(checked.parameters) * math.sqrt(self.asked * self.sizes.num_classes)
        return checked._replace(warnings=[*checked.warnings, *hidden_gradients(noise)])

    @property
    def learner(self) -> GradientDescent:
        """The settings of the descent."""
        assert isinstance(self.settings.learner, GradientDescent)
        return self.settings.learner

    @property
    def asked(self) -> int:
        """Number of features of the model, the constant among them."""
        return math.prod(self.sizes.record_shape) + 1

    @property
    def rounds(self) -> int:
        """Number of steps."""
        return self.learner.steps

    def collect_votes(self, run: Run, teachers: Teachers, advance: Advance, ranks: Ranks, number: int = 0) -> Table:
        """Return (asked, num_classes) int64 sums of the records' gradients of the model before step `number`."""
        del ranks, advance, teachers
        path = run.folder.votes / f"sums_{number}.npy"
        if path.exists():
            return read_array(path)
        weights = (
            read_array(run.folder.votes / f"weights_{number}.npy") if number else np.zeros((self.asked, self.sizes.num_classes))
        )
        sums = run.gradients.sums(weights, self.norm)
        write_array(path, sums)
        return sums

    def _correcting_teachers(self, run: Run, session: Session[Any], number: int) -> Teachers:
        """Return the records, which correct the model of the steps before `number`; the model is kept."""
        path = run.folder.votes / f"weights_{number}.npy"
        if not path.exists():
            write_array(path, self._weights(run, session.release(), number))
        return self.learner

    def _weights(self, run: Run, release: ScoreRelease, steps: int) -> Floats:
        """Return the model after the first steps of a release."""
        shape = (steps, self.asked, self.sizes.num_classes)
        unit = self.norm * math.sqrt(self.asked * self.sizes.num_classes)  # length of the longest gradient
        gradients = release.means[: steps * self.asked].reshape(shape) / unit
        return run.descent.weights(gradients, self._noise(release.certificate.parameters))

    def _noise(self, spec: MechanismSpec) -> float:
        """Return the noise on an entry of the mean of all gradients of a session, in units of the longest gradient."""
        assert isinstance(spec, NoisyScores)
        return float(spec.scale) / (self.voters * math.sqrt(spec.squared_norm))

    def teach(self, run: Run, release: ScoreRelease, advance: Advance) -> Student:
        return self.follow(run, None, release, self.rounds - 1, advance)

    def follow(self, run: Run, before: nn.Module | None, release: ScoreRelease, number: int, advance: Advance) -> Student:
        """Return the student of what the model after step `number` says about all public points."""
        del before
        said = run.descent.probabilities(self._weights(run, release, number + 1))
        targets = Targets(said, np.ones(len(said), dtype=np.float32), np.zeros(len(said), dtype=bool))
        return stages.teach_student(run, targets, advance)

    def count_votes(self, votes: Table) -> Table:
        """Return no votes: a gradient is not one."""
        return votes[:0]


MODES: dict[str, type[Mode]] = {"counts": Fractions, "scores": MeanScores}
"""Modes by what a mechanism releases, if not labels."""
