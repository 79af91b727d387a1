"""Many small worlds for `attack`: in each some canaries take part, and everything from shards to student is done afresh.

The networks of all worlds are trained in one stack, teachers, students and non-private models alike; no network sees records of
two worlds.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation import label
from teacher_student.arguments import Floats, Integers
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
"""Of students, of non-private models and of the one teacher that sees all: they have the time to learn a canary by heart."""


@dataclasses.dataclass(frozen=True)
class Worlds:
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
    def make(cls, number: int, num_teachers: int, seed: int) -> Worlds:
        """Draw records and canaries from `seed`, and the coins from the operating system."""
        blobs = gaussian_blobs(
            RECORDS_PER_TEACHER * num_teachers,
            QUERIES,
            1,
            num_classes=2,
            dimension=DIMENSION,
            separation=SEPARATION,
            seed=seed,
        )
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 2, CANARIES)
        away = rng.normal(size=(CANARIES, DIMENSION))
        away[:, 0] = 0  # the classes lie along the first axis, class 0 on its positive side
        canaries = FAR * away / np.linalg.norm(away, axis=1, keepdims=True)
        canaries[:, 0] = SEPARATION * np.where(labels == 0, -1, 1)
        canaries = canaries.astype(np.float32)
        coins = np.unpackbits(np.frombuffer(secrets.token_bytes(number * CANARIES // 8), dtype=np.uint8))
        return cls(
            np.concatenate([SPREAD * blobs.private_features, canaries]),
            np.concatenate([blobs.private_labels, labels]),
            np.concatenate([SPREAD * blobs.public_features, canaries]),
            coins.reshape(number, CANARIES).astype(bool),
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
        network = functools.partial(LogisticRegression, DIMENSION, 2)
        return train_teachers(
            features,
            labels,
            np.concatenate(orders),
            offsets,
            network,
            settings,
            master_seed=self.seed,
            report=lambda *_: None,
        )
