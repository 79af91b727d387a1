"""Runs with noisy scores: rounds that move an untrained student, any learner, kills, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from teacher_student import ArgumentError, ScoreRelease
from teacher_student.app import compose, settings_from_config
from teacher_student.pipeline import RunSettings, load_student, run, verify_folder

from ..pictures import small_reports
from .killed_rounds import keeps_answers

pytestmark = pytest.mark.usefixtures("no_pictures")
ROUND = ["~learner.estimator.max_depth", "boosting.rounds=1"]
TREES = ["learner=sklearn", "learner.estimator._target_=sklearn.tree.DecisionTreeClassifier", "learner.num_workers=1"]


def settings(*overrides: str) -> RunSettings:
    base = ["experiment=blobs", "mechanism=noisy_scores", "data.num_private=2000", "data.num_public=300", "teachers.number=400"]
    few = ["teachers.training.steps=1", "teachers.training.learning_rate=1.0", "teachers.training.batch_size=8"]
    fast = ["student.settings.epochs=20", "baselines=false", "budget.ledger=null"]
    return settings_from_config(compose("run", [*base, *few, *fast, *overrides]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with small_reports():
        return run(settings("boosting.rounds=2", "queries.total=250"), tmp_path_factory.mktemp("runs") / "one")


def test_rounds_of_three_classes(finished):
    loaded = ScoreRelease.load(finished.folder.release)
    assert loaded.means.shape == (750, 3)
    assert loaded.queries is not None
    assert loaded.queries[::250] == ("0:0", "1:0", "2:0")
    assert loaded.certificate.parameters.squared_norm == 3 * 64**2 * 750
    assert "recomputed epsilon" in verify_folder(finished.folder.path)
    assert "Yes, as it is: noisy_scores.csv" in (finished.folder.release / "report.html").read_text()
    assert finished.metrics["accuracy"] > 0.9
    points = torch.randn(20, 2)
    with torch.no_grad():
        assert torch.equal(load_student(finished.folder.path)(points), finished.student.publishable(points))


def test_the_private_sums_are_those_of_bounded_vectors(finished):
    """Every teacher pays with its whole vector, so the sums of k teachers are no longer than k times the bound."""
    tables = [np.load(finished.folder.votes / f"sums_{number}.npy") for number in range(3)]
    assert [table.shape for table in tables] == [(250, 6), (250, 3), (250, 3)]
    for table in tables:
        assert 0 < (table[:, :3] ** 2).sum() <= 400**2 * 64**2 * 750
    assert 350 < tables[0][:, 3:].sum(axis=1).max() <= 400


def test_a_killed_run_keeps_weights_and_answers(finished):
    keeps_answers(finished, settings("boosting.rounds=2", "queries.total=250"), ("sums_2.npy", "sums_0.npy"))


@pytest.mark.slow
def test_trees_as_teachers_and_a_network_as_student(tmp_path):
    result = run(settings(*TREES, "boosting.rounds=1", "student=mlp", "teachers.number=200"), tmp_path / "trees")
    assert result.metrics["accuracy"] > 0.9
    assert "report.html" in {file.name for file in result.folder.release.iterdir()}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["~mechanism.norm"], "mechanism.norm"),
        (["mechanism.norm=0"], "mechanism.norm"),
        (["+mechanism.threshold_ratio=2.0"], "mechanism.threshold_ratio"),
        (["queries.order=uncertain"], "queries.order"),
        (["boosting.shrinkage=-1"], "boosting.shrinkage"),
        (["student.settings.label_noise=mechanism"], "label_noise"),
        ([*TREES[:1], "learner.estimator._target_=sklearn.neighbors.KNeighborsClassifier", *ROUND], "sample_weight"),
    ],
)
def test_refused_before_anything_is_written(overrides, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        run(settings(*overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()
