"""Your own table, CSV or Parquet: which columns are features, label, id and user is said in the config.

The encoding is public: ranges and category lists are declared, or computed from the *public* table, never from the private one.
Each private record is encoded by itself. A number that is missing or unreadable becomes the middle of its range, one outside
the range its nearest end, and a category that is not listed all zeros: nothing that a single record holds stops the run. What
lies outside the domain stops it before anything is computed: a missing column, an id that is empty or occurs twice, a label that
is not in the class list.

Without an id column the guarantee is `replace_one`. In label-private mode there is no public table: features, their number and
order are public, and some of the training records, stripped of their labels, are the queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from teacher_student.arguments import ArgumentError, listed, positive_integer
from teacher_student.data.dataset import Labels, PrivateDataset
from teacher_student.data.identifiers import canonical_identifiers, refuse_duplicates
from teacher_student.data.splits import public_split
from teacher_student.data.table_encoding import TableEncoding
from teacher_student.data.table_files import Columns, check_column, column, read_table_file


def load_table(
    path: str | Path,
    label: str,
    *,
    classes: Sequence[object] | None = None,
    id: str | None = None,  # noqa: A002 - the config says data.id=COLUMN
    user: str | None = None,
    public: str | Path | None = None,
    evaluation: str | Path | None = None,
    label_private: int | None = None,
    ranges: Mapping[str, Sequence[float]] | None = None,
    categories: Mapping[str, Sequence[object]] | None = None,
    neighbours: str = "",
    split_seed: int = 0,
    evaluation_public: bool = True,
    name: str | None = None,
) -> PrivateDataset:
    """Return the records of a table as a dataset.

    Args:
        path: the private table: .csv, .tsv or .parquet, with a header.
        label: name of the label column.
        classes: the public class list in tie order; None takes the labels of the public evaluation table, sorted.
        id: name of the column with the id stored beside each record, or None for `replace_one`.
        user: name of the column with the owner of each record, or None.
        public: the public table, whose records will be labelled; a label column in it is not read.
        evaluation: a labelled table to measure the student on, or None.
        label_private: instead of `public`: how many training records, stripped of their labels, are queried.
        ranges: {column: [low, high]} of the numeric features.
        categories: {column: [value, ...]} of the categorical features. With neither, both come from the public table.
        neighbours: "add_remove", "replace_one" or "" for the default (see `PrivateDataset`).
        split_seed: public; chooses the queried records in label-private mode.
        evaluation_public: False if the evaluation table must stay private.
        name: for reports; None takes the file's name.

    Raises:
        ArgumentError: a file, column, id, label or specification that cannot be used; one line that says which.
    """
    if (public is None) == (label_private is None):
        raise ArgumentError("public or label_private must be given (one of them): a public table, or how many records to query")
    private = read_table_file("path", path)
    for argument, used in (("label", label), ("id", id), ("user", user)):
        if used is not None or argument == "label":
            check_column(argument, private, used, str(path))
    special = [used for used in (label, id, user) if used is not None]
    held_out = None if evaluation is None else read_table_file("evaluation", evaluation)
    open_table = private if public is None else read_table_file("public", public)  # label-private: the features are public
    encoding = _encoding(ranges, categories, open_table, special)
    class_names = _class_names(classes, held_out if evaluation_public else None, label)
    features = encoding.encode("path", private)
    if label_private is None:
        queries = encoding.encode("public", open_table)
    else:
        neighbours = "label_only"
        number = positive_integer("label_private", label_private, maximum=len(features) - 1)
        queries = features[public_split(len(features), number, split_seed)[0]]
    return PrivateDataset(
        name=Path(path).stem if name is None else name,
        num_classes=len(class_names),
        class_names=class_names,
        private_features=features,
        private_labels=_labels("path", private, label, class_names),
        private_ids=None if id is None else _ids(id, private),
        public_features=queries,
        evaluation_features=None if held_out is None else encoding.encode("evaluation", held_out),
        evaluation_labels=None if held_out is None else _labels("evaluation", held_out, label, class_names),
        feature_names=encoding.feature_names,
        private_users=None if user is None else _filled("user", user, private),
        neighbours=neighbours,
        evaluation_public=evaluation_public,
        student_encoding=encoding,
    )


def _encoding(
    ranges: Mapping[str, Sequence[float]] | None,
    categories: Mapping[str, Sequence[object]] | None,
    open_table: Columns,
    special: list[str],
) -> TableEncoding:
    if ranges is None and categories is None:
        return TableEncoding.from_public(open_table, special)
    encoding = TableEncoding.declared({} if ranges is None else ranges, {} if categories is None else categories)
    for used in special:
        if used in encoding.ranges or used in encoding.categories:
            raise ArgumentError(f"ranges and categories must not name the label, id or user column, got {used!r}")
    return encoding


def _class_names(classes: Sequence[object] | None, held_out: Columns | None, label: str) -> tuple[str, ...]:
    if classes is not None and not isinstance(classes, str):
        return tuple(str(value) for value in listed("classes", classes))
    if classes is not None or held_out is None:
        raise ArgumentError(
            f"classes must be the public list of labels, got {classes!r}; the private table may not supply it, because one "
            "record could add a class; give it, such as data.classes=[no,yes]"
        )
    return tuple(sorted({str(cell) for cell in column("evaluation", held_out, label)}))


def _ids(name: str, table: Columns) -> np.ndarray:
    cells = _filled("id", name, table)
    refuse_duplicates("id", canonical_identifiers("id", cells))
    return cells


def _filled(argument: str, name: str, table: Columns) -> np.ndarray:
    cells = column("path", table, name)
    empty = [row for row, cell in enumerate(cells, start=1) if cell is None or cell == ""]
    if empty:
        raise ArgumentError(f"{argument} must be filled in for every record, got an empty {name!r} in record {empty[0]}")
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def _labels(argument: str, table: Columns, label: str, names: tuple[str, ...]) -> Labels:
    position = {name: index for index, name in enumerate(names)}
    cells = [str(cell) for cell in column(argument, table, label)]
    unknown = [row for row, cell in enumerate(cells, start=1) if cell not in position]
    if unknown:
        row = unknown[0]
        shown = ", ".join(names[:20])
        raise ArgumentError(
            f"{argument} must have one of the classes {shown} in column {label!r}, got {cells[row - 1]!r} in record {row}"
        )
    return np.array([position[cell] for cell in cells], dtype=np.int64)
