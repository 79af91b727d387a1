"""Files in, files out: label a file of predictions, verify what a folder claims."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation import Release, label, load_release, select_privately
from teacher_student.aggregation.private_selection import Selected
from teacher_student.aggregation.release import CERTIFICATE_FILE, bindable, release_folder
from teacher_student.aggregation.votes import check_votes
from teacher_student.arguments import ArgumentError, Integers, choice, file_path, positive_integer, whole_numbers
from teacher_student.pipeline.budget import BudgetSettings
from teacher_student.pipeline.folder import STUDENT_FILES
from teacher_student.planning.preflight import warn, weak_guarantee
from teacher_student.privacy import Certificate
from teacher_student.privacy.paid_answers import OneScale
from teacher_student.privacy.registry import LABELS


def label_file(
    *,
    predictions: str | None,
    counts: str | None,
    out: Path,
    budget: BudgetSettings,
    options: Mapping[str, Any],
    **claim: Any,
) -> Release:
    """Label the queries of a file and write the release to a new folder.

    Args:
        predictions: file of (num_queries, num_teachers) class indices.
        counts: instead of predictions: file of (num_queries, num_classes) vote counts.
        out: a new folder; it is checked before anything is spent.
        budget: the account that pays.
        options: of the mechanism's calibration.
        claim: what `label` takes beside the votes and the account.

    Raises:
        ArgumentError: bad input; nothing was spent.
    """
    if (predictions is None) == (counts is None):
        raise ArgumentError("predictions or counts must name a file, and not both")
    _check_out(out, budget)
    votes = None if predictions is None else read_table(predictions)
    table = None if counts is None else read_table(counts)
    release = label(votes, counts=table, account=budget.open(budget.dataset or ""), **claim, **options)
    release.save(out)
    return release


def select_file(
    *,
    predictions: Sequence[str] | None,
    counts: Sequence[str] | None,
    truth: str | None,
    num_classes: int,
    num_teachers: int | None,
    out: Path,
    mechanism: str,
    epsilon: float,
    delta: float,
    population: int | None,
    budget: BudgetSettings,
    options: Mapping[str, Any],
    **claim: Any,
) -> Selected:
    """Write the labels of the best of several candidates to a new folder, chosen by private runs (`select_privately`).

    Args:
        predictions: files of the candidates, each (num_queries, num_teachers) class indices on the same queries.
        counts: instead of predictions: files of (num_queries, num_classes) vote counts.
        truth: file of public classes of the queries, -1 where unknown: a run scores one for each label that is right. None: a run
            scores one for each answer.
        num_classes: size of the public label set.
        num_teachers: how many vote, in each candidate.
        out: a new folder; it is checked before anything is spent.
        mechanism: of each run.
        epsilon: for all runs and the choice together.
        delta: for all runs and the choice together.
        population: public order of magnitude of the number of records; a delta above 1 / population is warned of.
        budget: the account that pays.
        options: of the mechanism's calibration.
        claim: what `select_privately` takes beside these: repetitions, cutoff, neighbours.

    Raises:
        ArgumentError: bad input; nothing was spent.
    """
    if (predictions is None) == (counts is None):
        raise ArgumentError("predictions or counts must name files, [FILE,FILE,...], and not both")
    _check_out(out, budget)
    given = predictions if counts is None else counts
    tables = [read_table(str(name)) for name in ([given] if isinstance(given, str) else list(given or ()))]
    if not tables:
        raise ArgumentError("predictions or counts must name one file or more, [FILE,FILE,...], got none")
    if counts is None:
        tables = [check_votes(table, None, positive_integer("num_classes", num_classes), num_teachers) for table in tables]
    known = None if truth is None else _truth(truth, len(tables[0]))
    if known is None and issubclass(LABELS[choice("mechanism", mechanism, LABELS)], OneScale):
        raise ArgumentError(
            f"truth must name a file of public classes for mechanism={mechanism}, got none; it answers every query, so that the "
            "number of answers tells no candidate from another"
        )
    warn(weak_guarantee(epsilon, delta, population))
    selected = select_privately(
        tables,
        lambda _, release: float((release.answered if known is None else release.answered & (release.labels == known)).sum()),
        num_classes=num_classes,
        num_teachers=num_teachers,
        mechanism=mechanism,
        epsilon=epsilon,
        delta=delta,
        account=budget.open(budget.dataset or ""),
        **claim,
        **options,
    )
    selected.release.save(out)
    return selected


def _check_out(out: Path, budget: BudgetSettings) -> None:
    """Refuse a folder that exists, and a ledger without a name for the data, before anything is spent."""
    if file_path("out", out).exists():
        raise ArgumentError(f"out must be a new folder, got {out}, which exists")
    if not isinstance(budget, BudgetSettings):
        raise ArgumentError(f"budget must be BudgetSettings, got {budget!r}")
    if budget.ledger and budget.dataset is None:
        raise ArgumentError("budget.dataset must be a public name of the teachers' private data where a ledger is kept, got none")


def _truth(path: str, num_queries: int) -> Integers:
    """Return (num_queries,) public classes of a file, -1 where unknown."""
    found = whole_numbers("truth", read_table(path)).ravel()
    if len(found) != num_queries:
        raise ArgumentError(f"truth must hold a class for each of {num_queries} queries, -1 where unknown, got {len(found)}")
    return found


def read_table(path: str) -> npt.NDArray[Any]:
    """Read a table of integers from FILE.npy (never unpickled) or FILE.csv (no header).

    Raises:
        ArgumentError: the file is missing, of another kind, or not a table.
    """
    path = str(file_path("file", path))
    try:
        if path.endswith(".npy"):
            return np.load(path, allow_pickle=False)
        with warnings.catch_warnings(action="error", category=UserWarning):  # of a file without content
            return np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError, EOFError, UserWarning) as error:
        reason = " ".join(str(error).split())
        raise ArgumentError(f"file must be a readable .npy or .csv table of integers, got {path} ({reason})") from error


def verify_folder(folder: Path) -> str:
    """Recompute epsilon and delta of a run or release folder from the recorded parameters, and check the files that it binds.

    Returns:
        One line that says what holds; a second one if some files are not bound.

    Raises:
        ArgumentError: no release there, a certificate that does not recompute, answers of another certificate, a bound file that
            is missing or was changed, or a student that is not bound.
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
        f"under {certificate.relation}; recomputed epsilon {epsilon:.6g}"
    )
    if not stated:
        return (
            f"{line}\nNotice: the certificate was made before certificates bound their files; it would hold for other answers too"
        )
    return f"{line}; unchanged: {', '.join(stated)}" + (
        f"\nNotice: not bound by the certificate: {', '.join(loose)}" if loose else ""
    )
