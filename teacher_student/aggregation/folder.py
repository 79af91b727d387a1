"""Releases on disk: files are written atomically."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from teacher_student.arguments import ArgumentError, file_path

CERTIFICATE_FILE = "certificate.json"


def write_files(folder: str | os.PathLike[str], contents: Mapping[str, str]) -> None:
    """Write each text to a file of its name in `folder`, in order and each file atomically. The folder is created if needed.

    A file that already holds the same bytes is left unchanged, so an interrupted call can be repeated.

    Raises:
        ArgumentError: one of the files exists with other contents, or the folder cannot be written.
    """
    target = file_path("folder", folder)
    try:
        left = {name: text for name, text in contents.items() if not _is_there(target / name, text)}
        target.mkdir(parents=True, exist_ok=True)
        for name, text in left.items():
            write_whole(target / name, text)
    except FileExistsError as error:
        raise ArgumentError(f"folder must be a folder without a release, got {target}: {error.strerror}") from error
    except OSError as error:
        raise ArgumentError(f"folder must be a folder that can be written, got {target}: {error.strerror}") from error


def bindable(folder: Path) -> list[Path]:
    """Return the files of a release folder that its certificate can bind: all in it but itself, drafts and subfolders."""
    return [
        path
        for path in folder.iterdir()
        if path.is_file() and path.name != CERTIFICATE_FILE and path.name[0] != "." and path.suffix != ".partial"
    ]


def _is_there(path: Path, text: str) -> bool:
    """Return whether the file exists and holds `text`; refuse a file with other contents."""
    if not path.exists():
        return False
    if path.read_bytes() == text.encode():
        return True
    raise ArgumentError(f"folder must hold no release yet, got {path.parent}, which has {path.name}; choose another one")


def write_whole(path: Path, text: str, *, replace: bool = False) -> None:
    """Write a file atomically: to a temporary name first, then to `path`, which must not exist unless it is to be replaced."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(0o644)
        if replace:
            Path(draft).replace(path)
        else:
            os.link(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)
