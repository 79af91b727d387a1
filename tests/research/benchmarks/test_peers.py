"""DP-SGD as a baseline, and the script that compares it with the students."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from research.benchmarks.peers import fit_dp_sgd
from teacher_student.data import gaussian_blobs
from teacher_student.pipeline.diagnostics import evaluate

pytest.importorskip("opacus")
SCRIPT = Path(__file__).parents[3] / "scripts" / "reproduce.py"


@pytest.fixture(scope="module")
def reproduce():
    spec = importlib.util.spec_from_file_location("reproduce", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["reproduce"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["reproduce"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of opacus
def test_dp_sgd_learns_and_pays_in_accuracy():
    dataset = gaussian_blobs(seed=0, num_private=2000, num_public=100, num_evaluation=1000, num_classes=3, dimension=2)
    free, tight = (evaluate(fit_dp_sgd(dataset, epsilon, 1e-5, epochs=2), dataset).metrics for epsilon in (50.0, 0.05))
    assert free["accuracy"] > 0.9
    assert tight["brier score"] > free["brier score"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of opacus
def test_dp_sgd_clips_each_user_once():
    """Users are uneven; one whose labels are all wrong moves the model no more than any other."""
    dataset = gaussian_blobs(seed=0, num_private=2000, num_public=100, num_evaluation=1000, num_classes=3, dimension=2)
    users = np.minimum(np.arange(2000) // 3, 500)  # the last one has 500 records
    labels = np.where(users == 500, (dataset.private_labels + 1) % 3, dataset.private_labels)
    owned = dataclasses.replace(dataset, private_users=users, private_labels=labels)
    assert evaluate(fit_dp_sgd(owned, 50.0, 1e-5, epochs=10), owned).metrics["accuracy"] > 0.9


def test_summaries_say_how_many_answered(reproduce):
    assert reproduce.summary([0.8, 0.9]) == "85.00 ± 5.00"
    assert reproduce.summary([0.8, 0.9, np.nan]) == "85.00 ± 5.00 (2 of 3)"
    assert reproduce.summary([np.nan]) == "–"


@pytest.mark.parametrize("methods", [1, pytest.param(None, marks=pytest.mark.slow)])
def test_every_kind_of_cell_composes(methods, reproduce):
    """One cell for each list of settings and choices; in the default suite of the first method of each table alone."""
    cells = {}
    for method in itertools.chain.from_iterable(table[:methods] for table in reproduce.TABLES.values()):
        for epsilon in reproduce.EPSILONS[::4]:
            overrides = [*method.teachers_at(epsilon), *method.labels, *method.budgets.get(epsilon, ())]
            names = [text.split("=")[0] for text in overrides]
            choices = [text.replace("mnist5000", "digits") for text in overrides if "." not in text.split("=")[0]]
            cells[*names, *choices] = method, epsilon
    for method, epsilon in cells.values():
        assert reproduce.settings_of(method, epsilon, 0).privacy.epsilon == epsilon


@pytest.mark.slow
def test_a_small_table(reproduce, tmp_path, monkeypatch, capsys):
    arguments = ["--table", "digits", "--splits", "2", "--epsilons", "4", "--only", "exponential", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["reproduce.py", *arguments])
    reproduce.main()
    table = capsys.readouterr().out
    assert "| exponential | " in table
    assert len(json.loads((tmp_path / "digits.json").read_text())) == 4
    assert (tmp_path / "digits.png").stat().st_size > 10_000
