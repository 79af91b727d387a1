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
import errno
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError

from teacher_student.arguments import ArgumentError

FINISHED = "finished.json"
SESSION = "session.sqlite"
STUDENT_FILES = ("student.safetensors", "student.yaml", "encoding.safetensors")
"""Weights, description, and arrays of the encoding."""

PUBLISHED = 315_532_800
"""Time of every file outside `private/`: 1 January 1980, as in reproducible archives. True times would tell how long stages took,
which may depend on private records."""


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The paths of one run, below its own folder `path`."""

    path: Path

    @property
    def private(self) -> Path:
        """Whatever must not be published; mode 0700."""
        return self.path / "private"

    @property
    def release(self) -> Path:
        """What may be published as it is."""
        return self.path / "release"

    @property
    def votes(self) -> Path:
        """Vote counts, kept between stages."""
        return self.private / "votes"

    @property
    def is_finished(self) -> bool:
        """Whether the run is complete."""
        return (self.private / FINISHED).exists()

    @contextlib.contextmanager
    def releasing(self) -> Iterator[None]:
        """Reset the times of everything in `release/` at the end of the block, even if it fails."""
        try:
            yield
        finally:
            for path in (*self.release.rglob("*"), self.release):
                os.utime(path, (PUBLISHED, PUBLISHED))

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Mark the run as complete; `facts` may be private."""
        write_text(self.private / FINISHED, json.dumps(facts, indent=2))


def open_run(path: Path, config: str) -> RunFolder:
    """Create the folder of a new run, or resume an interrupted run.

    Args:
        path: the folder; missing, empty, or an unfinished run of exactly this config.
        config: the composed config as YAML; it tells a resumed run from another one.

    Raises:
        ArgumentError: the folder holds something else, a finished run, a run with another config, or a link.
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
        _prepare_to_resume(folder)
        return folder
    try:
        folder.private.mkdir(parents=True, mode=0o700)
        os.chmod(folder.private, 0o700)  # whatever the umask was
        folder.votes.mkdir()
        folder.release.mkdir()
        write_text(path / "config.yaml", config)
        for public in (path / "config.yaml", path):  # creation follows the loading of the records, whose time is private
            os.utime(public, (PUBLISHED, PUBLISHED))
    except OSError as error:
        raise ArgumentError(f"run_folder must be a folder that can be written, got {path} ({error.strerror})") from error
    return folder


def _prepare_to_resume(folder: RunFolder) -> None:
    """Refuse links in an interrupted run's folder, restore its parts, and delete half-written files of its release."""
    for path in folder.path.rglob("*"):
        if path.is_symlink():
            raise ArgumentError(f"run_folder must hold no links, got {path}; files of a run stay inside its folder")
    for part in (folder.private, folder.votes, folder.release):  # a kill may have come between any two
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


class StoppedRunError(ArgumentError):
    """A run that stops at a full disk or a damaged file. Its answers are kept; started again, it continues."""


@contextlib.contextmanager
def resumable(path: Path) -> Iterator[None]:
    """Turn an error of a file, a database or the system in the run of folder `path` into one line.

    Raises:
        StoppedRunError: instead of such an error.
    """
    try:
        yield
    except StoppedRunError as error:
        raise StoppedRunError(f"{error}; {_RESUME}") from error
    except ArgumentError as error:
        if not isinstance(error.__cause__, (OSError, sqlite3.Error)) or not path.exists():
            raise
        raise StoppedRunError(f"{error}; {_RESUME}") from error
    except (OSError, sqlite3.Error, SafetensorError) as error:
        place = getattr(error, "filename", None) or path
        raise StoppedRunError(f"{place} must be a file that can be written and read, but: {_reason(error)}; {_RESUME}") from error


_RESUME = "nothing is lost and nothing is asked twice where the same run is started again in the same folder"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a draft to write; at the end it takes the name `path`, so that a reader sees all of the file or nothing.

    Raises:
        OSError: with the file's name, where it cannot be written.
    """
    draft = path.with_name(path.name + ".partial")
    try:
        yield draft
        with draft.open("r+b") as stream:
            os.fsync(stream.fileno())
        draft.replace(path)
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise OSError(getattr(error, "errno", None) or errno.EIO, _reason(error), str(path)) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with whole(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write_array(path: Path, array: npt.NDArray[np.generic]) -> None:
    """Write an array atomically."""
    with whole(path) as draft, draft.open("wb") as stream:
        np.save(stream, array, allow_pickle=False)


def read_array(path: Path, *, mapped: bool = False) -> npt.NDArray[Any]:
    """Read an array that the run has kept; `mapped` leaves it on disk. It is never unpickled.

    Raises:
        StoppedRunError: it is damaged. It can be deleted: it is a function of records, shards and the answers so far.
    """
    try:
        return np.asanyarray(np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise StoppedRunError(f"{path} is damaged; delete this file, and it is made again") from error


@contextlib.contextmanager
def growing_array(path: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Iterator[npt.NDArray[Any]]:
    """Yield an array on disk to be filled; it takes its name once it is filled.

    Its space is allocated first: writing a page of a sparse file on a full disk would kill the process.
    """
    with whole(path) as draft:
        array = np.lib.format.open_memmap(draft, mode="w+", dtype=np.dtype(dtype), shape=shape)
        if hasattr(os, "posix_fallocate"):
            with draft.open("r+b") as stream:
                os.posix_fallocate(stream.fileno(), 0, draft.stat().st_size)
        yield array
        array.flush()
        del array
