"""What the fuzzers feed: sensible arguments, in which up to two are exchanged for something odd."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

ODD_NUMBERS = st.sampled_from(
    [
        0, 1, -1, 2, 3, 7, 255, 256, 10**6, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, 10**400, -(10**30),
        0.0, -0.0, 0.5, 1.0, 1.5, -1.0, 1e-300, 5e-324, 1e-12, 1e12, 1e308, -1e308, math.nan, math.inf, -math.inf,
        True, False, 1j, Fraction(1, 3), Decimal("0.1"), Decimal("NaN"),
        np.int8(-1), np.uint8(200), np.int64(2), np.float16(0.1), np.float32("nan"), np.float64(0.25), np.bool_(True),
    ]
)  # fmt: skip
ODD_TEXTS = st.one_of(
    st.sampled_from(["", " ", "0", "1e3", "nan", "None", "stability", "gnmax", "ß€🦊", "\x00", "a\nb", "..", "/", "~"]),
    st.text(max_size=5),
    st.binary(max_size=4),
)
ODD_TABLES = st.sampled_from(
    [
        [], [[]], [[[]]], [1], [[1, 2], [3]], [["a"]], [[None]], [[1.5]], [[math.nan]], [[10**30]], [[True]], [[0, 1], [1, 0]],
        {}, {1: 2}, set(), (0.1, 0.2), ["a", "b"], [-1, 0], [math.nan], range(3), np.arange(3), np.array(["a", "b"]),
        np.zeros((0, 3), int), np.zeros((3, 0)), np.zeros((2, 2), object), np.zeros((2, 2), "datetime64[s]"),
        np.zeros((2, 2), complex), np.zeros((2, 2), "U3"), np.zeros((2, 2), bool), np.zeros((1, 1, 1, 1)), np.zeros(()),
        np.zeros(3, [("a", int)]), np.full((2, 3), -1), np.full((2, 3), 2**62), np.full((2, 3), np.inf),
        np.full((2, 2), 2**63, np.uint64), np.full((2, 2), 1e300), np.ma.masked_all((2, 2)), np.array([1, 1]),
    ]
)  # fmt: skip
ODD = st.one_of(
    st.none(),
    ODD_NUMBERS,
    ODD_NUMBERS,
    ODD_TEXTS,
    ODD_TABLES,
    st.sampled_from([object(), len, int, Path("nowhere"), ..., NotImplemented]),
)
"""Everything that is not meant."""


SLOW = 0.1


@dataclass(frozen=True)
class Door:
    """A public function, and what a sensible caller gives it.

    Attributes:
        call: the function.
        sound: strategies of its arguments by name.
        weight: how often it is tried, of 1; expensive ones less, and those below `SLOW` in the long profile only.
        kept: arguments that are never exchanged, such as a user's own code.
    """

    call: Callable[..., Any]
    sound: Mapping[str, st.SearchStrategy[Any]]
    weight: float = 1.0
    kept: tuple[str, ...] = ()


@st.composite
def arguments(draw: st.DrawFn, door: Door) -> dict[str, Any]:
    """Sound arguments, none to two of them exchanged for odd values."""
    given = {name: draw(strategy) for name, strategy in door.sound.items()}
    names = sorted(set(given) - set(door.kept))
    for name in draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) if names else []:
        given[name] = draw(ODD)
    return given


def integers(low: int = 1, high: int = 5) -> st.SearchStrategy[int]:
    return st.integers(low, high)


EPSILON = st.sampled_from([0.1, 0.5, 1.0, 1, 3.0, np.float64(1.0)])
DELTA = st.sampled_from([1e-5, 1e-6, 1e-9, 0.01])
SHARE = st.sampled_from([0.0, 0.01, 0.05, 0.3, 0.9, 1.0])
OPTION = st.sampled_from([None, 1, 2, 3])


def always_the_same(count: int, inputs: st.SearchStrategy[Any]) -> Callable[[Callable[[Any], None]], Callable[[], None]]:
    """Make a check of one input a check of `count`, the same ones each time; a failure is not shrunk."""

    def of(check: Callable[[Any], None]) -> Callable[[], None]:
        chosen = settings(
            max_examples=count,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        return chosen(given(inputs)(check))

    return of
