"""Runs with soft labels: the folder as designed, resumed without new noise, figures beside the non-private ones."""

from __future__ import annotations

import csv
import dataclasses
import json
import stat

import numpy as np
import pytest

from teacher_student import ABSTAIN, HALTED, ArgumentError, SoftRelease
from teacher_student.app import compose, settings_from_config
from teacher_student.mechanisms.soft_histogram import plain_bin
from teacher_student.pipeline import RunSettings, load_student, modes, rounds, run, stages, verify_folder
from teacher_student.pipeline.folder import growing_array
from teacher_student.student import predict_probabilities

from ..pictures import small_reports

pytestmark = pytest.mark.usefixtures("no_pictures")

FIGURES = {"accuracy", "brier score", "calibration error", "AUC"}


def settings(*overrides: str) -> RunSettings:
    base = ["experiment=blobs", "data.num_private=3000", "data.num_public=400", "data.num_classes=2", "privacy.bins=4"]
    return settings_from_config(compose("run", [*base, "student.settings.epochs=20", "baselines=false", *overrides]))


QUICK = ("teachers.training.steps=40", "student.settings.epochs=3", "logger=none")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with small_reports():
        return run(settings("baselines=true"), tmp_path_factory.mktemp("runs") / "one")


def test_folder_is_as_designed(finished):
    folder = finished.folder
    assert stat.S_IMODE(folder.private.stat().st_mode) == 0o700
    published = {"scores.csv", "certificate.json", "student.safetensors", "student.yaml", "report.html", "tensorboard"}
    assert {path.name for path in folder.release.iterdir()} == published
    assert [path.name for path in folder.votes.iterdir()] == ["scores.npy"]
    scores = np.load(folder.votes / "scores.npy", mmap_mode="r")
    assert scores.shape == (400, 250)
    assert scores.dtype == np.float32


def test_scores_on_file_are_the_release_and_the_certificate_holds(finished):
    loaded = SoftRelease.load(finished.folder.release)
    assert np.array_equal(loaded.codes, finished.release.codes)
    assert loaded.answered.sum() > 100
    assert (loaded.codes == ABSTAIN).sum() <= 20
    certificate = json.loads((finished.folder.release / "certificate.json").read_text())
    assert certificate["parameters"]["cutoff"] == 20  # units: two for each unstable query
    assert "recomputed epsilon" in verify_folder(finished.folder.path)


def test_released_scores_are_the_teachers_own_bins(finished):
    scores = np.load(finished.folder.votes / "scores.npy")
    released, plain = finished.release.scores, finished.release.answered & ~finished.release.shifted
    bins = plain_bin(scores, np.array(4))
    fullest = np.array([np.bincount(row[row >= 0], minlength=4).argmax() for row in bins])
    assert np.array_equal(released[plain], (2 * fullest[plain] + 1) / 8)


def test_figures_stand_beside_the_non_private_ones_in_the_private_report_alone(finished):
    assert set(finished.metrics) == FIGURES
    for model in ("student of noiseless labels", "non-private model"):
        assert set(finished.private_figures[model]) == FIGURES
    private = (finished.folder.private / "report.html").read_text()
    table = private[private.index("What privacy cost") : private.index("</table>")]
    for figures in (finished.metrics, finished.private_figures["non-private model"]):
        assert all(f"{value:.4f}" in table for value in figures.values())
    public = (finished.folder.release / "report.html").read_text()
    assert "Released scores" in public
    assert f"{finished.release.answered.sum()} scores" in public
    assert "non-private" not in public


def test_student_learns_from_scores_and_is_published(finished):
    assert finished.metrics["AUC"] > 0.95
    features = settings().data().student_evaluation_features
    theirs = predict_probabilities(load_student(finished.folder.path), features)
    assert np.array_equal(theirs, predict_probabilities(finished.student.publishable, features))


