"""Runs with noisy fractions, and with rounds of teachers that correct the student."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from teacher_student import ArgumentError, FractionRelease
from teacher_student.app import compose, settings_from_config
from teacher_student.data import gaussian_blobs, shard_dataset
from teacher_student.pipeline import RunSettings, load_student, rounds, run, verify_folder
from teacher_student.pipeline.rounds import residual_weights
from teacher_student.student import Standardized
from teacher_student.teachers import MLP

from ..pictures import small_reports
from .killed_rounds import keeps_answers

pytestmark = pytest.mark.usefixtures("no_pictures")


def settings(*overrides: str) -> RunSettings:
    base = ["experiment=blobs", "mechanism=noisy_fraction", "data.num_private=2000", "data.num_public=300", "teachers.number=200"]
    fast = ["teachers.training.steps=5", "student.settings.epochs=20", "baselines=false", "budget.ledger=null"]
    return settings_from_config(compose("run", [*base, *fast, *overrides]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with small_reports():
        return run(settings("boosting.rounds=2", "data.num_classes=2"), tmp_path_factory.mktemp("runs") / "one")


def test_one_round_of_three_classes(tmp_path):
    result = run(settings("queries.total=250"), tmp_path / "one")
    assert result.metrics["accuracy"] > 0.9
    assert result.release.fractions.shape == (250, 3)
    assert "recomputed epsilon" in verify_folder(result.folder.path)


def test_few_votes_of_each_teacher(tmp_path):
    few = ["+mechanism.votes_per_teacher=10", "boosting.rounds=1", "teachers.number=400"]
    result = run(settings(*few), tmp_path / "few")
    parameters = result.release.certificate.parameters
    assert (parameters.max_answers, parameters.votes_per_teacher) == (600, 20)
    for name in ("counts.npy", "counts_1.npy"):
        counts = np.load(tmp_path / "few" / "private" / "votes" / name)
        assert 3000 < counts.sum() <= 4000
    assert "recomputed epsilon" in verify_folder(result.folder.path)
    assert result.metrics["accuracy"] > 0.9


def test_rounds_ask_every_point_again_in_one_session(finished):
    loaded = FractionRelease.load(finished.folder.release)
    assert loaded.codes.shape == (900, 2)
    assert loaded.queries is not None
    assert loaded.queries[:2] == ("0", "1")
    assert loaded.queries[300::300] == ("1:0", "2:0")
    assert loaded.certificate.parameters.max_answers == 900
    assert "recomputed epsilon" in verify_folder(finished.folder.path)
    assert finished.metrics["accuracy"] > 0.9


def test_corrected_student_is_the_published_one(finished):
    points = torch.randn(20, 2)
    with torch.no_grad():
        assert torch.equal(load_student(finished.folder.path)(points), finished.student.publishable(points))


@pytest.mark.slow
def test_rounds_correct_what_is_wrong(tmp_path):
    """Teachers agree on overlapping classes too, so that a student of one round is far too sure; the rounds calibrate it."""
    hard = ["data.num_classes=2", "data.separation=1.5", "data.num_evaluation=3000", "privacy.epsilon=8.0"]
    once = run(settings(*hard), tmp_path / "once").metrics
    corrected = run(settings(*hard, "boosting.rounds=3"), tmp_path / "more").metrics
    assert corrected["calibration error"] < once["calibration error"] / 2
    assert corrected["brier score"] < once["brier score"]


def test_a_killed_run_keeps_weights_and_answers(finished):
    keeps_answers(finished, settings("boosting.rounds=2", "data.num_classes=2"), ("counts_2.npy", "counts.npy"))


def test_a_record_weighs_in_its_own_shard_only():
    dataset = gaussian_blobs(seed=0, num_private=300, num_public=10, num_evaluation=10, num_classes=2, dimension=7)
    shards, _ = shard_dataset(dataset, 20)
    student = nn.Sequential(nn.Linear(7, 33), nn.ReLU(), nn.Linear(33, 2))
    before = residual_weights(student, dataset, shards)
    probabilities = student(torch.as_tensor(dataset.private_features)).softmax(1).detach().numpy()
    assert before == pytest.approx(1 - probabilities[np.arange(300), dataset.private_labels], abs=1e-6)
    features = dataset.private_features.copy()
    mine = shards.order[shards.offsets[3] : shards.offsets[4]]
    features[mine[0]] = np.nan
    changed = dataclasses.replace(dataset, private_features=features, student_private_features=features)
    after = residual_weights(student, changed, shards)
    others = np.setdiff1d(np.arange(300), mine)
    assert np.array_equal(before[others], after[others])
    assert np.isnan(after[mine[0]])


class Remembering(nn.Module):
    """Adds up what it has seen, in evaluation too."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(7, 2)
        self.register_buffer("seen", torch.zeros(7))

    def forward(self, features):
        self.seen += features.sum(0)
        return self.linear(features + self.seen)


