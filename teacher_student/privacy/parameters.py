"""`MechanismSpec`: everything the rest of the program asks of a mechanism, in one frozen object of public numbers.

The sampler reads its scales from the spec, and the guarantee is recomputed from it, so the two cannot disagree. Scales are dyadic
rationals (multiples of 1/256, rounded up): the exact value, the double that the sampler gets and the number in the certificate's
JSON are the same. Planner, audit, student, release and report also ask the spec and never dispatch on its name. A spec that lacks
a piece is refused when it is registered (`registry.register`), so nothing has to be assumed later.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from teacher_student.arguments import ArgumentError, Floats, choice
from teacher_student.privacy.pure import pure_rdp
from teacher_student.privacy.winning import LAWS

GRID = 256
"""Scales are multiples of 1/GRID."""

LARGEST_SCALE = 1 << 40
"""Largest scale; a sum over the noise of a larger one would take too long."""


def round_up(scale: float | Fraction) -> Fraction:
    """Return the smallest multiple of 1/256 that is at least `scale`.

    >>> round_up(58.4)
    Fraction(14951, 256)
    """
    return Fraction(math.ceil(Fraction(scale) * GRID), GRID)


def check_scale(name: str, value: object) -> Fraction:
    """Return `value` as a positive dyadic scale. A value off the grid is refused: it could not be sampled exactly."""
    if isinstance(value, int | float | Fraction) and not isinstance(value, bool) and 0 < value <= LARGEST_SCALE:
        scale = Fraction(value)
        if (scale * GRID).denominator == 1:
            return scale
    raise ArgumentError(f"{name} must be a positive multiple of 1/{GRID}, at most {LARGEST_SCALE}, got {value!r}")


def smallest_integer(suffices: Callable[[int], bool], largest: int) -> int | None:
    """Return the smallest positive integer that suffices, or None if no power of two up to `largest` does.

    Every integer above one that suffices must suffice as well.

    >>> smallest_integer(lambda number: number**2 >= 200, 1000)
    15
    """
    high = 1
    while not suffices(high):
        high *= 2
        if high > largest:
            return None
    low = high // 2 + 1
    return low + bisect.bisect_left(range(low, high), True, key=suffices)


def smallest_scale(suffices: Callable[[Fraction], bool], largest: int = LARGEST_SCALE) -> Fraction | None:
    """Return the smallest dyadic scale that suffices, as every larger one must, or None if none up to `largest` does.

    >>> smallest_scale(lambda scale: scale >= 58.4)
    Fraction(14951, 256)
    """
    found = smallest_integer(lambda number: suffices(Fraction(number, GRID)), largest * GRID)
    return None if found is None else Fraction(found, GRID)


def refuse_options(options: Mapping[str, object], mechanism: str, *known: str) -> None:
    """Refuse every option; `known` are those that the mechanism's calibration has."""
    for name in options:
        raise ArgumentError(f"{name} is no option of {mechanism}; it has {', '.join(known) or 'none'}")


class Limit(NamedTuple):
    """The cap on a session's payments.

    Attributes:
        name: field of the spec that holds the cap: cutoff or max_answers.
        most: payments after which the session halts.
        unit: what is paid for, in the singular: abstention or answer.
    """

    name: str
    most: int
    unit: str


class Draw(NamedTuple):
    """Integer noise that the sampler draws.

    Attributes:
        law: name of the law, one of `mechanisms.noise.LAWS`.
        scale: scale of the law.
        per: what one draw is for: session, query or count.
        decides: whether each value is used once. False where the sampler draws again until values differ, which never ends with
            a source that repeats itself.
    """

    law: str
    scale: Fraction
    per: str
    decides: bool = True


RELEASES = ("labels", "counts", "scores", "selection")
"""Kinds of answers: a class for each query, noisy votes for each class, noisy sums of scores, the best of several sessions."""

UNITS = ("answers", "abstentions", "sessions")
"""What a session may pay for."""


NEIGHBOURS = ("add_remove", "replace_one", "label_only", "zero_out")
"""How D' differs from D: one record more or less; another record in the place of one; another label of one record; one teacher
abstains from everything, where a teacher is an owner and their number is public (dp_accounting's REPLACE_SPECIAL)."""

