"""Table files as columns: CSV and TSV with the standard library, Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
from pathlib import Path

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


def column(argument: str, table: Columns, name: str) -> list[object]:
    """Return a column, or name those that there are."""
    if name not in table:
        raise ArgumentError(f"{argument} must have a column {name!r}, got the columns {', '.join(table)}")
    return table[name]


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
        raise ArgumentError(f"pyarrow must be installed to read {path}; pip install pyarrow, or save the table as CSV") from error
    try:
        columns: Columns = parquet.read_table(path).to_pydict()
    except pyarrow.ArrowException as error:
        raise OSError(str(error)) from error
    return columns
