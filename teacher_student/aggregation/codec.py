"""Codecs: what differs between kinds of answers. Every answer is an integer code: `ABSTAIN`, `HALTED`, or at least 0."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from teacher_student.arguments import ArgumentError, Integers, positive_integer, positive_number, whole_numbers
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms.noisy_sums import from_codes
from teacher_student.mechanisms.soft_label import scores_of
from teacher_student.privacy import Certificate, MechanismSpec
from teacher_student.privacy.noisy_sums import STEPS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Codec:
    """One kind of answers: how its codes are written to a table, read from it, and checked against a certificate.

    Attributes:
        answers: name of the kind in session settings and certificates; None for class labels.
        what: the same in words, for messages.
        field: name of the codes in a release.
        releases: what its mechanisms release, one of `parameters.RELEASES`.
        file: name of the table.
        columns: of the table, in order: query, class if a query has several, and the cells of one code.
        write: returns the cells of (n,) codes, one sequence for each column.
        read: returns the code that a row's cells stand for.
        paid: returns the least and the most units that codes cost, given the spec.
        dimensions: of an array of codes.
        smallest: code that is an answer.
        whole_rows: whether all classes of a query are one answer, given and paid for together.
        check: refuses further facts of a certificate.
    """

    answers: str | None
    what: str
    field: str = "codes"
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
        """Return one code for each answer: the first of a query whose classes are answered together."""
        return codes[:, 0] if self.whole_rows else codes

    def check_codes(self, given: object) -> Integers:
        """Return codes of this kind, as int64."""
        codes = whole_numbers(self.field, given)
        other = (codes < self.smallest) & (codes != HALTED) & (self.whole_rows | (codes != ABSTAIN))
        if (
            codes.ndim not in self.dimensions
            or other.any()
            or (self.whole_rows and (not codes.shape[1] or ((codes < 0).any(1) != (codes < 0).all(1)).any()))
        ):
            raise ArgumentError(
                f"{self.field} must be of {self.what}, or -1 or -2 where there is no answer, in {self.dimensions[-1]} dimensions,"
                f" got others of shape {codes.shape}"
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
        """Refuse codes that the certificate does not describe, or that exceed what its parameters pay for."""
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


def _paid_for_labels(labels: Integers, spec: MechanismSpec) -> tuple[int, int]:
    """Every paid abstention costs a unit; for a noisy maximum, every answer."""
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


def _score_cells(codes: Integers) -> tuple[Iterable[object], ...]:
    return codes.tolist(), ["" if score != score else repr(score) for score in scores_of(codes)[0].tolist()]


def _sum_cells(codes: Integers) -> tuple[Iterable[object], ...]:
    return ([value if code >= 0 else "" for code, value in zip(codes.tolist(), from_codes(codes).tolist(), strict=True)],)


def _sum_code(cell: str) -> int:
    value = int(cell or 0)
    return HALTED if not cell else 2 * value if value >= 0 else -2 * value - 1  # `to_codes`, of any size


def _check_teachers(certificate: Certificate) -> None:
    positive_integer("num_teachers", certificate.used.get("num_teachers"))


def _check_scale(certificate: Certificate, steps: int = STEPS) -> None:
    _check_teachers(certificate)
    if (stated := getattr(certificate.parameters, "steps", None)) != steps:
        raise ArgumentError(f"certificate must be of sums in {steps} steps, got {stated}")
    positive_number("norm", certificate.used.get("norm"))


LABELS = Codec(
    answers=None,
    what="released classes",
    field="labels",
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
GRADIENTS = dataclasses.replace(
    MEAN_SCORES,
    answers="gradients",
    what="noisy gradients",
    file="noisy_gradients.csv",
    columns=("feature", "class", "noisy_sum"),
    check=functools.partial(_check_scale, steps=STEPS**2),
)
