"""A round: the teachers give a statistic of public points, the session answers, and the student learns from what was released.

Hard and soft labels take one round. Noisy sums may take 1 + R of them, all in one session: teachers of later rounds correct the
student of the rounds before. Only this loop calls forward, and nothing flows back but released answers: every student is a
function of them, of public points and of public settings, so a resumed run makes the same ones again.

Boosting. In a later round a teacher is trained on its own shard again, record i weighted by 1 - p(y_i | x_i) under the student so
far, and votes for the class that the student should believe *more* on a point: in the limit of a rich learner the sign of
E[1(y = c) - p(c | x)], the direction in which cross-entropy falls (functional gradient descent: Friedman 2001). The shares of
those votes move the student's logits (`modes.Fractions`). Or it says how much: the scores of a linear teacher after one step of
training are its records' 1(y = c) - p(c | x), and their mean moves the student (`modes.MeanScores`).

Privacy of boosting. The student of a round is public, and so is what it says about any features. A record reaches its own
shard's teacher in every round and no other, so it still moves one vote of each query; that teachers depend on earlier answers
makes the queries adaptive, which the session's cost covers. Weights are computed shard by shard: vectorised arithmetic may depend
in its last bit on a record's place in a batch, and no bit may cross shards. The default generator, from which a student may draw,
is restored: its state would depend on the number of shards that are not empty.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import AnyRelease
from teacher_student.aggregation.session import Session
from teacher_student.arguments import ArgumentError, positive_integer
from teacher_student.data import PrivateDataset, PublicSizes, Shards
from teacher_student.monitoring.console import Advance
from teacher_student.pipeline.folder import SESSION, read_array, write_array
from teacher_student.pipeline.processes import ALONE, Ranks
from teacher_student.pipeline.settings import EachRecord, RunSettings
from teacher_student.pipeline.stages import Run, Teachers, collect_counts, keep, train
from teacher_student.planning.preflight import few_answers, few_records, mostly_noise, weak_guarantee
from teacher_student.planning.request import Request
from teacher_student.privacy import MechanismSpec, NoisyMaxParameters
from teacher_student.privacy.parameters import WITHDRAWING, WITHDRAWN
from teacher_student.privacy.registry import LABELS
from teacher_student.student import NoisyArgmaxLikelihood, Standardized, Student, StudentSettings, Targets, predict_probabilities
from teacher_student.student.label_noise import LAWS, MECHANISM, known_noise
from teacher_student.teachers import MLP, LogisticRegression
from teacher_student.teachers.engines.batched import has_hooks

QUERIES_PER_ANSWER = 4096
"""Queries answered in one transaction of the session."""

_STATELESS = {nn.Sequential, nn.Flatten, nn.Linear, nn.ReLU, nn.Dropout, Standardized, MLP, LogisticRegression}


class Checked(NamedTuple):
    """What a run will cost, and what public numbers say against it, before anything is trained or spent."""

    parameters: MechanismSpec
    warnings: list[str]
    outlook: list[str]
    """What is to be expected of the labels, if it is hardly any; out of date once there are labels."""
    chosen: str | None = None
    """Why these settings, where `mechanism=auto` chose them."""


@dataclasses.dataclass(frozen=True)
class Mode(ABC):
    """How a run gets one kind of answers; the loop over rounds is the same for all.

    A mode knows settings and public sizes alone, so its checks cannot depend on private records.

    Attributes:
        settings: of the run.
        sizes: of its data.
        answers: what is released, in words.
        form: of what a session's `answer` is given: counts, scores or sums.
        option: the mechanism's option for rounds, for modes that may have several; None for modes of one round.
        several_processes: whether teachers may be spread over processes.
        whole_rounds: whether a round is asked in one call.
        records: how teachers may be records that speak for themselves; None if they may not.
    """

    settings: RunSettings
    sizes: PublicSizes

    answers: ClassVar[str]
    form: ClassVar[str] = "counts"
    option: ClassVar[str | None] = None
    several_processes: ClassVar[bool] = True
    whole_rounds: ClassVar[bool] = False
    records: ClassVar[type[EachRecord] | None] = None

    @property
    def asked(self) -> int:
        """Number of public points that are asked, in each round."""
        return self.settings.queries.asked(self.sizes.num_points)

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return 1 + self.settings.boosting.rounds

    @property
    def neighbours(self) -> str:
        """The neighbouring relation of the guarantee."""
        return self.settings.privacy.neighbours or self.sizes.neighbours

    @abstractmethod
    def open_session(self, state: Path | None = None, account: Account | None = None) -> Session[Any]:
        """Return the session of a run, calibrated from public sizes; in memory without a state file."""

    @property
    def voters(self) -> int:
        """How many teachers vote on an asked point, as far as is public."""
        records, teachers = self.settings.record_voters, self.settings.num_teachers
        return teachers if records is None else max(1, teachers * min(records.votes, self.asked) // self.asked)

    @property
    def vote_options(self) -> dict[str, Any]:
        """Options of a session if records speak for themselves: votes may be withdrawn alone, and their number is private."""
        if self.settings.each_record is None:
            return {}
        own = self.neighbours in WITHDRAWING  # every voter is itself protected
        counted = {} if self.settings.record_voters is None else {"num_teachers_is_public": False}
        return {**counted, **({"vote_change": WITHDRAWN} if own else {})}

    def common(self, state: Path | None, account: Account | None) -> dict[str, Any]:
        """Return the arguments that the sessions of all modes take."""
        privacy = self.settings.privacy
        return {
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "num_teachers": self.voters,
            "neighbours": self.neighbours,
            "state": state,
            "account": account,
            "hyperparameters": privacy.hyperparameters,
        }

    def collect_votes(self, run: Run, teachers: Teachers, advance: Advance, ranks: Ranks, number: int = 0) -> npt.NDArray[Any]:
        """Return what the teachers of round `number` say on the public points, one row each, kept in the folder. Private.

        Every rank asks its own teachers; only the first one gets all votes.
        """
        return collect_counts(run, teachers, advance, ranks, number)

    @abstractmethod
    def follow(self, run: Run, before: nn.Module | None, release: Any, number: int, advance: Advance) -> Student:
        """Return the student that round `number` of a release makes of `before`: a function of public things alone."""

    def count_votes(self, votes: npt.NDArray[Any]) -> npt.NDArray[np.integer]:
        """Return (num_queries, columns) votes for each class, or scores in each bin. Private."""
        return votes

    @abstractmethod
    def noiseless_targets(self, counts: npt.NDArray[np.integer]) -> Targets | None:
        """Return what a student would learn from, were every query answered without noise; None without labels. Private."""

    @abstractmethod
    def facts(self, release: Any) -> dict[str, Any]:
        """Return what the publishable report says of the release: `labels` or `scores`."""

    def labels_of_points(self, release: Any) -> npt.NDArray[np.int64] | None:
        """Return the (num_points,) released label of each public point, negative without one; None for other answers."""
        del release
        return None

    def request(self) -> Request | None:
        """Return what the planner is asked; None for answers that it does not plan."""
        return None

    def check(self) -> Checked:
        """Refuse what could only fail after the training, such as an infeasible budget or data of another kind.

        A session that is never asked spends nothing.
        """
        boosting, mechanism = self.settings.boosting.rounds, self.settings.privacy.mechanism
        if each := self.settings.each_record:
            if not isinstance(each, self.records or ()):
                raise ArgumentError(
                    f"learner must be a network or an estimator for {self.answers}, got one that is not: {each.needs}"
                )
            positive_integer("boosting.rounds", boosting, minimum=0, maximum=0)
        if self.option is not None:
            self._check_rounds(self.option)
        elif boosting:
            raise ArgumentError(
                f"boosting.rounds must be 0 for mechanism={mechanism}, got {boosting}; only noisy sums have rounds"
            )
        with self.open_session() as session:
            spec: MechanismSpec = session.mechanism.parameters
            chosen = self.settings.privacy.chosen or session.certificate.used.get("chosen")
        known_noise(self.learning(spec).label_noise, self.sizes.num_classes)
        privacy, request = self.settings.privacy, self.request()
        texts = weak_guarantee(privacy.epsilon, privacy.delta, privacy.population)
        if self.settings.each_record is None:
            texts += few_records(self.settings.num_teachers, privacy.population)
        if request is None:
            return Checked(spec, texts, [], chosen)
        return Checked(spec, [*texts, *mostly_noise(spec, request)], few_answers(spec, request), chosen)

    def _check_rounds(self, option: str) -> None:
        """Refuse further options of the mechanism, an order of queries, and rounds if the student cannot see the records."""
        mechanism = self.settings.privacy.mechanism
        for name in self.settings.privacy.options:
            if name != option:
                raise ArgumentError(
                    f"mechanism.{name} must not be given: {mechanism} has the option {option}; queries.total says how many are "
                    "asked"
                )
        if self.settings.queries.order != "file":
            raise ArgumentError(f"queries.order must be file for {mechanism}, got {self.settings.queries.order}")
        if self.settings.boosting.rounds and not self.sizes.student_sees_records:
            raise ArgumentError(
                "student_private_features must be given where the student corrects teachers and sees other columns"
            )

    def learning(self, spec: MechanismSpec) -> StudentSettings:
        """Return settings of a student that knows the noise of its labels, if `label_noise` leaves that to the mechanism.

        Raises:
            ArgumentError: a mechanism whose labels are not a noisy maximum of the votes.
        """
        student = self.settings.student
        if student.label_noise != MECHANISM:
            return student
        if not isinstance(spec, NoisyMaxParameters) or spec.vote_noise not in LAWS:
            known = [name for name, kind in LABELS.items() if kind.vote_noise in LAWS]
            raise ArgumentError(
                f"student.settings.label_noise must be a rate or rows for mechanism={spec.mechanism}, got {MECHANISM}; "
                f"the noise is known of labels by {', '.join(known)}"
            )
        noise = NoisyArgmaxLikelihood(spec.vote_noise, spec.vote_scale / self.voters)
        return dataclasses.replace(student, label_noise=noise)

    def ask(self, run: Run, session: Any, votes: npt.NDArray[Any], number: int, advance: Advance) -> None:
        """Ask the session about the first public points, as many as are wanted. Answers are final."""
        del run
        prefix = f"{number}:" if number or self.whole_rounds else ""
        size = self.asked if self.whole_rounds else QUERIES_PER_ANSWER
        for start in range(0, self.asked, size):
            part = range(start, min(self.asked, start + size))
            session.answer(**{self.form: votes[part.start : part.stop]}, query_ids=[f"{prefix}{point}" for point in part])
            left = f"{session.remaining_units:,} payments left"
            advance(part.stop, f"round {number + 1} of {self.rounds}" if self.rounds > 1 else left)

    def release_labels(self, run: Run, votes: npt.NDArray[Any], advance: Advance, account: Account | None = None) -> Any:
        """Return the release of all rounds: the first from the given votes, the others from teachers that correct the student.

        The session pays from `account`. Asking again gives the recorded answers.
        """
        with self.open_session(run.folder.private / SESSION, account) as session:
            self.ask(run, session, votes, 0, advance)
            for number in range(1, self.rounds):
                teachers = self._correcting_teachers(run, session, number)
                self.ask(run, session, self.collect_votes(run, teachers, silent, ALONE, number), number, advance)
            release: AnyRelease = session.release()
        release = self._with_what_is_not_covered(release)
        keep(run, release)
        return release

    def _with_what_is_not_covered(self, release: AnyRelease) -> AnyRelease:
        """Return the release with a certificate that says what this data set leaves uncovered, and who chose the settings."""
        features = ("the features of the records, their number and their order: labels alone are protected",)
        lines = (*(features if self.neighbours == "label_only" else ()), *self.sizes.not_covered)
        chosen = {} if (why := self.settings.privacy.chosen) is None else {"chosen": why}
        certificate = dataclasses.replace(
            release.certificate,
            used={**release.certificate.used, **chosen},
            not_covered=(*release.certificate.not_covered, *lines),
        )
        return dataclasses.replace(release, certificate=certificate)  # type: ignore[type-var]

    def _correcting_teachers(self, run: Run, session: Session[Any], number: int) -> Teachers:
        """Return the teachers of round `number`; weights and teachers are kept, so that a resumed run makes the same ones."""
        path = run.folder.votes / f"weights_{number}.npy"
        if not path.exists():
            student = self.student_after(run, number - 1, session.release(), silent)
            write_array(path, residual_weights(student.publishable, run.dataset, run.shards))
        return train(run, silent, weights=read_array(path), name=f"teachers_{number}")

    def teach(self, run: Run, release: Any, advance: Advance) -> Student:
        """Return the student of all rounds, a function of the release, of public points and of public settings alone."""
        return self.student_after(run, self.rounds - 1, release, advance)

    def student_after(self, run: Run, number: int, release: Any, advance: Advance) -> Student:
        """Return the student that rounds 0 to `number` of the release make. Each round is fitted once and kept in the run.

        Answers are final, so a student of fewer rounds is a function of any later release, too.
        """
        for following in range(len(run.students), number + 1):
            before = run.students[-1].publishable if run.students else None
            run.students.append(self.follow(run, before, release, following, advance))
        return run.students[number]

    def targets_of_round(self, values: npt.NDArray[np.floating], number: int, unasked: float) -> Targets:
        """Return (num_points, num_classes) what was released of one round; points that were not asked have no target.

        Args:
            values: (rounds * asked, num_classes) of all rounds.
            number: of the round, from 0.
            unasked: value at points without target.
        """
        found = np.full((self.sizes.num_points, values.shape[1]), unasked, dtype=np.float32)
        found[: self.asked] = values[number * self.asked : (number + 1) * self.asked]
        known = np.arange(len(found)) < self.asked
        return Targets(found, known.astype(np.float32), ~known)


def silent(done: int, text: str) -> None:
    """Show nothing: the display's bar counts the points that are asked."""


def residual_weights(student: nn.Module, dataset: PrivateDataset, shards: Shards) -> npt.NDArray[np.float32]:
    """Return (n,) weights 1 - p(label | features) of the private records, shard by shard; NaN where features are. Private.

    Args:
        student: maps the student's features to logits.
        dataset: whose records are weighted.
        shards: of the records.
    """
    features = dataset.student_private_features
    assert features is not None  # `Mode.check` refused a run without them
    weights, stateless = np.zeros(len(features), dtype=np.float32), _is_stateless(student)
    with torch.random.fork_rng(devices=[]):
        for first, last in zip(shards.offsets[:-1], shards.offsets[1:], strict=True):
            rows = shards.order[first:last]
            if len(rows):
                asked = student if stateless else copy.deepcopy(student)  # so that no shard leaks into another or the release
                believed = predict_probabilities(asked, features[rows])[np.arange(len(rows)), dataset.private_labels[rows]]
                weights[rows] = 1 - believed
    return weights


def _is_stateless(network: nn.Module) -> bool:
    """Return whether a network certainly remembers nothing that it has seen: known layers alone, and no hooks."""
    layers = network.modules()
    return not has_hooks(network) and all(type(layer) in _STATELESS and "forward" not in vars(layer) for layer in layers)
