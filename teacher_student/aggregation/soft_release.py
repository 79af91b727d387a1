"""What a soft-label session may let out: scores, which of them came from the shifted test, and the certificate."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.folder import check_against, count_abstentions
from teacher_student.aggregation.saved_release import SavedRelease, names_of_groups
from teacher_student.arguments import ArgumentError, Floats, Integers, whole_numbers
from teacher_student.labels import HALTED
from teacher_student.mechanisms.soft_label import scores_of
from teacher_student.privacy import Certificate


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SoftRelease(SavedRelease):
    """Private soft labels, ready to be published.

    Attributes:
        codes: shape (num_queries,), or (num_queries, num_classes) for one-vs-rest; int64. A code says its own number of bins and
            its score (`teacher_student.mechanisms.soft_label`); `ABSTAIN` or `HALTED` where there is no answer. Not writable.
        certificate: what the scores cost.
        queries: the name of each query: its id where it was given one, else its position.
    """

    FILE: ClassVar[str] = "scores.csv"
    COLUMNS: ClassVar[tuple[str, ...]] = ("query", "class", "code", "score")

    codes: Integers
    certificate: Certificate
    queries: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        codes = whole_numbers("codes", self.codes)
        if codes.ndim not in (1, 2) or (codes < HALTED).any() or np.isin(codes, range(9)).any():
            raise ArgumentError(f"codes must be of scores, -1 or -2, in one or two dimensions, got shape {codes.shape}")
        self._keep("codes", codes)

    @property
    def scores(self) -> Floats:
        """The scores, of the shape of `codes`; NaN where not answered."""
        return scores_of(self.codes)[0]

    @property
    def shifted(self) -> npt.NDArray[np.bool_]:
        """Which scores the shifted test answered; each of them cost one unit."""
        return scores_of(self.codes)[1]

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which scores there are."""
        return np.asarray(self.codes >= 0)

    @property
    def halted(self) -> npt.NDArray[np.bool_]:
        """Which were not asked any more, since the budget was spent."""
        return np.asarray(self.codes == HALTED)

    def _rows(self, names: Sequence[str]) -> Iterable[Sequence[Any]]:
        classes = self.codes.shape[1] if self.codes.ndim == 2 else 1
        codes, scores = self.codes.reshape(len(names), classes).tolist(), self.scores.reshape(len(names), classes).tolist()
        for name, row, row_scores in zip(names, codes, scores, strict=True):
            for label, (code, score) in enumerate(zip(row, row_scores, strict=True)):
                yield name, label if self.codes.ndim == 2 else "", code, repr(score) if code >= 0 else ""

    @classmethod
    def _read(cls, rows: Sequence[Sequence[str]], certificate: Certificate) -> tuple[tuple[str, ...], Integers]:
        codes = np.array([int(row[2]) for row in rows], dtype=np.int64)
        if [row[3] for row in rows] != [repr(score) if score == score else "" for score in scores_of(codes)[0].tolist()]:
            raise ValueError(f"{cls.FILE} holds a score that is not its code's")
        classes = len({row[1] for row in rows})
        if any(row[1] for row in rows):
            codes, labels = codes.reshape(-1, classes), [str(label) for label in range(classes)]
        else:
            labels = [""]
        if not rows and isinstance(known := certificate.used.get("num_classes"), int):  # a session that nobody has asked yet
            codes = codes.reshape(0, abs(known))
        _check(codes, certificate)
        return names_of_groups(rows, labels), codes


def _check(codes: Integers, certificate: Certificate) -> None:
    """Refuse scores that are not the certificate's: one unit for a shifted one, two for a query that failed both tests.

    The last of them may have found but one unit left.
    """
    abstained = count_abstentions(codes)
    paid = int(scores_of(codes)[1].sum()) + 2 * abstained
    check_against(certificate, codes, least_paid=paid - min(1, abstained), most_paid=paid)
    if certificate.used.get("answers") != "soft_labels":
        raise ArgumentError("certificate must be of soft labels, got one of class labels")
    classes = None if codes.ndim == 1 else codes.shape[1]
    if certificate.used.get("num_classes") != classes:
        raise ArgumentError(f"classes must be the certificate's, {certificate.used.get('num_classes')!r}, got {classes!r}")
