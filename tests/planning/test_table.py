"""The script that prints what each mechanism releases."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from teacher_student.privacy import MECHANISMS

SCRIPT = Path(__file__).parents[2] / "scripts" / "mechanism_table.py"
SMALL = ["--teachers", "150", "--queries", "200", "--stable", "0.95", "--runs", "2", "--votes", "nowhere"]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mechanism_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_markdown_tables_with_a_row_for_each_mechanism(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(SMALL) == 0
    printed = capsys.readouterr()
    assert "MNIST: skipped, no mnist_250_teachers.votes.csv.gz in nowhere" in printed.err
    for mechanism in MECHANISMS:
        assert len(re.findall(rf"^\| {mechanism} \| [\d,]+ / [\d,]+ \|$", printed.out, flags=re.MULTILINE)) == 2
    assert printed.out.count("Labels released") == 2


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (["--runs", "0"], "runs must be a positive integer, got 0"),
        (["--teachers", "0"], "teachers must be a positive integer, got 0"),
        (["--failure", "2"], "failure must lie strictly between 0 and 1, got 2.0"),
    ],
)
def test_bad_options_get_one_line(script: ModuleType, capsys: pytest.CaptureFixture[str], changed: list[str], words: str) -> None:
    assert script.main([*SMALL, *changed]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"mechanism_table: {words}"
