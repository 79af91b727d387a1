"""Histograms of the teachers' scores: the statistic that soft labels are answered from.

Only shapes, types and public settings are checked. A *value* of a score is private: it never raises, whatever it is. NaN and
infinities count nowhere (that teacher abstains), anything outside [0, 1] is clipped, and a row without a single usable score is
simply a query on which no teacher agrees. To refuse such rows would tell for free what the mechanism charges for.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.statistic import Statistic, Table, check_num_teachers
from teacher_student.arguments import ArgumentError, Integers, positive_integer
from teacher_student.mechanisms.interface import Mechanism
from teacher_student.mechanisms.soft_histogram import check_bins, histograms
from teacher_student.mechanisms.soft_label import SoftLabelRelease
from teacher_student.privacy import MechanismSpec, ThresholdParameters


@dataclasses.dataclass(frozen=True)
class Histograms(Statistic):
    """A plain and a shifted histogram of the scores of each query, or of each class of it (`mechanisms.soft_histogram`).

    Attributes:
        num_classes: None for one score of each teacher; otherwise scores are one-vs-rest, and every class is a soft query.
        num_teachers: how many give scores, a public number.
        bins: of [0, 1], at least 3.
    """

    num_classes: int | None
    num_teachers: int
    bins: int

    def __post_init__(self) -> None:
        if self.num_classes is not None:
            positive_integer("num_classes", self.num_classes, minimum=2)
        check_num_teachers(self.num_teachers)

    @property
    def settings(self) -> dict[str, Any]:
        """Public facts, the number of bins among them."""
        return {"bins": self.bins, **super().settings}

    def empty(self, num_queries: int) -> Table:
        """Return the histograms of no teachers, shape (num_queries, 2 bins), or (num_queries, num_classes 2 bins)."""
        shape = (num_queries, 0) if self.num_classes is None else (num_queries, 0, self.num_classes)
        return self._count(np.empty(shape), check_bins(self.bins, num_queries))

    def add(self, table: Table, said: Any) -> None:
        """Add the scores of one more chunk of teachers, shape (num_queries, teachers[, num_classes])."""
        more = self._count(np.asarray(said, dtype=np.float64), check_bins(self.bins, len(table)))
        more[:, :: 2 * self.bins] = 0  # the number of bins, which is there already
        table += more

    def check(self, scores: object, bins: object = None) -> Table:
        """Return the histograms of the scores of all teachers.

        Args:
            scores: shape (num_queries, num_teachers), or (num_queries, num_teachers, num_classes) for one-vs-rest.
            bins: number of bins, one or one for each query, chosen from public information only; None for the statistic's.
        """
        table = check_scores(scores, self.num_classes, self.num_teachers)
        return self._count(table, check_bins(self.bins if bins is None else bins, len(table)))

    def _count(self, scores: npt.NDArray[np.floating], bins: Integers) -> Integers:
        if self.num_classes is None:
            return histograms(scores, bins)
        rows = np.moveaxis(scores, 2, 1).reshape(len(scores) * self.num_classes, scores.shape[1])
        return histograms(rows, np.repeat(bins, self.num_classes)).reshape(len(scores), -1)

    @property
    def squared_distance(self) -> int:
        """A score moves from one bin to another, in the plain and in the shifted histogram of each class."""
        return 4 * (self.num_classes or 1)

    def mechanism(self, spec: MechanismSpec) -> Mechanism:
        """Return the two tests of a soft query."""
        if not isinstance(spec, ThresholdParameters):
            raise ArgumentError(f"mechanism must have a threshold, got {spec.mechanism}")
        return SoftLabelRelease(spec)


def check_scores(scores: object, num_classes: int | None, num_teachers: object) -> npt.NDArray[np.floating]:
    """Return `scores` as a non-empty table of floating-point numbers of the right shape; its values are not looked at."""
    table = as_array(scores)
    if table.ndim != (2 if num_classes is None else 3):
        wanted = "(num_queries, num_teachers)" if num_classes is None else "(num_queries, num_teachers, num_classes)"
        raise ArgumentError(f"scores must have the shape {wanted}, got {table.shape}")
    if table.size == 0:
        raise ArgumentError(f"scores must not be empty, got shape {table.shape}")
    if num_classes is not None and table.shape[2] != num_classes:
        raise ArgumentError(f"scores must have num_classes = {num_classes} in the last dimension, got {table.shape[2]}")
    if not (np.issubdtype(table.dtype, np.floating) or np.issubdtype(table.dtype, np.integer)):
        raise ArgumentError(f"scores must be numbers, got values of type {table.dtype}")
    check_num_teachers(num_teachers, table, "scores")
    return table.astype(table.dtype if np.issubdtype(table.dtype, np.floating) else np.float64, copy=False)


def as_array(scores: object) -> npt.NDArray[np.generic]:
    """Return `scores` as an array of whatever type; refuse rows of different widths."""
    try:
        return np.asarray(scores)
    except ValueError as error:
        raise ArgumentError("scores must be a table whose rows have one width, got rows that differ") from error
