"""Integer noise, the only source of randomness of a mechanism.

A mechanism asks a `Noise` for integers and never makes its own. There are three sources:

- `SystemNoise` protects data: OpenDP's exact samplers (no floating-point arithmetic in a draw; Mironov 2012 shows what goes wrong
  otherwise), fed by the operating system's entropy. It has no seed and keeps nothing between calls, so forked processes share no
  noise.
- `GeneratorNoise` draws the same laws from a NumPy generator: for studies and tests, not private.
- `RecordedNoise` replays given integers: for tests that compare two forms of one algorithm, not private.

| law | P(x) |
|---|---|
| discrete Laplace, scale b | proportional to exp(-abs(x) / b), all integers |
| discrete Gaussian, scale s | proportional to exp(-x^2 / (2 s^2)), all integers |
| two geometrics, scale b | x = G1 + G2 >= 0, each P(G >= j) = exp(-j / b) |
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np

from teacher_student.arguments import ArgumentError, Integers, choice

LAWS = ("discrete_laplace", "discrete_gaussian", "two_geometrics")

_THREADS = 2
_LARGE = 20_000
"""Draws of at least this size are split over `_THREADS` threads; OpenDP samples outside the interpreter's lock."""


class Noise(ABC):
    """A source of integer noise. `private` says whether a release made with it may claim a guarantee."""

    private: bool = False

    @abstractmethod
    def discrete_laplace(self, scale: Fraction, size: int) -> Integers:
        """Return `size` fresh draws, int64, of P(x) proportional to exp(-abs(x) / scale)."""

    @abstractmethod
    def discrete_gaussian(self, scale: Fraction, size: int) -> Integers:
        """Return `size` fresh draws, int64, of P(x) proportional to exp(-x^2 / (2 scale^2))."""

    @abstractmethod
    def two_geometrics(self, scale: Fraction, size: int) -> Integers:
        """Return `size` fresh draws, int64, of G1 + G2 with P(G >= j) = exp(-j / scale), j >= 0."""

    def draw(self, law: str, scale: Fraction, size: int) -> Integers:
        """Return `size` fresh draws of the law named in `LAWS`.

        >>> RecordedNoise([3, -1, 4]).draw("discrete_laplace", Fraction(1), 2)
        array([ 3, -1])
        """
        sample: Callable[[Fraction, int], Integers] = getattr(self, choice("law", law, LAWS))
        return sample(scale, size)


class SystemNoise(Noise):
    """Exact samplers (OpenDP) on the operating system's entropy. Draws cannot be repeated, predicted or seeded."""

    private = True

    def discrete_laplace(self, scale: Fraction, size: int) -> Integers:
        """Return exact discrete Laplace draws (Canonne, Kamath, Steinke 2020, algorithm 2)."""
        return _opendp_draws("make_laplace", scale, size)

    def discrete_gaussian(self, scale: Fraction, size: int) -> Integers:
        """Return exact discrete Gaussian draws (Canonne, Kamath, Steinke 2020, algorithm 3)."""
        return _opendp_draws("make_gaussian", scale, size)

    def two_geometrics(self, scale: Fraction, size: int) -> Integers:
        """Return exact sums of two geometrics, each folded from a discrete Laplace draw (see `fold`)."""
        geometrics = fold(_opendp_draws("make_laplace", scale, 2 * size))
        return geometrics[:size] + geometrics[size:]


