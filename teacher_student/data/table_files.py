"""Tables as columns: CSV and TSV files with the standard library, Parquet where pyarrow is installed, and rows in memory."""

from __future__ import annotations

import csv
import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from teacher_student.arguments import ArgumentError, file_path

Columns = dict[str, list[object]]
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def read_table_file(argument: str, path: str | Path) -> Columns:
    """Return the columns of a table with a header; the cells of a CSV are text, those of Parquet have its types.

    Args:
        argument: the argument's name, for the message.
        path: ends in .csv, .tsv or .parquet.

    Raises:
        ArgumentError: a file that cannot be read, is empty, repeats a column, or has a row of another width.
    """
    path = file_path(argument, path).expanduser()
    try:
        if path.suffix.lower() == ".parquet":
            columns = _read_parquet(path)
        elif path.suffix.lower() in _DELIMITERS:
            columns = _read_csv(argument, path, _DELIMITERS[path.suffix.lower()])
        else:
            raise ArgumentError(f"{argument} must end in .csv, .tsv or .parquet, got {path}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ArgumentError(f"{argument} must be a readable table, got {path}: {reason}") from error
    if not columns or not next(iter(columns.values())):
        raise ArgumentError(f"{argument} must have at least one record, got none in {path}")
    return columns


def columns_of(argument: str, rows: Any) -> Columns:
    """Return the columns of a table that may stand in a file or in memory.

    Args:
        argument: the argument's name, for the message.
        rows: a path as `read_table_file` takes it, a pandas DataFrame, {column: cells}, or a list with one mapping for each row.

    Raises:
        ArgumentError: another thing, no row, or a row that lacks a column of the others.
    """
    if isinstance(rows, str | os.PathLike):
        return read_table_file(argument, Path(rows))
    if hasattr(rows, "columns") and hasattr(rows, "to_dict"):  # a DataFrame; pandas itself is not needed
        rows = rows.to_dict(orient="list")
    if isinstance(rows, Mapping) and all(isinstance(cells, Sequence | np.ndarray) for cells in rows.values()):
        columns = {str(name): list(cells) for name, cells in rows.items()}
    elif isinstance(rows, Sequence) and not isinstance(rows, bytes) and all(isinstance(row, Mapping) for row in rows):
        columns = _turned(argument, rows)
    else:
        kind = type(rows).__name__
        raise ArgumentError(f"{argument} must be a path, a DataFrame, columns by name or a list of mappings, got {kind}")
    if len({len(cells) for cells in columns.values()}) != 1 or not next(iter(columns.values())):
        raise ArgumentError(f"{argument} must have at least one row, and all columns as many cells, got others")
    return columns


def _turned(argument: str, rows: Sequence[Mapping[Any, object]]) -> Columns:
    names = list(dict.fromkeys(name for row in rows for name in row))
    for number, row in enumerate(rows, start=1):
        if missing := [name for name in names if name not in row]:
            raise ArgumentError(f"{argument} must have a cell {missing[0]!r} in every row, got row {number} without it")
    return {str(name): [row[name] for row in rows] for name in names}


def column(argument: str, table: Columns, name: str) -> list[object]:
    """Return a column, or say that it is missing and which come close."""
    if name not in table:
        raise ArgumentError(f"{argument} must have a column {name!r}, got {_those_there(table, name)}")
    return table[name]


def check_column(argument: str, table: Columns, name: object, file: str) -> None:
    """Refuse the name of a column, given as `argument`, that the table `file` does not have."""
    if not isinstance(name, str):
        raise ArgumentError(f"{argument} must be the name of a column, got {name!r}")
    if name not in table:
        raise ArgumentError(
            f"{argument} must be a column of {file}, got {name!r}, which is missing from {_those_there(table, name)}"
        )


def _those_there(table: Columns, name: str) -> str:
    close = difflib.get_close_matches(name, table, n=3, cutoff=0.6)
    return f"the columns {', '.join(table)}" + (f"; did you mean {' or '.join(map(repr, close))}?" if close else "")


def _read_csv(argument: str, path: Path, delimiter: str) -> Columns:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=True)
        header = next(rows, [])
        if len(set(header)) != len(header):
            raise ArgumentError(f"{argument} must have distinct column names, got {', '.join(header)}")
        records = []
        for row in rows:
            if not row:  # a blank line is no record
                continue
            if len(row) != len(header):
                raise ArgumentError(
                    f"{argument} must have {len(header)} cells in every row, got {len(row)} in line {rows.line_num}"
                )
            records.append(row)
    return {name: list(cells) for name, cells in zip(header, zip(*records, strict=True), strict=True)} if records else {}


def _read_parquet(path: Path) -> Columns:
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from pyarrow import parquet
    except ImportError as error:
        raise ArgumentError(
            f"pyarrow must be installed to read {path}; uv sync --extra tables (in a checkout), pip install "
            "teacher-student[tables], or save the table as CSV"
        ) from error
    try:
        columns: Columns = parquet.read_table(path).to_pydict()
    except pyarrow.ArrowException as error:
        raise OSError(str(error)) from error
    return columns