WITHDRAWING = ("add_remove", "zero_out")
"""Relations under which the votes of a voter that is itself protected appear or disappear, and no others change."""

REPLACED, WITHDRAWN = "replaced", "withdrawn"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismSpec(ABC):
    """The public numbers of one calibrated mechanism, and the guarantee that follows from them.

    Attributes:
        mechanism: name in configs and certificates.
        releases: one of `RELEASES`.
        pays_for: one of `UNITS`.
        soft_labels: whether it also answers soft labels (`calibrate_soft`).
    """

    mechanism: ClassVar[str]
    releases: ClassVar[str]
    pays_for: ClassVar[str]
    soft_labels: ClassVar[bool]

    DECLARED: ClassVar[dict[str, tuple[object, ...]]] = {
        "releases": RELEASES,
        "pays_for": UNITS,
        "soft_labels": (True, False),
    }
    """Class attributes that a registered mechanism must have besides its name, with the values that each may take."""

    def __post_init__(self) -> None:  # noqa: B027 - subclasses add their checks
        """Check the fields."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon certified at `delta`, from the fields alone; `math.inf` if there is none."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return the smallest delta certified at `epsilon`, from the fields alone."""

    @classmethod
    @abstractmethod
    def calibrate(cls, *, epsilon: float, delta: float, cutoff: int, num_queries: int | None, **options: Any) -> Self:
        """Return the parameters of least noise that spend at most `epsilon` at `delta`."""

    @property
    @abstractmethod
    def limit(self) -> Limit:
        """What ends a session."""

    @property
    @abstractmethod
    def draws(self) -> tuple[Draw, ...]:
        """The noise that the sampler draws; the audit checks this."""

    @classmethod
    @abstractmethod
    def audit_options(cls, cutoff: int, num_queries: int | None, **options: Any) -> dict[str, Any]:
        """Return `options` plus whatever else `calibrate` needs for an audit of short sessions that may pay `cutoff` times."""

    @abstractmethod
    def mutants(self) -> Mapping[str, Self]:
        """Return specs with one mistake each: an audit must reject a sampler that runs on one of them."""

    def rescaled(self, **factors: float) -> Self:
        """Return these parameters with the named scales multiplied by a factor and rounded up to the grid."""
        scales = {name: round_up(getattr(self, name) * Fraction(factor)) for name, factor in factors.items()}
        return dataclasses.replace(self, **scales)

    @property
    def relations(self) -> tuple[str, ...]:
        """Neighbouring relations for which the guarantee holds."""
        return NEIGHBOURS

    @property
    def one_session(self) -> MechanismSpec:
        """The parameters of a single session: these, unless the best of several sessions is released."""
        return self

    @property
    def release_delta(self) -> float:
        """Probability of the failure event (see `threshold`), which composition adds; 0 where there is none.

        The three costs below are those of the session without the failure event.
        """
        return 0.0

    @property
    def mu(self) -> float | None:
        """The mu of Gaussian differential privacy, or None."""
        return None

    @property
    def pure_parts(self) -> tuple[float, int] | None:
        """(eps0, n) if the session is at most n adaptive eps0-DP answers, else None."""
        return None

    def rdp(self, orders: Sequence[float] | Floats) -> Floats | None:
        """Return a bound on the Renyi divergence at each order (> 1), by default from `mu` or `pure_parts`; None without."""
        if self.mu is not None:
            return np.asarray(np.asarray(orders, dtype=np.float64) * self.mu**2 / 2)
        return None if self.pure_parts is None else pure_rdp(*self.pure_parts, orders)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON numbers, except those at their default. Scales are dyadic, hence exact as doubles."""
        fields = ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        given = {field.name: value for field, value in fields if value != field.default}
        plain = {name: float(value) if isinstance(value, Fraction) else value for name, value in given.items()}
        return {"mechanism": self.mechanism, **plain}

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> Self:
        """Return the parameters that `to_dict` wrote; the constructor checks them."""
        names = {field.name for field in dataclasses.fields(cls)}
        needed = {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
        given = {name: value for name, value in mapping.items() if name != "mechanism"}
        if mapping.get("mechanism") != cls.mechanism or not needed <= set(given) <= names:
            raise ArgumentError(
                f"parameters must be those of {cls.mechanism} ({', '.join(sorted(names))}), got {dict(mapping)!r}"
            )
        return cls(**given)


Parameters = MechanismSpec
"""An older name of the same class."""


def check_relation(neighbours: str, spec: MechanismSpec) -> None:
    """Refuse a neighbouring relation for which the guarantee of `spec` does not hold."""
    if choice("neighbours", neighbours, NEIGHBOURS) not in spec.relations:
        raise ArgumentError(
            f"neighbours must be {' or '.join(spec.relations)} where votes are only added or withdrawn, got {neighbours}; leave "
            "out vote_change otherwise"
        )


class Expectation(NamedTuple):
    """Expected answers of a session: the total, and (rows, C) labels by row and class (one class of each column)."""

    answers: float
    labels: Floats


@dataclasses.dataclass(frozen=True, kw_only=True)
class VoteSpec(MechanismSpec):
    """A mechanism on what teachers say about queries: votes, or vectors of scores.

    Attributes:
        vote_changes: values of `vote_change` for which the cost is proved.
        vote_change: what a neighbour does to a vote. "replaced": it may turn the vote into another one. "withdrawn": it only adds
            or withdraws the vote, because every voter is itself protected (docs/privacy.md, "Votes that are only added or
            withdrawn").
    """

    vote_changes: ClassVar[tuple[str, ...]] = (REPLACED,)

    vote_change: str = REPLACED

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vote_change not in self.vote_changes:
            known = " or ".join(self.vote_changes)
            raise ArgumentError(f"vote_change must be {known} for {self.mechanism}, got {self.vote_change!r}")

    @property
    def relations(self) -> tuple[str, ...]:
        """All relations, or those under which no vote is replaced."""
        return NEIGHBOURS if self.vote_change == REPLACED else WITHDRAWING

    @property
    def moved_counts(self) -> int:
        """Number of counts of a query that a neighbour moves by one: the old vote's and the new vote's, or a single one."""
        return 2 if self.vote_change == REPLACED else 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelSpec(VoteSpec):
    """A mechanism that answers a query with a class or abstains, as the planner and the student see it.

    Attributes:
        vote_noise: law of the noise on a count, one of `winning.LAWS`, if the answer is the class with the largest noisy count;
            else None. A student can use it to learn shares of votes.
        asks_first: whether it first tests that a class has enough votes, with fields and options `threshold`,
            `threshold_scale`, `test_share` and `num_queries`.
        ratios: values of the option `threshold_ratio` that a planner tries; empty if the calibration has no such option.
    """

    releases: ClassVar[str] = "labels"
    vote_noise: ClassVar[str | None]
    asks_first: ClassVar[bool]
    ratios: ClassVar[tuple[float, ...]]

    DECLARED: ClassVar[dict[str, tuple[object, ...]]] = {
        **MechanismSpec.DECLARED,
        "vote_noise": (*LAWS, None),
        "asks_first": (True, False),
        "ratios": (),
    }

    @classmethod
    def says_who_wins(cls) -> bool:
        """Whether planners can predict the class of an answer. True for mechanisms that answer only with the plurality."""
        return True

    @abstractmethod
    def first_answer(self, counts: Floats, times: Floats | None = None) -> Floats:
        """Return the law of the answer to the first query of a session, to about three digits.

        Args:
            counts: (rows, C) votes, one row for each query; not necessarily integers.
            times: (rows, C) number of classes that a column stands for; None for one each.

        Returns:
            (rows, C) probabilities of one class of each column; the rest of a row is the probability of an abstention.
        """

    @abstractmethod
    def expected_labels(self, counts: Floats, weights: Floats, num_queries: int, times: Floats | None = None) -> Expectation:
        """Return the expected answers to `num_queries` queries before the session halts.

        Args:
            counts: (rows, C) votes.
            weights: (rows,) probabilities from which the row of each query is drawn.
            num_queries: queries to answer.
            times: as in `first_answer`.
        """
