"""What a run needs to know about its data: private records, public points to label, points to evaluate on.

A run that stops or warns because of what one private record holds reveals that this record is there. Only the schema of private
arrays is therefore checked: their dimensions, the shape of a row, the type of all entries, one entry per record. No entry is:
features may be any numbers including NaN and infinity, ids may be missing or repeat, and a label that is not in the public class
list becomes `UNUSABLE`, which puts the record into no shard and changes nothing else. There may be no record at all. No message
about private arrays says how many records there are.

Public features and a public evaluation set are checked in full. A private evaluation set (`evaluation_public=False`) loses the
records that cannot be used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, any_array, choice, listed, positive_integer, true_or_false
from teacher_student.data.identifiers import canonical_identifiers, identifier_array
from teacher_student.data.public_sizes import NEIGHBOURS, PublicSizes, check_neighbours

if TYPE_CHECKING:
    from teacher_student.data.encodings import RowEncoding

UNUSABLE = -1
"""Label of a private record whose own label is missing or not in the public class list."""

_ROWS = 2**16
"""Rows that are checked at a time: public points may be an `np.memmap` larger than memory."""

Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PrivateDataset:
    """Private records beside public points; plain NumPy arrays. Invalid input raises `ArgumentError`.

    Attributes:
        name: name of the data, for reports.
        num_classes: length of the public class list.
        class_names: (num_classes,) text, in tie order.
        private_features: (n, ...) float32; NaN allowed, and n = 0.
        private_labels: (n,) int64 in [0, num_classes), or `UNUSABLE`, which any other integer becomes.
        private_ids: (n,) integers or text stored with the records, or None. Records of one id share a shard.
        public_features: (m, ...) float32, finite, in the order of the queries.
        evaluation_features: (e, ...) float32, finite, or None.
        evaluation_labels: (e,) int64, or None.
        feature_names: names of the columns of two-dimensional features, or None.
        private_users: (n,) the owner of each record, or None. With users, all records of a user are protected together.
        neighbours: "add_remove" (the default when there are ids or users), "replace_one" (the default, and the only choice,
            without) or "label_only".
        evaluation_public: False if figures computed on the evaluation set must stay private. Unusable records (a number that is
            not finite, an unknown label) are then left out, all of them if need be; in a public set they are refused.
        ids_name_labels: True if another label would give a record another id (a path below a class folder). A changed label then
            moves two shards, so only `add_remove` is possible.
        student_public_features: (m, ...) float32, the public points as the student sees them, which may be richer than what small
            teachers can learn from; by default `public_features`.
        student_evaluation_features: (e, ...) float32, the same of the evaluation set; by default `evaluation_features`.
        student_private_features: (n, ...) float32, the private records in the student's columns; by default `private_features`.
            Each row comes from its own record and public values alone: boosting weighs records by them, and the non-private model
            that a run is compared with learns from them.
        student_feature_names: names of the student's columns, or None; by default `feature_names`.
        student_encoding: from raw rows to the student's features, or None. It is published with the student: nothing in it may
            have been computed from private records.
        public_notes: lines for the console, of public data and settings alone, such as how the columns are seen.
        private_notes: private lines for the data holder, such as ids that a public table repeats.
        not_covered: public lines for the certificate: what is taken from the private records as if it were public.
    """

    name: str
    num_classes: int
    class_names: tuple[str, ...]
    private_features: Features
    private_labels: Labels
    private_ids: npt.NDArray[np.generic] | None
    public_features: Features
    evaluation_features: Features | None = None
    evaluation_labels: Labels | None = None
    feature_names: tuple[str, ...] | None = None
    private_users: npt.NDArray[np.generic] | None = None
    neighbours: str = ""
    evaluation_public: bool = True
    ids_name_labels: bool = False
    student_public_features: Features | None = None
    student_evaluation_features: Features | None = None
    student_private_features: Features | None = None
    student_feature_names: tuple[str, ...] | None = None
    student_encoding: RowEncoding | None = None
    private_notes: tuple[str, ...] = ()
    public_notes: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Bring every field into its canonical type, or refuse it."""
        positive_integer("num_classes", self.num_classes)
        true_or_false("evaluation_public", self.evaluation_public)
        true_or_false("ids_name_labels", self.ids_name_labels)
        self._set("class_names", _names("class_names", self.class_names, self.num_classes))
        self._check_private()
        self._check_public()
        self._check_student()
        if not self.evaluation_public:
            self._leave_out_unusable_evaluation()
        if self.student_encoding is not None and self.student_encoding.feature_names != self.student_feature_names:
            raise ArgumentError("student_encoding must make the columns that student_feature_names names, got others")
        self._check_neighbours()

    def _set(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)

    def _check_private(self) -> None:
        self._set("private_features", _private_features("private_features", self.private_features))
        rows = len(self.private_features)
        self._set("private_labels", _private_labels("private_labels", self.private_labels, rows, self.num_classes))
        for name in ("private_ids", "private_users"):
            if (given := getattr(self, name)) is not None:
                ids = canonical_identifiers(name, given)
                _one_per_record(name, len(ids), rows)
                self._set(name, identifier_array(ids))

    def _check_public(self) -> None:
        shape = self.private_features.shape[1:]
        self._set("public_features", _finite("public_features", self.public_features, shape))
        if (self.evaluation_features is None) != (self.evaluation_labels is None):
            raise ArgumentError("evaluation_features and evaluation_labels must be given together, got one of them")
        if self.evaluation_features is not None:
            self._set("evaluation_features", self._evaluated("evaluation_features", self.evaluation_features, shape))
            rows = len(self.evaluation_features)
            check = _labels if self.evaluation_public else _private_labels
            self._set("evaluation_labels", check("evaluation_labels", self.evaluation_labels, rows, self.num_classes))
        if self.feature_names is not None:
            if len(shape) != 1:
                raise ArgumentError(f"feature_names must be None for features of shape {shape}, got names")
            self._set("feature_names", _names("feature_names", self.feature_names, shape[0]))

    def _evaluated(self, name: str, value: object, shape: tuple[int, ...]) -> Features:
        """Features of the evaluation set, which may be private."""
        return _finite(name, value, shape) if self.evaluation_public else _of_shape(name, _private_features(name, value), shape)

    def _leave_out_unusable_evaluation(self) -> None:
        """Keep the usable records of a private evaluation set; if there are none, there is no evaluation set."""
        if self.evaluation_features is None or self.evaluation_labels is None:
            return
        usable = self.evaluation_labels != UNUSABLE
        for name in ("evaluation_features", "student_evaluation_features"):
            rows = getattr(self, name)
            usable &= np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
        if usable.all() and len(usable):
            return
        for name in ("evaluation_features", "evaluation_labels", "student_evaluation_features"):
            self._set(name, getattr(self, name)[usable] if usable.any() else None)

    def _check_student(self) -> None:
        if self.student_public_features is None and self.student_evaluation_features is None:
            for name in ("public_features", "evaluation_features", "private_features", "feature_names"):
                self._set(f"student_{name}", getattr(self, name))
            return
        if self.student_public_features is None or (self.student_evaluation_features is None) != (
            self.evaluation_features is None
        ):
            raise ArgumentError("student_public_features and student_evaluation_features must be given together, got one of them")
        shape = np.shape(self.student_public_features)[1:]
        self._set("student_public_features", _finite("student_public_features", self.student_public_features, shape))
        if (found := len(self.student_public_features)) != (points := len(self.public_features)):
            raise ArgumentError(f"student_public_features must have one entry per point ({points}), got {found}")
        if self.evaluation_features is not None:
            rows = self._evaluated("student_evaluation_features", self.student_evaluation_features, shape)
            _one_per_record("student_evaluation_features", len(rows), len(self.evaluation_features))
            self._set("student_evaluation_features", rows)
        if self.student_private_features is not None:
            rows = _private_features("student_private_features", self.student_private_features)
            _one_per_record("student_private_features", len(rows), len(self.private_features))
            self._set("student_private_features", _of_shape("student_private_features", rows, shape))

    def _check_neighbours(self) -> None:
        has_ids = self.private_ids is not None or self.private_users is not None
        default = "add_remove" if has_ids else "replace_one"
        self._set("neighbours", choice("neighbours", self.neighbours, NEIGHBOURS, empty=default))
        check_neighbours(self.neighbours, has_ids=has_ids, ids_name_labels=self.ids_name_labels)

    @property
    def public_sizes(self) -> PublicSizes:
        """What checks may know of the data: nothing that depends on a private record."""
        return PublicSizes(
            name=self.name,
            num_classes=self.num_classes,
            num_points=len(self.public_features),
            record_shape=self.public_features.shape[1:],
            feature_names=self.feature_names,
            neighbours=self.neighbours,
            has_ids=self.private_ids is not None or self.private_users is not None,
            ids_name_labels=self.ids_name_labels,
            student_sees_records=self.student_private_features is not None,
            not_covered=self.not_covered,
        )

    @property
    def num_private_records(self) -> int:
        """Number of private records, n. Private under `add_remove`: nothing that anybody sees may depend on it."""
        return len(self.private_labels)

    @property
    def sharding_ids(self) -> npt.NDArray[np.generic]:
        """The (n,) ids that choose the shard: users, else record ids, else positions (never under add_remove)."""
        if self.private_users is not None:
            return self.private_users
        if self.private_ids is not None:
            return self.private_ids
        return np.arange(len(self.private_features), dtype=np.int64)

    @property
    def usable(self) -> npt.NDArray[np.bool_]:
        """(n,) whether a private record has a label of the class list, and so a teacher. Private."""
        return np.asarray(self.private_labels != UNUSABLE)

    @property
    def student_points(self) -> Features:
        """The (m, ...) public points as the student sees them."""
        assert self.student_public_features is not None  # set by __post_init__
        return self.student_public_features

    @property
    def unit(self) -> str:
        """Who is protected: "user" if the records name their owners, else "record"."""
        return "record" if self.private_users is None else "user"

    def label_private(self, public_rows: npt.NDArray[np.int64]) -> PrivateDataset:
        """Return the same records with public features: those of `public_rows`, stripped of their labels, become the queries.

        The neighbours are then `label_only`: features, n and order are public, one label changes. A queried record still trains
        its one teacher, so one label still moves at most one vote per query. The student keeps columns of its own if
        `student_private_features` are there.
        """
        rows = np.asarray(public_rows)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or rows.size == 0:
            raise ArgumentError(f"public_rows must be a list of row numbers, got shape {rows.shape} of type {rows.dtype}")
        last = len(self.private_features) - 1
        if rows.min() < 0 or rows.max() > last:
            raise ArgumentError(f"public_rows must lie between 0 and {last}, got {rows.min()} to {rows.max()}")
        own = self.student_private_features
        lost = dict.fromkeys(("public_features", "evaluation_features", "feature_names", "encoding"))
        student = {"public_features": own[rows]} if own is not None else lost
        changed: dict[str, Any] = {f"student_{name}": value for name, value in student.items()}
        return dataclasses.replace(self, public_features=self.private_features[rows], neighbours="label_only", **changed)


