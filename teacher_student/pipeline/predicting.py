"""Rows in, predictions out: a published student asked about a file, from its release folder alone."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, file_path
from teacher_student.data.table_files import Columns, check_column, read_table_file
from teacher_student.pipeline.folder import write_atomically
from teacher_student.pipeline.student_files import load_student

Rows = Columns | npt.NDArray[Any]


def predict_file(folder: str | Path, *, table: str, out: str, id: str | None = None) -> str:  # noqa: A002 - the verb says id=COLUMN
    """Write the student's classes and probabilities for the rows of a file, in their order.

    Args:
        folder: a run's `release/`, a copy of it, or the run's folder.
        table: a .csv, .tsv or .parquet table of raw rows, or a .npy array of features, as of images; never unpickled.
        out: a new .csv file: the row (its number from 1, or its `id`), the prediction, each class's probability to six decimals.
        id: name of a column of `table` that names its rows in `out`, or None.

    Returns:
        What was written, and how cells were taken that are not as they should be; a line each.

    Raises:
        ArgumentError: no student, a table that does not fit it, a file that is there or cannot be written; nothing is written.
    """
    student = load_student(folder)
    target, rows = _new_file(out), _read(table)
    heading, labels = _row_names(rows, id)
    probabilities = student.predict_proba(rows)
    predicted = student.names(probabilities)
    header: list[object] = [heading, "prediction", *(f"probability={name}" for name in student.class_names)]
    _write(target, [header, *_lines(labels, predicted.tolist(), probabilities)])
    counts = Counter(predicted.tolist())
    found = ", ".join(f"{counts[name]:,} {name}" for name in student.class_names)
    remarks = student.encoding.remarks(rows) if student.encoding is not None and isinstance(rows, dict) else []
    return "\n".join([*remarks, f"{len(predicted):,} predictions ({found}) written to {target}"])


def _new_file(out: str) -> Path:
    path = file_path("out", out).expanduser()
    if path.suffix.lower() != ".csv" or path.exists() or not path.parent.is_dir():
        raise ArgumentError(f"out must be a new .csv file in a folder that is there, got {out}")
    return path


def _read(table: str) -> Rows:
    path = file_path("table", table).expanduser()
    if path.suffix.lower() != ".npy":
        return read_table_file("table", path)
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise ArgumentError(f"table must be a readable .npy array of numbers, got {path} ({error})") from error


def _row_names(rows: Rows, id: str | None) -> tuple[str, Sequence[object]]:  # noqa: A002 - as above
    if id is None:
        return "row", range(1, len(next(iter(rows.values())) if isinstance(rows, dict) else rows) + 1)
    if not isinstance(rows, dict):
        raise ArgumentError(f"id must be null for a table without named columns, got {id!r}")
    check_column("id", rows, id, "table")
    return id, rows[id]


def _lines(labels: Sequence[object], predicted: list[str], probabilities: npt.NDArray[np.float32]) -> list[list[object]]:
    return [
        [label, name, *(f"{value:.6f}" for value in row)]
        for label, name, row in zip(labels, predicted, probabilities.tolist(), strict=True)
    ]


def _write(path: Path, rows: list[list[object]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    try:
        write_atomically(path, text.getvalue())
    except OSError as error:
        raise ArgumentError(f"out must be a file that can be written, got {path} ({error.strerror})") from error
