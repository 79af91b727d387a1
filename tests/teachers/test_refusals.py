"""Settings and options that would couple teachers, and wrong input, are refused in one line."""

from __future__ import annotations

import json
from functools import partial

import lightning
import numpy as np
import pytest
from lightning.pytorch.callbacks import EarlyStopping

from teacher_student.arguments import ArgumentError
from teacher_student.teachers import MLP, LogisticRegression, TrainingSettings, predict_votes, train_teachers

D, C = 4, 3
DATA = (np.zeros((6, D), np.float32), np.zeros(6, int), np.arange(6), np.array([0, 2, 6]))
NETWORK = partial(MLP, D, C, (5,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "lbfgs"}, "optimizer must be one of"),
        ({"schedule": "plateau"}, "would couple teachers"),
        ({"precision": "16-mixed"}, "loss scaling couples teachers"),
        ({"engine": "fast"}, "engine must be one of"),
        ({"steps": 0}, "steps must be a positive integer, got 0"),
        ({"batch_size": -1}, "batch_size must be a positive integer"),
        ({"learning_rate": 0}, "learning_rate must be a number above 0"),
        ({"weight_decay": -1}, "weight_decay must be a number of at least 0"),
        ({"clip_norm": 0}, "clip_norm must be a number above 0"),
        ({"chunk": 0}, "chunk must be a positive integer"),
        ({"label_smoothing": 2}, "label_smoothing must lie between 0 and 1"),
    ],
)
def test_settings(options, message):
    with pytest.raises(ArgumentError, match=message):
        TrainingSettings(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_clip_val": 1.0}, "use the setting clip_norm"),
        ({"precision": "16-mixed"}, "loss scaling couples teachers"),
        ({"accumulate_grad_batches": 4}, "batch_size"),
        ({"sync_batchnorm": True}, "must not cross teachers"),
        ({"max_epochs": 3}, "use the setting steps"),
        ({"callbacks": [EarlyStopping("loss")]}, "must not hold EarlyStopping"),
    ],
)
def test_trainer_options(options, message):
    with pytest.raises(ArgumentError, match=message):
        train_teachers(*DATA, NETWORK, TrainingSettings(steps=1), trainer_options=options)


def changed(**changes):
    names = ("features", "labels", "order", "offsets")
    return [changes.get(name, value) for name, value in zip(names, DATA, strict=True)]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (changed(labels=np.zeros(5, int)), "one row for each record"),
        (changed(offsets=np.array([0, 2])), "offsets must rise"),
        (changed(offsets=np.array([0, 4, 2, 6])), "offsets must not fall"),
        (changed(order=np.arange(6) + 1), "order must hold positions from 0 to 5"),
        (changed(features=np.zeros((6, D), int)), "features must be floating-point numbers or uint8"),
        (changed(features=np.array([["a"]] * 6)), "features must be an array of numbers"),
        (changed(features=np.zeros((6, D + 1), np.float32)), "network must take records of shape"),
    ],
)
def test_records(arrays, message):
    with pytest.raises(ArgumentError, match=message):
        train_teachers(*arrays, NETWORK, TrainingSettings(steps=1))


def test_networks_and_decays():
    with pytest.raises(ArgumentError, match=r"network must be a callable that returns an nn\.Module"):
        train_teachers(*DATA, lambda: None, TrainingSettings(steps=1))
    with pytest.raises(ArgumentError, match="initial_bias must hold 3 numbers"):
        LogisticRegression(D, C, initial_bias=[1.0])
    with pytest.raises(ArgumentError, match="weight_decay must be one number or 2"):
        train_teachers(*DATA, NETWORK, TrainingSettings(steps=1, weight_decay=(0.1, 0.2, 0.3)))


def test_settings_survive_json():
    settings = TrainingSettings(weight_decay=(0.1, 0.2), clip_norm=1.0)
    assert TrainingSettings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    with pytest.raises(ArgumentError, match="got 'speed'"):
        TrainingSettings.from_dict({"speed": 1})


def test_votes_come_in_blocks_through_lightning():
    ensemble = train_teachers(*DATA, NETWORK, TrainingSettings(steps=1))
    assert isinstance(ensemble, lightning.LightningModule)
    assert list(ensemble.parameters()) == []
    blocks = list(predict_votes(ensemble, np.zeros((10, D), np.float32), block=4))
    assert [block.shape for block in blocks] == [(4, 2), (4, 2), (2, 2)]
    assert {block.dtype for block in blocks} == {np.dtype("int16")}
    assert list(predict_votes(ensemble, np.zeros((0, D), np.float32))) == []
    points = np.zeros((3, D), np.float32)
    points[1] = np.nan
    assert [(row == -1).all() for row in next(predict_votes(ensemble, points))] == [False, True, False]
