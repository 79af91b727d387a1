"""A whole run: its folder is as designed, it resumes without new noise, and its student is the published one."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import shutil
import stat
import types
from fractions import Fraction

import numpy as np
import pytest
import torch

from teacher_student import ABSTAIN, HALTED, ArgumentError
from teacher_student.app import compose, settings_from_config
from teacher_student.monitoring.console import Display
from teacher_student.pipeline import RunSettings, load_student, modes, run, stages, verify_folder
from teacher_student.pipeline.settings import Estimator
from teacher_student.student import NoisyArgmaxLikelihood, fit_student, predict_probabilities

from ..pictures import small_reports

pytestmark = pytest.mark.usefixtures("no_pictures")


def settings(*overrides: str) -> RunSettings:
    base = ["experiment=blobs", "data.num_private=3000", "data.num_public=400", "student.settings.epochs=20", "baselines=false"]
    return settings_from_config(compose("run", [*base, *overrides]))


QUICK = ("teachers.training.steps=40", "student.settings.epochs=3", "logger=none")
"""For tests that need no good student."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with small_reports():
        return run(settings("baselines=true"), tmp_path_factory.mktemp("runs") / "one")


def test_a_long_training_is_announced(monkeypatch):
    chosen, sizes = settings(), types.SimpleNamespace(record_shape=(20,), num_classes=2)
    assert stages.check_teachers(sizes, chosen) == []
    monkeypatch.setattr(stages, "check_training", lambda *_, **__: 3600.0)
    (told,) = stages.check_teachers(sizes, chosen)
    assert "takes about 60 minutes" in told
    assert "trainer=gpu" in told
    longer = dataclasses.replace(chosen, boosting=dataclasses.replace(chosen.boosting, rounds=1))
    assert "takes about 120 minutes" in stages.check_teachers(sizes, longer)[0]


def test_folder_is_as_designed(finished):
    folder = finished.folder
    assert stat.S_IMODE(folder.private.stat().st_mode) == 0o700
    assert {path.name for path in folder.path.iterdir()} == {"private", "release", "config.yaml"}
    published = {"labels.csv", "certificate.json", "student.safetensors", "student.yaml", "report.html", "tensorboard"}
    assert {path.name for path in folder.release.iterdir()} == published
    assert {"shards.json", "teachers", "votes", "session.sqlite", "report.html"} <= {
        path.name for path in folder.private.iterdir()
    }


def test_labels_on_file_are_the_release_and_mostly_right(finished):
    with (finished.folder.release / "labels.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["label"]) for row in rows] == finished.release.labels.tolist()
    assert finished.release.answered.sum() > 100
    assert finished.metrics["accuracy"] > 0.85
    assert set(finished.release.labels.tolist()) <= {0, 1, 2, ABSTAIN, HALTED}


def test_texts_among_a_learners_options_are_not_published():
    build = functools.partial(dict, key="sk-4711", model="/home/ann/model.bin", depth=3, sparse=True)
    choices = dataclasses.replace(settings(), learner=Estimator(build)).choices
    found = {name: value for name, value in choices.items() if name.startswith("learner.")}
    assert found == {"learner.name": "dict", "learner.depth": 3, "learner.sparse": True}


def test_verify_recomputes_and_rejects_a_boast(finished, tmp_path):
    assert "recomputed epsilon" in verify_folder(finished.folder.path)
    assert "recomputed epsilon" in verify_folder(finished.folder.release)
    boast = tmp_path / "release"
    shutil.copytree(finished.folder.release, boast)
    certificate = json.loads((boast / "certificate.json").read_text())
    certificate["epsilon"] = 0.5
    (boast / "certificate.json").write_text(json.dumps(certificate))
    with pytest.raises(ArgumentError, match="epsilon must be at least"):
        verify_folder(boast)
    with pytest.raises(ArgumentError, match=r"certificate\.json"):
        verify_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["labels.csv", "student.safetensors", "student.yaml", "report.html"])
