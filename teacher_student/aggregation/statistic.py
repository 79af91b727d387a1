"""`Statistic`: what the teachers say about public points, reduced to integers that one record can move only so far.

| statistic | what a teacher gives | in | released as |
|---|---|---|---|
| `votes.Votes` | a class for each point, or an abstention | `votes` | labels, noisy fractions |
| `soft_label.Histograms` | a number in [0, 1] for each point | `soft_label` | soft labels |
| `scores.BoundedScores` | a bounded vector over all points | `scores` | noisy mean scores |

A mechanism sees a statistic and nothing else of the teachers. Its cost rests on `squared_distance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.store import UsedVotes
from teacher_student.arguments import ArgumentError, positive_integer
from teacher_student.mechanisms.interface import Mechanism, build_mechanism
from teacher_student.privacy import MechanismSpec

Table = npt.NDArray[np.integer]

_MOST_CLASSES = 1 << 20
MOST_TEACHERS = 1 << 53


class Statistic(ABC):
    """Public facts of one reduction; each kind is a frozen dataclass.

    Attributes:
        num_classes: columns of a query, or None where a query is one number.
        num_teachers: how many teachers the statistic covers, a public number.
        check: returns the caller's input, checked, one row for each query. It refuses shapes, types, and values that a caller who
            follows the rules never has: a refusal must not depend on a private record.
    """

    num_classes: int | None
    num_teachers: int
    check: Callable[..., Any]

    @abstractmethod
    def empty(self, num_queries: int) -> Table:
        """Return the statistic of no teachers, one row for each query."""

    @abstractmethod
    def add(self, table: Any, said: Any) -> None:
        """Add what one more chunk of teachers says to `table`, in place."""

    @property
    @abstractmethod
    def squared_distance(self) -> int:
        """Largest squared Euclidean distance, on average over the queries, by which one teacher's change moves a row."""

    @property
    def settings(self) -> dict[str, Any]:
        """Public facts that a session's file and certificate hold."""
        return {"num_classes": self.num_classes, "num_teachers": self.num_teachers}

    def mechanism(self, spec: MechanismSpec) -> Mechanism:
        """Return the mechanism that answers this statistic under `spec`."""
        return build_mechanism(spec)

    def check_batch(self, fresh: int, asked: int) -> None:  # noqa: B027 - most kinds allow any
        """Refuse a call about `asked` queries, `fresh` of them not answered before, that the cost does not cover."""

    def reduce(self, given: Table, form: str, used: UsedVotes | None, *, begun: bool) -> tuple[Table, UsedVotes | None]:
        """Return the mechanism's rows of checked values on new queries, and the votes that the teachers have used then.

        Args:
            given: what `check` returned, of the new queries alone.
            form: of what is given: predictions or counts, where both are possible.
            used: votes used before, None where nothing is recorded.
            begun: whether the session has answered before.
        """
        del form, used, begun
        return given, None


def empty_table(num_queries: int, num_classes: int, kind: npt.DTypeLike) -> Table:
    """Return zeros of the type `kind`, shape (num_queries, num_classes)."""
    classes = positive_integer("num_classes", num_classes, maximum=_MOST_CLASSES)
    queries = positive_integer("num_queries", num_queries)
    try:
        return np.zeros((queries, classes), dtype=kind)
    except (MemoryError, ValueError) as error:
        raise ArgumentError(f"num_queries must leave counts that fit into memory, got {queries} of {classes} classes") from error


def check_num_teachers(
    num_teachers: object, predictions: npt.NDArray[np.generic] | None = None, name: str = "predictions"
) -> int:
    """Return `num_teachers`, which must be given: an array cannot tell whether its columns are the teachers or the queries.

    Args:
        num_teachers: how many teachers vote, a public number.
        predictions: shape (num_queries, num_teachers) or (num_queries, num_teachers, num_classes), or None for counts.
        name: of the predictions, for the message.
    """
    if num_teachers is None and predictions is not None:
        shape = predictions.shape
        raise ArgumentError(f"num_teachers must be given: {name} has shape {shape}; is {shape[1]} the number of teachers?")
    if num_teachers is None:
        raise ArgumentError("num_teachers must be given: say how many teachers vote, a public number, once for all calls")
    teachers = positive_integer("num_teachers", num_teachers, maximum=MOST_TEACHERS)
    if predictions is not None and predictions.shape[1] != teachers:
        axes = "num_queries, num_teachers" + ", num_classes" * (predictions.ndim == 3)
        raise ArgumentError(
            f"{name} must have a column for each of num_teachers = {teachers}, got {predictions.shape[1]} columns in shape "
            f"{predictions.shape}; axes are ({axes})"
        )
    return teachers
