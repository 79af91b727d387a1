"""What may leave the aggregation room: labels and what they cost. Nothing else does."""

from __future__ import annotations

import csv
import dataclasses
import io
import os

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.folder import CERTIFICATE_FILE, check_against, count_abstentions, write_files
from teacher_student.arguments import ArgumentError, Integers, file_path, names_of_rows, whole_numbers
from teacher_student.labels import HALTED
from teacher_student.privacy import Certificate, NoisyMaxParameters

LABELS_FILE = "labels.csv"
_COLUMNS = ["query", "label", "answered"]


@dataclasses.dataclass(frozen=True, eq=False)
class Release:
    """Private labels, ready to be published.

    Attributes:
        labels: shape (num_queries,), int64: a class, `ABSTAIN` (-1) or `HALTED` (-2). Cannot be written to.
        certificate: what the labels cost.
        queries: the name of each query: its id where it was given one, else its position.
    """

    labels: Integers
    certificate: Certificate
    queries: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        labels = whole_numbers("labels", self.labels)
        if labels.ndim != 1 or (labels < HALTED).any():
            raise ArgumentError(f"labels must be classes, -1 or -2 in one dimension, got shape {labels.shape}")
        object.__setattr__(self, "queries", names_of_rows("queries", self.queries, len(labels)))
        labels.flags.writeable = False
        object.__setattr__(self, "labels", labels)

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which queries have a class, shape (num_queries,)."""
        return np.asarray(self.labels >= 0)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write labels.csv and certificate.json into `folder`, which is made if it does not exist.

        Both files appear whole, the certificate last. Saving the same release again, after a kill between the two or later, is no
        error.

        Raises:
            ArgumentError: one of the files exists and is another release's, or the folder cannot be written.
        """
        write_files(folder, {LABELS_FILE: self._table(), CERTIFICATE_FILE: self.certificate.to_json()})

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Release:
        """Read what `save` wrote.

        Raises:
            ArgumentError: a file is missing or is not what `save` writes, or the labels are not those of the certificate.
        """
        source = file_path("folder", folder)
        try:
            with (source / LABELS_FILE).open(newline="", encoding="utf-8") as file:
                queries, labels = _parse(list(csv.reader(file)))
            certificate = Certificate.from_json((source / CERTIFICATE_FILE).read_text(encoding="utf-8"))
        except ArgumentError:
            raise
        except (OSError, ValueError, OverflowError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise ArgumentError(f"folder must hold {LABELS_FILE} and {CERTIFICATE_FILE}, got {source}: {reason}") from error
        _check(labels, certificate)
        return cls(labels, certificate, None if queries == _positions(len(labels)) else queries)

    def _table(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        names = self.queries or _positions(len(self.labels))
        writer.writerows(zip(names, self.labels.tolist(), self.answered.astype(int).tolist(), strict=True))
        return text.getvalue()


def _check(labels: Integers, certificate: Certificate) -> None:
    """Refuse labels that are not the certificate's: every paid non-answer costs a unit; of a noisy maximum, every answer."""
    noisy_maximum = isinstance(certificate.parameters.one_session, NoisyMaxParameters)
    paid = int((labels >= 0).sum()) if noisy_maximum else count_abstentions(labels)
    check_against(certificate, labels, least_paid=paid, most_paid=paid)
    classes = certificate.used.get("num_classes")
    if not isinstance(classes, int) or (labels >= classes).any():
        raise ArgumentError(f"labels must be below the certificate's num_classes, {classes!r}, got {labels.max(initial=0)}")


def _positions(length: int) -> tuple[str, ...]:
    return tuple(map(str, range(length)))


def _parse(rows: list[list[str]]) -> tuple[tuple[str, ...], Integers]:
    """Return queries and labels of a table that agrees with itself."""
    if not rows or rows[0] != _COLUMNS or any(len(row) != len(_COLUMNS) for row in rows):
        raise ValueError(f"{LABELS_FILE} needs the columns {', '.join(_COLUMNS)}")
    labels = np.array([int(row[1]) for row in rows[1:]], dtype=np.int64)
    if [row[2] for row in rows[1:]] != [str(int(label >= 0)) for label in labels.tolist()]:
        raise ValueError(f"{LABELS_FILE} says 'answered' where there is no class, or the other way round")
    return tuple(row[0] for row in rows[1:]), labels
