"""Tables as columns: CSV and TSV files with the standard library, Parquet where pyarrow is installed, and rows in memory.

A public table must be well-formed. A private one is refused only for what belongs to the whole file: whether it can be opened,
the header in its first line, Parquet's pages and schema. A record that cannot be read has no cells (None in every column). It
keeps its place, and all other records are read as if it were sound.

A record of a private CSV is a line, or several lines if a quoted cell spans them, the quotes are closed as the format demands,
and there are as many cells as in the header. Whatever text a CSV writer put into a record, it is therefore one record; and a
line with an odd quote, another number of cells or a carriage return inside is one record without cells, not the end of the
table. One exception: two damaged lines whose odd quotes fit together, with nothing quoted in between, are read as one record.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import math
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from teacher_student.arguments import ArgumentError, file_path

Columns = dict[str, list[object]]
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_LONGEST_CELL = 2**31 - 1
_HEADER_BYTES = 2**16
"""Enough for a header that is read ahead of its table."""


def read_table_file(argument: str, path: str | Path, *, private: bool = False) -> Columns:
    """Return the columns of a table with a header; the cells of a CSV are text, those of Parquet have its types.

    Args:
        argument: the argument's name, for the message.
        path: ends in .csv, .tsv or .parquet.
        private: no record is refused. Bytes that are not UTF-8 become lone surrogates, a record that cannot be read has None in
            every column, a cell of Parquet that Python cannot hold is None, and there may be no record at all.

    Raises:
        ArgumentError: a file that cannot be read, has no header, or repeats a column. If it is public, also a table without
            records, a record of another width, bytes that are not UTF-8, or a cell of more than 131,072 characters.
    """
    path = file_path(argument, path).expanduser()
    with _one_line(argument, path):
        if path.suffix.lower() == ".parquet":
            columns = _read_parquet(argument, path, private)
        else:
            columns = _read_csv(argument, path, private)
    if not columns or not (private or next(iter(columns.values()))):
        raise ArgumentError(f"{argument} must have at least one record, got none in {path}")
    return columns


def read_column_names(argument: str, rows: Any) -> list[str]:
    """Return the names of the columns of a table, in a file or in memory, without reading its records.

    Raises:
        ArgumentError: a file that cannot be read, has no header, or repeats a column.
    """
    if is_frame(rows):
        return _distinct(argument, [str(name) for name in rows.columns])
    if isinstance(rows, Mapping):
        return [str(name) for name in rows]
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes) and rows and isinstance(rows[0], Mapping):
        return [str(name) for name in rows[0]]
    path = file_path(argument, rows).expanduser()
    with _one_line(argument, path):
        if path.suffix.lower() == ".parquet":
            return _distinct(argument, list(_parquet(path, "read_schema").names))
        delimiter = _delimiter(argument, path)
        with path.open("rb") as file:
            start = file.read(_HEADER_BYTES)
            if b"\n" not in start and b"\r" not in start:
                start += file.read()
        return _header(argument, path, _lines(start.decode("utf-8-sig", "surrogateescape")), delimiter)[0]


@contextlib.contextmanager
def _one_line(argument: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeError, csv.Error) as error:
        not_text = isinstance(error, UnicodeError)
        reason = (
            "it is not UTF-8; save it as UTF-8" if not_text else getattr(error, "strerror", None) or str(error).splitlines()[0]
        )
        raise ArgumentError(f"{argument} must be a readable table, got {path}: {reason}") from error


def columns_of(argument: str, rows: Any, *, private: bool = False) -> Columns:
    """Return the columns of a table that may stand in a file or in memory.

    Args:
        argument: the argument's name, for the message.
        rows: a path as `read_table_file` takes it, a DataFrame, {column: cells}, or a list with one mapping for each row.
        private: as in `read_table_file`. A list of mappings is refused: its columns would be those of single records.

    Raises:
        ArgumentError: another thing, a repeated column, columns of different lengths; if it is public, also no row, or a row that
            lacks a column of the others.
    """
    if isinstance(rows, str | os.PathLike):
        return read_table_file(argument, Path(rows), private=private)
    if is_frame(rows):
        names = _distinct(argument, [str(name) for name in rows.columns])
        rows = {text: rows[name] for text, name in zip(names, rows.columns, strict=True)}
    if isinstance(rows, Mapping) and all(is_column(cells) for cells in rows.values()):
        columns = {str(name): _as_list(cells) for name, cells in rows.items()}
    elif private:
        raise ArgumentError(f"{argument} must be a path, a DataFrame or columns by name, got {type(rows).__name__}")
    elif isinstance(rows, Sequence) and not isinstance(rows, bytes) and all(isinstance(row, Mapping) for row in rows):
        columns = _turned(argument, rows)
    else:
        kind = type(rows).__name__
        raise ArgumentError(f"{argument} must be a path, a DataFrame, columns by name or a list of mappings, got {kind}")
    if len({len(cells) for cells in columns.values()}) != 1 or not (private or next(iter(columns.values()))):
        raise ArgumentError(f"{argument} must have at least one row, and all columns as many cells, got others")
    return columns


def is_frame(rows: object) -> bool:
    """Return whether `rows` is a DataFrame, of pandas or another library; none of them is needed."""
    return hasattr(rows, "columns") and hasattr(rows, "to_dict")


def _as_list(cells: Any) -> list[object]:
    """Return the cells of a column; numbers and text of an array as Python's own, which are read faster."""
    return cells.tolist() if isinstance(cells, np.ndarray) and cells.dtype.kind in "biufU" else list(cells)


