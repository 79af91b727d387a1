"""Weighted records: every engine gives what a plain loop gives, weights stay in their shard, learners take them or refuse."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier
from torch.nn import functional

from teacher_student import ArgumentError
from teacher_student.teachers import LogisticRegression, TrainingSettings, predict_votes, train_learners, train_teachers

ENGINES = ("batched", "vmap", "sequential")
NETWORK = functools.partial(LogisticRegression, 3, 2)


def made(sizes=(8, 8, 8, 0)):
    generator = np.random.default_rng(0)
    total = sum(sizes)
    features = generator.standard_normal((total, 3))
    labels = (features[:, 0] + generator.standard_normal(total) > 0).astype(np.int64)
    return features, labels, np.arange(total), np.concatenate([[0], np.cumsum(sizes)])


def train(data, weights, engine="batched", **options):
    settings = TrainingSettings(
        optimizer="sgd", learning_rate=0.5, momentum=0.0, steps=20, batch_size=8, precision="float64", engine=engine, chunk=2
    )
    return train_teachers(*data, NETWORK, settings, weights=weights, master_seed=7, **options)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_weighs_as_a_plain_loop_does(engine):
    """Batches are whole shards here, so that their order does not matter."""
    data, weights = made(), np.random.default_rng(1).random(24)
    ensemble = train(data, weights, engine)
    start = train(data, np.zeros(24), engine)  # a loss that counts nothing moves nothing
    for shard in range(3):
        rows = slice(8 * shard, 8 * shard + 8)
        features, labels = torch.tensor(data[0][rows]), torch.tensor(data[1][rows])
        network = start.teacher(shard)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
        for _ in range(20):
            optimizer.zero_grad()
            losses = functional.cross_entropy(network(features), labels, reduction="none")
            (losses * torch.tensor(weights[rows], dtype=torch.float32)).mean().backward()
            optimizer.step()
        for name, value in ensemble.teacher(shard).state_dict().items():
            assert (value - network.state_dict()[name]).abs().max() <= 1e-12


@pytest.mark.parametrize("engine", ENGINES)
def test_ones_weigh_nothing(engine):
    one, other = train(made(), None, engine), train(made(), np.ones(24), engine)
    for shard in range(3):
        for name, value in one.teacher(shard).state_dict().items():
            assert torch.allclose(value, other.teacher(shard).state_dict()[name], atol=1e-14)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("value", [0.0, 1e30, np.nan, -3.0])
def test_a_weight_moves_its_own_teacher_only(engine, value):
    weights = np.random.default_rng(1).random(24)
    changed = weights.copy()
    changed[9] = value
    one, other = train(made(), weights, engine), train(made(), changed, engine)
    for shard in (0, 2, 3):
        for name, tensor in one.teacher(shard).state_dict().items():
            assert torch.equal(tensor, other.teacher(shard).state_dict()[name])
    (votes,) = predict_votes(other, np.zeros((2, 3)))
    assert (votes[:, 1] == -1).all() == bool(np.isnan(value))


def test_bad_weights_are_refused_and_other_weights_are_another_training(tmp_path):
    with pytest.raises(ArgumentError, match="weights must hold one number for each record"):
        train(made(), np.ones(23))
    train(made(), np.ones(24), checkpoint_dir=tmp_path)
    with pytest.raises(ArgumentError, match="checkpoint"):
        train(made(), np.full(24, 0.5), checkpoint_dir=tmp_path)


def test_learners_take_weights():
    features = np.array([[0.0], [0.0], [1.0], [1.0]])
    labels = np.array([0, 1, 0, 1])
    data = (features, labels, np.arange(4), np.array([0, 4]))
    for weights, expected in (([3, 1, 1, 3], [0, 1]), ([1, 3, 3, 1], [1, 0])):
        ensemble = train_learners(*data, DecisionTreeClassifier(), num_classes=2, weights=np.array(weights, dtype=float))
        (votes,) = ensemble.predict_votes(np.array([[0.0], [1.0]]))
        assert votes[:, 0].tolist() == expected


def test_a_learner_without_sample_weight_is_refused():
    with pytest.raises(ArgumentError, match="learner must take sample_weight"):
        train_learners(*made(), KNeighborsClassifier(1), num_classes=2, weights=np.ones(24))