def evaluation_is_public(evaluation: object, said: bool | None) -> bool:
    """Return whether figures on a user's own evaluation set may be published, which is never assumed.

    Raises:
        ArgumentError: there is an evaluation set, and `said` is None.
    """
    if said is None and evaluation is not None:
        raise ArgumentError(
            "evaluation_public must be true or false for data that is evaluated, got nothing; true publishes figures computed on "
            "it, and needs a set without private records"
        )
    return said is None or true_or_false("evaluation_public", said)


def _names(name: str, values: Sequence[str], length: int) -> tuple[str, ...]:
    names = tuple(str(value) for value in listed(name, values))
    if len(names) != length:
        raise ArgumentError(f"{name} must have {length} entries, got {len(names)}")
    if len(set(names)) != length:
        raise ArgumentError(f"{name} must be distinct, got {', '.join(names)}")
    return names


def _one_per_record(name: str, length: int, rows: int) -> None:
    """Refuse arrays of different lengths; neither is said, because n is private."""
    if length != rows:
        raise ArgumentError(f"{name} must have one entry per record, got another number of them")


def _private_features(name: str, value: object) -> Features:
    """Check the type and the dimensions, of which the first, n, is not said."""
    array = _numbers(name, value)
    if array.ndim < 2 or 0 in array.shape[1:]:
        shape = ", ".join(["n", *map(str, array.shape[1:])][: array.ndim])
        raise ArgumentError(f"{name} must have at least two dimensions, and numbers in a record, got shape ({shape})")
    return _as_float32(array)