def test_a_student_that_remembers_tells_no_shard_of_another():
    dataset = gaussian_blobs(seed=0, num_private=30, num_public=10, num_evaluation=10, num_classes=2, dimension=7)
    shards, student = shard_dataset(dataset, 5)[0], Remembering()
    before = residual_weights(student, dataset, shards)
    features = dataset.private_features.copy()
    features[shards.order[0]] += 1
    changed = dataclasses.replace(dataset, private_features=features, student_private_features=features)
    others = shards.order[shards.offsets[1] :]
    assert np.array_equal(before[others], residual_weights(student, changed, shards)[others])
    assert not student.seen.any()


def test_weights_leave_the_default_generator_alone():
    """Every prediction draws from it: one record alone in its shard would move it, and with it whatever draws next."""
    dataset = gaussian_blobs(seed=0, num_private=30, num_public=10, num_evaluation=10, num_classes=2, dimension=7)
    student, state = nn.Linear(7, 2), torch.get_rng_state()
    residual_weights(student, dataset, shard_dataset(dataset, 20)[0])
    assert torch.equal(torch.get_rng_state(), state)


def test_records_without_the_students_columns_are_refused_before_anything_is_written(tmp_path):
    plain = settings("boosting.rounds=1", "data.num_classes=2")

    def data():
        found = plain.data()
        columns = {f"student_{name}": getattr(found, name) for name in ("public_features", "evaluation_features")}
        return dataclasses.replace(found, **columns, student_private_features=None)

    with pytest.raises(ArgumentError, match="student_private_features must be given"):
        run(dataclasses.replace(plain, data=data), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["mechanism=stability", "boosting.rounds=1"], "boosting.rounds must be 0"),
        (["boosting.rounds=-1"], "boosting.rounds"),
        (["boosting.step=0"], "boosting.step"),
        (["+mechanism.threshold_ratio=2.0"], "mechanism.threshold_ratio"),
        (["+mechanism.votes_per_teacher=0"], "mechanism.votes_per_teacher"),
        (["+mechanism.votes_per_teacher=21", "queries.total=20"], "mechanism.votes_per_teacher"),
        (["queries.order=uncertain"], "queries.order"),
        (
            [
                "learner=sklearn",
                "learner.estimator._target_=sklearn.neighbors.KNeighborsClassifier",
                "~learner.estimator.max_depth",
                "boosting.rounds=1",
            ],
            "sample_weight",
        ),
    ],
)
def test_refused_before_anything_is_written(overrides, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        run(settings(*overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Noting(nn.Linear):
    """Might keep what it sees, for all that anybody knows."""


def hooked():
    network = nn.Linear(2, 2)
    network.register_forward_hook(lambda *_: None)
    return network


@pytest.mark.parametrize(
    ("network", "forgets"),
    [(MLP(2, 2, (3,)), True), (Standardized(nn.Linear(2, 2), (2,)), True), (Noting(2, 2), False), (hooked(), False)],
)
def test_only_what_surely_forgets_is_asked_without_a_copy(network, forgets):
    assert rounds._is_stateless(network) is forgets
