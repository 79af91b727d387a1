"""What all releases have in common: a table of answers on disk, beside the certificate that it must agree with."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.folder import CERTIFICATE_FILE, write_files
from teacher_student.arguments import ArgumentError, Integers, file_path, names_of_rows
from teacher_student.privacy import Certificate
from teacher_student.privacy.certificate import file_digest


class SavedRelease(ABC):
    """A release that can be saved; a kind of it is a frozen dataclass of answers, certificate and queries, in this order.

    Attributes:
        FILE: name of the table.
        COLUMNS: of the table, in order.
        certificate: what the answers cost.
        queries: the name of each query: its id where it was given one, else its position.
    """

    FILE: ClassVar[str]
    COLUMNS: ClassVar[tuple[str, ...]]

    certificate: Certificate
    queries: tuple[str, ...] | None

    def __init__(self, answers: Integers, certificate: Certificate, queries: tuple[str, ...] | None = None) -> None:
        raise NotImplementedError  # each kind is a dataclass, which writes its own

    @property
    @abstractmethod
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which queries have an answer, one row each."""

    @abstractmethod
    def _rows(self, names: Sequence[str]) -> Iterable[Sequence[Any]]:
        """Return the rows of the table, given the names of the queries."""

    @classmethod
    @abstractmethod
    def _read(cls, rows: Sequence[Sequence[str]], certificate: Certificate) -> tuple[tuple[str, ...], Integers]:
        """Return names and answers of a table; refuse one that does not agree with itself (ValueError) or the certificate."""

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the table and, last, certificate.json into `folder`, which is made if it does not exist; both appear whole.

        Saving the same release again, after a kill between the two or later, is no error.

        Raises:
            ArgumentError: one of the files exists and is another release's, or the folder cannot be written.
        """
        own = dataclasses.replace(self.certificate, files={self.FILE: self.certificate.files[self.FILE]})
        write_files(folder, {self.FILE: self._table(), CERTIFICATE_FILE: own.to_json()})

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote, also where a run has added a student to it.

        Raises:
            ArgumentError: a file is missing or is not what `save` writes, the answers are not those of the certificate, or a file
                that the certificate binds was changed.
        """
        release = cls.load_table(folder)
        release.certificate.check_files(folder, partial=True)
        return release

    @classmethod
    def load_table(cls, folder: str | os.PathLike[str]) -> Self:
        """Do what `load` does, without a look at any file but the table and the certificate."""
        source = file_path("folder", folder)
        try:
            with (source / cls.FILE).open(newline="", encoding="utf-8") as file:
                head, *rows = list(csv.reader(file)) or [[]]
            if (*head,) != cls.COLUMNS or any(len(row) != len(head) for row in rows):
                raise ValueError(f"{cls.FILE} needs the columns {', '.join(cls.COLUMNS)}")
            certificate = Certificate.from_json((source / CERTIFICATE_FILE).read_text(encoding="utf-8"))
            names, answers = cls._read(rows, certificate)
            if certificate.files and certificate.files.get(cls.FILE) != file_digest(source / cls.FILE):
                raise ArgumentError(f"{cls.FILE} must be the file that its certificate binds, got {source}, where it was changed")
        except ArgumentError:
            raise
        except (OSError, ValueError, OverflowError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise ArgumentError(f"folder must hold {cls.FILE} and {CERTIFICATE_FILE}, got {source}: {reason}") from error
        return cls(answers, certificate, None if names == _positions(len(names)) else names)

    def __repr__(self) -> str:
        """Say in one line what was released."""
        return f"{type(self).__name__}({int(self.answered.sum())} of {self.answered.size} answered; {self.certificate!r})"

    def _table(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.COLUMNS)
        writer.writerows(self._rows(self.queries or _positions(len(self.answered))))
        return text.getvalue()

    def _keep(self, field: str, answers: Integers) -> None:
        """Set a checked field, which cannot be written to from now on, and the names of its rows; the certificate binds both."""
        object.__setattr__(self, "queries", names_of_rows("queries", self.queries, len(answers)))
        answers.flags.writeable = False
        object.__setattr__(self, field, answers)
        if not isinstance(self.certificate, Certificate):
            raise ArgumentError(f"certificate must be a Certificate, got {self.certificate!r}")
        digest = hashlib.sha256(self._table().encode()).hexdigest()
        if (bound := self.certificate.files.get(self.FILE, digest)) != digest:
            raise ArgumentError(f"{field} must be those that the certificate binds, {self.FILE} of SHA-256 {bound}, got others")
        files = {**self.certificate.files, self.FILE: digest}
        object.__setattr__(self, "certificate", dataclasses.replace(self.certificate, files=files))


def names_of_groups(rows: Sequence[Sequence[str]], labels: Sequence[str]) -> tuple[str, ...]:
    """Return the first column of a table that has a row for every one of `labels`, its second column, of every query.

    Raises:
        ValueError: rows are missing or in another order.
    """
    names = tuple(row[0] for row in rows[:: len(labels)])
    if [(*row[:2],) for row in rows] != [(name, label) for name in names for label in labels]:
        raise ValueError(f"the table must list the classes {labels[0]} to {labels[-1]} of each query in order")
    return names


def _positions(length: int) -> tuple[str, ...]:
    return tuple(map(str, range(length)))
