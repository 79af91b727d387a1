"""What may leave the aggregation room: answers and what they cost. Nothing else does.

Every answer is an integer code: `ABSTAIN` (-1), `HALTED` (-2), or at least 0 where there is one. A `Codec` says what is
particular to a kind of answers: its file, how a code is written and read, and what it cost. Saving, loading and checking are
written once, in `AnyRelease`; the public kinds only name what their codes mean.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.folder import CERTIFICATE_FILE, write_files
from teacher_student.arguments import (
    ArgumentError,
    Floats,
    Integers,
    file_path,
    names_of_rows,
    positive_integer,
    positive_number,
    whole_numbers,
)
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms.noisy_sums import from_codes
from teacher_student.mechanisms.soft_label import scores_of
from teacher_student.privacy import Certificate, MechanismSpec, NoisyFraction
from teacher_student.privacy.certificate import file_digest
from teacher_student.privacy.noisy_sums import STEPS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Codec:
    """One kind of answers, between its codes, its table and its certificate.

    Attributes:
        answers: the kind, as settings of a session and certificates name it; None for class labels.
        what: the same in words, for messages.
        releases: what its mechanisms release, one of `parameters.RELEASES`.
        file: name of the table.
        columns: of the table, in order: query, class where a query has several, and the cells of one code.
        write: returns the cells of (n,) codes, one sequence for each column.
        read: returns the code that a row's cells stand for.
        paid: returns the least and the most units that codes cost, given the codes that count as answers, and the spec.
        dimensions: of an array of codes.
        smallest: code that is an answer.
        whole_rows: whether all classes of a query are one answer, which is given and paid for together.
        check: refuses further facts of a certificate.
    """

    answers: str | None
    what: str
    releases: str
    file: str
    columns: tuple[str, ...]
    write: Callable[[Integers], tuple[Iterable[object], ...]]
    read: Callable[..., int]
    paid: Callable[[Integers, MechanismSpec], tuple[int, int]]
    dimensions: tuple[int, ...]
    smallest: int = 0
    whole_rows: bool = False
    check: Callable[[Certificate], object] = lambda certificate: None  # noqa: ARG005

    def counted(self, codes: Integers) -> Integers:
        """Return the codes that are one answer each: of a query whose classes are answered together, its first one."""
        return codes[:, 0] if self.whole_rows else codes

    def check_codes(self, field: str, given: object) -> Integers:
        """Return codes of this kind; `field` is the name for the message."""
        codes = whole_numbers(field, given)
        other = (codes < self.smallest) & (codes != HALTED) & (self.whole_rows | (codes != ABSTAIN))
        if (
            codes.ndim not in self.dimensions
            or other.any()
            or (self.whole_rows and (not codes.size or ((codes < 0).any(1) != (codes < 0).all(1)).any()))
        ):
            raise ArgumentError(
                f"{field} must be of {self.what}, or -1 or -2 where there is no answer, in {self.dimensions[-1]} dimensions, got "
                f"others of shape {codes.shape}"
            )
        return codes

    def to_rows(self, codes: Integers, names: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return the rows of the table, in order."""
        keys: Iterable[tuple[object, ...]] = ((name,) for name in names)
        if "class" in self.columns:
            labels = range(codes.shape[1]) if codes.ndim > 1 else ("",)
            keys = ((name, label) for name in names for label in labels)
        return [(*key, *cells) for key, *cells in zip(keys, *self.write(codes.ravel()), strict=True)]

    def from_rows(self, rows: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], Integers]:
        """Return the names of the queries and their codes.

        Raises:
            ValueError: the rows are not those that `to_rows` writes.
        """
        keys = 1 + ("class" in self.columns)
        codes = np.array([self.read(*row[keys:]) for row in rows], dtype=np.int64)
        if keys > 1 and any(row[1] for row in rows):
            codes = codes.reshape(-1, len({row[1] for row in rows}))
        names = tuple(row[0] for row in rows[:: codes.shape[1] if codes.ndim > 1 else 1])
        for row, again in zip(rows, self.to_rows(codes, names), strict=True):
            for column, cell, own in zip(self.columns, row, again, strict=True):
                if cell != str(own):
                    raise ValueError(f"{self.file} has {cell!r} in the column {column} where its codes have {own!r}")
        return names, codes

    def check_against(self, certificate: Certificate, codes: Integers) -> None:
        """Refuse codes that the certificate does not describe, or that exceed what its parameters pay for.

        Raises:
            ArgumentError: they disagree.
        """
        certificate.check_used()
        used, spec = certificate.used, certificate.parameters.one_session
        if spec.releases != self.releases or used.get("answers") != self.answers:
            of = used.get("answers", "class labels") if spec.releases == self.releases else certificate.mechanism
            raise ArgumentError(f"certificate must be of {self.what}, got one of {of}")
        self.check(certificate)
        flat = self.counted(codes).ravel()
        for name, value in (("num_queries", flat.size), ("answered", int((flat >= 0).sum()))):
            if used.get(name) != value:
                raise ArgumentError(f"{name} must be the certificate's, {used.get(name)!r}, got a table with {value}")
        paid, (least, most) = used.get("paid"), self.paid(flat, spec)
        if paid != most and not (paid == spec.limit.most and paid in range(least, most)):
            raise ArgumentError(f"paid must be the certificate's, {paid!r}, got a table that cost {most}")
        asked, payable = int((flat != HALTED).sum()), getattr(spec, "num_queries", flat.size)
        if asked > payable:
            raise ArgumentError(f"num_queries must be at most what the parameters pay for, {payable}, got a table with {asked}")
        if (flat[asked:] != HALTED).any():
            raise ArgumentError(f"labels must be {HALTED} from the halt on, got an answer after it")
        classes = used.get("num_classes")
        if self.answers is None and (not isinstance(classes, int) or (codes >= classes).any()):
            raise ArgumentError(f"labels must be below the certificate's num_classes, {classes!r}, got {codes.max(initial=0)}")
        there = codes.shape[1] if codes.ndim > 1 else None
        if self.answers is not None and {classes, getattr(spec, "num_classes", there)} != {there}:
            raise ArgumentError(f"classes must be the certificate's, {classes!r}, got {there!r}")


