"""Membership inference against whole runs: many small worlds, and guesses from what each of them published.

In every world each canary tosses a coin and takes part or not; then fresh shards, teachers, votes, noise, labels and a student.
All worlds' networks are trained in one stack, teachers, students and non-private models alike; no network sees records of two
worlds. A canary is a mislabelled outlier, and it is asked about: its own point is among the public queries. How the guesses bound
epsilon is in `auditing.membership`.

| subject | what | its bound must be |
|---|---|---|
| released labels | the label of each canary's own query | at most the claim |
| student | its confidence in each canary's label | at most the claim |
| student, one teacher, no noise | a broken mutant: the release that claims the same and protects nothing | above the claim |
| non-private model | for contrast: trained on the records themselves | above the claim |
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation import LabelSession, label
from teacher_student.arguments import Floats, Integers, positive_integer, positive_number, probability
from teacher_student.auditing.membership import MembershipBound, membership_bound
from teacher_student.data import gaussian_blobs, make_shards
from teacher_student.data.shards import KEY_BYTES
from teacher_student.teachers import (
    LogisticRegression,
    TeacherEnsemble,
    TrainingSettings,
    predict_scores,
    predict_votes,
    train_teachers,
)

CANARIES, DIMENSION, SEPARATION, FAR = 16, 40, 3.0, 15.0
"""Canaries; features; distance of the classes' means from 0; distance of a canary from its class."""
SPREAD = np.array([1.0] + [0.2] * (DIMENSION - 1), dtype=np.float32)
"""Standard deviation of the records within a class: teachers of a handful of records agree on ordinary points."""
RECORDS_PER_TEACHER, QUERIES = 5, 60
"""Records that are in every world, for each teacher; ordinary public points, which are asked before the canaries' own."""

TEACHER = TrainingSettings(learning_rate=0.1, steps=40, batch_size=8)
MODEL = TrainingSettings(optimizer="adam", learning_rate=0.05, steps=200, batch_size=64)
"""Of students, of non-private models and of the one teacher that sees all: enough steps to memorise a canary."""


