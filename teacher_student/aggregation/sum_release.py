"""What a session of noisy sums may let out: noisy votes or noisy scores of each class, and the certificate."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.folder import check_against
from teacher_student.aggregation.saved_release import SavedRelease, names_of_groups
from teacher_student.arguments import ArgumentError, Floats, Integers, positive_integer, positive_number, whole_numbers
from teacher_student.labels import HALTED
from teacher_student.mechanisms.noisy_sums import from_codes, to_codes
from teacher_student.privacy import Certificate, NoisyFraction, NoisyScores
from teacher_student.privacy.noisy_scores import STEPS


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SumRelease(SavedRelease):
    """Noisy sums over the teachers, ready to be published.

    Attributes:
        codes: shape (num_queries, num_classes), int64: codes of noisy sums (`mechanisms.noisy_sums`), or `HALTED` all through a
            row that was not asked. Not writable.
        certificate: what the sums cost.
        queries: the name of each query: its id where it was given one, else its position.
    """

    PARAMETERS: ClassVar[type[NoisyFraction] | type[NoisyScores]]

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
        self._keep("codes", codes)

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which queries have sums, shape (num_queries,)."""
        return np.asarray(self.codes[:, 0] >= 0)

    @property
    def noisy_counts(self) -> Integers:
        """Votes or scores plus noise, shape (num_queries, num_classes); they may be negative. 0 where not answered."""
        return np.where(self.answered[:, None], from_codes(self.codes), 0)

    @property
    def num_teachers(self) -> int:
        """How many the sums are over; public."""
        return int(self.certificate.used["num_teachers"])

    def _rows(self, names: Sequence[str]) -> Iterable[Sequence[Any]]:
        for name, there, row in zip(names, self.answered.tolist(), self.noisy_counts.tolist(), strict=True):
            yield from ([name, label, value if there else ""] for label, value in enumerate(row))

    @classmethod
    def _read(cls, rows: Sequence[Sequence[str]], certificate: Certificate) -> tuple[tuple[str, ...], Integers]:
        parameters = certificate.parameters
        if not isinstance(parameters, cls.PARAMETERS):
            raise ArgumentError(f"certificate must be of {cls.PARAMETERS.mechanism}, got one of {certificate.mechanism}")
        classes = parameters.num_classes
        names = names_of_groups(rows, [str(label) for label in range(classes)])
        values = to_codes(np.array([int(row[2] or 0) for row in rows], dtype=np.int64))
        codes = np.where([row[2] != "" for row in rows], values, HALTED).reshape(-1, classes)
        _check(codes, certificate)
        return names, codes


def _check(codes: Integers, certificate: Certificate) -> None:
    """Refuse sums that are not the certificate's: one unit for each query that was answered."""
    answered = int((codes[:, 0] >= 0).sum())
    check_against(certificate, codes[:, 0], least_paid=answered, most_paid=answered)
    positive_integer("num_teachers", certificate.used.get("num_teachers"))
    if (stated := certificate.used.get("num_classes")) != codes.shape[1]:
        raise ArgumentError(f"certificate must speak of {codes.shape[1]} classes, as its parameters do, got {stated}")


class FractionRelease(SumRelease):
    """Noisy vote counts, ready to be published. See `SumRelease`."""

    FILE: ClassVar[str] = "fractions.csv"
    COLUMNS: ClassVar[tuple[str, ...]] = ("query", "class", "noisy_votes")
    PARAMETERS: ClassVar[type[NoisyFraction] | type[NoisyScores]] = NoisyFraction

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

    FILE: ClassVar[str] = "noisy_scores.csv"
    COLUMNS: ClassVar[tuple[str, ...]] = ("query", "class", "noisy_score")
    PARAMETERS: ClassVar[type[NoisyFraction] | type[NoisyScores]] = NoisyScores

    @property
    def means(self) -> Floats:
        """Mean scores, shape (num_queries, num_classes); NaN where not answered."""
        return means_of(self.codes, self.num_teachers, float(self.certificate.used["norm"]))

    @classmethod
    def _read(cls, rows: Sequence[Sequence[str]], certificate: Certificate) -> tuple[tuple[str, ...], Integers]:
        parameters = certificate.parameters
        if isinstance(parameters, NoisyScores) and parameters.steps != STEPS:
            raise ArgumentError(f"certificate must be of scores in {STEPS} steps, got {parameters.steps}")
        positive_number("norm", certificate.used.get("norm"))
        return super()._read(rows, certificate)


def fractions_of(codes: Integers, parameters: NoisyFraction, num_teachers: int) -> Floats:
    """Return unbiased shares of the votes, shape (num_queries, num_classes): each row sums to 1; NaN where not answered.

    Divided by the number of teachers, which is public, or where each votes on some queries only, by how many vote on an average
    one. What the noise (and teachers that abstained) make a row's sum differ from 1 by is given to all classes alike. Values
    below 0 and above 1 are left: cutting them off would bias them.
    """
    few = parameters.votes_per_teacher
    voting = num_teachers if few is None else num_teachers * min(1, few / parameters.max_answers)
    shares = from_codes(codes) / voting
    shares += (1 - shares.sum(axis=1, keepdims=True)) / shares.shape[1]
    return np.where(codes >= 0, shares, np.nan)


def means_of(codes: Integers, num_teachers: int, norm: float) -> Floats:
    """Return the mean of the teachers' bounded scores, shape (num_queries, num_classes); NaN where not answered."""
    return np.where(codes >= 0, from_codes(codes) * (norm / (STEPS * num_teachers)), np.nan)
