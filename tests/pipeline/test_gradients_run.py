"""Runs with noisy gradients: certificates, kills, users, refusals, and what neighbours do to the sums."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest
import torch

from teacher_student import ArgumentError, load_release
from teacher_student.aggregation import GradientRelease
from teacher_student.app import compose, settings_from_config
from teacher_student.data import PrivateDataset
from teacher_student.pipeline import RunSettings, load_student, run, stages, verify_folder
from teacher_student.pipeline.folder import open_run, write_array
from teacher_student.pipeline.modes import mode_for
from teacher_student.pipeline.processes import ALONE
from teacher_student.pipeline.rounds import silent

from ..pictures import small_reports

pytestmark = pytest.mark.usefixtures("no_pictures")
RECORDS, FEATURES, CLASSES, STEPS = 3000, 2 + 1, 3, 4
BOUND = 64**4 * FEATURES * CLASSES


def settings(*overrides: str) -> RunSettings:
    base = [
        "experiment=blobs",
        "learner=gradients",
        "mechanism=noisy_scores",
        f"data.num_private={RECORDS}",
        "data.num_public=200",
    ]
    fast = [f"teachers.number={RECORDS}", f"learner.steps={STEPS}", "student.settings.epochs=20", "baselines=false"]
    return settings_from_config(compose("run", [*base, *fast, "budget.ledger=null", "logger=none", *overrides]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with small_reports():
        return run(settings("logger=tensorboard"), tmp_path_factory.mktemp("runs") / "one")


def test_a_run_certifies_gradients_that_are_only_added_or_withdrawn(finished):
    loaded = load_release(finished.folder.path)
    assert isinstance(loaded, GradientRelease)
    assert loaded.means.shape == (STEPS * FEATURES, CLASSES)
    assert loaded.queries[::FEATURES] == ("0:0", "1:0", "2:0", "3:0")
    parameters = loaded.certificate.parameters
    assert (parameters.vote_change, loaded.certificate.neighbours) == ("withdrawn", "add_remove")
    assert parameters.squared_sensitivity == STEPS * BOUND
    assert "recomputed epsilon" in verify_folder(finished.folder.path)
    assert not (finished.folder.private / "shards.json").exists()
    assert not (finished.folder.private / "failures.txt").exists()
    assert "noisy_gradients.csv" in (finished.folder.release / "report.html").read_text()
    assert finished.metrics["accuracy"] > 0.9
    points = torch.randn(20, 2)
    with torch.no_grad():
        assert torch.equal(load_student(finished.folder.path)(points), finished.student.publishable(points))


def test_a_certificate_of_shorter_gradients_is_refused(finished, tmp_path):
    """Sums in 64 steps, as scores have, would cost a 4,096th of what gradients in 4,096 steps do."""
    shutil.copytree(finished.folder.release, tmp_path / "out")
    path = tmp_path / "out" / "certificate.json"
    path.write_text(path.read_text().replace('"steps": 4096', '"steps": 64'))
    with pytest.raises(ArgumentError, match="sums in 4096 steps"):
        verify_folder(tmp_path / "out")


@pytest.mark.parametrize("neighbours", ["replace_one", "label_only"])
def test_gradients_may_be_replaced_under_other_relations(neighbours):
    view = ["data/view=labels_only", "data.view.number=50"] if neighbours == "label_only" else ["privacy.neighbours=replace_one"]
    chosen = settings(*view)
    with mode_for(chosen, chosen.data().public_sizes).open_session() as session:
        assert session.mechanism.parameters.vote_change == "replaced"
        assert session.mechanism.parameters.squared_sensitivity == 4 * STEPS * BOUND


def test_a_killed_run_keeps_its_answers(finished):
    """It loses what it made since its last answer. The records are others by then: what was answered stays."""
    path, student = finished.folder.path, finished.student.publishable
    for name in ("certificate.json", finished.release.FILE, "student.safetensors"):
        (path / "release" / name).unlink()
    for name in ("finished.json", "votes/sums_0.npy", "votes/sums_3.npy", "votes/weights_2.npy"):
        (path / "private" / name).unlink()
    write_array(path / "private" / "votes" / "sums_1.npy", np.zeros((FEATURES, CLASSES), dtype=np.int64))
    again = run(settings("logger=tensorboard"), path)
    assert np.array_equal(again.release.codes, finished.release.codes)
    points = torch.randn(20, 2)
    with torch.no_grad():
        assert torch.equal(again.student.publishable(points), student(points))


def sums_of(dataset: PrivateDataset, path, number: int = 0) -> np.ndarray:
    chosen = settings()
    this = stages.Run(chosen, dataset, open_run(path, chosen.config))
    if number:
        write_array(this.folder.votes / f"weights_{number}.npy", np.arange(9.0).reshape(3, 3) - 4)
    mode = mode_for(chosen, dataset.public_sizes)
    return np.array(mode.collect_votes(this, chosen.learner, silent, ALONE, number))


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("change", ["removed", "nan", "3e38", "another class"])
def test_a_neighbour_moves_the_sums_by_no_more_than_is_paid_for(change, number, tmp_path):
    dataset = settings().data()
    before = sums_of(dataset, tmp_path / "before", number)
    features, labels, ids = dataset.private_features.copy(), dataset.private_labels.copy(), dataset.private_ids
    if change == "removed":
        features, labels, ids = features[1:], labels[1:], ids[1:]
    elif change == "another class":
        labels[0] = (labels[0] + 1) % CLASSES
    else:
        features[0, 0] = float(change)
    changed = {"private_features": features, "private_labels": labels, "private_ids": ids, "student_private_features": None}
    moved = sums_of(dataclasses.replace(dataset, **changed), tmp_path / "after", number) - before
    assert 0 < (moved**2).sum() <= (4 if change == "another class" else 1) * BOUND


def test_a_user_gives_one_gradient_however_many_records(tmp_path):
    dataset = dataclasses.replace(settings().data(), private_users=np.arange(RECORDS) // 30)
    before = sums_of(dataset, tmp_path / "users")
    kept = dataset.private_users != 17
    parts = {
        name: getattr(dataset, name)[kept] for name in ("private_features", "private_labels", "private_users", "private_ids")
    }
    without = dataclasses.replace(dataset, student_private_features=None, **parts)
    moved = sums_of(without, tmp_path / "without") - before
    assert 0 < (moved**2).sum() <= BOUND


def test_the_number_of_records_refuses_nothing_and_noise_that_hides_them_is_warned_of():
    few = settings("teachers.number=10")
    sizes = few.data().public_sizes
    assert "mostly noise" in mode_for(few, sizes).check().warnings[0]
    assert mode_for(settings(), sizes).check().warnings == []


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["mechanism=stability"], "gradients needs mechanism=noisy_scores"),
        (["mechanism=noisy_fraction"], "gradients needs mechanism=noisy_scores"),
        (["boosting.rounds=1"], "boosting.rounds must be"),
        (["queries.total=20"], "queries must be left as they are"),
        (["learner.steps=0"], "learner.steps must be"),
        (["learner.momentum=2"], "learner.momentum must"),
        (["learner.learning_rate=nan"], "learner.learning_rate must"),
        (["mechanism.norm=-1"], "mechanism.norm must"),
        (["+mechanism.vote_change=withdrawn"], "mechanism.vote_change must not be given"),
    ],
)
def test_bad_settings_get_one_line_before_anything_is_made(overrides, line, tmp_path):
    with pytest.raises(ArgumentError, match=line):
        run(settings(*overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()
