"""Private records as the teachers see them: flat storage, a chunk of shards at a time, batches of a public shape.

Nothing is padded to the largest shard. Every teacher walks through permutations of its own shard, drawn from its own seed,
for a public number of steps with a public batch size: a shard smaller than a batch repeats records, a large one may not
finish a pass. No shape and no step count depends on a shard's size, so no shard's size can touch another teacher.
"""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teacher_student.arguments import ArgumentError
from teacher_student.teachers.randomness import shard_seed

# Permutations of a small shard are drawn this many positions at a time: one generator then serves many passes.
_POSITIONS_PER_DRAW = 4096


@dataclass(frozen=True)
class ChunkRecords:
    """The records of one chunk of teachers.

    Attributes:
        features: (records + 1, ...); the last row is a dummy of zeros, which empty shards train on.
        labels: (records + 1,) int64.
        starts: first row of every shard.
        sizes: rows of every shard; 0 for an empty one.
        shards: index of every shard, which is its teacher's index.
        unusable: (teachers,) bool: no records, or labels outside the classes. Such a teacher abstains.
        weights: (records + 1,) factors of the records' losses, or None for 1 each.
    """

    features: Tensor
    labels: Tensor
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    shards: tuple[int, ...]
    unusable: Tensor
    weights: Tensor | None = None

    @property
    def num_teachers(self) -> int:
        """Teachers in the chunk."""
        return len(self.shards)

    def to(self, device: torch.device) -> ChunkRecords:
        """Return the chunk on `device`; Lightning calls this."""
        moved: dict[str, Any] = {name: each.to(device) for name, each in vars(self).items() if isinstance(each, Tensor)}
        return dataclasses.replace(self, **moved)


@dataclass(frozen=True)
class ShardedRecords:
    """Flat and ragged: shard j holds the records `order[offsets[j]:offsets[j + 1]]`.

    Attributes:
        features: (n, ...) floating point, or uint8 (read as value / 255).
        labels: (n,) int64.
        order: (n,) int64, positions in `features`.
        offsets: (num_teachers + 1,) int64, rising from 0.
        weights: (n,) factors of the records' losses, each from its own record alone; or None for 1 each.
    """

    features: Tensor
    labels: Tensor
    order: Tensor
    offsets: Tensor
    weights: Tensor | None = None

    @classmethod
    def of(cls, features: object, labels: object, order: object, offsets: object, weights: object = None) -> ShardedRecords:
        """Check the arrays and wrap them without a copy.

        Raises:
            ArgumentError: lengths that disagree, or offsets that do not cut `order` into shards.
        """
        flat = as_tensor("features", features)
        if flat.dtype != torch.uint8 and not flat.is_floating_point():
            raise ArgumentError(f"features must be floating-point numbers or uint8, got {flat.dtype}")
        positions, bounds = as_tensor("order", order).long(), as_tensor("offsets", offsets).long()
        counts = None if weights is None else as_tensor("weights", weights).float()
        records = cls(flat, as_tensor("labels", labels).long(), positions, bounds, counts)
        records._check()
        return records

    def _check(self) -> None:
        lengths = len(self.features), len(self.labels)
        if self.features.ndim < 2 or lengths[0] != lengths[1]:
            raise ArgumentError(f"features and labels must hold one row for each record, got {lengths[0]} and {lengths[1]}")
        if self.weights is not None and self.weights.shape != self.labels.shape:
            raise ArgumentError(f"weights must hold one number for each record, got shape {tuple(self.weights.shape)}")
        offsets = self.offsets
        if offsets.ndim != 1 or len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(self.order):
            raise ArgumentError(f"offsets must rise from 0 to the number of ordered records, {len(self.order)}")
        if bool((offsets.diff() < 0).any()):
            raise ArgumentError("offsets must not fall")
        if len(self.order) and (int(self.order.min()) < 0 or int(self.order.max()) >= len(self.features)):
            raise ArgumentError(f"order must hold positions from 0 to {len(self.features) - 1}")

    @property
    def num_teachers(self) -> int:
        """Number of shards, empty ones included."""
        return len(self.offsets) - 1

    def chunk(self, first: int, last: int, num_classes: int) -> ChunkRecords:
        """Gather the shards `first` to `last` - 1, and nothing else."""
        low, high = int(self.offsets[first]), int(self.offsets[last])
        rows = self.order[low:high]
        features = torch.zeros((len(rows) + 1, *self.features.shape[1:]), dtype=self.features.dtype)
        torch.index_select(self.features, 0, rows, out=features[:-1])
        labels = torch.zeros(len(rows) + 1, dtype=torch.int64)
        labels[:-1] = self.labels[rows]
        weights = None if self.weights is None else torch.cat([self.weights[rows], torch.zeros(1)])
        bounds = (self.offsets[first : last + 1] - low).tolist()
        starts, sizes = bounds[:-1], np.diff(bounds).tolist()
        unusable = torch.tensor([not _usable(labels[a : a + n], num_classes) for a, n in zip(starts, sizes, strict=True)])
        labels = labels.clamp_(0, num_classes - 1)
        return ChunkRecords(features, labels, tuple(starts), tuple(sizes), tuple(range(first, last)), unusable, weights)

    def fingerprint(self) -> str:
        """Return a hash of all records and their assignment, which recognises the data of an interrupted training. Private."""
        digest = hashlib.blake2b(digest_size=16)
        weights = () if self.weights is None else (self.weights,)
        for tensor in (self.offsets, self.order, self.labels, self.features, *weights):
            digest.update(str((tuple(tensor.shape), tensor.dtype)).encode())
            if tensor.numel():  # the memory of an empty array cannot be cast
                digest.update(np.ascontiguousarray(tensor.numpy()).data.cast("B"))
        return digest.hexdigest()


