"""Predictions of teachers: probabilities for soft labels and class scores, with the same abstentions as the votes."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.linear_model import Perceptron
from sklearn.tree import DecisionTreeClassifier

from teacher_student import ArgumentError
from teacher_student.data import gaussian_blobs, shard_dataset
from teacher_student.teachers import (
    MLP,
    LearnerEnsemble,
    LogisticRegression,
    TrainingSettings,
    predict_class_scores,
    predict_scores,
    predict_votes,
    train_learners,
    train_teachers,
)

OFFSET = (0.0, 0.75)


TWO = {"accelerator": "cpu", "devices": 2, "strategy": "ddp"}


def trained(num_classes: int = 2, chunk: int | None = None, options: dict | None = None):
    """Eight teachers; shard 3 is empty and shard 5 holds infinities, so that its teacher diverges."""
    rng = np.random.default_rng(0)
    labels = rng.integers(num_classes, size=80)
    features = (rng.normal(size=(80, 3)) + labels[:, None]).astype(np.float32)
    sizes = [10, 10, 10, 0, 10, 10, 10, 20]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    features[offsets[5] : offsets[6]] = np.inf
    network = functools.partial(LogisticRegression, 3, num_classes, prediction_offset=OFFSET if num_classes == 2 else None)
    settings = TrainingSettings(learning_rate=0.1, steps=20, batch_size=8, chunk=chunk)
    ensemble = train_teachers(
        features, labels, np.arange(80), offsets, network, settings, trainer_options=options, report=lambda *_: None
    )
    return ensemble, rng.normal(size=(50, 3)).astype(np.float32)


def test_scores_are_each_teachers_own_probabilities_with_the_offset():
    ensemble, points = trained()
    scores = np.concatenate(list(predict_scores(ensemble, points)))
    assert scores.dtype == np.float32
    assert np.isnan(scores).all(0).tolist() == [False, False, False, True, False, True, False, False]
    layer = ensemble.teacher(7)[1]
    logits = points @ layer.weight.detach().numpy().T + layer.bias.detach().numpy() + OFFSET
    expected = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    assert np.allclose(scores[:, 7], expected, atol=1e-6)


def test_scores_and_votes_agree_and_blocks_and_chunks_change_nothing():
    ensemble, points = trained(chunk=3)
    scores = np.concatenate(list(predict_scores(ensemble, points, block=7)))
    votes = np.concatenate(list(predict_votes(ensemble, points)))
    assert np.array_equal(np.where(np.isnan(scores), -1, scores > 0.5), votes)
    whole = np.concatenate(list(predict_scores(trained()[0], points)))
    assert np.allclose(scores, whole, atol=1e-6, equal_nan=True)


def test_more_classes_and_bad_blocks_are_refused():
    ensemble, points = trained(num_classes=3)
    with pytest.raises(ArgumentError, match="num_classes must be 2 for scores, got 3"):
        next(predict_scores(ensemble, points))
    with pytest.raises(ArgumentError, match="block must be"):
        next(predict_scores(trained()[0], points, block=0))
    assert list(predict_scores(trained()[0], points[:0])) == []


@pytest.mark.slow
def test_two_processes_give_the_scores_of_one(tmp_path):
    subprocess.run([sys.executable, "-W", "error::UserWarning", __file__, str(tmp_path)], check=True, timeout=300)
    ensemble, points = trained(chunk=2)
    expected = np.concatenate(list(predict_scores(ensemble, points, block=20)))
    for rank in range(2):
        np.testing.assert_array_equal(np.load(tmp_path / f"scores{rank}.npy"), expected)


def main(out: str) -> None:
    """What each of the two processes runs."""
    ensemble, points = trained(chunk=2, options=TWO)
    joined = np.concatenate(list(predict_scores(ensemble, points, block=20, trainer_options=TWO)))
    np.save(f"{out}/scores{ensemble.global_rank}.npy", joined)


DATA = gaussian_blobs(seed=0, num_private=300, num_public=40, num_evaluation=10, num_classes=3, dimension=4)
SHARDS = shard_dataset(DATA, 60)[0]
RECORDS = (DATA.private_features, DATA.private_labels, SHARDS.order, SHARDS.offsets)


@pytest.mark.parametrize("network", [LogisticRegression, MLP])
def test_scores_are_the_teachers_centred_logits(network):
    settings = TrainingSettings(steps=3, batch_size=4, chunk=25)
    ensemble = train_teachers(*RECORDS, functools.partial(network, 4, 3), settings)
    scores = np.concatenate(list(predict_class_scores(ensemble, DATA.public_features)))
    assert scores.shape == (60, 40, 3)
    silent = ensemble.abstaining()
    assert not scores[silent].any()
    for index in np.flatnonzero(~silent)[:7]:
        with torch.no_grad():
            logits = ensemble.teacher(int(index))(torch.as_tensor(DATA.public_features)).numpy()
        assert scores[index] == pytest.approx(logits - logits.mean(axis=1, keepdims=True), abs=1e-5)


def test_one_step_of_linear_teachers_says_what_their_records_miss():
    """The mean of such scores over teachers of one record is the mean of 1(y = c) - p(c), seen through the features."""
    settings = TrainingSettings(steps=1, batch_size=1, learning_rate=1.0, momentum=0.0)
    number = len(DATA.private_labels)
    order, offsets = np.arange(number), np.arange(number + 1)
    weights = np.linspace(0.1, 1, number, dtype=np.float32)
    ensemble = train_teachers(
        DATA.private_features,
        DATA.private_labels,
        order,
        offsets,
        functools.partial(LogisticRegression, 4, 3),
        settings,
        weights=weights,
    )
    found = sum(chunk.sum(axis=0, dtype=np.float64) for chunk in predict_class_scores(ensemble, DATA.public_features)) / number
    missing = weights[:, None] * (np.eye(3)[DATA.private_labels] - 1 / 3)
    with_ones = [np.hstack([part, np.ones((len(part), 1))]) for part in (DATA.private_features, DATA.public_features)]
    assert found == pytest.approx(with_ones[1] @ with_ones[0].T @ missing / number, abs=1e-4)


class Failing:
    classes_ = np.array([0, 1, 2])

    def predict(self, features):
        raise ValueError(str(features[0]))

    predict_proba = predict


class Odd(Failing):
    """Says impossible things; none of them may reach another teacher, or show as a warning."""

    def predict_proba(self, features):
        said = np.full((len(features), 3), 1e300)
        said[0] = [np.inf, -np.inf, 0]
        return said


class Secretive:
    """Fails whenever it is looked at."""

    @property
    def classes_(self):
        raise RuntimeError("of record 17")

    predict = predict_proba = classes_


class Half(Failing):
    """Knows no probabilities of its classes, but votes."""

    classes_ = np.array([0, 7])

    def predict(self, features):
        return np.where(np.arange(len(features)) % 2, 1, np.nan)


def test_probabilities_of_estimators_and_votes_of_those_without():
    trees = train_learners(*RECORDS, DecisionTreeClassifier(max_depth=2), num_classes=3)
    scores = np.concatenate(list(trees.predict_class_scores(DATA.public_features, chunk=7)))
    assert scores.shape == (60, 40, 3)
    for index, learner in enumerate(trees.learners):
        if not hasattr(learner, "classes_"):
            continue
        wanted = np.zeros((40, 3))
        wanted[:, learner.classes_] = learner.predict_proba(DATA.public_features)
        assert scores[index] == pytest.approx(wanted - 1 / 3, abs=1e-6)
    voters = train_learners(*RECORDS, Perceptron(), num_classes=3)
    said, votes = next(voters.predict_class_scores(DATA.public_features)), next(voters.predict_votes(DATA.public_features))
    answered = votes.T >= 0
    assert np.array_equal(said.argmax(axis=2)[answered], votes.T[answered])
    assert said[~answered].any() == np.False_


def test_teachers_that_fail_say_nothing():
    ragged = Failing()
    ragged.classes_ = [[0], [1, 2]]
    ensemble = LearnerEnsemble([None, Failing(), Odd(), Secretive(), ragged, Half()], 3)
    scores = next(ensemble.predict_class_scores(DATA.public_features[:4]))
    assert not scores[:5].any()
    assert scores[5] == pytest.approx(np.array([[0, 0, 0], [-1 / 3, 2 / 3, -1 / 3]] * 2))


if __name__ == "__main__":
    main(sys.argv[1])