@dataclasses.dataclass(frozen=True)
class MembershipExperiment:
    """Records, canaries, and who takes part where.

    Attributes:
        features: (records + CANARIES, DIMENSION) float32; the canaries come last.
        labels: (records + CANARIES,) of two classes; a canary's is the wrong one.
        points: (QUERIES + CANARIES, DIMENSION) public points in the order in which they are asked; the canaries' own come last.
        members: (worlds, CANARIES) the coins.
        seed: of the networks' training.
    """

    features: npt.NDArray[np.float32]
    labels: Integers
    points: npt.NDArray[np.float32]
    members: npt.NDArray[np.bool_]
    seed: int

    @classmethod
    def make(cls, worlds: int, num_teachers: int, seed: int) -> MembershipExperiment:
        """Draw records and canaries from `seed`, and the coins from the operating system."""
        sizes = (RECORDS_PER_TEACHER * num_teachers, QUERIES, 1)
        blobs = gaussian_blobs(*sizes, num_classes=2, dimension=DIMENSION, separation=SEPARATION, seed=seed)
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 2, CANARIES)
        away = rng.normal(size=(CANARIES, DIMENSION))
        away[:, 0] = 0  # the classes lie along the first axis, class 0 on its positive side
        canaries = FAR * away / np.linalg.norm(away, axis=1, keepdims=True)
        canaries[:, 0] = SEPARATION * np.where(labels == 0, -1, 1)
        canaries = canaries.astype(np.float32)
        coins = np.unpackbits(np.frombuffer(secrets.token_bytes(worlds * CANARIES // 8), dtype=np.uint8))
        return cls(
            np.concatenate([SPREAD * blobs.private_features, canaries]),
            np.concatenate([blobs.private_labels, labels]),
            np.concatenate([SPREAD * blobs.public_features, canaries]),
            coins.reshape(worlds, CANARIES).astype(bool),
            seed,
        )

    def votes(self, num_teachers: int) -> npt.NDArray[np.int16]:
        """Return (worlds, queries, num_teachers) votes of teachers of fresh shards of each world's records."""
        orders, offsets = [], [np.zeros(1, dtype=np.int64)]
        for records in self._records():
            shards = make_shards(records, num_teachers, secrets.token_bytes(KEY_BYTES))
            orders.append(records[shards.order])
            offsets.append(offsets[-1][-1] + shards.offsets[1:])
        settings = MODEL if num_teachers == 1 else TEACHER
        ensemble = self._train(self.features, self.labels, orders, np.concatenate(offsets), settings)
        votes = np.concatenate(list(predict_votes(ensemble, self.points)))
        return votes.reshape(len(self.points), len(self.members), num_teachers).transpose(1, 0, 2)

    def release(self, votes: npt.NDArray[np.int16], claim: Mapping[str, Any]) -> Integers:
        """Return (worlds, queries) labels, each world's released with fresh noise from the operating system."""
        return np.stack([label(world, num_classes=2, num_teachers=world.shape[1], **claim).labels for world in votes])

    def label_scores(self, released: Integers) -> Floats:
        """Return (worlds, CANARIES): 1 where a canary's own query got its label, -1 where another, 0 where none."""
        own = released[:, -CANARIES:]
        return np.where(own < 0, 0.0, np.where(own == self.labels[-CANARIES:], 1.0, -1.0))

    def student_scores(self, released: Integers) -> Floats:
        """Return (worlds, CANARIES) scores of students that learn from what was released about their world alone."""
        answered = [np.flatnonzero(labels >= 0) for labels in released]
        points = np.tile(self.points, (len(released), 1))
        orders = [world * len(self.points) + asked for world, asked in enumerate(answered)]
        return self._scores(points, np.maximum(released, 0).ravel(), orders)

    def model_scores(self) -> Floats:
        """Return (worlds, CANARIES) scores of models that learn from their world's records themselves."""
        return self._scores(self.features, self.labels, self._records())

    def _records(self) -> list[Integers]:
        always = np.arange(len(self.labels) - CANARIES)
        return [np.concatenate([always, len(always) + np.flatnonzero(coins)]) for coins in self.members]

    def _scores(self, features: npt.NDArray[np.float32], labels: Integers, orders: Sequence[Integers]) -> Floats:
        """Train one model for each world; return the log-odds of each canary's label, 0 from a model that learned nothing."""
        offsets = np.cumsum([0, *map(len, orders)])
        ensemble = self._train(features, labels, orders, offsets, MODEL)
        ones = np.concatenate(list(predict_scores(ensemble, self.points[-CANARIES:]))).T.astype(np.float64)
        ones = np.clip(np.where(np.isnan(ones), 0.5, ones), 1e-6, 1 - 1e-6)
        return np.where(self.labels[-CANARIES:] == 1, 1, -1) * np.log(ones / (1 - ones))

    def _train(
        self,
        features: npt.NDArray[np.float32],
        labels: Integers,
        orders: Sequence[Integers],
        offsets: Integers,
        settings: TrainingSettings,
    ) -> TeacherEnsemble:
        network, records = functools.partial(LogisticRegression, DIMENSION, 2), np.concatenate(orders)
        options: dict[str, Any] = {"master_seed": self.seed, "report": lambda *_: None}
        return train_teachers(features, labels, records, offsets, network, settings, **options)


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """One line of the table.

    Attributes:
        subject: what was attacked.
        bound: of its epsilon.
        must_hold: whether it must hold its claim, or break it.
    """

    subject: str
    bound: MembershipBound
    must_hold: bool


@dataclasses.dataclass(frozen=True)
class AttackReport:
    """The result of the attack.

    Attributes:
        mechanism: its name.
        epsilon, delta: the claim.
        error: probability with which each bound may exceed a true epsilon.
        answered: labels that a world's private release holds, in the mean.
        rows: one for each subject.
    """

    mechanism: str
    epsilon: float
    delta: float
    error: float
    answered: float
    rows: tuple[CheckResult, ...]

    @property
    def sound(self) -> bool:
        """Whether no bound refutes the claim."""
        return all(row.bound.epsilon <= self.epsilon for row in self.rows if row.must_hold)

    @property
    def powerful(self) -> bool:
        """Whether the attack refutes the claim where it does not hold."""
        return all(row.bound.epsilon > self.epsilon for row in self.rows if not row.must_hold)

    @property
    def passed(self) -> bool:
        """Whether the student held and the attack proved that it can succeed."""
        return self.sound and self.powerful

    def __str__(self) -> str:
        """Return the table."""
        bound = self.rows[0].bound
        title = (
            f"{self.mechanism} at epsilon {self.epsilon:g}, delta {self.delta:g}: {bound.worlds} worlds attacked, "
            f"{bound.references} to learn from, confidence {1 - self.error:g} for each bound;\n"
            f"{self.answered:.1f} of {QUERIES + CANARIES} labels released in a world"
        )
        lines = [f"{'attacked':<32}{'claimed':<11}{'measured':<20}{'guesses right':<18}verdict"]
        lines += [self._line(row) for row in self.rows]
        return "\n".join([title, "", *lines, "", f"audit {'passed' if self.passed else 'NOT PASSED'}"])

    def _line(self, row: CheckResult) -> str:
        refuted = row.bound.epsilon > self.epsilon
        verdict = ("REJECTED" if refuted else "ok") if row.must_hold else ("caught" if refuted else "MISSED: take more worlds")
        claimed = "none" if row.subject == "non-private model" else f"{self.epsilon:g}"
        measured, right = f"epsilon >= {row.bound.epsilon:.3f}", f"{row.bound.correct} of {row.bound.guesses}"
        return f"{row.subject:<32}{claimed:<11}{measured:<20}{right:<18}{verdict}"


def attack_student(
    mechanism: str = "stability",
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    cutoff: int | None = 3,
    worlds: int = 300,
    num_teachers: int = 150,
    error: float = 0.05,
    seed: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    **options: Any,
) -> AttackReport:
    """Attack private students of small worlds, and for contrast what protects nothing.

    Args:
        mechanism: a name of `teacher_student.privacy.MECHANISMS`.
        epsilon: the claim.
        delta: the claim.
        cutoff: paid non-answers before a session halts.
        worlds: a third of them to learn from, the others to attack.
        num_teachers: in each world.
        error: probability with which each bound may exceed a true epsilon.
        seed: of the data and of the networks; from the operating system if None. Coins, shards and noise have none.
        progress: called with stages done, stages in all, and the last stage.
        options: of the mechanism's calibration.

    Raises:
        ArgumentError: a value out of range, or a claim that cannot be calibrated.
    """
    positive_number("epsilon", epsilon)
    probability("delta", delta)
    probability("error", error)
    positive_integer("worlds", worlds, minimum=60)
    positive_integer("num_teachers", num_teachers, minimum=2)
    if seed is not None:
        positive_integer("seed", seed, minimum=0, maximum=2**32 - 1)
    claim: dict[str, Any] = {"mechanism": mechanism, "epsilon": epsilon, "delta": delta, "cutoff": cutoff, **options}
    LabelSession(2, num_queries=QUERIES + CANARIES, num_teachers=num_teachers, **claim).close()  # refuses a bad claim at once
    experiment = MembershipExperiment.make(worlds, num_teachers, secrets.randbits(32) if seed is None else seed)
    released = functools.cache(lambda: experiment.release(experiment.votes(num_teachers), claim))
    subjects: tuple[tuple[str, bool, Callable[[], Floats]], ...] = (
        ("released labels", True, lambda: experiment.label_scores(released())),
        ("student", True, lambda: experiment.student_scores(released())),
        (
            "student, one teacher, no noise",
            False,
            lambda: experiment.student_scores(experiment.votes(1)[:, :, 0].astype(np.int64)),
        ),
        ("non-private model", False, experiment.model_scores),
    )
    rows = []
    for done, (subject, must_hold, scores) in enumerate(subjects, start=1):
        bound = membership_bound(scores(), experiment.members, references=worlds // 3, delta=delta, error=error)
        rows.append(CheckResult(subject, bound, must_hold))
        if progress is not None:
            progress(done, len(subjects), subject)
    answered = float((released() >= 0).sum(axis=1).mean())
    return AttackReport(mechanism, epsilon, delta, error, answered, tuple(rows))
