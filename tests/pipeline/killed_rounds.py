"""A run of correcting rounds that loses what it had made since its last answer, and is started again."""

from __future__ import annotations

import shutil

import numpy as np
import torch

from teacher_student.pipeline import RunSettings, run
from teacher_student.pipeline.runner import RunResult


def keeps_answers(finished: RunResult, settings: RunSettings, votes: tuple[str, ...]) -> None:
    """Take the release and the last round's teachers from a run of two rounds; started again it must make the same.

    Args:
        finished: the run.
        settings: its own.
        votes: names of files of votes to take away, too.
    """
    path, student = finished.folder.path, finished.student.publishable
    for name in ("certificate.json", finished.release.FILE, "student.safetensors"):
        (path / "release" / name).unlink()
    shutil.rmtree(path / "private" / "teachers_2")
    for name in ("finished.json", *(f"votes/{name}" for name in votes)):
        (path / "private" / name).unlink()
    again = run(settings, path)
    assert np.array_equal(again.release.codes, finished.release.codes)
    points = torch.randn(20, 2)
    with torch.no_grad():
        assert torch.equal(again.student.publishable(points), student(points))
