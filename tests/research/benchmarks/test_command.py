"""The benchmark runs and prints ratios. No test depends on their values."""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch

from research.benchmarks import mechanisms, teachers
from research.benchmarks.command import main
from research.benchmarks.profile import KINDS
from teacher_student.teachers import CNN, MLP, TrainingSettings


def test_a_small_benchmark_writes_its_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mechanisms, "labelling", partial(mechanisms.labelling, queries=20_000))
    out = tmp_path / "figures.json"
    assert main(["--only", "mechanisms", "--samples", "1", "--out", str(out)]) == 0
    assert "mechanisms" in json.loads(out.read_text())
    assert "mechanisms" in capsys.readouterr().out


def test_record_voters_are_compared_with_other_searches_and_agree(tmp_path, monkeypatch):
    monkeypatch.setattr(teachers, "RECORDS", 2_000)
    monkeypatch.setattr(teachers, "nearest", partial(teachers.nearest, points=300))
    out = tmp_path / "figures.json"
    assert main(["--only", "nearest", "--samples", "1", "--out", str(out)]) == 0
    (row,) = json.loads(out.read_text())["nearest"]
    assert row["times_scikit_learn"] > 0
    assert min(row["scikit_learn_agrees"], row["cdist_agrees"]) > 0.99


SMALL = {
    "mlp": teachers.Case(partial(MLP, 6, 3, (5,)), (6,), 3, TrainingSettings(steps=3)),
    "cnn": teachers.Case(partial(CNN, (1, 8, 8), 3, filters=(3,), hidden=(5,)), (1, 8, 8), 3, TrainingSettings(steps=3)),
}


@pytest.mark.parametrize(
    "accelerator",
    [
        "cpu",
        pytest.param("gpu", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator")]),
    ],
)
def test_teachers_are_compared_with_all_baselines(accelerator, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(teachers, "CASES", SMALL)
    monkeypatch.setattr(teachers, "RECORDS", 400)
    out = tmp_path / "figures.json"
    command = ["--only", "teachers", "--teachers", "10", "--samples", "1", "--accelerator", accelerator, "--out", str(out)]
    assert main(command) == 0
    rows = json.loads(out.read_text())["teachers"]
    assert [row["trained"] for row in rows] == [10, 10]
    assert all(row["product_share"] > 0 and row["times_default"] > 0 for row in rows)
    assert "(d) default Lightning" in capsys.readouterr().out


def test_of_many_teachers_a_turn_trains_few():
    assert [teachers.trained_of(SMALL["cnn"], k) for k in (2, 1000)] == [2, 12]
    assert teachers.trained_of(SMALL["mlp"], 1000) == 120


def test_a_profile_says_where_the_time_went(tmp_path, monkeypatch):
    monkeypatch.setattr(teachers, "CASES", SMALL)
    monkeypatch.setattr(teachers, "RECORDS", 400)
    out = tmp_path / "figures.json"
    assert main(["--only", "profile", "--samples", "1", "--out", str(out)]) == 0
    for row in json.loads(out.read_text())["profile"]:
        assert sum(row[kind] for kind in (*KINDS, "rest")) == pytest.approx(100)
        assert row["products"] > 0
        assert row["optimiser"] > 0
        assert row["bound"] > row["product_share"] > 0


def test_operations_are_those_of_the_products():
    case = replace(SMALL["mlp"], settings=TrainingSettings(steps=2, batch_size=8))
    assert case.operations() == 2 * 8 * 2 * (2 * 6 * 5 + 3 * 5 * 3)  # no gradient of the inputs


def test_the_model_of_a_gpu_counts_what_a_step_needs(tmp_path):
    out = tmp_path / "figures.json"
    assert main(["--only", "model", "--networks", "mlp-784-128", "--out", str(out)]) == 0
    (row,) = json.loads(out.read_text())["model"]
    parameters = 784 * 128 + 128 + 128 * 10 + 10
    assert row["MFLOP"] == pytest.approx(2 * 32 * (2 * 784 * 128 + 3 * 128 * 10) / 1e6)  # no gradient of the records
    assert 8 * parameters * 4 / 1e6 < row["MB"] < 12 * parameters * 4 / 1e6  # products read and write them thrice
    assert row["H200, k = 10,000"] == pytest.approx(4.8e12 / (150 * row["MB"] * 1e6), rel=1e-6)
    assert row["launches"] < 30
