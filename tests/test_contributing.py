"""CONTRIBUTING.md adds a data set, a learner, a student method and a mechanism; its files are written and its commands run."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from teacher_student import app, label
from teacher_student.app import composing
from teacher_student.planning.search import choose
from teacher_student.privacy import registry
from teacher_student.student import METHODS

pytestmark = pytest.mark.usefixtures("no_pictures")

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = {part.splitlines()[0]: part for part in TEXT.split("\n## ")}
FAST = [
    "console=quiet",
    "logger=none",
    "baselines=false",
    "run_folder=run",
    "teachers.training.steps=20",
    "student.settings.epochs=2",
]
FEW = ["data.num_private=1500", "data.num_public=200", "teachers.number=100", "privacy.epsilon=8"]


def blocks(section: str, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", SECTIONS[section], flags=re.DOTALL | re.MULTILINE)
    return [block for kind, block in found if kind == language]


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes the files that a section shows, beside a copy of the configs, and imports its modules under their names."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(app.conf_folder(), tmp_path / "conf")
    monkeypatch.setattr(composing, "conf_folder", lambda: tmp_path / "conf")
    modules, methods = {}, dict(METHODS)

    def write(section: str) -> dict[str, object]:
        for block in blocks(section, "python") + blocks(section, "yaml"):
            path = tmp_path / block.splitlines()[0].removeprefix("# ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.partition("\n")[2] if path.suffix == ".yaml" else block)  # Hydra reads the first line
            if path.suffix == ".py":
                name = ".".join(path.relative_to(tmp_path).with_suffix("").parts)
                spec = importlib.util.spec_from_file_location(name, path)
                modules[name] = importlib.util.module_from_spec(spec)
                monkeypatch.setitem(sys.modules, name, modules[name])
                spec.loader.exec_module(modules[name])
        return modules

    yield write
    for name in set(METHODS) - set(methods):
        del METHODS[name]


@pytest.mark.parametrize("section", ["A new data set", "A new learner", "A new student method", "A new mechanism"])
def test_what_is_shown_is_short(section):
    assert blocks(section, "python")
    assert all(block.count("\n") < 55 for block in blocks(section, "python"))


@pytest.mark.parametrize(
    ("section", "number", "given"),
    [
        ("A new data set", 0, []),
        ("A new learner", 0, ["learner.num_workers=1", *FEW]),
        ("A new learner", 1, FEW),
        ("A new student method", 0, ["queries.total=100", *FEW]),
    ],
)
def test_its_command_ends_in_a_release(written, section, number, given):
    written(section)
    words = [word for word in shlex.split(blocks(section, "")[number]) if word != "PYTHONPATH=."]
    assert words[:2] == ["teacher-student", "run"]
    assert app.dispatch([*words[1:], *FAST, *given]) == 0
    assert app.dispatch(["verify", "run"]) == 0


@pytest.fixture
def mechanism(written, monkeypatch):
    """Registers the mechanism of the page, for one test."""
    registry.load()
    for name in ("_SPECS", "_SAMPLERS"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    return written("A new mechanism")


def test_its_mechanism_is_planned(mechanism, capsys):
    words = shlex.split(blocks("A new mechanism", "")[0].splitlines()[0])
    assert app.dispatch([*words[1:], "num_queries=100"]) == 0
    assert "one_sided_max" in capsys.readouterr().out
    votes = np.array([[95, 5], [40, 60], [3, 97], [99, 1]])
    best = choose([votes], num_queries=50, epsilon=2.0, delta=1e-5, mechanisms=["one_sided_max"]).ranked[0]
    assert best.outlook.agreeing > 1


def test_its_mechanism_is_audited(mechanism, capsys):
    """Sampling checks: false alarm 1e-9 each."""
    words = shlex.split(blocks("A new mechanism", "")[0].splitlines()[1])
    assert app.dispatch([*words[1:], "trials=300", "console=quiet"]) == 0
    table = capsys.readouterr().out
    assert "audit passed" in table
    assert "noise_reused" in table


@pytest.mark.parametrize("given", [[], ["student.settings.label_noise=mechanism"]])
def test_its_mechanism_runs(mechanism, given):
    words = shlex.split(blocks("A new mechanism", "")[0].splitlines()[2])
    assert app.dispatch([*words[1:], *FAST, *FEW, *given]) == 0
    assert app.dispatch(["verify", "run"]) == 0
    assert "one_sided_max" in Path("run/release/report.html").read_text(encoding="utf-8")


def test_its_mechanism_labels_tables_of_votes(mechanism):
    counts = np.array([[900, 50], [30, 800]] * 5)
    release = label(counts=counts, num_teachers=950, num_classes=2, epsilon=1.0, delta=1e-5, mechanism="one_sided_max")
    assert release.labels.tolist() == [0, 1] * 5
    release.certificate.verify()


def test_its_test_of_the_mechanism_passes(mechanism):
    test = mechanism["tests.mechanisms.test_one_sided"]
    for share in (1.0, 0.9):
        test.test_one_vote_moves_no_probability_by_more_than_is_paid(share)