def test_verify_notices_a_released_file_that_was_changed(finished, tmp_path, name):
    """A certificate said nothing of the student beside it: anybody's could take its place."""
    assert "unchanged: labels.csv, report.html, student.safetensors, student.yaml" in verify_folder(finished.folder.path)
    changed = tmp_path / "release"
    shutil.copytree(finished.folder.release, changed)
    content = (changed / name).read_bytes()
    (changed / name).write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    with pytest.raises(ArgumentError, match=name.replace(".", r"\.")):
        verify_folder(changed)


def test_published_student_is_the_trained_one(finished):
    dataset = settings().data()
    loaded = load_student(finished.folder.path)
    ours = predict_probabilities(finished.student.publishable, dataset.student_evaluation_features)
    theirs = predict_probabilities(loaded, dataset.student_evaluation_features)
    assert np.array_equal(ours, theirs)


def test_student_of_a_foreign_network_is_not_imported(finished, tmp_path):
    release = tmp_path / "release"
    shutil.copytree(finished.folder.release, release)
    text = (release / "student.yaml").read_text().replace("network: LogisticRegression", "network: Sequence")
    (release / "student.yaml").write_text(text)
    with pytest.raises(ArgumentError, match="known network"):
        load_student(release)


def test_comparison_figures_stay_private(finished):
    wanted = {"majority class", "one teacher alone, on average", "non-private model", "student of noiseless labels"}
    assert wanted == set(finished.private_figures)
    public = (finished.folder.release / "report.html").read_text()
    assert "non-private" not in public
    assert "non-private model" in (finished.folder.private / "report.html").read_text()


def test_finished_run_is_not_overwritten(finished):
    before = (finished.folder.release / "labels.csv").read_bytes()
    with pytest.raises(ArgumentError, match="which exists"):
        run(settings("baselines=true"), finished.folder.path)
    assert (finished.folder.release / "labels.csv").read_bytes() == before


@pytest.mark.parametrize("stage", ["train", "collect_votes", "release_labels", "teach_student"])
def test_killed_run_goes_on_and_answers_nothing_twice(stage, tmp_path, monkeypatch):
    """After a kill at a stage's end the labels, once given, stay; the teachers and the student are the uninterrupted ones."""
    path, home = tmp_path / "run", stages if hasattr(stages, stage) else modes.HardLabels
    whole = getattr(home, stage)
    seen = {}

    class KilledError(Exception):
        pass

    def kill(*arguments, **keywords):
        seen["result"] = whole(*arguments, **keywords)
        raise KilledError

    monkeypatch.setattr(home, stage, kill)
    with pytest.raises(KilledError):
        run(settings(*QUICK), path)
    monkeypatch.setattr(home, stage, whole)
    result = run(settings(*QUICK), path)
    if stage == "release_labels":
        assert np.array_equal(seen["result"].labels, result.release.labels)
    if stage == "teach_student":
        for one, other in zip(seen["result"].publishable.parameters(), result.student.publishable.parameters(), strict=True):
            assert torch.equal(one, other)
    counts = np.load(path / "private" / "votes" / "counts.npy")
    assert len(counts) == len(result.release.labels)


def test_labels_cut_off_half_way_keep_their_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(modes, "QUERIES_PER_ANSWER", 150)
    answered = []
    original = modes.LabelSession.answer

    def answer(self, *arguments, **keywords):
        if len(answered) == 2:
            raise KeyboardInterrupt
        answered.append(original(self, *arguments, **keywords))
        return answered[-1]

    monkeypatch.setattr(modes.LabelSession, "answer", answer)
    with pytest.raises(KeyboardInterrupt):
        run(settings(*QUICK), tmp_path / "run")
    monkeypatch.setattr(modes.LabelSession, "answer", original)
    result = run(settings(*QUICK), tmp_path / "run")
    assert np.array_equal(result.release.labels[:300], np.concatenate(answered))
    assert (result.release.labels == ABSTAIN).sum() <= 10


