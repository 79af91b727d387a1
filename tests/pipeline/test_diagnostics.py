"""Private figures come after the release is complete: they can fail, and only the owner of the data can tell."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from pathlib import Path

import numpy as np
import pytest

from teacher_student import ArgumentError
from teacher_student.app import compose, settings_from_config
from teacher_student.monitoring.console import Display
from teacher_student.pipeline import RunSettings, diagnostics, run, runner, stages, verify_folder
from teacher_student.pipeline.folder import PUBLISHED

from ..pictures import small_reports
from .test_public_sizes import PRIVATE

pytestmark = pytest.mark.usefixtures("no_pictures")


def settings(*overrides: str) -> RunSettings:
    small = "experiment=blobs data.num_private=300 data.num_public=40 data.num_evaluation=60 teachers.number=60"
    rest = "teachers.training.steps=3 queries.total=20 mechanism=noisy_fraction student.settings.epochs=1 logger=none"
    return settings_from_config(compose("run", [*small.split(), *rest.split(), *overrides]))


def with_records(chosen: RunSettings, change) -> RunSettings:
    dataset = chosen.data()
    features = dataset.private_features.copy()
    change(features)
    changed = dataclasses.replace(dataset, private_features=features, student_private_features=features)
    return dataclasses.replace(chosen, data=lambda: changed)


def without_numbers(printed: str, path: Path) -> str:
    """What a run in `path` printed, without numbers: times and answers differ between any two runs."""
    printed = re.sub(r"^\w+ +[0-9.]+ s  [0-9,]+ of .*\n", "", printed, flags=re.MULTILINE)  # now and then in a slow run
    printed = re.sub(r"^Alert: .*\n", "", printed, flags=re.MULTILINE)  # of the release, which differs between any two runs
    return re.sub(r"[0-9][0-9.,e-]*|\s+|[─┌┐└┘]+", " ", printed.replace(str(path), "RUN"))


CHANGES = {
    "nothing": lambda features: None,
    "one number of 3e38": lambda features: features.__setitem__((0, 0), 3e38),
    "one usable record": lambda features: features.__setitem__(slice(1, None), np.nan),
    "no usable record": lambda features: features.__setitem__(slice(None), np.nan),
}


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """A finished run, and what it printed."""
    printed, path = io.StringIO(), tmp_path_factory.mktemp("runs") / "usual"
    with small_reports(), contextlib.redirect_stdout(printed):
        done = run(settings(), path, Display("plain"))
    return done, without_numbers(printed.getvalue(), path)


@pytest.mark.parametrize("name", CHANGES)
def test_no_record_stops_a_run_or_shows_on_the_console(name, usual, tmp_path, capsys):
    before, expected = usual
    done = run(with_records(settings(), CHANGES[name]), tmp_path / "one", Display("plain"))
    assert without_numbers(capsys.readouterr().out, tmp_path / "one") == expected
    files = [sorted(path.name for path in folder.rglob("*")) for folder in (done.folder.release, before.folder.release)]
    assert files[0] == files[1]
    assert {"report.html", "student.safetensors"} <= set(files[0])
    assert done.folder.is_finished
    if name == "no usable record":
        assert "non-private model" not in done.private_figures
        assert "non-private model" in (done.folder.private / diagnostics.FAILURES).read_text()


def test_diagnostics_that_fail_are_told_under_private_alone(tmp_path, capsys, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("record 7 holds a secret")

    for name in ("baselines", "_single_teachers", "write_private_report", "recognise"):
        monkeypatch.setattr(diagnostics, name, fail)
    chosen = settings(f"budget.ledger={tmp_path}/ledger.sqlite")
    done = run(chosen, tmp_path / "one", Display("plain"))
    printed = capsys.readouterr()
    assert "secret" not in printed.out + printed.err
    assert done.folder.is_finished
    for name in ("failures.txt", "notes.txt"):
        assert "record 7 holds a secret" in (done.folder.private / name).read_text()
    assert not any(b"holds a secret" in path.read_bytes() for path in done.folder.release.rglob("*") if path.is_file())


def test_private_figures_are_not_printed(usual):
    done, printed = usual
    assert "student, private" in printed
    for model in set(done.private_figures) - {"majority class"}:
        assert model not in printed


def test_figures_on_a_private_evaluation_set_are_made_after_the_release(tmp_path, capsys):
    chosen = settings()
    private = dataclasses.replace(chosen.data(), evaluation_public=False)
    done = run(dataclasses.replace(chosen, data=lambda: private), tmp_path / "one", Display("plain"))
    assert "accuracy" not in capsys.readouterr().out
    assert 0 <= done.metrics["accuracy"] <= 1
    assert not done.judgement.public


def times(folder) -> set[float]:
    return {path.stat().st_mtime for path in (folder, *folder.rglob("*"))}


def test_a_release_without_an_answer_has_no_times_either(tmp_path):
    small = ["mechanism=stability", "privacy.epsilon=0.05", "teachers.number=20", "queries.total=20", "logger.tensorboard=true"]
    with pytest.raises(ArgumentError, match="got none of 20"):
        run(settings(*small), tmp_path / "one")
    assert {path.name for path in (tmp_path / "one" / "release").iterdir()} >= {"labels.csv", "report.html", "tensorboard"}
    assert times(tmp_path / "one" / "release") == {PUBLISHED}
    assert (tmp_path / "one" / "private" / "report.html").exists()


@pytest.mark.parametrize("place", ["save_student", "write_report", "diagnose"])
def test_a_release_that_is_cut_off_has_no_times_either(place, tmp_path, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner, place, stop)
        with pytest.raises(KeyboardInterrupt):
            run(settings(), tmp_path / "one")
    release = tmp_path / "one" / "release"
    assert (release / "fractions.csv").exists()
    assert times(release) == {PUBLISHED}
    assert "recomputed epsilon" in verify_folder(run(settings("logger=none"), tmp_path / "one").folder.path)


class Guarded:
    """A dataset whose private attributes cannot be read."""

    def __init__(self, dataset: object) -> None:
        self._dataset = dataset

    def __getattr__(self, name: str) -> object:
        if name in PRIVATE - {"offsets"}:
            raise AssertionError(f"{name} was read between the votes and the end of the release")
        return getattr(self._dataset, name)


@pytest.mark.parametrize("mechanism", ["stability", "gnmax", "noisy_fraction"])
def test_from_votes_to_the_release_no_private_record_is_read(mechanism, tmp_path, monkeypatch):
    teach, diagnose, seen = runner._teach, runner.diagnose, []

    def guarded(asked, display):
        sizes = asked.run.dataset.public_sizes
        dataset = Guarded(asked.run.dataset)
        dataset.public_sizes = sizes
        return teach(asked._replace(run=dataclasses.replace(asked.run, dataset=dataset)), display)

    def unguarded(asked, *rest):
        seen.append(asked.run)
        return diagnose(asked._replace(run=dataclasses.replace(asked.run, dataset=asked.run.dataset._dataset)), *rest)

    monkeypatch.setattr(runner, "_teach", guarded)
    monkeypatch.setattr(runner, "diagnose", unguarded)
    run(settings(f"mechanism={mechanism}", "privacy.epsilon=40", "baselines=false"), tmp_path)
    assert len(seen) == 1
    with pytest.raises(AssertionError, match="was read between"):
        _ = seen[0].dataset.private_labels


def test_each_student_of_correcting_rounds_is_fitted_once(tmp_path, monkeypatch):
    fitted = []
    for name in ("fit_student", "boost_student"):
        fit = getattr(stages, name)

        def counted(*given, fit=fit, name=name, **named):
            fitted.append(name)
            return fit(*given, **named)

        monkeypatch.setattr(stages, name, counted)
    done = run(settings("boosting.rounds=3", "baselines=false", "data.num_classes=2"), tmp_path / "one")
    assert fitted == ["fit_student", *["boost_student"] * 3]
    again = stages.Run(settings(), settings().data(), done.folder)
    assert again.students == []


def test_teachers_without_records_are_counted_and_not_averaged_in(tmp_path, monkeypatch):
    """Few votes: a teacher that voted nowhere near a query has not abstained on every point."""
    seen = {}
    monkeypatch.setattr(diagnostics, "write_private_report", lambda _, facts: seen.update(facts=facts))
    few = ["+mechanism.votes_per_teacher=2", "data.num_private=40", "teachers.training.steps=60"]
    done = run(settings(*few, "privacy.epsilon=2"), tmp_path / "one")
    facts = seen["facts"]
    assert facts.empty == facts.abstaining == (facts.shard_sizes == 0).sum() > 20
    assert len(facts.teacher_accuracy) == 60 - facts.empty
    assert done.private_figures["one teacher alone, on average"]["accuracy"] == facts.teacher_accuracy.mean() > 0.5
