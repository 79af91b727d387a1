"""A release says what it holds, comes back from disk as it was, and overwrites nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.aggregation.release import CERTIFICATE_FILE, LABELS_FILE
from teacher_student.mechanisms import SystemNoise


@pytest.fixture
def release() -> ts.Release:
    return ts.label(counts=[[4000, 0], [0, 0], [0, 4000]], num_classes=2, epsilon=1.0, delta=1e-5, cutoff=1, noise=SystemNoise())


def test_it_comes_back_as_it_was(release: ts.Release, tmp_path: Path) -> None:
    release.save(tmp_path / "out")
    again = ts.Release.load(tmp_path / "out")
    assert again.labels.tolist() == release.labels.tolist() == [0, ts.ABSTAIN, ts.HALTED]
    assert again.answered.tolist() == [True, False, False]
    assert again.certificate == release.certificate
    assert again.certificate.verify() <= 1.0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [CERTIFICATE_FILE, LABELS_FILE]


def test_the_table_is_plain(release: ts.Release, tmp_path: Path) -> None:
    release.save(tmp_path)
    assert (tmp_path / LABELS_FILE).read_text().splitlines() == ["query,label,answered", "0,0,1", "1,-1,0", "2,-2,0"]


def test_query_ids_are_kept(tmp_path: Path) -> None:
    session = ts.LabelSession(num_classes=2, epsilon=1.0, delta=1e-5)
    session.answer(counts=[[4000, 0], [0, 4000]], query_ids=["a,b", 'say "x"\n'])
    session.release().save(tmp_path)
    assert ts.Release.load(tmp_path).queries == ("a,b", 'say "x"\n')


@pytest.mark.parametrize("name", [LABELS_FILE, CERTIFICATE_FILE])
def test_nothing_is_overwritten(release: ts.Release, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ts.ArgumentError, match=f"^folder must hold no release yet, .* {name}; choose another one$"):
        release.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_folder_that_is_a_file_is_refused(release: ts.Release, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ts.ArgumentError, match=r"^folder must be a folder"):
        release.save(tmp_path / "out")


def test_labels_cannot_be_written_to(release: ts.Release) -> None:
    with pytest.raises(ValueError, match="read-only"):
        release.labels[0] = 1
    with pytest.raises(AttributeError):
        release.labels = np.zeros(3)  # type: ignore[misc]


@pytest.mark.parametrize(
    "table",
    [
        "",
        "query,label\n0,1\n",
        "query,label,answered\n0,one,1\n",
        "query,label,answered\n0,1,0\n",
        "query,label,answered\n0,-3,0\n",
        "\0",
    ],
)
def test_a_table_that_does_not_fit_is_refused(release: ts.Release, tmp_path: Path, table: str) -> None:
    release.save(tmp_path)
    (tmp_path / LABELS_FILE).write_text(table)
    with pytest.raises(ts.ArgumentError):
        ts.Release.load(tmp_path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ts.ArgumentError, match=r"^folder must hold labels.csv and certificate.json, got .*: No such file"):
        ts.Release.load(tmp_path)


def test_a_certificate_that_claims_too_much_is_refused(release: ts.Release, tmp_path: Path) -> None:
    release.save(tmp_path)
    fields = json.loads((tmp_path / CERTIFICATE_FILE).read_text())
    (tmp_path / CERTIFICATE_FILE).write_text(json.dumps({**fields, "epsilon": 0.5}))
    with pytest.raises(ts.ArgumentError, match="epsilon must be at least"):
        ts.Release.load(tmp_path).certificate.verify()
