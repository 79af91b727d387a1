"""What may leave the aggregation room: answers and what they cost, in memory and in a folder. Nothing else does."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.codec import FRACTIONS, GRADIENTS, LABELS, MEAN_SCORES, SOFT_LABELS, Codec
from teacher_student.arguments import ArgumentError, Floats, Integers, file_path, names_of_rows
from teacher_student.labels import HALTED
from teacher_student.mechanisms.noisy_sums import from_codes
from teacher_student.mechanisms.soft_label import scores_of
from teacher_student.planning.preflight import alerts
from teacher_student.privacy import Certificate, NoisyFraction, NoisyScores
from teacher_student.privacy.certificate import file_digest

CERTIFICATE_FILE = "certificate.json"


class AnyRelease:
    """Answers with their certificate, ready to be published; each kind is a frozen dataclass of codes, certificate and queries.

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
        """Check the codes, make them read-only, and bind the certificate to them and the queries' names."""
        codes = self.codec.check_codes(self._codes)
        object.__setattr__(self, "queries", names_of_rows("queries", self.queries, len(codes)))
        codes.flags.writeable = False
        object.__setattr__(self, self.codec.field, codes)
        if not isinstance(self.certificate, Certificate):
            raise ArgumentError(f"certificate must be a Certificate, got {self.certificate!r}")
        digest = hashlib.sha256(self._table().encode()).hexdigest()
        if (bound := self.certificate.files.get(self.FILE, digest)) != digest:
            raise ArgumentError(
                f"{self.codec.field} must be those that the certificate binds, {self.FILE} of SHA-256 {bound}, got others"
            )
        files = {**self.certificate.files, self.FILE: digest}
        object.__setattr__(self, "certificate", dataclasses.replace(self.certificate, files=files))

    @property
    def _codes(self) -> Integers:
        codes: Integers = getattr(self, self.codec.field)
        return codes

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which answers there are: one for each query, or for each class of it where classes are answered one by one."""
        return np.asarray(self.codec.counted(self._codes) >= 0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What speaks against this release, in whole sentences, from the certificate and the answers; empty if nothing does."""
        return tuple(alerts(self.certificate, int(self.answered.sum()), self.answered.size, classes_found=self.classes_found))

    @property
    def classes_found(self) -> int | None:
        """Number of different classes among the released labels; None for other answers."""
        return None

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the table and, last, certificate.json into `folder`, which is created if needed; each file appears whole.

        The same release may be saved again, for example after a kill between the two files.

        Raises:
            ArgumentError: one of the files exists and is another release's, or the folder cannot be written.
        """
        own = dataclasses.replace(self.certificate, files={self.FILE: self.certificate.files[self.FILE]})
        _write_files(folder, {self.FILE: self._table(), CERTIFICATE_FILE: own.to_json()})

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
        """Do what `load` does, but look at no file except the table and the certificate."""
        source = file_path("folder", folder)
        try:
            with (source / cls.FILE).open(newline="", encoding="utf-8") as file:
                head, *rows = list(csv.reader(file)) or [[]]
            if (*head,) != cls.COLUMNS or any(len(row) != len(head) for row in rows):
                raise ValueError(f"{cls.FILE} needs the columns {', '.join(cls.COLUMNS)}")
            certificate = Certificate.from_json((source / CERTIFICATE_FILE).read_text(encoding="utf-8"))
            names, codes = cls.codec.from_rows(rows)
            if not rows and 2 in cls.codec.dimensions and isinstance(known := certificate.used.get("num_classes"), int):
                codes = codes.reshape(0, abs(known))  # a session that was not asked yet
            cls.codec.check_against(certificate, cls.codec.check_codes(codes))
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

    def _table(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.COLUMNS)
        writer.writerows(self.codec.to_rows(self._codes, self.queries or _positions(len(self._codes))))
        return text.getvalue()


def _positions(length: int) -> tuple[str, ...]:
    return tuple(map(str, range(length)))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Release(AnyRelease):
    """Private labels, ready to be published. See `AnyRelease`.

    Attributes:
        labels: shape (num_queries,), int64: a class, `ABSTAIN` (-1) or `HALTED` (-2). Read-only.
    """

    codec = LABELS

    labels: Integers
    certificate: Certificate
    queries: tuple[str, ...] | None = None

    @property
    def classes_found(self) -> int:
        """Number of different classes among the released labels."""
        return len(np.unique(self.labels[self.labels >= 0]))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CodedRelease(AnyRelease):
    """A release of answers that are not classes. See `AnyRelease`.

    Attributes:
        codes: int64: a code, which the kind decodes, or `ABSTAIN` or `HALTED` where there is no answer. Read-only.
    """

    codes: Integers
    certificate: Certificate
    queries: tuple[str, ...] | None = None


class SoftRelease(CodedRelease):
    """Private soft labels, ready to be published.

    Codes have the shape (num_queries,), or (num_queries, num_classes) for one-vs-rest. A code determines its number of bins and
    its score (`teacher_student.mechanisms.soft_label`).
    """

    codec = SOFT_LABELS

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
        """Which queries came after the budget was spent."""
        return np.asarray(self.codes == HALTED)


class SumRelease(CodedRelease):
    """Noisy sums over the teachers.

    Codes have the shape (num_queries, num_classes): noisy sums (`mechanisms.noisy_sums`), or a whole row of `HALTED`.
    """

    @property
    def noisy_counts(self) -> Integers:
        """Votes or scores plus noise, shape (num_queries, num_classes); they may be negative. 0 where not answered."""
        return np.where(self.codes >= 0, from_codes(self.codes), 0)

    @property
    def num_teachers(self) -> int:
        """How many teachers the sums are over; public."""
        return int(self.certificate.used["num_teachers"])


class FractionRelease(SumRelease):
    """Noisy vote counts, ready to be published. See `SumRelease`."""

    codec = FRACTIONS

    @property
    def labels(self) -> Integers:
        """The class with the most noisy votes, shape (num_queries,), or `HALTED`: what GNMax would have released."""
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
        parameters = self.certificate.parameters
        assert isinstance(parameters, NoisyScores)
        return means_of(self.codes, self.num_teachers, float(self.certificate.used["norm"]), parameters.steps)


class GradientRelease(ScoreRelease):
    """Noisy sums of bounded gradients of a linear model, ready to be published: a query for each step and feature of it."""

    codec = GRADIENTS


def fractions_of(codes: Integers, parameters: NoisyFraction, num_teachers: int) -> Floats:
    """Return unbiased shares of the votes, shape (num_queries, num_classes): each row sums to 1; NaN where not answered.

    Counts are divided by the public number of teachers or, where each votes on some queries only, by the number that vote on an
    average query. Noise and abstentions make a row sum to something else; the difference is shared equally among the classes.
    Values below 0 and above 1 are kept, since clipping would bias them.
    """
    few = parameters.votes_per_teacher
    voting = num_teachers if few is None else num_teachers * min(1, few / parameters.max_answers)
    shares = from_codes(codes) / voting
    shares += (1 - shares.sum(axis=1, keepdims=True)) / shares.shape[1]
    return np.where(codes >= 0, shares, np.nan)


def means_of(codes: Integers, num_teachers: int, norm: float, steps: int) -> Floats:
    """Return the mean of the teachers' bounded scores, shape (num_queries, num_classes); NaN where not answered."""
    return np.where(codes >= 0, from_codes(codes) * (norm / (steps * num_teachers)), np.nan)


