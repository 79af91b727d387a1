"""What may leave the aggregation room: labels and what they cost. Nothing else does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.folder import check_against, count_abstentions
from teacher_student.aggregation.saved_release import SavedRelease
from teacher_student.arguments import ArgumentError, Integers, whole_numbers
from teacher_student.labels import HALTED
from teacher_student.privacy import Certificate


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Release(SavedRelease):
    """Private labels, ready to be published.

    Attributes:
        labels: shape (num_queries,), int64: a class, `ABSTAIN` (-1) or `HALTED` (-2). Cannot be written to.
        certificate: what the labels cost.
        queries: the name of each query: its id where it was given one, else its position.
    """

    FILE: ClassVar[str] = "labels.csv"
    COLUMNS: ClassVar[tuple[str, ...]] = ("query", "label", "answered")

    labels: Integers
    certificate: Certificate
    queries: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        labels = whole_numbers("labels", self.labels)
        if labels.ndim != 1 or (labels < HALTED).any():
            raise ArgumentError(f"labels must be classes, -1 or -2 in one dimension, got shape {labels.shape}")
        self._keep("labels", labels)

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which queries have a class, shape (num_queries,)."""
        return np.asarray(self.labels >= 0)

    def _rows(self, names: Sequence[str]) -> Iterable[Sequence[Any]]:
        return zip(names, self.labels.tolist(), self.answered.astype(int).tolist(), strict=True)

    @classmethod
    def _read(cls, rows: Sequence[Sequence[str]], certificate: Certificate) -> tuple[tuple[str, ...], Integers]:
        labels = np.array([int(row[1]) for row in rows], dtype=np.int64)
        if [row[2] for row in rows] != [str(int(label >= 0)) for label in labels.tolist()]:
            raise ValueError(f"{cls.FILE} says 'answered' where there is no class, or the other way round")
        _check(labels, certificate)
        return tuple(row[0] for row in rows), labels


def _check(labels: Integers, certificate: Certificate) -> None:
    """Refuse labels that are not the certificate's: every paid non-answer costs a unit; of a noisy maximum, every answer."""
    session = certificate.parameters.one_session
    if session.releases != "labels":
        raise ArgumentError(f"certificate must be of released classes, got one of {certificate.mechanism}")
    paid = int((labels >= 0).sum()) if session.pays_for == "answers" else count_abstentions(labels)
    check_against(certificate, labels, least_paid=paid, most_paid=paid)
    classes = certificate.used.get("num_classes")
    if not isinstance(classes, int) or (labels >= classes).any():
        raise ArgumentError(f"labels must be below the certificate's num_classes, {classes!r}, got {labels.max(initial=0)}")
