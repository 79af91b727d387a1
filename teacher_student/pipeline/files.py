"""Files in, files out: label a file of predictions, verify what a folder claims."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation import Release, label, load_release
from teacher_student.aggregation.folder import CERTIFICATE_FILE, bindable
from teacher_student.aggregation.load import release_folder
from teacher_student.arguments import ArgumentError, file_path
from teacher_student.pipeline.budget import BudgetSettings
from teacher_student.pipeline.folder import STUDENT_FILES
from teacher_student.privacy import Certificate


def label_file(
    *,
    predictions: str | None,
    counts: str | None,
    num_classes: int,
    num_teachers: int | None,
    out: Path,
    mechanism: str,
    options: Mapping[str, Any],
    epsilon: float,
    delta: float,
    cutoff: int | None,
    neighbours: str,
    hyperparameters: str,
    population: int | None,
    budget: BudgetSettings,
) -> Release:
    """Label the queries of a file and write the release to a new folder. The folder is checked before anything is spent."""
    if (predictions is None) == (counts is None):
        raise ArgumentError("predictions or counts must name a file, and not both")
    if file_path("out", out).exists():
        raise ArgumentError(f"out must be a new folder, got {out}, which exists")
    if not isinstance(budget, BudgetSettings):
        raise ArgumentError(f"budget must be BudgetSettings, got {budget!r}")
    if budget.ledger and budget.dataset is None:
        raise ArgumentError("budget.dataset must be a public name of the teachers' private data where a ledger is kept, got none")
    votes = None if predictions is None else read_table(predictions)
    table = None if counts is None else read_table(counts)
    release = label(
        votes,
        counts=table,
        num_classes=num_classes,
        num_teachers=num_teachers,
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        cutoff=cutoff,
        neighbours=neighbours,
        hyperparameters=hyperparameters,
        population=population,
        account=budget.open(budget.dataset or ""),
        **options,
    )
    release.save(out)
    return release


def read_table(path: str) -> npt.NDArray[Any]:
    """Read a table of integers from FILE.npy (never unpickled) or FILE.csv (no header).

    Raises:
        ArgumentError: the file is missing, of another kind, or not a table.
    """
    path = str(file_path("file", path))
    try:
        if path.endswith(".npy"):
            return np.load(path, allow_pickle=False)
        return np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise ArgumentError(f"file must be a readable .npy or .csv table of integers, got {path} ({reason})") from error


def verify_folder(folder: Path) -> str:
    """Recompute epsilon and delta of a run or release folder from the recorded parameters, and check the files that it binds.

    Returns:
        One line that says what holds; a second one where files are not bound.

    Raises:
        ArgumentError: no release there, a certificate that does not recompute, answers that it does not speak of, a file that it
            binds and that is missing or was changed, or a student that it does not bind.
    """
    path = release_folder(folder)
    certificate = load_release(path).certificate
    stated = Certificate.from_json((path / CERTIFICATE_FILE).read_text(encoding="utf-8")).files  # an old one binds nothing
    loose = sorted(file.name for file in bindable(path) if file.name not in stated)
    epsilon = dataclasses.replace(certificate, files=stated).verify(path)
    if stated and (students := [name for name in loose if name in STUDENT_FILES]):
        raise ArgumentError(
            f"folder must hold a student that its certificate binds, got {path / students[0]}, which it does not; let the run "
            "that made it end, or move it elsewhere"
        )
    line = (
        f"{path}: {certificate.mechanism} is ({certificate.epsilon:.6g}, {certificate.delta:.3g})-private "
        f"under {certificate.neighbours}; recomputed epsilon {epsilon:.6g}"
    )
    if stated:
        line += f"; unchanged: {', '.join(stated)}"
    else:
        line += "\nNotice: the certificate was made before certificates bound their files; it would hold for other answers too"
    return line + (f"\nNotice: not bound by the certificate: {', '.join(loose)}" if stated and loose else "")
