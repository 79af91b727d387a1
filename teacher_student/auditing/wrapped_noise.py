"""Noise that passes through the audit's hands: whatever is asked for comes from another source, by way of one method."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction

from teacher_student.arguments import Integers
from teacher_student.mechanisms.noise import Noise


class WrappedNoise(Noise):
    """Another source's noise, of which every draw goes through `draw`."""

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
