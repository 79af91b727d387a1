"""The reference is built from the docstrings without a warning; something wrong in one of them stops the build."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import teacher_student

pytest.importorskip("pdoc")
SCRIPT = Path(__file__).parents[1] / "scripts" / "build_docs.py"

FRACTIONS = """from __future__ import annotations
import dataclasses
from fractions import Fraction
@dataclasses.dataclass
class Parts:
    'Some.'
    part: Fraction
"""
INHERITED = "import dataclasses\nfrom .parts import Parts\n@dataclasses.dataclass\nclass More(Parts):\n    'More.'\n"
PACKAGES = {
    "sound": ('def answer() -> int:\n    """Return it."""\n    return 42\n', ""),
    "inherited": (INHERITED, ""),
    "missing": ('"""Text."""\n__all__ = ["nowhere"]\n', "nowhere"),
    "typeless": (
        '"""Text."""\nfrom __future__ import annotations\ndef answer(x: Unknown) -> int:\n    """Return it."""\n',
        "Unknown",
    ),
}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("build_docs", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PACKAGES)
def test_every_fault_is_a_warning(script, name, tmp_path, monkeypatch):
    source, fault = PACKAGES[name]
    (tmp_path / f"docs_{name}").mkdir()
    (tmp_path / f"docs_{name}" / "__init__.py").write_text(source)
    (tmp_path / f"docs_{name}" / "parts.py").write_text(FRACTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    complaints = script.build(f"docs_{name}", tmp_path / "out")
    assert bool(complaints) == bool(fault)
    assert all(fault in complaint for complaint in complaints)


def test_a_warning_ends_with_exit_code_one(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "build", lambda package, out: ["the docstring of x is wrong"])
    assert script.main(["--out", str(tmp_path)]) == 1
    assert "x is wrong" in capsys.readouterr().err


@pytest.mark.slow
def test_the_reference_is_built_without_a_warning(tmp_path):
    done = subprocess.run([sys.executable, SCRIPT, "--out", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    package = Path(teacher_student.__file__).parent
    modules = [path.relative_to(package.parent).with_suffix("") for path in package.rglob("*.py")]
    pages = {(path.parent if path.name == "__init__" else path).with_suffix(".html") for path in modules}
    assert pages == {page.relative_to(tmp_path) for page in tmp_path.rglob("*.html")} - {Path("index.html")}
    assert "label" in (tmp_path / "teacher_student.html").read_text(encoding="utf-8")
