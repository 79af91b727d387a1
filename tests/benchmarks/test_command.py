"""The benchmark runs and prints ratios; what they are is nobody's test."""

import json

from teacher_student.benchmarks.command import main


def test_a_small_benchmark_writes_its_figures(tmp_path, capsys):
    out = tmp_path / "figures.json"
    assert main(["--only", "mechanisms", "--samples", "1", "--out", str(out)]) == 0
    assert "mechanisms" in json.loads(out.read_text())
    assert "mechanisms" in capsys.readouterr().out