def is_column(cells: object) -> bool:
    """Return whether `cells` can be a column: a list, an array, or a Series of a DataFrame."""
    return isinstance(cells, Sequence | np.ndarray) or hasattr(cells, "to_list")


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


def check_column(argument: str, table: Columns | Sequence[str], name: object, file: str) -> None:
    """Refuse the name of a column, given as `argument`, that the table `file` does not have."""
    if not isinstance(name, str):
        raise ArgumentError(f"{argument} must be the name of a column, got {name!r}")
    if name not in table:
        raise ArgumentError(
            f"{argument} must be a column of {file}, got {name!r}, which is missing from {_those_there(table, name)}"
        )


def _those_there(table: Columns | Sequence[str], name: str) -> str:
    close = difflib.get_close_matches(name, table, n=3, cutoff=0.6)
    only = next(iter(table), "") if len(table) == 1 else ""
    if found := next((mark for mark in ";\t|" if mark in only), None):
        return f"the column {only!r}, whose cells seem to be separated by {found!r}; save it with commas, or with tabs as .tsv"
    return f"the columns {', '.join(table)}" + (f"; did you mean {' or '.join(map(repr, close))}?" if close else "")


def is_missing(cell: object) -> bool:
    """Return whether a cell holds nothing: None, empty text or NaN."""
    return cell is None or (isinstance(cell, str) and not cell) or (isinstance(cell, float | np.floating) and math.isnan(cell))


def as_number(cell: object) -> float:
    """Return a cell as a float, NaN if it is not a number."""
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def as_category(cell: object, values: Container[str]) -> str:
    """Return a cell as a category: a missing one is "", and a whole number is what it is listed as, be it 3, 3.0 or "3.0".

    >>> as_category("0.0", ["0", "1"]), as_category("0", ["0.0", "1.0"]), as_category(3.0, ["3"])
    ('0', '0.0', '3')
    """
    if is_missing(cell):
        return ""
    try:
        text = str(cell)
    except Exception:  # noqa: BLE001 - an integer of 5,000 digits, say: no known category
        return ""
    if text in values or not (number := as_number(cell)).is_integer():
        return text
    whole = str(int(number))
    listed = next((form for form in (whole, str(number)) if form in values), None)
    return listed or (whole if isinstance(cell, float | np.floating) else text)


def _delimiter(argument: str, path: Path) -> str:
    if path.suffix.lower() not in _DELIMITERS:
        raise ArgumentError(f"{argument} must end in .csv, .tsv or .parquet, got {path}")
    return _DELIMITERS[path.suffix.lower()]


def _read_csv(argument: str, path: Path, private: bool) -> Columns:
    delimiter = _delimiter(argument, path)
    text = path.read_bytes().decode("utf-8-sig", "surrogateescape" if private else "strict")
    header, records = _header(argument, path, _lines(text), delimiter)
    rows = _private_rows(records, len(header)) if private else _public_rows(argument, records, len(header))
    return {name: [None if row is None else row[place] for row in rows] for place, name in enumerate(header)}