def test_refused_runs_write_nothing(tmp_path):
    path = tmp_path / "run"
    chosen = settings("privacy.neighbours=add_remove")
    dataset = dataclasses.replace(chosen.data(), private_ids=None, neighbours="replace_one")
    with pytest.raises(ArgumentError, match="neighbours"):
        run(dataclasses.replace(chosen, data=lambda: dataset), path)
    assert not path.exists()


def test_different_noise_same_everything_else(finished, tmp_path):
    """Two runs of one seed differ in shards and noise alone: neither is seeded by the experiment."""
    one, two = finished, run(settings(*QUICK), tmp_path / "two")
    keys = [json.loads((result.folder.private / "shards.json").read_text())["key"] for result in (one, two)]
    assert keys[0] != keys[1]
    assert one.release.certificate.parameters == two.release.certificate.parameters


@pytest.mark.parametrize("unanswered", ["uniform", "random", "drop", "unlabeled"])
def test_every_setting_for_paid_non_answers_goes_the_whole_way(unanswered, tmp_path, monkeypatch):
    """Overlapping blobs leave points on which teachers differ; what the student sees of them is as the setting says."""
    seen, teach = {}, stages.teach_student

    def spy(this, targets, *rest):
        seen["targets"] = targets
        return teach(this, targets, *rest)

    monkeypatch.setattr(stages, "teach_student", spy)
    semi = ["student.settings.method=pseudo_label"] if unanswered == "unlabeled" else []
    chosen = settings(f"student.settings.unanswered={unanswered}", "data.separation=2.0", *semi)
    result = run(chosen, tmp_path / "run")
    targets, abstained = seen["targets"], result.release.labels == ABSTAIN
    assert abstained.any()
    assert (targets.weights[abstained] == (unanswered in ("uniform", "random"))).all()
    assert (targets.unlabeled[abstained] == (unanswered == "unlabeled")).all()
    assert (targets.weights[result.release.labels == HALTED] == 0).all()
    highest = targets.probabilities[abstained].max(1)
    assert np.allclose(highest, 1 if unanswered == "random" else 1 / 3)
    assert result.metrics["accuracy"] > 0.5


@pytest.mark.parametrize("learner", ["sklearn", pytest.param("boosting", marks=pytest.mark.slow)])
def test_any_estimator_is_a_teacher(learner, tmp_path):
    few = ["learner.estimator.n_estimators=5"] if learner == "boosting" else []
    chosen = settings(f"learner={learner}", "learner.num_workers=1", "teachers.number=150", *few)
    result = run(chosen, tmp_path / "run")
    assert result.release.answered.sum() > 20
    assert result.release.certificate.verify() <= 2.0


