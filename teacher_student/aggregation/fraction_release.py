"""What a session of noisy fractions may let out: noisy vote counts and the certificate."""

from __future__ import annotations

import csv
import dataclasses
import io
import os

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.folder import CERTIFICATE_FILE, check_against, write_files
from teacher_student.arguments import ArgumentError, Floats, Integers, file_path, names_of_rows, positive_integer, whole_numbers
from teacher_student.labels import HALTED
from teacher_student.mechanisms.noisy_fraction import from_codes, to_codes
from teacher_student.privacy import Certificate, NoisyFraction

FRACTIONS_FILE = "fractions.csv"
_COLUMNS = ["query", "class", "noisy_votes"]


@dataclasses.dataclass(frozen=True, eq=False)
class FractionRelease:
    """Noisy vote counts, ready to be published.

    Attributes:
        codes: shape (num_queries, num_classes), int64: codes of noisy counts (`mechanisms.noisy_fraction`), or `HALTED` all
            through a row that was not asked. Not writable.
        certificate: what the counts cost.
        queries: the name of each query: its id where it was given one, else its position.
    """

    codes: Integers
    certificate: Certificate
    queries: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        codes = whole_numbers("codes", self.codes)
        if (
            codes.ndim != 2
            or not codes.size
            or ((codes < 0) & (codes != HALTED)).any()
            or (codes.min(1) < 0).sum() != (codes.max(1) < 0).sum()
        ):
            raise ArgumentError(f"codes must be of noisy counts, or -2 in a whole row, in two dimensions, got {codes.shape}")
        object.__setattr__(self, "queries", names_of_rows("queries", self.queries, len(codes)))
        codes.flags.writeable = False
        object.__setattr__(self, "codes", codes)

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which queries have counts, shape (num_queries,)."""
        return np.asarray(self.codes[:, 0] >= 0)

    @property
    def labels(self) -> Integers:
        """The class with the largest noisy count, shape (num_queries,), or `HALTED`: what GNMax would have said."""
        return np.where(self.answered, from_codes(self.codes).argmax(axis=1), HALTED)

    @property
    def noisy_counts(self) -> Integers:
        """Votes plus noise, shape (num_queries, num_classes); they may be negative. 0 where not answered."""
        return np.where(self.answered[:, None], from_codes(self.codes), 0)

    @property
    def fractions(self) -> Floats:
        """Unbiased shares of the votes, shape (num_queries, num_classes); see `fractions_of`."""
        return fractions_of(self.codes, int(self.certificate.used["num_teachers"]))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write fractions.csv and, last, certificate.json into `folder`, which is made if it does not exist; both appear whole.

        Saving the same release again, after a kill between the two or later, is no error.

        Raises:
            ArgumentError: one of the files exists and is another release's, or the folder cannot be written.
        """
        write_files(folder, {FRACTIONS_FILE: self._table(), CERTIFICATE_FILE: self.certificate.to_json()})

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> FractionRelease:
        """Read what `save` wrote.

        Raises:
            ArgumentError: a file is missing or is not what `save` writes, or the counts are not those of the certificate.
        """
        source = file_path("folder", folder)
        try:
            certificate = Certificate.from_json((source / CERTIFICATE_FILE).read_text(encoding="utf-8"))
            with (source / FRACTIONS_FILE).open(newline="", encoding="utf-8") as file:
                queries, codes = _parse(list(csv.reader(file)), certificate)
        except ArgumentError:
            raise
        except (OSError, ValueError, OverflowError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise ArgumentError(f"folder must hold {FRACTIONS_FILE} and {CERTIFICATE_FILE}, got {source}: {reason}") from error
        answered = int((codes[:, 0] >= 0).sum())
        check_against(certificate, codes, least_paid=answered, most_paid=answered)
        positive_integer("num_teachers", certificate.used.get("num_teachers"))
        positions = tuple(map(str, range(len(codes))))
        return cls(codes, certificate, None if queries == positions else queries)

    def _table(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        names = self.queries or tuple(map(str, range(len(self.codes))))
        for name, there, row in zip(names, self.answered.tolist(), self.noisy_counts.tolist(), strict=True):
            writer.writerows([name, label, votes if there else ""] for label, votes in enumerate(row))
        return text.getvalue()


def fractions_of(codes: Integers, num_teachers: int) -> Floats:
    """Return unbiased shares of the votes, shape (num_queries, num_classes): each row sums to 1; NaN where not answered.

    Divided by the number of teachers, which is public; what the noise (and teachers that abstained) make a row's sum differ from
    1 by is given to all classes alike. Values below 0 and above 1 are left: cutting them off would bias them.
    """
    shares = from_codes(codes) / num_teachers
    shares += (1 - shares.sum(axis=1, keepdims=True)) / shares.shape[1]
    return np.where(codes >= 0, shares, np.nan)


def _parse(rows: list[list[str]], certificate: Certificate) -> tuple[tuple[str, ...], Integers]:
    """Return queries and codes of a table that has a row for every class of every query."""
    parameters = certificate.parameters
    if not isinstance(parameters, NoisyFraction):
        raise ArgumentError(f"certificate must be of noisy fractions, got one of {certificate.mechanism}")
    classes, body = parameters.num_classes, rows[1:]
    if not rows or rows[0] != _COLUMNS or any(len(row) != len(_COLUMNS) for row in rows) or len(body) % classes:
        raise ValueError(f"{FRACTIONS_FILE} needs the columns {', '.join(_COLUMNS)} and {classes} rows for each query")
    names = tuple(row[0] for row in body[::classes])
    if [row[:2] for row in body] != [[name, str(label)] for name in names for label in range(classes)]:
        raise ValueError(f"{FRACTIONS_FILE} must list the classes 0 to {classes - 1} of each query in order")
    there = np.array([row[2] != "" for row in body], dtype=bool)
    values = np.array([int(row[2] or 0) for row in body], dtype=np.int64)
    return names, np.where(there, to_codes(values), HALTED).reshape(-1, classes)
