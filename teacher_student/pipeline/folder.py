"""A run's folder: what may be published under `release/`, everything else under `private/`.

runs/EXPERIMENT/TIME/
  private/   mode 0700: notes.txt, shards.json, teachers/, votes/, session.sqlite, tensorboard/, report.html
  release/   labels.csv or scores.csv, student.safetensors, student.yaml (encoding.safetensors), certificate.json, report.html,
             tensorboard/
  config.yaml
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError

FINISHED = "finished.json"
SESSION = "session.sqlite"
STUDENT_FILES = ("student.safetensors", "student.yaml", "encoding.safetensors")
"""Weights, description, and what the encoding needs beside it."""

PUBLISHED = 315_532_800
"""Time of every released file: 1 January 1980, as in reproducible archives. The true ones tell how long stages took, and that
may depend on private records."""


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The paths of one run.

    Attributes:
        path: the run's own folder.
    """

    path: Path

    @property
    def private(self) -> Path:
        """What must never leave: 0700."""
        return self.path / "private"

    @property
    def release(self) -> Path:
        """What may be published as it is."""
        return self.path / "release"

    @property
    def votes(self) -> Path:
        """Where vote counts are kept between stages."""
        return self.private / "votes"

    @property
    def is_finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.private / FINISHED).exists()

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Mark the run as complete; `facts` may be private. What is released loses its times first."""
        for path in (*self.release.rglob("*"), self.release):
            os.utime(path, (PUBLISHED, PUBLISHED))
        write_atomically(self.private / FINISHED, json.dumps(facts, indent=2))


def open_run(path: Path, config: str) -> RunFolder:
    """Make the folder of a new run, or take up a run that was cut off.

    Args:
        path: the folder; missing, empty, or an unfinished run of the very same config.
        config: the composed config as YAML. It is what tells a resumed run from another one.

    Raises:
        ArgumentError: the folder holds something else, a finished run, a run with another config, or a link to elsewhere.
    """
    folder = RunFolder(path)
    if path.is_symlink():
        raise ArgumentError(f"run_folder must be a folder of its own, got {path}, which is a link; name its target")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        recorded = path / "config.yaml"
        if not recorded.is_file() or folder.is_finished:
            raise ArgumentError(f"run_folder must be new or an unfinished run, got {path}, which exists; choose another folder")
        if recorded.read_text(encoding="utf-8") != config:
            raise ArgumentError(f"run_folder {path} holds an unfinished run of another config; choose another folder")
        _take_up(folder)
        return folder
    try:
        folder.private.mkdir(parents=True, mode=0o700)
        os.chmod(folder.private, 0o700)  # whatever the umask was
        folder.votes.mkdir()
        folder.release.mkdir()
        write_atomically(path / "config.yaml", config)
    except OSError as error:
        raise ArgumentError(f"run_folder must be a folder that can be written, got {path} ({error.strerror})") from error
    return folder


def _take_up(folder: RunFolder) -> None:
    """Make a cut-off run's folder fit to go on in: nothing in it leads elsewhere, no half-written file stays in the release."""
    for path in folder.path.rglob("*"):
        if path.is_symlink():
            raise ArgumentError(f"run_folder must hold no links, got {path}; files of a run stay inside its folder")
    for part in (folder.private, folder.votes, folder.release):  # a kill may have come between any two of them
        part.mkdir(mode=0o700 if part == folder.private else 0o777, exist_ok=True)
    folder.private.chmod(0o700)
    for path in [*folder.release.glob(".*"), *folder.release.glob("*.partial")]:
        if path.is_file():
            path.unlink()


def shared_run(path: Path) -> RunFolder:
    """Return the folder that the first of several processes has opened.

    Raises:
        ArgumentError: it cannot be seen from here.
    """
    if not (path / "config.yaml").is_file():
        raise ArgumentError(f"run_folder must be on a file system that all machines of a run share, got {path}")
    return RunFolder(path)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees all of it or nothing."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)


def write_array(path: Path, array: npt.NDArray[np.generic]) -> None:
    """Write an array so that a reader sees all of it or nothing."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as stream:
        np.save(stream, array, allow_pickle=False)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)


@contextlib.contextmanager
def growing_array(path: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Iterator[npt.NDArray[Any]]:
    """Yield an array on disk to be filled; it takes its name once it is filled, so that a reader sees all of it or nothing."""
    partial = path.with_name(path.name + ".partial")
    array = np.lib.format.open_memmap(partial, mode="w+", dtype=np.dtype(dtype), shape=shape)
    yield array
    array.flush()
    del array
    partial.replace(path)
