"""Sources of noise that wrap another source: to count draws, to draw in blocks, and to break what is drawn."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from teacher_student.arguments import Integers
from teacher_student.mechanisms.noise import GeneratorNoise, Noise


class WrappedNoise(Noise):
    """Noise of another source. Every request goes through `draw`."""

    def __init__(self, inner: Noise) -> None:
        self._inner = inner

    @abstractmethod
    def draw(self, law: str, scale: Fraction, size: int) -> Integers:
        """Return `size` draws of the law named in `LAWS`."""

    def discrete_laplace(self, scale: Fraction, size: int) -> Integers:
        """See `draw`."""
        return self.draw("discrete_laplace", scale, size)

    def discrete_gaussian(self, scale: Fraction, size: int) -> Integers:
        """See `draw`."""
        return self.draw("discrete_gaussian", scale, size)

    def two_geometrics(self, scale: Fraction, size: int) -> Integers:
        """See `draw`."""
        return self.draw("two_geometrics", scale, size)


class Request(NamedTuple):
    """One request for noise: `size` draws of a law at a scale."""

    law: str
    scale: Fraction
    size: int


class ListeningNoise(WrappedNoise):
    """Passes on another source's noise and records all requests."""

    def __init__(self, inner: Noise) -> None:
        super().__init__(inner)
        self.requests: list[Request] = []

    def draw(self, law: str, scale: Fraction, size: int) -> Integers:
        """Return the inner source's draws."""
        self.requests.append(Request(law, Fraction(scale), size))
        return self._inner.draw(law, scale, size)


class DrawnAhead(WrappedNoise):
    """Another source's noise, drawn in blocks and returned in order, each value once. Makes many short sessions cheaper."""

    def __init__(self, inner: Noise, block: int = 1 << 14) -> None:
        super().__init__(inner)
        self._size = block
        self._blocks: dict[tuple[str, Fraction], tuple[Integers, int]] = {}

    def draw(self, law: str, scale: Fraction, size: int) -> Integers:
        """Return the next `size` values of this law at this scale."""
        values, used = self._blocks.get((law, scale), (_NONE, 0))
        if used + size > len(values):
            fresh = self._inner.draw(law, scale, max(size, self._size))
            values, used = np.concatenate([values[used:], fresh]), 0
        self._blocks[law, scale] = (values, used + size)
        return values[used : used + size].copy()


_NONE: Integers = np.empty(0, dtype=np.int64)


class SilentNoise(WrappedNoise):
    """No noise at all: a session releases its exact sums."""

    def __init__(self) -> None:
        super().__init__(GeneratorNoise(np.random.default_rng(0)))

    def draw(self, law: str, scale: Fraction, size: int) -> Integers:
        """Return zeros."""
        del law, scale
        return np.zeros(size, dtype=np.int64)


class ReusedNoise(WrappedNoise):
    """Broken: draws once from one law at one scale and repeats that value; other draws stay fresh."""

    def __init__(self, inner: Noise, law: str, scale: Fraction) -> None:
        super().__init__(inner)
        self._reused = (law, scale)
        self._kept: int | None = None

    def draw(self, law: str, scale: Fraction, size: int) -> Integers:
        """Return `size` copies of the first draw of the law that is reused."""
        if (law, scale) != self._reused:
            return self._inner.draw(law, scale, size)
        if self._kept is None:
            self._kept = int(self._inner.draw(law, scale, 1)[0])
        return np.full(size, self._kept, dtype=np.int64)


class SharedNoise(WrappedNoise):
    """Broken: one draw for each query, used for all its `classes`."""

    def __init__(self, inner: Noise, classes: int) -> None:
        super().__init__(inner)
        self._classes = classes

    def draw(self, law: str, scale: Fraction, size: int) -> Integers:
        """Return each draw `classes` times."""
        return np.repeat(self._inner.draw(law, scale, -(-size // self._classes)), self._classes)[:size]
