"""The script's verbs, each at its smallest."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "theory_experiments.py"


@pytest.fixture(scope="module")
def script():
    import sys

    spec = importlib.util.spec_from_file_location("theory_experiments", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_sizes_are_printed(script, capsys):
    arguments = ["sizes", "--vc-dimension", "2", "--alpha", "0.1", "--calibration", "paper"]
    assert script.main(arguments) == 0
    assert "num_teachers" in capsys.readouterr().out


def test_bad_input_is_one_line_and_exit_code_2(script, capsys):
    assert script.main(["sizes", "--vc-dimension", "0"]) == 2
    assert capsys.readouterr().err.strip() == "vc_dimension must be a positive integer, got 0"


def test_sweep_with_the_private_mechanism_keeps_its_bound(script):
    series = script.Series(
        "thresholds", "n", script.thresholds(), [(200_000, 500), (400_000, 500)], -2, script.threshold_error, 20.0
    )
    rows = script.run_series(series, 1)
    assert len(rows) == 2
    assert all(row.labels_error <= row.bound < 1 and row.worst_teacher <= row.alpha for row in rows)


def test_stability_table(script, tmp_path):
    table = script.stability(tmp_path, quick=True)
    assert all(row["upper"] <= row["bound"] for row in table)
    with (tmp_path / "stability.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(table)


@pytest.mark.slow
def test_all_sweeps(script, tmp_path):
    table = script.pac(tmp_path, quick=True)
    slopes = {(row["task"], row["along"]): row["bound"] for row in table}
    assert slopes["thresholds, realizable", "n"] == pytest.approx(-2, abs=0.3)
    assert slopes["thresholds, realizable", "m"] == pytest.approx(1, abs=0.3)
    assert slopes["thresholds, agnostic", "n"] == pytest.approx(-2 / 3, abs=0.3)
    assert len(list(tmp_path.glob("*.png"))) == 5
