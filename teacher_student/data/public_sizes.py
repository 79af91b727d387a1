"""What is public of a data set before anything is released.

Checks get this instead of the data set, so that no refusal, message or exit code can depend on a private record or on the number
of records. Under `add_remove` that number is private, and no setting is compared with it.
"""

from __future__ import annotations

import dataclasses

from teacher_student.arguments import ArgumentError, choice

NEIGHBOURS = ("add_remove", "replace_one", "label_only")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicSizes:
    """Sizes and names, none of them computed from private records.

    Attributes:
        name: name of the data.
        num_classes: length of the public class list.
        num_points: number of public points.
        record_shape: shape of one record as teachers see it.
        feature_names: names of the columns that teachers see, or None.
        neighbours: the relation that the data supports.
        has_ids: whether records have ids or users.
        ids_name_labels: whether another label would give a record another id.
        student_sees_records: whether the records are also given in the student's columns.
        not_covered: what the certificate says beside the usual about what is not covered.
    """

    name: str
    num_classes: int
    num_points: int
    record_shape: tuple[int, ...]
    feature_names: tuple[str, ...] | None
    neighbours: str
    has_ids: bool
    ids_name_labels: bool
    student_sees_records: bool
    not_covered: tuple[str, ...] = ()


def check_neighbours(neighbours: str, *, has_ids: bool, ids_name_labels: bool) -> None:
    """Refuse a relation that records with such ids do not support.

    Raises:
        ArgumentError: an unknown relation, `add_remove` without ids, or another one for ids that contain the label.
    """
    choice("neighbours", neighbours, NEIGHBOURS)
    if neighbours == "add_remove" and not has_ids:
        raise ArgumentError(
            "neighbours must be replace_one for records without ids, got 'add_remove'; removing a record moves all later "
            "positions, so name a column with an id stored beside each record"
        )
    if neighbours != "add_remove" and ids_name_labels:
        raise ArgumentError(
            f"neighbours must be add_remove for ids that contain the label, got {neighbours!r}; a changed label would "
            "change the id and move two shards, so give ids without it"
        )
