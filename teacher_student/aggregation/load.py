"""Loading a release of whatever kind from its folder."""

from __future__ import annotations

import os
from pathlib import Path

from teacher_student.aggregation.folder import CERTIFICATE_FILE
from teacher_student.aggregation.release import Release
from teacher_student.aggregation.soft_release import SoftRelease
from teacher_student.aggregation.sum_release import FractionRelease, ScoreRelease
from teacher_student.arguments import ArgumentError, file_path

AnyRelease = Release | SoftRelease | FractionRelease | ScoreRelease


def load_release(folder: str | os.PathLike[str]) -> AnyRelease:
    """Load a release: labels, soft labels, fractions or scores, whichever the folder holds.

    Args:
        folder: where a release was saved, or a run's folder.

    Raises:
        ArgumentError: no release there, one that is not its certificate's, or a file that the certificate binds and that was
            changed.
    """
    path = release_folder(folder)
    return _kind(path).load(path)


def load_table(folder: str | os.PathLike[str]) -> AnyRelease:
    """Do what `load_release` does, without a look at any file but the table and the certificate."""
    path = release_folder(folder)
    return _kind(path).load_table(path)


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
    """Return what lies in a release folder, by the name of its table."""
    for kind in (FractionRelease, ScoreRelease, SoftRelease):
        if (path / kind.FILE).exists():
            return kind
    return Release