class AnyRelease:
    """Answers with their certificate, ready to be published; a kind is a frozen dataclass of codes, certificate and queries.

    Attributes:
        codec: of this kind of answers.
        FILE: name of the table.
        COLUMNS: of the table, in order.
        certificate: what the answers cost.
        queries: the name of each query: its id where it was given one, else its position.
    """

    codec: ClassVar[Codec]
    FILE: ClassVar[str]
    COLUMNS: ClassVar[tuple[str, ...]]

    certificate: Certificate
    queries: tuple[str, ...] | None

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "codec"):
            cls.FILE, cls.COLUMNS = cls.codec.file, cls.codec.columns

    def __init__(self, codes: Integers, certificate: Certificate, queries: tuple[str, ...] | None = None) -> None:
        raise NotImplementedError  # each kind is a dataclass, which writes its own

    def __post_init__(self) -> None:
        """Check the codes, which cannot be written to from now on, and bind the certificate to them and the queries' names."""
        field = self._field()
        codes = self.codec.check_codes(field, getattr(self, field))
        object.__setattr__(self, "queries", names_of_rows("queries", self.queries, len(codes)))
        codes.flags.writeable = False
        object.__setattr__(self, field, codes)
        if not isinstance(self.certificate, Certificate):
            raise ArgumentError(f"certificate must be a Certificate, got {self.certificate!r}")
        digest = hashlib.sha256(self._table().encode()).hexdigest()
        if (bound := self.certificate.files.get(self.FILE, digest)) != digest:
            raise ArgumentError(f"{field} must be those that the certificate binds, {self.FILE} of SHA-256 {bound}, got others")
        files = {**self.certificate.files, self.FILE: digest}
        object.__setattr__(self, "certificate", dataclasses.replace(self.certificate, files=files))

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which answers there are: one for each query, or for each class of it where classes are answered one by one."""
        return np.asarray(self.codec.counted(getattr(self, self._field())) >= 0)

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
            names, codes = cls.codec.from_rows(rows)
            if not rows and 2 in cls.codec.dimensions and isinstance(known := certificate.used.get("num_classes"), int):
                codes = codes.reshape(0, abs(known))  # a session that nobody has asked yet
            cls.codec.check_against(certificate, cls.codec.check_codes(cls._field(), codes))
            if certificate.files and certificate.files.get(cls.FILE) != file_digest(source / cls.FILE):
                raise ArgumentError(f"{cls.FILE} must be the file that its certificate binds, got {source}, where it was changed")
        except ArgumentError:
            raise
        except (OSError, ValueError, OverflowError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise ArgumentError(f"folder must hold {cls.FILE} and {CERTIFICATE_FILE}, got {source}: {reason}") from error
        return cls(codes, certificate, None if names == _positions(len(names)) else names)

    def __repr__(self) -> str:
        """Say in one line what was released."""
        return f"{type(self).__name__}({int(self.answered.sum())} of {self.answered.size} answered; {self.certificate!r})"

    @classmethod
    def _field(cls) -> str:
        """Return the field that holds the codes: labels or codes."""
        return next(name for name in ("labels", "codes") if name in cls.__dataclass_fields__)  # type: ignore[attr-defined]

    def _table(self) -> str:
        text, codes = io.StringIO(), getattr(self, self._field())
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.COLUMNS)
        writer.writerows(self.codec.to_rows(codes, self.queries or _positions(len(codes))))
        return text.getvalue()


def _positions(length: int) -> tuple[str, ...]:
    return tuple(map(str, range(length)))


def _paid_for_labels(labels: Integers, spec: MechanismSpec) -> tuple[int, int]:
    """Every paid non-answer costs a unit; of a noisy maximum, every answer."""
    paid = int((labels >= 0).sum() if spec.pays_for == "answers" else (labels == ABSTAIN).sum())
    return paid, paid


def _paid_for_scores(codes: Integers, _: MechanismSpec) -> tuple[int, int]:
    """One unit for a shifted score, two for a query that failed both tests; the last of them may have found one unit left."""
    abstained = int((codes == ABSTAIN).sum())
    paid = int(scores_of(codes)[1].sum()) + 2 * abstained
    return paid - min(1, abstained), paid


def _paid_for_sums(codes: Integers, _: MechanismSpec) -> tuple[int, int]:
    """One unit for each query that was answered."""
    return (answered := int((codes >= 0).sum())), answered


def _sum_cells(codes: Integers) -> tuple[Iterable[object], ...]:
    return ([value if code >= 0 else "" for code, value in zip(codes.tolist(), from_codes(codes).tolist(), strict=True)],)


def _sum_code(cell: str) -> int:
    value = int(cell or 0)
    return HALTED if not cell else 2 * value if value >= 0 else -2 * value - 1  # `to_codes`, of any size


def _score_cells(codes: Integers) -> tuple[Iterable[object], ...]:
    return codes.tolist(), ["" if score != score else repr(score) for score in scores_of(codes)[0].tolist()]


def _check_teachers(certificate: Certificate) -> None:
    positive_integer("num_teachers", certificate.used.get("num_teachers"))


def _check_scale(certificate: Certificate) -> None:
    _check_teachers(certificate)
    if (steps := getattr(certificate.parameters, "steps", None)) != STEPS:
        raise ArgumentError(f"certificate must be of scores in {STEPS} steps, got {steps}")
    positive_number("norm", certificate.used.get("norm"))


LABELS = Codec(
    answers=None,
    what="released classes",
    releases="labels",
    file="labels.csv",
    columns=("query", "label", "answered"),
    write=lambda codes: (codes.tolist(), (codes >= 0).astype(int).tolist()),
    read=lambda label, _: int(label),
    paid=_paid_for_labels,
    dimensions=(1,),
)
SOFT_LABELS = Codec(
    answers="soft_labels",
    what="soft labels",
    releases="labels",
    file="scores.csv",
    columns=("query", "class", "code", "score"),
    write=_score_cells,
    read=lambda code, _: int(code),
    paid=_paid_for_scores,
    dimensions=(1, 2),
    smallest=9,  # bin 0 of 3
)
FRACTIONS = Codec(
    answers="fractions",
    what="noisy counts",
    releases="counts",
    file="fractions.csv",
    columns=("query", "class", "noisy_votes"),
    write=_sum_cells,
    read=_sum_code,
    paid=_paid_for_sums,
    dimensions=(2,),
    whole_rows=True,
    check=_check_teachers,
)
MEAN_SCORES = dataclasses.replace(
    FRACTIONS,
    answers="mean scores",
    what="noisy scores",
    releases="scores",
    file="noisy_scores.csv",
    columns=("query", "class", "noisy_score"),
    check=_check_scale,
)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Release(AnyRelease):
    """Private labels, ready to be published.

    Attributes:
        labels: shape (num_queries,), int64: a class, `ABSTAIN` (-1) or `HALTED` (-2). Cannot be written to.
        certificate: what the labels cost.
        queries: the name of each query: its id where it was given one, else its position.
    """

    codec = LABELS

    labels: Integers
    certificate: Certificate
    queries: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SoftRelease(AnyRelease):
    """Private soft labels, ready to be published.

    Attributes:
        codes: shape (num_queries,), or (num_queries, num_classes) for one-vs-rest; int64. A code says its own number of bins and
            its score (`teacher_student.mechanisms.soft_label`); `ABSTAIN` or `HALTED` where there is no answer. Not writable.
        certificate: what the scores cost.
        queries: the name of each query: its id where it was given one, else its position.
    """

    codec = SOFT_LABELS

    codes: Integers
    certificate: Certificate
    queries: tuple[str, ...] | None = None

    @property
    def scores(self) -> Floats:
        """The scores, of the shape of `codes`; NaN where not answered."""
        return scores_of(self.codes)[0]

    @property
    def shifted(self) -> npt.NDArray[np.bool_]:
        """Which scores the shifted test answered; each of them cost one unit."""
        return scores_of(self.codes)[1]

    @property
    def halted(self) -> npt.NDArray[np.bool_]:
        """Which queries were not asked any more, since the budget was spent."""
        return np.asarray(self.codes == HALTED)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SumRelease(AnyRelease):
    """Noisy sums over the teachers.

    Attributes:
        codes: shape (num_queries, num_classes), int64: codes of noisy sums (`mechanisms.noisy_sums`), or `HALTED` all through a
            row that was not asked. Not writable.
        certificate: what the sums cost.
        queries: the name of each query: its id where it was given one, else its position.
    """

    codes: Integers
    certificate: Certificate
    queries: tuple[str, ...] | None = None

    @property
    def noisy_counts(self) -> Integers:
        """Votes or scores plus noise, shape (num_queries, num_classes); they may be negative. 0 where not answered."""
        return np.where(self.codes >= 0, from_codes(self.codes), 0)

    @property
    def num_teachers(self) -> int:
        """How many the sums are over; public."""
        return int(self.certificate.used["num_teachers"])


class FractionRelease(SumRelease):
    """Noisy vote counts, ready to be published. See `SumRelease`."""

    codec = FRACTIONS

    @property
    def labels(self) -> Integers:
        """The class with the most noisy votes, shape (num_queries,), or `HALTED`: what GNMax would have said."""
        return np.where(self.answered, from_codes(self.codes).argmax(axis=1), HALTED)

    @property
    def fractions(self) -> Floats:
        """Unbiased shares of the votes, shape (num_queries, num_classes); see `fractions_of`."""
        parameters = self.certificate.parameters
        assert isinstance(parameters, NoisyFraction)
        return fractions_of(self.codes, parameters, self.num_teachers)


class ScoreRelease(SumRelease):
    """Noisy sums of bounded scores, ready to be published. See `SumRelease`."""

    codec = MEAN_SCORES

    @property
    def means(self) -> Floats:
        """Mean scores, shape (num_queries, num_classes); NaN where not answered."""
        return means_of(self.codes, self.num_teachers, float(self.certificate.used["norm"]))


def fractions_of(codes: Integers, parameters: NoisyFraction, num_teachers: int) -> Floats:
    """Return unbiased shares of the votes, shape (num_queries, num_classes): each row sums to 1; NaN where not answered.

    Counts are divided by the number of teachers, which is public, or where each votes on some queries only, by the number that
    vote on an average query. The noise (and teachers that abstain) make a row sum to something else; the difference is shared
    equally among the classes. Values below 0 and above 1 are left: cutting them off would bias them.
    """
    few = parameters.votes_per_teacher
    voting = num_teachers if few is None else num_teachers * min(1, few / parameters.max_answers)
    shares = from_codes(codes) / voting
    shares += (1 - shares.sum(axis=1, keepdims=True)) / shares.shape[1]
    return np.where(codes >= 0, shares, np.nan)


def means_of(codes: Integers, num_teachers: int, norm: float) -> Floats:
    """Return the mean of the teachers' bounded scores, shape (num_queries, num_classes); NaN where not answered."""
    return np.where(codes >= 0, from_codes(codes) * (norm / (STEPS * num_teachers)), np.nan)
