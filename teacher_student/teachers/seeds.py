"""Seeds and counter-based random numbers, one stream per teacher.

A teacher's randomness is a keyed hash of the master seed and its shard index. It knows nothing of the number of teachers, of
the chunk that the teacher is trained in, or of the device, so none of these can change a teacher, and no teacher's draws can
shift another's.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

# SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"), as signed 64-bit constants.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_ONE = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_TWO = 0x94D049BB133111EB - (1 << 64)


def shard_seed(master_seed: int, shard: int, purpose: str) -> int:
    """Return a 63-bit seed: a keyed hash (BLAKE2b) of `shard` and `purpose` under `master_seed`.

    >>> shard_seed(0, 3, "start") == shard_seed(0, 3, "start"), shard_seed(0, 3, "start") == shard_seed(0, 4, "start")
    (True, False)
    """
    message = f"{purpose}:{shard}".encode()
    digest = hashlib.blake2b(message, key=str(master_seed).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _mix(state: Tensor) -> Tensor:
    """SplitMix64's finaliser, elementwise on int64; the masks make the arithmetic shifts logical."""
    state = (state ^ ((state >> 30) & 0x3FFFFFFFF)) * _MIX_ONE
    state = (state ^ ((state >> 27) & 0x1FFFFFFFFF)) * _MIX_TWO
    return state ^ ((state >> 31) & 0x1FFFFFFFF)


def derived_keys(keys: Tensor, counter: int) -> Tensor:
    """Return a fresh key (int64, shape of `keys`) for every key and the public `counter` (a step, a layer)."""
    return _mix(_mix(keys + _signed(counter * _GOLDEN)) + _GOLDEN)


def uniforms(keys: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return float32 draws in [0, 1), shape `keys.shape + shape`: draw i of a key depends on that key and on i alone."""
    count = 1
    for length in shape:
        count *= length
    positions = torch.arange(1, count + 1, device=keys.device, dtype=torch.int64) * _GOLDEN
    bits = _mix(keys.unsqueeze(-1) + positions)
    draws = ((bits >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24
    return draws.reshape(tuple(keys.shape) + tuple(shape))


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value
