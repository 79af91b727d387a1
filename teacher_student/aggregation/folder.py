"""Releases on disk: files are written atomically, and tables must agree with their certificate."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from teacher_student.arguments import ArgumentError, Integers, file_path
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.privacy import Certificate
from teacher_student.privacy.certificate import file_digest

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
            _write_whole(target / name, text)
    except FileExistsError as error:
        raise ArgumentError(f"folder must be a folder without a release, got {target}: {error.strerror}") from error
    except OSError as error:
        raise ArgumentError(f"folder must be a folder that can be written, got {target}: {error.strerror}") from error


def bind_files(folder: str | os.PathLike[str]) -> None:
    """Bind the certificate of a release folder to all files beside it; the last step of a run that adds a student and a report.

    The answers themselves must be those that the certificate binds already. The certificate is replaced whole, so a kill leaves
    the one before or the one after; done again for files that were written again, it binds those.

    Raises:
        ArgumentError: no release there, answers that were changed, or a folder that cannot be written.
    """
    from teacher_student.aggregation.load import load_table  # which imports the kinds of releases, and they this module

    target = file_path("folder", folder)
    certificate = load_table(target).certificate
    try:
        files = {path.name: file_digest(path) for path in sorted(bindable(target))}
        text = dataclasses.replace(certificate, files=files).to_json()
        if (target / CERTIFICATE_FILE).read_bytes() != text.encode():
            _write_whole(target / CERTIFICATE_FILE, text, replace=True)
    except OSError as error:
        raise ArgumentError(f"folder must be a folder that can be written, got {target}: {error.strerror}") from error


def bindable(folder: Path) -> list[Path]:
    """Return the files of a release folder that its certificate can bind: all in it but itself, drafts and subfolders."""
    return [
        path
        for path in folder.iterdir()
        if path.is_file() and path.name != CERTIFICATE_FILE and path.name[0] != "." and path.suffix != ".partial"
    ]


def check_against(certificate: Certificate, answers: Integers, *, least_paid: int, most_paid: int) -> None:
    """Refuse answers that the certificate does not describe, or that exceed what its parameters pay for.

    Args:
        certificate: of the release.
        answers: of any shape; `ABSTAIN`, `HALTED`, or at least 0 where answered.
        least_paid: smallest possible cost of these answers, in units of the cutoff.
        most_paid: largest possible cost; the cost may be below it only if the cutoff was reached.

    Raises:
        ArgumentError: answers and certificate disagree.
    """
    certificate.check_used()
    flat, used, parameters = answers.ravel(), certificate.used, certificate.parameters.one_session
    for name, value in (("num_queries", flat.size), ("answered", int((flat >= 0).sum()))):
        if used.get(name) != value:
            raise ArgumentError(f"{name} must be the certificate's, {used.get(name)!r}, got a table with {value}")
    paid, cutoff = used.get("paid"), getattr(parameters, "cutoff", None)
    if paid != most_paid and not (paid == cutoff and paid in range(least_paid, most_paid)):
        raise ArgumentError(f"paid must be the certificate's, {paid!r}, got a table that cost {most_paid}")
    asked, most = int((flat != HALTED).sum()), getattr(parameters, "num_queries", flat.size)
    if asked > most:
        raise ArgumentError(f"num_queries must be at most what the parameters pay for, {most}, got a table with {asked}")
    if (flat[asked:] != HALTED).any():
        raise ArgumentError(f"labels must be {HALTED} from the halt on, got an answer after it")


def count_abstentions(answers: Integers) -> int:
    """Return the number of paid abstentions."""
    return int((answers == ABSTAIN).sum())


def _is_there(path: Path, text: str) -> bool:
    """Return whether the file exists and holds `text`; refuse a file with other contents."""
    if not path.exists():
        return False
    if path.read_bytes() == text.encode():
        return True
    raise ArgumentError(f"folder must hold no release yet, got {path.parent}, which has {path.name}; choose another one")


def _write_whole(path: Path, text: str, *, replace: bool = False) -> None:
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