def as_tensor(name: str, value: object) -> Tensor:
    """Return an array of real numbers as a tensor: without a copy, except from a device, and also from disk (`np.memmap`)."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*not writable", category=UserWarning)
            tensor = value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(np.ascontiguousarray(value))
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name} must be an array of numbers, got {type(value).__name__}") from error
    if tensor.is_complex():
        raise ArgumentError(f"{name} must be an array of real numbers, got {tensor.dtype}")
    return tensor


def _usable(labels: Tensor, num_classes: int) -> bool:
    return len(labels) > 0 and int(labels.min()) >= 0 and int(labels.max()) < num_classes


class ShardSampler:
    """Positions in a shard of `size` records (at least 1): endless passes, each a fresh permutation, readable from any point."""

    def __init__(self, size: int, master_seed: int, shard: int) -> None:
        self.size, self._seed = size, shard_seed(master_seed, shard, "order")
        self._passes = max(1, _POSITIONS_PER_DRAW // size)
        self._drawn: tuple[int, npt.NDArray[np.int64]] | None = None

    def _draw(self, block: int) -> npt.NDArray[np.int64]:
        if self._drawn is None or self._drawn[0] != block:
            generator = np.random.Generator(np.random.PCG64(shard_seed(self._seed, block, "passes")))
            passes = np.tile(np.arange(self.size), (self._passes, 1))
            self._drawn = block, generator.permuted(passes, axis=1).reshape(-1)
        return self._drawn[1]

    def take(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Return positions `first` to `first + count` - 1 of the sequence."""
        span = self._passes * self.size
        blocks = range(first // span, (first + count - 1) // span + 1)
        drawn = np.concatenate([self._draw(block) for block in blocks])
        return drawn[first - blocks[0] * span :][:count]


class ChunkBatches:
    """Row indices of every step of one chunk, made a window of steps at a time."""

    def __init__(self, records: ChunkRecords, batch_size: int, master_seed: int) -> None:
        self._batch_size = batch_size
        self._starts = records.starts
        self._dummy = len(records.labels) - 1
        shards = zip(records.sizes, records.shards, strict=True)
        self._samplers = [ShardSampler(size, master_seed, shard) if size else None for size, shard in shards]

    def rows(self, first_step: int, num_steps: int) -> Tensor:
        """Return int64 rows (num_steps, teachers, batch_size) into the chunk's features."""
        count = num_steps * self._batch_size
        rows = np.full((len(self._samplers), count), self._dummy, dtype=np.int64)
        for row, start, sampler in zip(rows, self._starts, self._samplers, strict=True):
            if sampler is not None:
                np.add(sampler.take(first_step * self._batch_size, count), start, out=row)
        return torch.from_numpy(rows).reshape(-1, num_steps, self._batch_size).transpose(0, 1).contiguous()