def load_release(folder: str | os.PathLike[str]) -> Release | SoftRelease | FractionRelease | ScoreRelease:
    """Load a release of any kind from the folder where it was saved, or from a run's folder.

    Raises:
        ArgumentError: no release there, answers that are not the certificate's, or a file that the certificate binds and that was
            changed.
    """
    path = release_folder(folder)
    return _kind(path).load(path)


def release_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder of a release: a run's `release/`, or the folder itself; refuse one without a certificate."""
    path = file_path("folder", folder).expanduser()
    path = path / "release" if (path / "release").is_dir() else path
    if not (path / CERTIFICATE_FILE).is_file():
        raise ArgumentError(f"folder must hold a {CERTIFICATE_FILE}, got {folder}")
    return path


def _kind(path: Path) -> type[Release] | type[SoftRelease] | type[FractionRelease] | type[ScoreRelease]:
    """Return the kind of release in a folder, by the name of its table."""
    for kind in (FractionRelease, ScoreRelease, GradientRelease, SoftRelease):
        if (path / kind.FILE).exists():
            return kind
    return Release


def bind_files(folder: str | os.PathLike[str]) -> None:
    """Bind the certificate of a release folder to all files beside it; the last step of a run that adds a student and a report.

    The answers must be those that the certificate binds already. The certificate is replaced whole, so a kill leaves the old one
    or the new one. It may be bound again after files were rewritten.

    Raises:
        ArgumentError: no release there, answers that were changed, or a folder that cannot be written.
    """
    target = file_path("folder", folder)
    certificate = _kind(release_folder(target)).load_table(target).certificate
    try:
        files = {path.name: file_digest(path) for path in sorted(bindable(target))}
        text = dataclasses.replace(certificate, files=files).to_json()
        if (target / CERTIFICATE_FILE).read_bytes() != text.encode():
            _write_whole(target / CERTIFICATE_FILE, text, replace=True)
    except OSError as error:
        raise ArgumentError(f"folder must be a folder that can be written, got {target}: {error.strerror}") from error


def bindable(folder: Path) -> list[Path]:
    """Return the files of a release folder that its certificate can bind: all in it but itself, drafts and subfolders."""
    return [
        path
        for path in folder.iterdir()
        if path.is_file() and path.name != CERTIFICATE_FILE and path.name[0] != "." and path.suffix != ".partial"
    ]


def _write_files(folder: str | os.PathLike[str], contents: Mapping[str, str]) -> None:
    """Write each text to a file of its name, in order and each file atomically; files with the same bytes are left unchanged."""
    target = file_path("folder", folder)
    try:
        left = {name: text for name, text in contents.items() if not _is_there(target / name, text)}
        target.mkdir(parents=True, exist_ok=True)
        for name, text in left.items():
            _write_whole(target / name, text)
    except FileExistsError as error:
        raise ArgumentError(f"folder must be a folder without a release, got {target}: {error.strerror}") from error
    except OSError as error:
        raise ArgumentError(f"folder must be a folder that can be written, got {target}: {error.strerror}") from error


def _is_there(path: Path, text: str) -> bool:
    """Return whether the file exists and holds `text`; refuse a file with other contents."""
    if not path.exists():
        return False
    if path.read_bytes() == text.encode():
        return True
    raise ArgumentError(f"folder must hold no release yet, got {path.parent}, which has {path.name}; choose another one")


def _write_whole(path: Path, text: str, *, replace: bool = False) -> None:
    """Write a file atomically: to a temporary name first, then to `path`, which must not exist unless it is to be replaced."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(0o644)
        if replace:
            Path(draft).replace(path)
        else:
            os.link(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)