class GeneratorNoise(Noise):
    """The same laws from a NumPy generator, in floating point: repeatable and fast, and therefore not private."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def discrete_laplace(self, scale: Fraction, size: int) -> Integers:
        """Return differences of two geometrics, which are discrete Laplace."""
        return self._geometric(scale, size) - self._geometric(scale, size)

    def discrete_gaussian(self, scale: Fraction, size: int) -> Integers:
        """Return discrete Laplace proposals thinned to a discrete Gaussian."""
        width, accepted = math.floor(sigma := _exact_double(scale)) + 1, np.empty(0, dtype=np.int64)
        while len(accepted) < size:
            proposals = self.discrete_laplace(Fraction(width), 2 * size + 16)
            exponent = -((np.abs(proposals) - sigma**2 / width) ** 2) / (2 * sigma**2)
            kept = proposals[self._generator.random(len(proposals)) < np.exp(exponent)]
            accepted = np.concatenate([accepted, kept])
        return accepted[:size]

    def two_geometrics(self, scale: Fraction, size: int) -> Integers:
        """Return sums of two independent geometrics."""
        return self._geometric(scale, size) + self._geometric(scale, size)

    def _geometric(self, scale: Fraction, size: int) -> Integers:
        success = -math.expm1(-1.0 / _exact_double(scale))
        return self._generator.geometric(success, size=size).astype(np.int64) - 1


class RecordedNoise(Noise):
    """Recorded integers, replayed in order whatever law is requested. Not private.

    Args:
        values: one stream for all draws, or one stream for each scale (a mapping from `Fraction`), so that threshold noise and
            query noise can be recorded separately and an algorithm may draw ahead in one of them.
    """

    def __init__(self, values: Iterable[int] | Mapping[Fraction, Iterable[int]]) -> None:
        streams = values if isinstance(values, Mapping) else {None: values}
        try:
            self._streams: dict[Fraction | None, Iterator[int]] = {scale: iter(stream) for scale, stream in streams.items()}
        except TypeError as error:
            raise ArgumentError(f"values must be whole numbers, or some for each scale, got {values!r}") from error

    def discrete_laplace(self, scale: Fraction, size: int) -> Integers:
        """Return the next `size` recorded values."""
        stream = self._streams.get(scale, self._streams.get(None, iter(())))
        values = [value for _, value in zip(range(size), stream, strict=False)]
        if len(values) < size:
            raise ArgumentError(f"recorded noise must hold a value for every draw, got {size - len(values)} too few at {scale}")
        return np.array(values, dtype=np.int64)

    discrete_gaussian = two_geometrics = discrete_laplace


def fold(draws: Integers) -> Integers:
    """Turn discrete Laplace draws into geometric ones of the same scale, exactly: z if z >= 0, else -z - 1.

    P(j) becomes P(z = j) + P(z = -j - 1), proportional to exp(-j / b) (1 + exp(-1 / b)): the geometric with
    P(G >= j) = exp(-j / b).

    >>> fold(np.array([-2, -1, 0, 1]))
    array([1, 0, 0, 1])
    """
    return np.where(draws >= 0, draws, -draws - 1)


def _exact_double(scale: Fraction) -> float:
    """Return `scale` as a double of exactly the same value; without one it could not be sampled as it is accounted."""
    try:
        double = float(scale)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"scale must be a positive rational that a double can hold, got {scale!r:.40}") from error
    if not math.isfinite(double) or double <= 0 or Fraction(double) != scale:
        raise ArgumentError(f"scale must be positive and exactly a double, got {scale!r}")
    return double


@functools.lru_cache(maxsize=64)
def _measurement(maker: str, scale: float) -> Callable[[list[int]], list[int]]:
    """Build OpenDP's measurement `maker` over vectors of 64-bit integers. OpenDP is imported late, without its slow prelude."""
    from opendp import domains, measurements, metrics, mod

    mod.enable_features("contrib")
    metric: Any = metrics.l2_distance(T="i64") if maker == "make_gaussian" else metrics.l1_distance(T="i64")
    space = domains.vector_domain(domains.atom_domain(T="i64"))
    built: Callable[[list[int]], list[int]] = getattr(measurements, maker)(space, metric, scale)
    return built


def _opendp_draws(maker: str, scale: Fraction, size: int) -> Integers:
    """Return `size` draws: OpenDP adds noise to `size` zeros. No draw is kept after the call."""
    measurement = _measurement(maker, _exact_double(scale))
    if size < _LARGE:
        return np.array(measurement([0] * size), dtype=np.int64) if size else np.empty(0, dtype=np.int64)
    parts = [size // _THREADS] * (_THREADS - 1)
    parts.append(size - sum(parts))
    with ThreadPoolExecutor(_THREADS) as threads:
        drawn = threads.map(lambda part: np.array(measurement([0] * part), dtype=np.int64), parts)
        return np.concatenate(list(drawn))
