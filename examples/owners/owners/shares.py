"""What an owner adds to a sum, and how it is coded. Nothing here knows Flower.

Flower's SecAgg+ carries floating-point parameters, which it clips to [-r, r], maps to integers in [0, q] and rounds at random.
With q = 2 r, a weight of 1 and whole numbers within [-r, r], the map is v + r, nothing is clipped or rounded, and the sum is
exact.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from owners.rules import Settings, vote
from owners.table import Table
from teacher_student.aggregation.votes import count_votes
from teacher_student.arguments import ArgumentError
from teacher_student.data.shards import assign_shards
from teacher_student.mechanisms import Noise, SystemNoise
from teacher_student.privacy import NoisyFraction, calibrate
from teacher_student.privacy.noise_shares import share_scale

MODULUS = 2**32
SIGMAS = 64
"""Room for a share of noise, in standard deviations. A draw beyond has a probability below e^-2000."""


def spec_of(settings: Settings, num_queries: int) -> NoisyFraction:
    """Return the mechanism of a question whose noise comes from the owners; everybody computes it from public settings."""
    classes = {"num_queries": num_queries, "num_classes": settings.classes}
    spec = calibrate("noisy_fraction", epsilon=settings.epsilon, delta=settings.delta, **classes)
    assert isinstance(spec, NoisyFraction)
    return spec


def scale_of(settings: Settings, num_queries: int) -> Fraction:
    """Return the scale of an owner's share of the noise: `least` - `colluding` of them are enough."""
    honest = settings.least - settings.colluding
    return share_scale(spec_of(settings, num_queries), honest, epsilon=settings.epsilon, delta=settings.delta)


def reach(settings: Settings, num_queries: int) -> int:
    """Return r: what an owner adds lies between -r and r."""
    room = SIGMAS * scale_of(settings, num_queries) if settings.noise == "owners" else 0
    bound = 1 << int(settings.teachers + room).bit_length()
    if settings.owners * 2 * bound >= MODULUS:
        raise ArgumentError(f"owners must be so few that their sums stay below 2^32, got {settings.owners}")
    return bound


def counts_of(
    table: Table,
    fit: Callable[[Table], Callable[[NDArray[np.float32]], object]],
    points: NDArray[np.float32],
    settings: Settings,
    key: bytes,
) -> NDArray[np.int64]:
    """Return an owner's votes, counted: (num_queries, classes). A teacher that fails abstains.

    Each of the owner's `teachers` is trained on a shard of its own, by a keyed hash of the record's id, so a record reaches one
    teacher whatever other records there are.
    """
    if settings.teachers == 1:
        shards = np.zeros(len(table.labels), dtype=np.int64)
    elif table.ids is None:
        raise ArgumentError("ids must be in the table of an owner with several teachers, got none")
    else:
        shards = assign_shards(table.ids, settings.teachers, key)
    counts = np.zeros((len(points), settings.classes), dtype=np.int64)
    for shard in range(settings.teachers):
        votes = vote(_predictions(table.rows(shards == shard), fit, points), len(points), settings.classes)
        counts += count_votes(votes[:, None], settings.classes)
    return counts


def _predictions(
    table: Table, fit: Callable[[Table], Callable[[NDArray[np.float32]], object]], points: NDArray[np.float32]
) -> object:
    try:
        return fit(table)(points) if len(table.labels) else None
    except Exception:  # noqa: BLE001 - a teacher that fails abstains, and nobody else may notice
        return None


def share_of(counts: NDArray[np.int64], settings: Settings, noise: Noise | None = None) -> NDArray[np.int64]:
    """Return what an owner adds to the sums: its counts and, where the owners add the noise, its share of it."""
    if settings.noise == "server":
        return counts
    source = noise or SystemNoise()
    drawn = source.discrete_gaussian(scale_of(settings, len(counts)), counts.size).reshape(counts.shape)
    given = counts + drawn
    if np.abs(given).max() > reach(settings, len(counts)):
        raise ArgumentError("noise must be a discrete Gaussian's, got a draw that none makes")
    return given


def key_of(state: Path) -> bytes:
    """Return an owner's secret key for its shards. It never changes."""
    path = state / "shards.key"
    try:
        with path.open("xb") as file:
            path.chmod(0o600)
            file.write(secrets.token_bytes(32))
    except FileExistsError:
        pass
    key = path.read_bytes()
    if len(key) != 32:
        raise ArgumentError(f"key must be the 32 bytes that were written first, got {len(key)} in {path}")
    return key
