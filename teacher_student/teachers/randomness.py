"""Random numbers of a teacher's own: seeds, counter-based draws, and the dropout and augmentation that use them.

A teacher's randomness is a keyed hash of the master seed and its shard index. It does not depend on the number of teachers, on
the chunk that the teacher is trained in, or on the device, so none of these can change a teacher, and no teacher's draws can
shift another's.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from teacher_student.arguments import ArgumentError, positive_integer

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
    offset = (counter * _GOLDEN + 2**63) % 2**64 - 2**63  # as a signed 64-bit integer
    return _mix(_mix(keys + offset) + _GOLDEN)


def uniforms(keys: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return float32 draws in [0, 1), shape `keys.shape + shape`: draw i of a key depends on that key and on i alone."""
    positions = torch.arange(1, math.prod(shape) + 1, device=keys.device, dtype=torch.int64) * _GOLDEN
    bits = _mix(keys.unsqueeze(-1) + positions)
    draws = ((bits >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24
    return draws.reshape((*keys.shape, *shape))


def drop(values: Tensor, keys: Tensor, probability: float) -> Tensor:
    """Zero values with `probability` (below 1) and scale the rest.

    Args:
        values: (*keys.shape, ...).
        keys: int64, one key for each teacher; a scalar for one teacher.
        probability: of dropping.
    """
    draws = uniforms(keys, tuple(values.shape[keys.ndim :]))
    return torch.where(draws >= probability, values / (1 - probability), torch.zeros_like(values))


class KeyedDropout(nn.Module):
    """`nn.Dropout` with counter-based masks: a mask depends on the teacher's own key, which the engine sets before each step.

    Args:
        probability: of dropping.
        layer: number of the layer, so that layers draw different masks.
    """

    key: Tensor

    def __init__(self, probability: float, layer: int) -> None:
        super().__init__()
        self.probability, self.layer = probability, layer
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        """Return `values` (batch, ...), dropped while training."""
        return drop(values, derived_keys(self.key, self.layer), self.probability) if self.training else values


def key_dropouts(network: nn.Module) -> list[str]:
    """Replace every `nn.Dropout` in place and return the names of their keys in the module."""
    found = [(name, module) for name, module in network.named_modules() if type(module) is nn.Dropout]
    for layer, (name, module) in enumerate(found):
        parent, _, leaf = name.rpartition(".")
        setattr(network.get_submodule(parent), leaf, KeyedDropout(module.p, layer) if module.p < 1 else nn.Identity())
    return [f"{name}.key" for name, module in found if module.p < 1]


@dataclass(frozen=True)
class ShiftAndFlip:
    """An augmentation of images: shift each by up to `padding` pixels each way, filling with zeros, and mirror half of them.

    Attributes:
        padding: largest shift.
        flip: mirror left and right with probability one half.
    """

    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        positive_integer("padding", self.padding, minimum=0)

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        """Return augmented images.

        Args:
            images: (teachers, batch, channels, height, width).
            keys: (teachers,) int64, each teacher's key of this step.

        Raises:
            ArgumentError: the records are not images.
        """
        if images.ndim != 5:
            raise ArgumentError(f"augment must get images (channels, height, width), got records of shape {images.shape[2:]}")
        height, width = images.shape[-2:]
        draws = uniforms(keys, (images.shape[1], 3)).flatten(0, 1)
        shifts = (draws[:, :2] * (2 * self.padding + 1)).long()
        rows = torch.arange(height, device=images.device) + shifts[:, :1]
        columns = torch.arange(width, device=images.device) + shifts[:, 1:2]
        if self.flip:
            columns = torch.where(draws[:, 2:] < 0.5, columns, columns.flip(1))
        padded = functional.pad(images.flatten(0, 1), [self.padding] * 4)
        places = torch.arange(len(padded), device=images.device)[:, None, None, None]
        channels = torch.arange(images.shape[2], device=images.device)[None, :, None, None]
        return padded[places, channels, rows[:, None, :, None], columns[:, None, None, :]].reshape(images.shape)
