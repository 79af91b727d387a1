"""Any fit-predict object as a teacher, isolated like a network."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from teacher_student.arguments import ArgumentError
from teacher_student.teachers import train_learners

C = 3
POINTS = np.random.default_rng(9).standard_normal((40, 4))


def shards(sizes=(12, 30, 9, 0, 15)):
    parts = []
    for shard, size in enumerate(sizes):
        generator = np.random.default_rng(shard)
        features = generator.standard_normal((size, 4))
        parts.append((features, np.digitize(features[:, 0], [-0.4, 0.4])))
    return parts


def train(parts, learner, **options):
    features, labels = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    offsets = np.cumsum([0, *[len(part[1]) for part in parts]])
    return train_learners(features, labels, np.arange(len(labels)), offsets, learner, num_classes=C, **options)


def votes(ensemble):
    return np.concatenate(list(ensemble.predict_votes(POINTS, block=32)))


class Careless:
    """XGBoost-like by duck typing; draws from the global generator and fails on NaN."""

    def fit(self, features, labels):
        if np.isnan(features).any():
            raise FloatingPointError("NaN")
        self.choices = np.random.permutation(np.unique(labels))  # noqa: NPY002

    def predict(self, features):
        return np.random.default_rng(0).choice(self.choices, len(features)).astype(np.float32)


class Wasteful:
    """Draws from every global generator, more often for a larger shard, while it learns and while it predicts."""

    def fit(self, features, labels):
        self.size = len(labels)
        self.draws = [self.draw(generator) for generator in GENERATORS]

    def draw(self, generator):
        return float(sum(generator() for _ in range(self.size)))

    def predict(self, features):
        drawn = self.draws + [self.draw(generator) for generator in GENERATORS]
        return np.full(len(features), int(sum(drawn) * 1e6) % C)


GENERATORS = (random.random, np.random.random, lambda: float(torch.rand(())))

OWN = ("wasteful", "callable")
"""Learners of this file, which are cheap: they get every change."""
LEARNERS = {
    "wasteful": Wasteful,
    "forest": RandomForestClassifier(n_estimators=3),
    "boosting": GradientBoostingClassifier(n_estimators=2, subsample=0.5),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "callable": Careless,
    "seeded callable": lambda seed: RandomForestClassifier(n_estimators=2, random_state=seed % 1000),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_altering_one_shard_leaves_other_votes_alone(name):
    parts = shards()
    base = votes(train(parts, LEARNERS[name]))
    assert (base[:, 3] == -1).all()
    assert base.dtype == np.int16
    assert (base[:, 0] >= 0).all()
    features, labels = parts[1]
    changes = [
        (features, (labels + 1) % C),
        (np.tile(features, (9, 1)), np.tile(labels, 9)),
        (np.full_like(features, np.nan), labels),
        (features + 1, labels),
        (features[:1], labels[:1]),
        (features[:0], labels[:0]),
        (features, labels + 50),
    ]
    for change in changes if name in OWN else changes[:3]:
        other = votes(train([change if shard == 1 else part for shard, part in enumerate(parts)], LEARNERS[name]))
        np.testing.assert_array_equal(base[:, [0, 2, 3, 4]], other[:, [0, 2, 3, 4]])


def test_one_class_votes_for_it_and_failure_abstains():
    parts = shards()
    parts[0] = (parts[0][0], np.full(12, 2))
    parts[2] = (np.full_like(parts[2][0], np.nan), parts[2][1])
    result = train(parts, LogisticRegression())
    assert (votes(result)[:, 0] == 2).all()
    assert (votes(result)[:, 2] == -1).all()
    assert result.abstaining().tolist() == [False, False, True, True, False]


@pytest.mark.slow  # workers import scikit-learn anew
def test_processes_do_not_change_the_votes():
    parts = shards()
    one = votes(train(parts, LEARNERS["forest"]))
    np.testing.assert_array_equal(one, votes(train(parts, LEARNERS["forest"], num_workers=2)))


class Odd:
    def fit(self, features, labels):
        pass

    def predict(self, features):
        return np.resize([0.5, np.nan, 7, -3, 1], len(features))


def test_votes_that_are_no_class_abstain():
    assert votes(train(shards(), Odd))[:5, 0].tolist() == [-1, -1, -1, -1, 1]


def test_what_is_no_learner_is_refused():
    with pytest.raises(ArgumentError, match="fit and predict"):
        train(shards(), dict)
    with pytest.raises(ArgumentError, match="learner must build"):
        train(shards(), 5)
