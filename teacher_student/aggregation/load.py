"""Loading a release of any kind from its folder, and binding its certificate to the files beside it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from teacher_student.aggregation.folder import CERTIFICATE_FILE, bindable, write_whole
from teacher_student.aggregation.release import FractionRelease, Release, ScoreRelease, SoftRelease
from teacher_student.arguments import ArgumentError, file_path
from teacher_student.privacy.certificate import file_digest


def load_release(folder: str | os.PathLike[str]) -> Release | SoftRelease | FractionRelease | ScoreRelease:
    """Load a release: labels, soft labels, fractions or scores, whichever the folder holds.

    Args:
        folder: where a release was saved, or a run's folder.

    Raises:
        ArgumentError: no release there, one that is not its certificate's, or a file that the certificate binds and that was
            changed.
    """
    path = release_folder(folder)
    return _kind(path).load(path)


def bind_files(folder: str | os.PathLike[str]) -> None:
    """Bind the certificate of a release folder to all files beside it; the last step of a run that adds a student and a report.

    The answers themselves must be those that the certificate binds already. The certificate is replaced whole, so a kill leaves
    the one before or the one after; done again for files that were written again, it binds those.

    Raises:
        ArgumentError: no release there, answers that were changed, or a folder that cannot be written.
    """
    target = file_path("folder", folder)
    certificate = _kind(release_folder(target)).load_table(target).certificate
    try:
        files = {path.name: file_digest(path) for path in sorted(bindable(target))}
        text = dataclasses.replace(certificate, files=files).to_json()
        if (target / CERTIFICATE_FILE).read_bytes() != text.encode():
            write_whole(target / CERTIFICATE_FILE, text, replace=True)
    except OSError as error:
        raise ArgumentError(f"folder must be a folder that can be written, got {target}: {error.strerror}") from error


def release_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder of a release: a run's `release/`, or the folder itself.

    Raises:
        ArgumentError: there is no certificate.
    """
    path = file_path("folder", folder).expanduser()
    path = path / "release" if (path / "release").is_dir() else path
    if not (path / CERTIFICATE_FILE).is_file():
        raise ArgumentError(f"folder must hold a {CERTIFICATE_FILE}, got {folder}")
    return path


def _kind(path: Path) -> type[Release] | type[SoftRelease] | type[FractionRelease] | type[ScoreRelease]:
    """Return the kind of release in a folder, by the name of its table."""
    for kind in (FractionRelease, ScoreRelease, SoftRelease):
        if (path / kind.FILE).exists():
            return kind
    return Release
