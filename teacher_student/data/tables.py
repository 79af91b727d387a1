"""Your own table, CSV, Parquet or in memory: which columns are features, label, id and user is said in the config.

The encoding is public: ranges and category lists are declared or computed from the *public* table, never from the private one.
Each private record is encoded by itself. A number that is missing or unreadable becomes the middle of its range, one outside the
range its nearest end, and a category that is not listed all zeros. A missing id is an id too, and records of one id share a
teacher. A record whose label is missing or not in the class list has no teacher. Nothing that a single record holds stops the
run, or changes a message, its exit code or another record's features (see `table_files` for records that cannot be read at all).
Only what belongs to the whole file is refused: one that cannot be opened, a missing column.

Without an id column the guarantee is `replace_one`. Without a public table it is `label_only`, which must be asked for: features,
their number and their order are then public, and training records are the queries.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, file_path, finite_number, listed
from teacher_student.data.dataset import UNUSABLE, Labels, PrivateDataset, evaluation_is_public
from teacher_student.data.encodings import UNKNOWN_CATEGORY, RowEncoding, remark
from teacher_student.data.fingerprints import refuse_private_file
from teacher_student.data.identifiers import MISSING, canonical_identifiers
from teacher_student.data.table_files import (
    Columns,
    as_category,
    as_number,
    check_column,
    column,
    columns_of,
    is_missing,
    read_column_names,
)

MOST_CATEGORIES = 100
"""A public column of text with more values is an identifier or prose, not a category."""
MOST_MIXED = 20
"""A public column of numbers and of text with more values is a column of numbers in which some cells are odd."""
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
PLACEHOLDERS = frozenset(
    {"NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?", "<NA>"}
    | {"#N/A", "#NA", "#DIV/0!", "#NULL!", "#NUM!", "#REF!", "#VALUE!", "#NAME?"}  # of spreadsheets
)
"""Cells that count as missing in a column that otherwise holds numbers."""


@dataclass(frozen=True)
class TableEncoding(RowEncoding):
    """Numbers to [0, 1], categories to indicator columns; every record is encoded from its own cells alone.

    Attributes:
        ranges: numeric columns with their public (low, high).
        categories: categorical columns with their public values; a value that is not listed is all zeros.

    Raises:
        ArgumentError: a range that is not low < high, an empty or repeating list, a column in both, no column at all.
    """

    kind: ClassVar[str] = "table"
    ranges: Mapping[str, Any]
    categories: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Check what the config says, and take it in canonical types."""
        for argument, given in (("ranges", self.ranges), ("categories", self.categories)):
            if not isinstance(given, Mapping):
                raise ArgumentError(f"{argument} must be a mapping from column names, got {given!r}")
        if both := set(self.ranges) & set(self.categories):
            raise ArgumentError(f"ranges and categories must name different columns, got {', '.join(sorted(both))} in both")
        if not self.ranges and not self.categories:
            raise ArgumentError("ranges and categories must name at least one feature column, got none")
        for field, check in (("ranges", _range), ("categories", _category_list)):
            checked = {str(name): check(str(name), given) for name, given in getattr(self, field).items()}
            object.__setattr__(self, field, checked)

    @classmethod
    def from_public(cls, table: Columns, excluded: Sequence[str]) -> TableEncoding:
        """Compute ranges and categories from a public table.

        A column is numeric if all its cells are numbers, missing or `PLACEHOLDERS`. One with a single value is not a feature.

        Args:
            table: public.
            excluded: label, id and user columns.

        Raises:
            ArgumentError: a text column with more than `MOST_CATEGORIES` values, one of numbers and some text, one of numbers
                with decimal commas, or no usable column.
        """
        ranges: dict[str, tuple[float, float]] = {}
        categories: dict[str, list[str]] = {}
        for name, cells in table.items():
            present = [cell for cell in cells if not is_missing(cell)]
            values = sorted({str(cell) for cell in present})
            if name in excluded or len(values) < 2:
                continue
            numbers = [as_number(cell) for cell in present if str(cell) not in PLACEHOLDERS]
            if numbers and all(map(math.isfinite, numbers)):
                if min(numbers) < max(numbers):
                    ranges[name] = (min(numbers), max(numbers))
            elif reason := _no_category(name, values):
                raise ArgumentError(reason)
            else:
                categories[name] = values
        return cls(ranges, categories)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(d,) names: the numeric columns, then `column=value`."""
        indicators = (f"{name}={value}" for name, values in self.categories.items() for value in values)
        return (*self.ranges, *indicators)

    def encode(self, argument: str, table: Columns) -> npt.NDArray[np.float32]:
        """Return (n, d) float32 in [0, 1], never NaN; `argument` names the table in messages."""
        encoded: list[npt.NDArray[np.generic]] = []
        for name, (low, high) in self.ranges.items():
            numbers = np.array([as_number(cell) for cell in column(argument, table, name)])
            with np.errstate(over="ignore", invalid="ignore"):  # one private number must not show as a warning
                scaled = np.clip((numbers - low) / (high - low), 0.0, 1.0)
            encoded.append(np.where(np.isnan(scaled), 0.5, scaled))
        for name, values in self.categories.items():
            position = {value: index for index, value in enumerate(values)}
            codes = np.array([position.get(as_category(cell, position), -1) for cell in column(argument, table, name)])
            encoded.extend(codes == index for index in range(len(values)))
        return np.stack(encoded, axis=1).astype(np.float32)

    def remarks(self, table: Columns) -> list[str]:
        """Return a line for each column with cells outside what was declared, and what they count as."""
        lines = []
        for name, (low, high) in self.ranges.items():
            numbers = [as_number(cell) for cell in table[name]]
            lines += remark(name, sum(map(math.isnan, numbers)), "no number", f"the middle of {low:g} to {high:g}")
            outside = sum(number < low or number > high for number in numbers)
            lines += remark(name, outside, f"outside {low:g} to {high:g}", "its nearest end")
        for name, values in self.categories.items():
            unknown = sum(as_category(cell, values) not in values for cell in table[name])
            lines += remark(name, unknown, *UNKNOWN_CATEGORY)
        return lines

    def columns_in_words(self, table: Columns, excluded: Sequence[str]) -> str:
        """Return in one line how the columns of a public table are seen, and where its cells are missing.

        Args:
            table: public.
            excluded: label, id and user columns.
        """
        missing = {name: sum(map(is_missing, table[name])) for name in (*self.ranges, *self.categories) if name in table}
        kinds = {
            "numbers": list(self.ranges),
            "categories": [f"{name} ({len(values)})" for name, values in self.categories.items()],
            "not used": [name for name in table if name not in (*self.ranges, *self.categories, *excluded)],
            "cells missing in public": [f"{name} ({count:,})" for name, count in missing.items() if count],
        }
        return "Columns: " + "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names)


def _no_category(name: str, values: list[str]) -> str:
    """Return why a public column with these values is not a category, or nothing."""
    odd = [value for value in values if value not in PLACEHOLDERS and not math.isfinite(as_number(value))]
    if odd and all(map(_DECIMAL_COMMA.fullmatch, odd)):
        return f"public must have numbers with decimal points in column {name!r}, got {odd[0]!r}"
    if odd and 2 * len(odd) < len(values) and len(values) > MOST_MIXED:
        return (
            f"public must have numbers in column {name!r}, got {odd[0]!r} among them; leave such cells empty, or drop the column "
            f"with data.drop=[{name}]"
        )
    if len(values) <= MOST_CATEGORIES:
        return ""
    return (
        f"categories must be declared for {name!r}, got {len(values)} values in the public table; if it is no feature, drop it, "
        f"such as data.drop=[{name}]"
    )


def _range(name: str, bounds: Sequence[float]) -> tuple[float, float]:
    try:
        low, high = (finite_number(f"ranges of {name}", bound) for bound in bounds)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"ranges of {name} must be two numbers [low, high], got {bounds!r}") from error
    if low >= high:
        raise ArgumentError(f"ranges of {name} must be [low, high] with low < high, got {bounds!r}")
    return low, high


def _category_list(name: str, values: Sequence[object]) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise ArgumentError(f"categories of {name} must be a list of values, got {values!r}")
    named = tuple(str(value) for value in values)
    if len(set(named)) != len(named):
        raise ArgumentError(f"categories of {name} must be distinct, got {', '.join(named)}")
    return named


def load_table(
    path: Any,
    label: str,
    *,
    classes: Sequence[object] | None = None,
    id: str | None = None,  # noqa: A002 - the config says data.id=COLUMN
    user: str | None = None,
    public: Any = None,
    evaluation: Any = None,
    ranges: Mapping[str, Sequence[float]] | None = None,
    categories: Mapping[str, Sequence[object]] | None = None,
    neighbours: str = "",
    evaluation_public: bool | None = None,
    name: str | None = None,
    drop: Sequence[str] | None = None,
) -> PrivateDataset:
    """Return the records of a table as a data set.

    Args:
        path: the private table: .csv, .tsv or .parquet with a header, a DataFrame, or {column: cells}.
        label: name of the label column.
        classes: the public class list in tie order; None takes the labels of the public evaluation table, sorted.
        id: name of the column with the id stored beside each record, or None for `replace_one`.
        user: name of the column with the owner of each record, or None.
        public: the public table, as `path` or a list of mappings, whose records will be labelled; a label column in it is not
            read. None for `label_only`: all training records, stripped of their labels, are queries (`LabelsOnly` takes some of
            them).
        evaluation: a labelled table to measure the student on, or None.
        ranges: {column: [low, high]} of the numeric features.
        categories: {column: [value, ...]} of the categorical features. With neither, both come from the public table.
        neighbours: "add_remove", "replace_one", "label_only" or "" for the default (see `PrivateDataset`).
        evaluation_public: whether figures on the evaluation table may be published; must be said if there is one.
        name: for reports; None takes the file's name, or "table".
        drop: columns that are no features, where ranges and categories come from the public table.

    Raises:
        ArgumentError: a file, column or specification that cannot be used, or a public cell; one line that says which.
    """
    check_tables(path, label, id, user, public, evaluation, neighbours, evaluation_public, drop)
    evaluation_public = evaluation_is_public(evaluation, evaluation_public)
    private = columns_of("path", path, private=True)
    special = [used for used in (label, id, user) if used is not None]
    held_out = None if evaluation is None else columns_of("evaluation", evaluation, private=not evaluation_public)
    open_table = private if public is None else columns_of("public", public)  # label_only: the features are public
    encoding = _encoding(ranges, categories, open_table, special, _dropped(drop))
    class_names = _class_names(classes, held_out if evaluation_public else None, label)
    features = encoding.encode("path", private)
    evaluated = None if held_out is None else _labels("evaluation", held_out, label, class_names, private=not evaluation_public)
    shared = {"public": None if public is None else open_table, "evaluation": held_out}
    return PrivateDataset(
        name=name or (Path(path).stem if _is_file(path) else "table"),
        num_classes=len(class_names),
        class_names=class_names,
        private_features=features,
        private_labels=_labels("path", private, label, class_names, private=True),
        private_ids=None if id is None else _cells(private[id]),
        public_features=features if public is None else encoding.encode("public", open_table),
        evaluation_features=None if held_out is None else encoding.encode("evaluation", held_out),
        evaluation_labels=evaluated,
        feature_names=encoding.feature_names,
        private_users=None if user is None else _cells(private[user]),
        neighbours=neighbours,
        evaluation_public=evaluation_public,
        student_encoding=encoding,
        public_notes=() if public is None else (encoding.columns_in_words(open_table, special),),
        private_notes=() if id is None else _shared_ids(id, private, shared),
    )


def check_tables(
    path: object,
    label: object,
    id: object = None,  # noqa: A002 - as above
    user: object = None,
    public: object = None,
    evaluation: object = None,
    neighbours: object = "",
    evaluation_public: bool | None = None,
    drop: object = None,
) -> None:
    """Refuse what can be seen without reading a record of the private table; arguments as `load_table` takes them.

    Label, id and user must be in the header; the public and the evaluation table must be there, and be other files.

    Raises:
        ArgumentError: one line that says which.
    """
    if public is None and neighbours != "label_only":
        raise ArgumentError(
            "public must be a table to be labelled, got None; the view labels_only queries training records instead"
        )
    header = read_column_names("path", path)
    for argument, used in (("label", label), ("id", id), ("user", user)):
        if used is not None or argument == "label":
            check_column(argument, header, used, str(path) if _is_file(path) else "the table")
    for used in _dropped(drop):
        check_column("drop", header, used, str(path) if _is_file(path) else "the table")
    files = {"public": public, "evaluation": evaluation}
    for name, file in files.items():
        if file is not None:
            read_column_names(name, file)
    found = {name: file_path(name, file).expanduser() if _is_file(file) else None for name, file in files.items()}
    private = [] if evaluation_is_public(evaluation, evaluation_public) else ["evaluation"]
    if _is_file(path):
        refuse_private_file(file_path("path", path).expanduser(), found, private)


def _is_file(table: object) -> bool:
    """Return whether a table is given as a path; else it is in memory."""
    return isinstance(table, str | os.PathLike)


def _encoding(
    ranges: Mapping[str, Sequence[float]] | None,
    categories: Mapping[str, Sequence[object]] | None,
    open_table: Columns,
    special: list[str],
    drop: Sequence[str],
) -> TableEncoding:
    if ranges is None and categories is None:
        return TableEncoding.from_public(open_table, [*special, *drop])
    if drop:
        raise ArgumentError(
            f"drop must not be given beside ranges and categories, which name all features, got {', '.join(drop)}"
        )
    encoding = TableEncoding({} if ranges is None else ranges, {} if categories is None else categories)
    for used in special:
        if used in encoding.ranges or used in encoding.categories:
            raise ArgumentError(f"ranges and categories must not name the label, id or user column, got {used!r}")
    return encoding


def _dropped(drop: object) -> list[str]:
    """Return the names of the columns to drop."""
    if isinstance(drop, str):
        raise ArgumentError(f"drop must be a list of columns, got {drop!r}")
    return [str(name) for name in listed("drop", drop or ())]


def _class_names(classes: Sequence[object] | None, held_out: Columns | None, label: str) -> tuple[str, ...]:
    if classes is not None and not isinstance(classes, str):
        return tuple(str(value) for value in listed("classes", classes))
    if classes is not None or held_out is None:
        raise ArgumentError(
            f"classes must be the public list of labels, got {classes!r}; the private table may not supply it, because one "
            "record could add a class; give it, such as data.classes=[no,yes]"
        )
    return tuple(sorted({str(cell) for cell in column("evaluation", held_out, label)}))


def _cells(cells: list[object]) -> npt.NDArray[np.generic]:
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def _shared_ids(name: str, private: Columns, public: Mapping[str, Columns | None]) -> tuple[str, ...]:
    """Return private lines about ids that public tables repeat."""
    own = _texts(private[name])
    counts = {part: len(own & _texts(table[name])) for part, table in public.items() if table is not None and name in table}
    return tuple(f"{count:,} of the private ids are in the {part} table too." for part, count in counts.items() if count)


def _texts(cells: list[object]) -> set[str]:
    return {str(each) for each in canonical_identifiers("id", cells)} - {MISSING}


def _labels(argument: str, table: Columns, label: str, names: tuple[str, ...], *, private: bool) -> Labels:
    """Class indices; a label that is missing or not in the list is `UNUSABLE` in a private table and refused in a public one."""
    position = {name: index for index, name in enumerate(names)}
    cells = column(argument, table, label)
    found = [UNUSABLE if cell is None else position.get(as_category(cell, position), UNUSABLE) for cell in cells]
    if not private and UNUSABLE in found:
        row, shown = found.index(UNUSABLE), ", ".join(names[:20])
        close = difflib.get_close_matches(str(cells[row]).strip().lower(), by_lower := {name.lower(): name for name in names}, 1)
        meant = f"; did you mean {by_lower[close[0]]!r}?" if close else ""
        raise ArgumentError(
            f"{argument} must have one of the classes {shown} in column {label!r}, got {str(cells[row])!r} in record "
            f"{row + 1}{meant}"
        )
    return np.array(found, dtype=np.int64)
