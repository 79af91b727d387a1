"""Your own table, CSV or Parquet: which columns are features, label, id and user is said in the config.

The encoding is public: ranges and category lists are declared, or computed from the *public* table, never from the private one.
Each private record is encoded by itself. A number that is missing or unreadable becomes the middle of its range, one outside
the range its nearest end, and a category that is not listed all zeros. A missing id is an id too, and records of one id share a
teacher. A record whose label is missing or not in the class list has no teacher. Nothing that a single record holds stops the
run, or changes a message, its exit code or another record's features (see `table_files` for records that cannot be read at all).
What is refused belongs to the whole file: one that cannot be opened, a missing column.

Without an id column the guarantee is `replace_one`. In label-private mode there is no public table: features, their number and
order are public, and some of the training records, stripped of their labels, are the queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from teacher_student.arguments import ArgumentError, file_path, listed, positive_integer
from teacher_student.data.dataset import UNUSABLE, Labels, PrivateDataset, evaluation_is_public
from teacher_student.data.fingerprints import refuse_private_file
from teacher_student.data.identifiers import MISSING, canonical_identifiers
from teacher_student.data.splits import public_split
from teacher_student.data.table_encoding import TableEncoding, as_category
from teacher_student.data.table_files import Columns, check_column, column, read_column_names, read_table_file


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
    evaluation_public: bool | None = None,
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
        evaluation_public: whether figures on the evaluation table may be published; must be said where there is one.
        name: for reports; None takes the file's name.

    Raises:
        ArgumentError: a file, column or specification that cannot be used, or a public cell; one line that says which.
    """
    check_tables(path, label, id, user, public, evaluation, label_private, evaluation_public)
    evaluation_public = evaluation_is_public(evaluation, evaluation_public)
    private = read_table_file("path", path, private=True)
    special = [used for used in (label, id, user) if used is not None]
    held_out = None if evaluation is None else read_table_file("evaluation", evaluation, private=not evaluation_public)
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
        private_labels=_labels("path", private, label, class_names, private=True),
        private_ids=None if id is None else _cells(id, private),
        public_features=queries,
        evaluation_features=None if held_out is None else encoding.encode("evaluation", held_out),
        evaluation_labels=None
        if held_out is None
        else _labels("evaluation", held_out, label, class_names, private=not evaluation_public),
        feature_names=encoding.feature_names,
        private_users=None if user is None else _cells(user, private),
        neighbours=neighbours,
        evaluation_public=evaluation_public,
        student_encoding=encoding,
        private_notes=_shared_ids(id, private, {"public": None if public is None else open_table, "evaluation": held_out}),
    )


def check_tables(
    path: object,
    label: object,
    id: object = None,  # noqa: A002 - as above
    user: object = None,
    public: object = None,
    evaluation: object = None,
    label_private: object = None,
    evaluation_public: bool | None = None,
) -> None:
    """Refuse what can be seen without reading a record of the private table: it takes no time, and no import that does.

    Args:
        path: as `load_table` takes it, and all others likewise.
        label: must be in the header.
        id: must be in the header.
        user: must be in the header.
        public: must be there, and another file.
        evaluation: must be there, and another file.
        label_private: given if `public` is not.
        evaluation_public: must be said of an evaluation table.

    Raises:
        ArgumentError: one line that says which.
    """
    if (public is None) == (label_private is None):
        raise ArgumentError("public or label_private must be given (one of them): a public table, or how many records to query")
    header = read_column_names("path", file_path("path", path))
    for argument, used in (("label", label), ("id", id), ("user", user)):
        if used is not None or argument == "label":
            check_column(argument, header, used, str(path))
    files = {"public": public, "evaluation": evaluation}
    found = {name: None if file is None else file_path(name, file).expanduser() for name, file in files.items()}
    for name, file in found.items():
        if file is not None:
            read_column_names(name, file)
    private = [] if evaluation_is_public(evaluation, evaluation_public) else ["evaluation"]
    refuse_private_file(file_path("path", path).expanduser(), found, private)


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


def _cells(name: str, table: Columns) -> np.ndarray:
    cells = column("path", table, name)
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def _shared_ids(name: str | None, private: Columns, public: Mapping[str, Columns | None]) -> tuple[str, ...]:
    """Lines for the keeper about ids that public tables repeat."""
    if name is None:
        return ()
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
        raise ArgumentError(
            f"{argument} must have one of the classes {shown} in column {label!r}, got {str(cells[row])!r} in record {row + 1}"
        )
    return np.array(found, dtype=np.int64)
