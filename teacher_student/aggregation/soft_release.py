"""What a soft-label session may let out: scores, which of them came from the shifted test, and the certificate."""

from __future__ import annotations

import csv
import dataclasses
import io
import os

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.folder import CERTIFICATE_FILE, check_against, count_abstentions, write_files
from teacher_student.arguments import ArgumentError, Floats, Integers, file_path, names_of_rows, whole_numbers
from teacher_student.labels import HALTED
from teacher_student.mechanisms.soft_label import scores_of
from teacher_student.privacy import Certificate

SCORES_FILE = "scores.csv"
_COLUMNS = ["query", "class", "code", "score"]


@dataclasses.dataclass(frozen=True, eq=False)
class SoftRelease:
    """Private soft labels, ready to be published.

    Attributes:
        codes: shape (num_queries,), or (num_queries, num_classes) for one-vs-rest; int64. A code says its own number of bins and
            its score (`teacher_student.mechanisms.soft_label`); `ABSTAIN` or `HALTED` where there is no answer. Not writable.
        certificate: what the scores cost.
        queries: the name of each query: its id where it was given one, else its position.
    """

    codes: Integers
    certificate: Certificate
    queries: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        codes = whole_numbers("codes", self.codes)
        if codes.ndim not in (1, 2) or (codes < HALTED).any() or np.isin(codes, range(9)).any():
            raise ArgumentError(f"codes must be of scores, -1 or -2, in one or two dimensions, got shape {codes.shape}")
        object.__setattr__(self, "queries", names_of_rows("queries", self.queries, len(codes)))
        codes.flags.writeable = False
        object.__setattr__(self, "codes", codes)

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

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write scores.csv and, last, certificate.json into `folder`, which is made if it does not exist; both appear whole.

        Saving the same release again, after a kill between the two or later, is no error.

        Raises:
            ArgumentError: one of the files exists and is another release's, or the folder cannot be written.
        """
        write_files(folder, {SCORES_FILE: self._table(), CERTIFICATE_FILE: self.certificate.to_json()})

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> SoftRelease:
        """Read what `save` wrote; scores are made again from the codes.

        Raises:
            ArgumentError: a file is missing or is not what `save` writes, or the scores are not those of the certificate.
        """
        source = file_path("folder", folder)
        try:
            with (source / SCORES_FILE).open(newline="", encoding="utf-8") as file:
                queries, codes = _parse(list(csv.reader(file)))
            certificate = Certificate.from_json((source / CERTIFICATE_FILE).read_text(encoding="utf-8"))
        except ArgumentError:
            raise
        except (OSError, ValueError, OverflowError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise ArgumentError(f"folder must hold {SCORES_FILE} and {CERTIFICATE_FILE}, got {source}: {reason}") from error
        _check(codes, certificate)
        positions = tuple(map(str, range(len(codes))))
        return cls(codes, certificate, None if queries == positions else queries)

    def _table(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        names = self.queries or tuple(map(str, range(len(self.codes))))
        codes, scores = self.codes.reshape(len(names), -1).tolist(), self.scores.reshape(len(names), -1).tolist()
        for name, row, row_scores in zip(names, codes, scores, strict=True):
            for label, (code, score) in enumerate(zip(row, row_scores, strict=True)):
                writer.writerow([name, label if self.codes.ndim == 2 else "", code, repr(score) if code >= 0 else ""])
        return text.getvalue()


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


def _parse(rows: list[list[str]]) -> tuple[tuple[str, ...], Integers]:
    """Return queries and codes of a table whose scores agree with its codes."""
    if not rows or rows[0] != _COLUMNS or any(len(row) != len(_COLUMNS) for row in rows):
        raise ValueError(f"{SCORES_FILE} needs the columns {', '.join(_COLUMNS)}")
    codes = np.array([int(row[2]) for row in rows[1:]], dtype=np.int64)
    if [row[3] for row in rows[1:]] != [repr(score) if score == score else "" for score in scores_of(codes)[0].tolist()]:
        raise ValueError(f"{SCORES_FILE} holds a score that is not its code's")
    classes = {row[1] for row in rows[1:]}
    if classes <= {""}:
        return tuple(row[0] for row in rows[1:]), codes
    return tuple(row[0] for row in rows[1 :: len(classes)]), codes.reshape(-1, len(classes))
