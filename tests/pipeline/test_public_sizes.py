"""Refusals know public sizes alone: no check sees the private records, and none compares a setting with their number."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pytest

import teacher_student
from teacher_student.app import compose, dispatch, settings_from_config
from teacher_student.data import PublicSizes
from teacher_student.pipeline import RunSettings, modes, run, runner, stages

pytestmark = pytest.mark.usefixtures("no_pictures")

PRIVATE = {"private_features", "private_labels", "private_ids", "private_users", "student_private_features"}
PRIVATE |= {"sharding_ids", "num_private_records", "offsets"}
"""Attributes whose values, or lengths, come from private records."""
PACKAGE = Path(teacher_student.__file__).parent
MODES = (modes.HardLabels, modes.SoftLabels, modes.Fractions, modes.MeanScores)


def settings(*overrides: str) -> RunSettings:
    small = (
        "experiment=blobs data.num_private=60 data.num_public=40 teachers.number=60 teachers.training.steps=3 queries.total=20"
    )
    rest = "mechanism=noisy_fraction student.settings.epochs=1 baselines=false logger=none"
    return settings_from_config(compose("run", [*small.split(), *rest.split(), *overrides]))


@pytest.mark.parametrize("check", [stages.check_teachers, *MODES], ids=lambda check: check.__name__)
def test_checks_get_public_sizes_and_never_the_dataset(check):
    assert {parameter.annotation for parameter in inspect.signature(check).parameters.values()} == {"PublicSizes", "RunSettings"}


def test_checks_of_a_mode_get_nothing_else():
    assert [parameter.annotation for parameter in inspect.signature(runner.check).parameters.values()] == ["Mode", "Path"]
    assert not [mode for mode in MODES if len(inspect.signature(mode.check).parameters) > 1]


def refusing(source: str) -> dict[str, set[str]]:
    """Functions that refuse something, or compare lengths, and the private attributes that they mention."""
    found = {}
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            nodes = list(ast.walk(function))
            names = {node.attr for node in nodes if isinstance(node, ast.Attribute)} & PRIVATE
            if names and any(isinstance(node, ast.Raise) for node in nodes):
                found[function.name] = names
    return found


@pytest.mark.parametrize("room", ["pipeline", "app", "monitoring"])
def test_what_refuses_mentions_no_private_attribute(room):
    found = {path.name: refusing(path.read_text()) for path in sorted((PACKAGE / room).glob("*.py"))}
    assert not {name: functions for name, functions in found.items() if functions}


def test_the_comparison_of_k_with_n_would_be_seen():
    twin = (
        "def check(settings, dataset):\n    if settings.num_teachers > len(dataset.private_labels):\n        raise ValueError\n"
    )
    assert refusing(twin) == {"check": {"private_labels"}}


def test_public_sizes_are_the_same_whatever_the_records():
    dataset = settings().data()
    fewer = dataclasses.replace(
        dataset,
        private_features=np.full_like(dataset.private_features[:1], np.nan),
        private_labels=dataset.private_labels[:1],
        private_ids=dataset.private_ids[:1],
        student_private_features=dataset.student_private_features[:1],
    )
    assert isinstance(dataset.public_sizes, PublicSizes)
    assert dataset.public_sizes == fewer.public_sizes
    assert (dataset.num_private_records, fewer.num_private_records) == (60, 1)


@pytest.mark.parametrize("records", [59, 7, 1])
def test_fewer_records_than_teachers_are_no_reason_to_refuse(records, tmp_path):
    chosen = settings(f"data.num_private={records}")
    done = run(chosen, tmp_path / "run")
    assert done.release.answered.sum() == 20
    assert run(settings(), tmp_path / "other").release.certificate.parameters == done.release.certificate.parameters


def test_more_teachers_than_any_run_has_are_refused_before_the_data_are_read(capsys):
    with pytest.raises(SystemExit) as stop:
        raise SystemExit(dispatch(["run", "teachers.number=10000001", "data.split_seed=nonsense"]))
    assert stop.value.code == 2
    assert "teachers.number must be an integer from 1 to 10000000" in capsys.readouterr().err