@pytest.mark.parametrize("stage", ["collect_votes", "release_labels", "teach_student"])
def test_killed_run_goes_on_and_answers_nothing_twice(stage, tmp_path, monkeypatch):
    path, home = tmp_path / "run", stages if hasattr(stages, stage) else modes.SoftLabels
    whole, seen = getattr(home, stage), {}

    def kill(*arguments, **keywords):
        seen["result"] = np.copy(whole(*arguments, **keywords)) if stage == "collect_votes" else whole(*arguments, **keywords)
        raise KeyboardInterrupt

    monkeypatch.setattr(home, stage, kill)
    with pytest.raises(KeyboardInterrupt):
        run(settings(*QUICK), path)
    monkeypatch.setattr(home, stage, whole)
    result = run(settings(*QUICK), path)
    if stage == "collect_votes":
        assert np.array_equal(seen["result"], np.load(path / "private" / "votes" / "scores.npy"))
    if stage == "release_labels":
        assert np.array_equal(seen["result"].codes, result.release.codes)
    assert len(result.release.codes) == 400


def test_scores_cut_off_half_way_keep_their_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(rounds, "QUERIES_PER_ANSWER", 100)
    given, original = [], modes.SoftLabelSession.answer

    def answer(self, *arguments, **keywords):
        if len(given) == 2:
            raise KeyboardInterrupt
        given.append(original(self, *arguments, **keywords))
        return given[-1]

    monkeypatch.setattr(modes.SoftLabelSession, "answer", answer)
    with pytest.raises(KeyboardInterrupt):
        run(settings(*QUICK), tmp_path / "run")
    monkeypatch.setattr(modes.SoftLabelSession, "answer", original)
    result = run(settings(*QUICK), tmp_path / "run")
    assert np.array_equal(result.release.scores[:200], np.concatenate(given), equal_nan=True)
    with (tmp_path / "run" / "release" / "scores.csv").open() as stream:
        assert [row["query"] for row in csv.DictReader(stream)] == [str(query) for query in range(400)]


def test_half_written_scores_are_not_taken_for_whole(tmp_path):
    path = tmp_path / "scores.npy"
    writing = growing_array(path, (4, 2), np.float32)
    writing.__enter__()[:2] = 1
    assert not path.exists()
    assert not writing.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)  # the exception passes
    assert not path.exists()
    with growing_array(path, (4, 2), np.float32) as table:
        table[:] = 2
    assert np.load(path).tolist() == [[2.0, 2.0]] * 4


@pytest.mark.parametrize("unanswered", ["uniform", "random", "drop", "unlabeled"])
def test_unanswered_scores_follow_the_setting(finished, unanswered):
    codes = np.array([118, ABSTAIN, HALTED, 101])
    loose = dataclasses.replace(finished.release.certificate, files={})  # of other answers
    release = SoftRelease(codes, loose)
    chosen = settings(f"student.settings.unanswered={unanswered}")
    targets = modes.SoftLabels(chosen, chosen.data().public_sizes).targets(release)
    assert np.allclose(targets.probabilities[[0, 3], 1], [0.95, 0.1])
    assert targets.weights.tolist() == [1, unanswered in ("uniform", "random"), 0, 1]
    assert targets.unlabeled.tolist() == [False, unanswered == "unlabeled", True, False]


def test_learners_that_are_no_network_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="learner must be a network for soft labels, got object"):
        run(dataclasses.replace(settings(), learner=object()), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.num_classes=3", r"privacy\.bins must be null for 3 classes"),
        ("privacy.bins=2", r"privacy\.bins must be an integer of at least 3, got 2"),
        ("privacy.cutoff=null", r"privacy\.cutoff must be a positive integer, got None"),
        ("mechanism=gnmax", "mechanism must be one of stability, .* got 'gnmax'"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(override, message, tmp_path):
    with pytest.raises(ArgumentError, match=message) as refusal:
        run(settings(override), tmp_path / "run")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "run").exists()
