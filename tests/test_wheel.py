"""The wheel in a clean environment, from another folder: complete, typed, and composed as the checkout is."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

import teacher_student

ROOT = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv"),
    pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="needs the checkout"),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    build = ["uv", "build", "--wheel", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*build, "--out-dir", out, ROOT], check=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def command(wheel, tmp_path_factory):
    """Runs Python of a new environment that holds the wheel, and of this one nothing but the dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    install = ["uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--python", sys.executable]
    subprocess.run([*install, "--target", packages, wheel], check=True)
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    elsewhere = tmp_path_factory.mktemp("elsewhere")

    def run(*arguments: str, code: int = 0) -> str:
        python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
        done = subprocess.run([python, *arguments], cwd=elsewhere, env=clean, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    return run


MAIN = ("-c", "from teacher_student.app import main; main()")


def test_it_holds_all_that_is_needed(wheel):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = Path(teacher_student.__file__).parent
    there = {
        path.relative_to(package.parent) for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    configs = {"teacher_student" / path.relative_to(ROOT) for path in (ROOT / "conf").rglob("*.yaml")}
    assert {path.as_posix() for path in there | configs} == held
    assert "teacher_student/py.typed" in held


def test_its_metadata_are_the_packages(wheel):
    (name,) = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA")]
    metadata = zipfile.ZipFile(wheel).read(name).decode()
    assert f"\nVersion: {teacher_student.__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nLicense-File: LICENSE\n" in metadata
    entries = zipfile.ZipFile(wheel).read(name.replace("METADATA", "entry_points.txt")).decode()
    assert "teacher-student = teacher_student.app:main" in entries


def test_it_is_what_runs(command):
    assert "environment" in command("-c", "import teacher_student; print(teacher_student.__file__)")
    assert "  run  " in command(*MAIN, "--help")
    assert command(*MAIN, "--version").strip() == teacher_student.__version__


@pytest.mark.parametrize("experiment", sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")))
def test_it_composes_what_the_checkout_composes(command, experiment, tmp_path):
    verb = ["run", f"experiment={experiment}", "run_folder=here", "--cfg", "job"]
    ours = subprocess.run([sys.executable, *MAIN, *verb], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert command(*MAIN, *verb) == ours.stdout


def test_it_runs_as_the_checkout_does(command, tmp_path):
    given = ["run", "experiment=blobs", "debug=fast", "console=quiet", "budget.ledger=null"]
    subprocess.run([sys.executable, *MAIN, *given, "run_folder=run"], cwd=tmp_path, check=True)
    (tmp_path / "wheel" / "private").mkdir(parents=True, mode=0o700)
    for name in (
        "config.yaml",
        "private/shards.json",
    ):  # as a run that was killed after sharding: the key is secret and drawn anew
        shutil.copy2(tmp_path / "run" / name, tmp_path / "wheel" / name)
    command(*MAIN, *given, f"run_folder={tmp_path / 'wheel'}")
    assert "recomputed epsilon" in command(*MAIN, "verify", str(tmp_path / "wheel"))
    counts = [np.load(tmp_path / name / "private" / "votes" / "counts.npy") for name in ("run", "wheel")]
    assert np.array_equal(*counts)  # all that follows is behind the noise


def test_its_embedded_data_are_there(command):
    assert command("-c", "import teacher_student.data as data; print(data.load_adult().name)").strip() == "adult"


def test_its_benchmark_says_where_to_get_it(command):
    (line,) = command(*MAIN, "benchmark", "--only", "mechanisms", code=2).splitlines()
    assert "in a checkout" in line


def test_the_source_distribution_has_the_research(tmp_path):
    build = ["uv", "build", "--sdist", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*build, "--out-dir", tmp_path, ROOT], check=True)
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        held = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "research").rglob("*.py")} <= held