def _lines(text: str) -> list[str]:
    """Return the lines with their ends; what ends the first line, a line feed or a bare carriage return, ends all of them."""
    feed, carriage = text.find("\n"), text.find("\r")
    end = "\r" if carriage >= 0 and (feed < 0 or carriage < feed - 1) else "\n"
    lines = [line + end for line in text.split(end)]
    return lines[:-1] if lines[-1] == end else lines


class _Records:
    """The records of a CSV's lines in turn; after a damaged one, `at` puts the reader back to any line."""

    def __init__(self, lines: list[str], delimiter: str, at: int = 0) -> None:
        self._lines, self.at = lines, at
        self._rows = csv.reader(self, delimiter=delimiter, strict=True, skipinitialspace=True)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """Return the next line to the CSV reader."""
        if self.at >= len(self._lines):
            raise StopIteration
        self.at += 1
        return self._lines[self.at - 1]

    def take(self) -> list[str] | None:
        """Return the cells of the next record, [] for a blank line, None at the end."""
        return next(self._rows, None)


def _header(argument: str, path: Path, lines: list[str], delimiter: str) -> tuple[list[str], _Records]:
    """Return the names and the records. The header is one line, so that a damaged one takes in no record and shows none."""
    header = _Records(lines[:1], delimiter).take()
    if not header:
        raise ArgumentError(f"{argument} must have at least one record, and column names before it, got none in {path}")
    "".join(header).encode()  # a UnicodeError where it was not UTF-8
    return _distinct(argument, header), _Records(lines, delimiter, at=1)


def _distinct(argument: str, header: list[str]) -> list[str]:
    if len(set(header)) != len(header):
        raise ArgumentError(f"{argument} must have distinct column names, got {', '.join(header)}")
    return header


def _public_rows(argument: str, records: _Records, width: int) -> list[list[str]]:
    rows = []
    while (row := records.take()) is not None:
        if row and len(row) != width:
            raise ArgumentError(f"{argument} must have {width} cells in every row, got {len(row)} in line {records.at}")
        if row:  # a blank line is not a record
            rows.append(row)
    return rows


def _private_rows(records: _Records, width: int) -> list[list[str] | None]:
    rows: list[list[str] | None] = []
    longest = csv.field_size_limit(_LONGEST_CELL)
    try:
        while True:
            first = records.at
            try:
                row = records.take()
            except csv.Error:
                row = [""] * (width + 1)
            if row is None:
                return rows
            if row and len(row) != width:
                records.at = first + 1
                rows.append(None)
            elif row:
                rows.append(row)
    finally:
        csv.field_size_limit(longest)


def _parquet(path: Path, read: str) -> Any:
    """Call a function of pyarrow.parquet; its own exceptions become an `OSError`."""
    try:
        from pyarrow import parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise ArgumentError(
            f"pyarrow must be installed to read {path}; uv sync --extra tables (in a checkout), pip install "
            "teacher-student[tables], or save the table as CSV"
        ) from error
    try:
        return getattr(parquet, read)(path)
    except Exception as error:
        if type(error).__module__.startswith("pyarrow"):
            raise OSError(str(error)) from error
        raise


def _read_parquet(argument: str, path: Path, private: bool) -> Columns:
    """Read all columns. A column's type belongs to the file, not to a record: cells of an unexpected type count as they are."""
    table = _parquet(path, "read_table")
    names = _distinct(argument, list(table.column_names))
    return {name: _cells(argument, name, table.column(place), private) for place, name in enumerate(names)}


def _cells(argument: str, name: str, cells: Any, private: bool) -> list[object]:
    """Return Python's objects of an Arrow column. Not every value has one: text that is not UTF-8, a date after the year 9999."""
    try:
        return cells.to_pylist()  # type: ignore[no-any-return]
    except Exception as error:
        if not private:
            raise ArgumentError(f"{argument} must have readable cells in column {name!r}, but: {error}") from error
        return [_cell(value) for value in cells]


def _cell(value: Any) -> object:
    try:
        return value.as_py()
    except Exception:  # noqa: BLE001 - no cell of a private record may stop the run
        return None
