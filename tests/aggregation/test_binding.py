"""A certificate binds the files that it certifies: whatever is changed, `load` and `verify` say so."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.aggregation.release import bind_files
from teacher_student.app.command_line import dispatch
from teacher_student.pipeline.files import verify_folder

GIVEN = {"num_teachers": 4000, "epsilon": 1.0, "delta": 1e-5}
CLEAR = np.array([[4000, 0], [0, 4000], [0, 0]])


def made(kind: str) -> ts.Release:
    if kind == "labels.csv":
        return ts.label(counts=CLEAR, num_classes=2, **GIVEN)
    if kind == "fractions.csv":
        return ts.label_fractions(counts=CLEAR, num_classes=2, **GIVEN)
    if kind == "scores.csv":
        return ts.label_soft(np.full((3, 4000), 0.42), **GIVEN)
    return ts.average_scores(np.full((3, 4000, 2), 0.5), norm=1.0, **GIVEN)


KINDS = ["labels.csv", "fractions.csv", "scores.csv", "noisy_scores.csv"]


def flip(table: Path) -> None:
    """Change answers so that all that the certificate counts stays as it was."""
    head, *rows = table.read_text().splitlines()
    cells = [row.split(",") for row in rows]
    if table.name == "labels.csv":
        cells[0][1], cells[1][1] = cells[1][1], cells[0][1]
    elif table.name == "scores.csv":
        for row in cells:
            row[0] += "0"
    else:
        cells[0][2] = str(int(cells[0][2]) + 1)
    table.write_text("\n".join([head, *map(",".join, cells)]) + "\n")


def without_files(folder: Path) -> None:
    """Make the certificate one of version 0.1.0."""
    fields = json.loads((folder / "certificate.json").read_text())
    del fields["files"]
    (folder / "certificate.json").write_text(json.dumps(fields))


@pytest.mark.parametrize("kind", KINDS)
def test_changed_answers_are_refused(kind: str, tmp_path: Path, capsys) -> None:
    """With all labels flipped `verify` said yes: counts of answers and payments stay what they were."""
    release = made(kind)
    release.save(tmp_path)
    assert release.certificate.files == {kind: hashlib.sha256((tmp_path / kind).read_bytes()).hexdigest()}
    assert ts.load_release(tmp_path).certificate == release.certificate
    assert release.certificate.verify(tmp_path) <= 1.0
    assert dispatch(["verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"; unchanged: {kind}")
    flip(tmp_path / kind)
    assert dispatch(["verify", str(tmp_path)]) == 2
    assert f"{kind} must be the file that its certificate binds" in capsys.readouterr().err
    for refused in (ts.load_release, type(release).load, verify_folder, release.certificate.verify):
        with pytest.raises(ts.ArgumentError, match=f"^{kind} must be the file that its certificate binds"):
            refused(tmp_path)
    without_files(tmp_path)  # what an old certificate, which binds nothing, can tell of it: nothing
    assert dispatch(["verify", str(tmp_path)]) == 0
    assert "Notice: the certificate was made before certificates bound their files" in capsys.readouterr().out


def test_a_student_is_bound_once_the_folder_is_finished(tmp_path: Path, capsys) -> None:
    made("labels.csv").save(tmp_path)
    student, description = tmp_path / "student.safetensors", tmp_path / "student.yaml"
    student.write_bytes(b"weights")
    description.write_text("network: MLP\n")
    with pytest.raises(
        ts.ArgumentError, match=r"^folder must hold a student that its certificate binds, got .*which it does not"
    ):
        verify_folder(tmp_path)
    bind_files(tmp_path)
    once = (tmp_path / "certificate.json").read_bytes()
    bind_files(tmp_path)
    assert (tmp_path / "certificate.json").read_bytes() == once
    assert not list(tmp_path.glob(".*"))
    assert set(ts.load_release(tmp_path).certificate.files) == {"labels.csv", "student.safetensors", "student.yaml"}
    assert dispatch(["verify", str(tmp_path)]) == 0
    (tmp_path / "NOTES.txt").write_text("mine")
    assert "Notice: not bound by the certificate: NOTES.txt" in verify_folder(tmp_path)
    student.write_bytes(b"others")
    for refused in (verify_folder, ts.load_release):
        with pytest.raises(ts.ArgumentError, match=r"^student\.safetensors must be the file that its certificate binds"):
            refused(tmp_path)
    student.unlink()
    with pytest.raises(ts.ArgumentError, match=r"^folder must hold student\.safetensors, which its certificate binds"):
        verify_folder(tmp_path)
    assert ts.load_release(tmp_path).labels.tolist() == [0, 1, ts.ABSTAIN]  # the answers alone may be copied
    student.write_bytes(b"trained again by a run that was resumed")
    bind_files(tmp_path)
    assert "unchanged: NOTES.txt, labels.csv, student.safetensors, student.yaml" in verify_folder(tmp_path)


def test_changed_answers_are_not_bound_again(tmp_path: Path) -> None:
    made("labels.csv").save(tmp_path)
    flip(tmp_path / "labels.csv")
    with pytest.raises(ts.ArgumentError, match=r"^labels\.csv must be the file that its certificate binds"):
        bind_files(tmp_path)


def test_other_answers_do_not_take_a_certificate(tmp_path: Path) -> None:
    release = made("labels.csv")
    with pytest.raises(ts.ArgumentError, match=r"^labels must be those that the certificate binds"):
        ts.Release([1, 0, ts.ABSTAIN], release.certificate)
    release.save(tmp_path)
    bind_files(tmp_path)
    again = ts.load_release(tmp_path)
    again.save(tmp_path / "copy")
    assert set(ts.load_release(tmp_path / "copy").certificate.files) == {"labels.csv"}


@pytest.mark.parametrize(
    "files",
    [*({name: "0" * 64} for name in ("../x", "a/b", "", ".x")), {"x": "0" * 63}, {"x": 7}, {"x": "0" * 64 + "\n"}, 7],
)
def test_names_that_lead_elsewhere_and_odd_digests_are_refused(files: object) -> None:
    with pytest.raises(ts.ArgumentError, match=r"^files must"):
        dataclasses.replace(made("labels.csv").certificate, files=files)


def test_a_release_is_told_in_one_line() -> None:
    release = made("labels.csv")
    certificate = "Certificate(stability, epsilon=1, delta=1e-05, add_remove; 0 earlier releases, binds labels.csv)"
    assert repr(release) == f"Release(2 of 3 answered; {certificate})"
    many = ts.label(counts=np.repeat(CLEAR, 400, axis=0), num_classes=2, **GIVEN)
    assert len(repr(many)) < 200