def test_estimators_do_not_give_scores(tmp_path):
    with pytest.raises(ArgumentError, match="learner must be a network"):
        run(settings("learner=sklearn", "privacy.bins=10", "data.num_classes=2"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("actual", "claimed"), [("label_only", "replace_one"), ("label_only", "add_remove"), ("replace_one", "add_remove")]
)
def test_a_relation_that_the_data_does_not_bear_out_is_refused(actual, claimed, tmp_path):
    chosen = settings(f"privacy.neighbours={claimed}")
    dataset = chosen.data()
    if actual == "label_only":
        dataset = dataset.label_private(np.arange(100))
    else:
        dataset = dataclasses.replace(dataset, private_ids=None, neighbours="replace_one")
    with pytest.raises(ArgumentError, match=r"privacy\.neighbours must be"):
        run(dataclasses.replace(chosen, data=lambda: dataset), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_label_noise_of_other_classes_is_refused_before_anything_is_spent(tmp_path):
    with pytest.raises(ArgumentError, match=r"student\.settings\.label_noise must have 3 rows, one for each class, got 2"):
        run(settings("student.settings.label_noise=[[0.9,0.1],[0.1,0.9]]"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_where_nothing_is_answered_the_reports_are_written_and_the_complaint_says_what_was_spent(tmp_path):
    with pytest.raises(ArgumentError, match=r"got none of 40.*epsilon 0\.05 is spent.*What would help"):
        run(settings("privacy.epsilon=0.05", "teachers.number=20", "queries.total=40"), tmp_path / "one")
    assert {"labels.csv", "certificate.json", "report.html", "tensorboard"} == {
        path.name for path in (tmp_path / "one" / "release").iterdir()
    }
    assert "no student" in (tmp_path / "one" / "release" / "report.html").read_text()
    assert (tmp_path / "one" / "private" / "report.html").exists()


def test_hardly_any_labels_are_warned_of_before_teachers_are_trained(tmp_path, monkeypatch, capsys):
    class StopError(Exception):
        pass

    def stop(*_: object, **__: object) -> None:
        raise StopError

    monkeypatch.setattr(stages, "train", stop)
    for teachers, warned in (("20", True), ("600", False)):
        with pytest.raises(StopError):
            run(settings(f"teachers.number={teachers}"), tmp_path / teachers, Display("plain"))
        assert ("Warning: expect only about" in capsys.readouterr().out) is warned
    weak = ["mechanism=gnmax", "teachers.number=20", "privacy.epsilon=12", "privacy.delta=0.01", "privacy.population=100000"]
    with pytest.raises(StopError):
        run(settings(*weak), tmp_path / "weak", Display("plain"))
    shown = " ".join(capsys.readouterr().out.split())
    assert "Warning: epsilon 12 is above 10: one record may change the odds of an outcome by a factor of e^12" in shown
    assert "Warning: delta 0.01 is above 1 / population = 1e-05: publishing some records outright would satisfy it." in shown
    with pytest.raises(StopError):
        run(settings("mechanism=gnmax", "teachers.number=20", "privacy.epsilon=0.1"), tmp_path / "noise", Display("plain"))
    assert "of the labels by gnmax to be what most teachers say" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "20" / "private" / "session.sqlite").exists()  # to stop there spends nothing


@pytest.mark.parametrize("mechanism", ["gnmax", "confident_gnmax", "lnmax", "exponential"])
def test_the_student_is_told_the_noise_that_the_certificate_states(mechanism, tmp_path):
    small = ["queries.total=60", "logger=none", "data.num_public=100", "student.settings.epochs=5", "teachers.training.steps=20"]
    chosen = settings(f"mechanism={mechanism}", "student.settings.label_noise=mechanism", *small)
    done = run(chosen, tmp_path / "run")
    assert done.accuracy > 0.6
    stated = json.loads((done.folder.release / "certificate.json").read_text())["parameters"]
    scale = float(Fraction(str(stated["query_scale" if mechanism == "confident_gnmax" else "scale"])))
    law = {"lnmax": "laplace", "exponential": "gumbel"}.get(mechanism, "gaussian")
    assert done.student.noise == NoisyArgmaxLikelihood(law, scale / chosen.num_teachers)


def test_students_between_rounds_know_the_noise_as_well(tmp_path, monkeypatch):
    seen = []

    def fit(network, features, targets, settings, **options):
        seen.append(settings.label_noise)
        return fit_student(network, features, targets, settings, **options)

    monkeypatch.setattr(stages, "fit_student", fit)
    small = ["queries.order=uncertain", "queries.rounds=2", "queries.total=40", "logger=none", "student.settings.epochs=2"]
    done = run(settings("mechanism=gnmax", "student.settings.label_noise=mechanism", *small), tmp_path / "run")
    assert seen == [done.student.noise] * 2


@pytest.mark.parametrize(
    "choice", [["mechanism=stability"], ["mechanism=noisy_fraction"], ["privacy.bins=10", "data.num_classes=2"]]
)
def test_labels_without_known_noise_are_refused_before_anything_is_spent(choice, tmp_path):
    with pytest.raises(ArgumentError, match=r"student\.settings\.label_noise must be a rate or rows for mechanism=") as refusal:
        run(settings("student.settings.label_noise=mechanism", *choice), tmp_path / "run")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "run").exists()
