"""What every mechanism's parameters can do: own their cost and recompute it.

A `Parameters` object is frozen and holds only public numbers. It is what the sampler reads its scales from *and* what the
guarantee is recomputed from, so that the two cannot disagree. Scales are dyadic rationals (multiples of 1/256, rounded up):
the exact value, the double that the sampler is given and the number in the certificate's JSON are then one and the same.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameters(ABC):
    """The public numbers of one calibrated mechanism, with the guarantee that they give."""

    mechanism: ClassVar[str]

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon certified at `delta`, from the fields alone; `math.inf` if there is none."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return the smallest delta certified at `epsilon`, from the fields alone."""

    @property
    def one_session(self) -> Parameters:
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
