"""Rows of Adult as the original files have them, text by text."""

from __future__ import annotations

from teacher_student.data.adult import CATEGORIES, COLUMNS, AdultEncoding, Table


def original_rows(table: Table, encoding: AdultEncoding) -> dict[str, list[object]]:
    """Return the columns that the encoding needs, of rows of the embedded table."""
    return {name: [original_value(name, code) for code in table[:, COLUMNS.index(name)].tolist()] for name in encoding.attributes}


def original_value(name: str, code: int) -> str:
    """Return a cell of the original file."""
    if name not in CATEGORIES:
        return str(code)
    return "?" if code == 0 else CATEGORIES[name][code - 1]
