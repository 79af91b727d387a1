"""`MechanismSpec`: everything that the rest of the program asks of a mechanism, in one frozen object of public numbers.

The sampler reads its scales from the spec, and the guarantee is recomputed from it, so the two cannot disagree. Scales are dyadic
rationals (multiples of 1/256, rounded up): the exact value, the double that the sampler gets and the number in the certificate's
JSON are the same. Planner, stand-in, audit, student, release and report ask the spec, too, and never for its name. What a spec
does not say is an error when it is registered (`registry.register`), so that nothing has to be assumed later.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError
from teacher_student.privacy.winning import LAWS

Floats = npt.NDArray[np.float64]

GRID = 256
"""Scales are multiples of 1/GRID."""

LARGEST_SCALE = 1 << 40
"""No scale may be larger: a sum over its noise would not end."""


def round_up(scale: float | Fraction) -> Fraction:
    """Return the smallest multiple of 1/256 that is at least `scale`.

    >>> round_up(58.4)
    Fraction(14951, 256)
    """
    return Fraction(math.ceil(Fraction(scale) * GRID), GRID)


def check_scale(name: str, value: object) -> Fraction:
    """Return `value` as a positive dyadic scale; refuse anything off the grid, since it could not be sampled exactly."""
    if isinstance(value, int | float | Fraction) and not isinstance(value, bool) and 0 < value <= LARGEST_SCALE:
        scale = Fraction(value)
        if (scale * GRID).denominator == 1:
            return scale
    raise ArgumentError(f"{name} must be a positive multiple of 1/{GRID}, at most {LARGEST_SCALE}, got {value!r}")


def smallest_scale(fits: Callable[[Fraction], bool], largest: int = LARGEST_SCALE) -> Fraction | None:
    """Return the smallest dyadic scale that `fits`, which must stay true once it is; None if none up to `largest` does.

    >>> smallest_scale(lambda scale: scale >= 58.4)
    Fraction(14951, 256)
    """
    high = 1
    while not fits(Fraction(high, GRID)):
        high *= 2
        if high > largest * GRID:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(Fraction(middle, GRID)) else (middle, high)
    return Fraction(high, GRID)


class Limit(NamedTuple):
    """What a session pays for, at most.

    Attributes:
        name: field of the spec that holds the number: cutoff or max_answers.
        most: payments after which the session halts.
        unit: what is paid, in the singular: abstention or answer.
    """

    name: str
    most: int
    unit: str


class Draw(NamedTuple):
    """Integer noise that the sampler draws.

    Attributes:
        law: name of the law, one of `mechanisms.noise.LAWS`.
        scale: its scale.
        per: what one draw is for: session, query or count.
        decides: whether a value that is drawn once is used once. False where the sampler draws again until the values differ:
            with a source that repeats itself it would never end.
    """

    law: str
    scale: Fraction
    per: str
    decides: bool = True


RELEASES = ("labels", "counts", "scores", "selection")
"""Kinds of answers: a class for each query; a noisy number for each class; sums of scores; the best of several sessions."""

UNITS = ("answers", "abstentions", "sessions")
"""What a session may pay for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismSpec(ABC):
    """The public numbers of one calibrated mechanism, with the guarantee that they give.

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
    """Class attributes that a registered mechanism must have, beside its name, and the values that each may have."""

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
        """The noise that is drawn; the audit holds the sampler to it."""

    @classmethod
    @abstractmethod
    def audit_options(cls, cutoff: int, num_queries: int | None, **options: Any) -> dict[str, Any]:
        """Return `options` and what else `calibrate` needs for an audit of short sessions that may pay `cutoff` times."""

    @abstractmethod
    def mutants(self) -> Mapping[str, Self]:
        """Return specs with one mistake each: an audit in which the sampler runs on one of them must reject it."""

    def rescaled(self, **factors: float) -> Self:
        """Return these parameters with some scales times a factor, rounded up to the grid."""
        return dataclasses.replace(
            self, **{name: round_up(getattr(self, name) * Fraction(factor)) for name, factor in factors.items()}
        )

    @property
    def one_session(self) -> MechanismSpec:
        """The parameters of a single session: these, except where the best of several sessions is released."""
        return self

    @property
    def release_delta(self) -> float:
        """The delta of the release part, which composition adds as it stands (0 where there is no such part)."""
        return 0.0

    @property
    def mu(self) -> float | None:
        """The mu of Gaussian differential privacy of the whole session, or None if it has none."""
        return None

    @property
    def pure_parts(self) -> tuple[float, int] | None:
        """(eps0, n) if all but the release part is at most n adaptive eps0-DP answers, or None."""
        return None

    def rdp(self, orders: Sequence[float] | Floats) -> Floats | None:
        """Return the Renyi divergence bound at each order (> 1) of all but the release part, or None if there is none."""
        del orders
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON numbers, except those at their default; a scale is dyadic, so exact as a double."""
        fields = ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        given = {field.name: value for field, value in fields if value != field.default}
        plain = {name: float(value) if isinstance(value, Fraction) else value for name, value in given.items()}
        return {"mechanism": self.mechanism, **plain}

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> Self:
        """Return the parameters that `to_dict` wrote; each class checks its own fields when it is made."""
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


class Expectation(NamedTuple):
    """What a session is expected to answer: labels in all, and (rows, C) labels of one class of each column to each row."""

    answers: float
    labels: Floats


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelSpec(MechanismSpec):
    """A mechanism that answers a query with a class, or abstains: what planner, stand-in and student need to know of it.

    Attributes:
        vote_noise: law of the noise on a count, one of `winning.LAWS`, if the answer is the class with the largest noisy count;
            else None. A student that knows it learns shares of votes.
        asks_first: whether it tests first that a class has enough votes, with fields and options `threshold`,
            `threshold_scale`, `test_share` and `num_queries`.
        ratios: values of the option `threshold_ratio` that a planner tries; none where the calibration has no such option.
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
        """Whether planners can tell which class an answer is: a mechanism that answers only with the plurality says that."""
        return True

    @abstractmethod
    def first_answer(self, counts: Floats, times: Floats | None = None) -> Floats:
        """Return the law of the answer to the first query of a session; what is missing to 1 is the chance of an abstention.

        Args:
            counts: (rows, C) votes, one row for each query; need not be whole.
            times: (rows, C) number of classes that a column stands for; None for one each.

        Returns:
            (rows, C) probabilities of one class of each column. A planner needs no more than three digits.
        """

    @abstractmethod
    def expected_labels(self, counts: Floats, weights: Floats, num_queries: int, times: Floats | None = None) -> Expectation:
        """Return the answers to expect of `num_queries` queries before the session halts.

        Args:
            counts: (rows, C) votes.
            weights: (rows,) probabilities of the rows; each query is drawn from them.
            num_queries: queries that wait for an answer.
            times: as in `first_answer`.
        """
