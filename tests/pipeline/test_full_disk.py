"""After payment nothing is lost: a full disk or a damaged file is one line, and the same run continues."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from teacher_student import ArgumentError
from teacher_student.app import compose, dispatch, settings_from_config
from teacher_student.pipeline import RunSettings, folder, run, verify_folder
from teacher_student.pipeline.folder import StoppedRunError, growing_array, read_array, whole, write_array

pytestmark = pytest.mark.usefixtures("no_pictures")

SMALL = "experiment=blobs data.num_private=300 data.num_public=40 data.num_evaluation=60 teachers.number=60 queries.total=20"
REST = "teachers.training.steps=3 student.settings.epochs=1 logger=none baselines=false mechanism=noisy_fraction"


def settings(*overrides: str) -> RunSettings:
    return settings_from_config(compose("run", [*SMALL.split(), *REST.split(), *overrides]))


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("place", "file"),
    [
        ("runner.write_report", "release/report.html"),
        ("published.save_file", "release/student.safetensors"),
        ("folder.np.save", "private/votes/counts.npy"),
        pytest.param("runner.RunFolder.finish", "", marks=pytest.mark.slow),
        pytest.param("stages.TimelessCurves", "", marks=pytest.mark.slow),
    ],
)
def test_a_full_disk_is_one_line_with_the_file_and_the_command(place, file, tmp_path, monkeypatch, capsys):
    path = tmp_path / "here"
    command = ["run", *SMALL.split(), *REST.split(), "logger.tensorboard=true", "console=quiet", f"run_folder={path}"]
    with monkeypatch.context() as patch:
        patch.setattr(f"teacher_student.pipeline.{place}", full)
        with pytest.raises(SystemExit) as stop:
            dispatch(command)
    complaint = capsys.readouterr().err
    assert stop.value.code == 2
    assert len(complaint.strip().splitlines()) == 1
    assert f"{path / file}".rstrip("/") in complaint
    assert "No space left on device; nothing is lost" in complaint
    assert f": teacher-student run {' '.join(SMALL.split())}" in complaint
    answers = path / "release" / "fractions.csv"
    before = answers.read_bytes() if answers.exists() else None
    assert (before is None) == (place == "folder.np.save")
    dispatch(command)
    assert "recomputed epsilon" in verify_folder(path)
    assert before in (None, answers.read_bytes())


@contextlib.contextmanager
def small_disk(place: Path, kilobytes: int):
    place.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)], check=False).returncode
    ):
        pytest.skip("needs the right to mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_no_write_of_ours_kills_the_process_on_a_full_disk(tmp_path):
    with small_disk(tmp_path / "disk", 64) as disk:
        for write in (write_array, fill):
            with pytest.raises(OSError, match=r"a\.npy") as refused:
                write(disk / "a.npy", np.ones(100_000))
            del refused  # its traceback keeps the array, and so the disk, open
            assert list(disk.iterdir()) == []


def fill(path: Path, array: np.ndarray) -> None:
    with growing_array(path, array.shape, array.dtype) as table:
        table[:] = array


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [100, 150, 200, 300, 500])
def test_a_run_on_a_disk_that_fills_up_continues_once_there_is_room(kilobytes, tmp_path):
    """In its own folder: a copy of it would be a second session on the same budget, and is refused."""
    with small_disk(tmp_path / "disk", kilobytes) as disk:
        command = [sys.executable, "-m", "teacher_student.app", "run", *SMALL.split(), *REST.split(), "console=quiet"]
        command.append(f"run_folder={disk}/run")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 2)
        assert done.returncode == 0 or len(done.stderr.strip().splitlines()) == 1
        subprocess.run(["mount", "-o", "remount,size=50m", str(disk)], check=True)
        if done.returncode:
            assert subprocess.run(command, check=False).returncode == 0
        assert "recomputed epsilon" in verify_folder(disk / "run")


@pytest.mark.parametrize("content", [b"", pytest.param(b"not an array", marks=pytest.mark.slow), b"\x80\x04cos\nsystem\n"])
def test_damaged_votes_are_one_line_that_says_what_to_delete(content, tmp_path, monkeypatch):
    path = tmp_path / "one"
    with monkeypatch.context() as patch:
        patch.setattr("teacher_student.pipeline.runner._save_student", full)
        with pytest.raises(StoppedRunError, match="No space left"):
            run(settings(), path)
    votes, before = path / "private" / "votes" / "counts.npy", (path / "release" / "fractions.csv").read_bytes()
    votes.write_bytes(content)
    with pytest.raises(StoppedRunError, match=r"counts\.npy is damaged; delete this file, and it is made again") as stopped:
        run(settings(), path)
    assert "pickle" not in str(stopped.value)
    votes.unlink()
    run(settings(), path)
    assert (path / "release" / "fractions.csv").read_bytes() == before


def test_a_damaged_manifest_of_shards_ends_the_run_in_one_line(tmp_path, monkeypatch):
    path = tmp_path / "one"
    with monkeypatch.context() as patch:
        patch.setattr("teacher_student.pipeline.runner._save_student", full)
        with pytest.raises(StoppedRunError):
            run(settings(), path)
    (path / "private" / "shards.json").write_text('{"num_shards": 60')
    with pytest.raises(ArgumentError, match=r"shards\.json is damaged, and its key cannot be made again; start a new run"):
        run(settings(), path)


def test_a_half_written_file_is_taken_away(tmp_path):
    def write() -> None:
        with whole(tmp_path / "file") as draft:
            draft.write_text("half")
            full()

    with pytest.raises(OSError, match="No space left") as refused:
        write()
    assert refused.value.filename == str(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_arrays_are_read_as_they_were_written(tmp_path):
    write_array(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    assert read_array(tmp_path / "a.npy", mapped=True).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert folder.np.load(tmp_path / "a.npy").shape == (2, 3)