def _private_labels(name: str, value: object, rows: int, num_classes: int) -> Labels:
    """Check the type and the dimensions; a label that is not a class becomes `UNUSABLE`."""
    array = _class_indices(name, value)
    if array.ndim != 1:
        raise ArgumentError(f"{name} must have one dimension, got {array.ndim}")
    _one_per_record(name, len(array), rows)
    known = (array >= 0) & (array < num_classes)
    return np.where(known, array, np.zeros_like(array)).astype(np.int64) + np.where(known, 0, UNUSABLE)


def _features(name: str, value: object) -> Features:
    array = _numbers(name, value)
    if array.ndim < 2 or array.size == 0:
        raise ArgumentError(f"{name} must have at least two dimensions and one row, got shape {array.shape}")
    return _as_float32(array)


def _numbers(name: str, value: object) -> npt.NDArray[Any]:
    """Return an array of numbers. Lists whose rows differ in shape are refused: the caller makes arrays, not a record."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ArgumentError(f"{name} must be a table whose rows have one shape, got rows that differ") from error
    if array.dtype.kind not in "biuf":
        raise ArgumentError(f"{name} must hold numbers, got values of type {array.dtype}")
    return array


def _as_float32(array: npt.NDArray[Any]) -> Features:
    with np.errstate(over="ignore", invalid="ignore"):  # a warning about one private number is a message about its record
        return np.ascontiguousarray(array, dtype=np.float32)


def _of_shape(name: str, array: Features, shape: tuple[int, ...]) -> Features:
    if array.shape[1:] != shape:
        raise ArgumentError(f"{name} must have rows of shape {shape} as the others, got {array.shape[1:]}")
    return array


def _finite(name: str, value: object, shape: tuple[int, ...]) -> Features:
    array = _of_shape(name, _features(name, value), shape)
    for first in range(0, len(array), _ROWS):
        finite = np.isfinite(array[first : first + _ROWS]).all(axis=tuple(range(1, array.ndim)))
        if not finite.all():
            row = first + int(np.argmin(finite))
            raise ArgumentError(f"{name} must be finite, got NaN or infinity in row {row}; fill it with a public constant")
    return array


def _class_indices(name: str, value: object) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = any_array(name, value, "have one entry per record")
    if array.dtype.kind not in "iu" and array.size:
        raise ArgumentError(f"{name} must hold class indices (integers), got values of type {array.dtype}")
    return array if array.size else array.astype(np.int64)


def _labels(name: str, value: object, rows: int, num_classes: int) -> Labels:
    array = _class_indices(name, value)
    if array.shape != (rows,):
        raise ArgumentError(f"{name} must have one entry per record ({rows}), got shape {array.shape}")
    if array.min() < 0 or array.max() >= num_classes:
        bad = array[(array < 0) | (array >= num_classes)][0]
        raise ArgumentError(f"{name} must lie between 0 and {num_classes - 1}, got {bad}")
    return array.astype(np.int64)
