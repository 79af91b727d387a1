"""The inner loop: one chunk of teachers from their start to their last step. It knows nothing of Lightning."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from teacher_student.arguments import ArgumentError
from teacher_student.teachers.dropout import KeyedDropout
from teacher_student.teachers.engines import Engine, Stack
from teacher_student.teachers.optimizers import TeacherDecay, build_optimizer, clip_per_teacher
from teacher_student.teachers.records import ChunkBatches, ChunkRecords
from teacher_student.teachers.seeds import derived_keys, shard_seed
from teacher_student.teachers.settings import TrainingSettings

# Row indices are prepared this many at a time, so that memory does not grow with the number of steps.
_ROWS_PER_WINDOW = 2**20


Save = Callable[[Callable[[], "UnfinishedChunk"]], None]


@dataclass(frozen=True)
class TrainedChunk:
    """A finished chunk.

    Attributes:
        stack: parameters of its teachers, on the CPU.
        abstaining: (teachers,) bool: no usable records, failed, or diverged.
        losses: (teachers,) mean loss over the last steps; private.
    """

    stack: Stack
    abstaining: Tensor
    losses: Tensor


@dataclass(frozen=True)
class UnfinishedChunk:
    """A chunk between two steps: all that its training needs to go on.

    Attributes:
        step: steps taken.
        stack: parameters.
        optimizer: the optimiser's tensors, parameter number and name -> tensor.
    """

    step: int
    stack: Stack
    optimizer: dict[tuple[int, str], Tensor]

    @classmethod
    def of(cls, step: int, stack: Stack, optimizer: torch.optim.Optimizer) -> UnfinishedChunk:
        """Take the state out of an optimiser."""
        state = optimizer.state_dict()["state"]
        tensors = {(number, name): value for number, entry in state.items() for name, value in entry.items() if value is not None}
        return cls(step, stack, tensors)

    def restore(self, optimizer: torch.optim.Optimizer) -> None:
        """Put the state back."""
        state: dict[int, dict[str, Tensor]] = {}
        for (number, name), value in self.optimizer.items():
            state.setdefault(number, {})[name] = value
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


class ChunkTrainer:
    """Trains one chunk. All its choices are public constants; the records enter only through batches.

    Args:
        engine: from `build_engine`.
        records: the chunk's records, on the device.
        master_seed: the run's seed.
        decays: weight decay of each of the chunk's teachers.
        settings: the engine's, unless others are given.
    """

    def __init__(
        self,
        engine: Engine,
        records: ChunkRecords,
        master_seed: int,
        decays: Sequence[float],
        settings: TrainingSettings | None = None,
    ) -> None:
        self.engine, self.records, self.settings = engine, records, settings or engine.settings
        self._batches = ChunkBatches(records, self.settings.batch_size, master_seed)
        seeds = [shard_seed(master_seed, shard, "draws") for shard in records.shards]
        self._keys = torch.tensor(seeds, dtype=torch.int64, device=records.features.device)
        self._seed, self._decays = seeds[0], tuple(decays)
        dropout = any(isinstance(module, KeyedDropout) for module in engine.network.modules())
        self._draws = dropout or self.settings.augment is not None
        self._window = max(1, _ROWS_PER_WINDOW // (records.num_teachers * self.settings.batch_size))

    def train(self, start: Stack | UnfinishedChunk, save: Save | None = None) -> TrainedChunk:
        """Train to the settings' last step.

        Args:
            start: parameters of the chunk's teachers before the first step, or what `save` was given.
            save: called now and then with a function that returns the unfinished chunk.
        """
        begun = start if isinstance(start, UnfinishedChunk) else None
        stack = start.stack if isinstance(start, UnfinishedChunk) else start
        device = self.records.features.device
        packed = self.engine.pack({name: tensor.to(device) for name, tensor in stack.items()})
        same_decay = len(set(self._decays)) == 1
        optimizer = build_optimizer(packed, self.settings, self._decays[0] if same_decay else 0.0)
        decay = None if same_decay else TeacherDecay(self._decays, self.settings.optimizer == "adamw")
        if begun is not None:
            begun.restore(optimizer)
        losses = torch.zeros(self.records.num_teachers, device=device)
        for first in range(begun.step if begun else 0, self.settings.steps, self._window):
            steps = min(self._window, self.settings.steps - first)
            rows = self._batches.rows(first, steps).to(device)
            total = torch.zeros_like(losses)
            for step in range(steps):
                total += self._step(packed, optimizer, decay, rows[step], first + step)
            losses = total / steps
            if save is not None and (done := first + steps) < self.settings.steps:
                save(lambda done=done: UnfinishedChunk.of(done, self.engine.unpack(packed), optimizer))  # type: ignore[misc]
        return self._finished(self.engine.unpack(packed), losses)

    def _step(
        self,
        packed: Sequence[Tensor],
        optimizer: torch.optim.Optimizer,
        decay: TeacherDecay | None,
        rows: Tensor,
        step: int,
    ) -> Tensor:
        keys = derived_keys(self._keys, step) if self._draws else self._keys
        features, labels, weights = self._batch(rows, keys)
        losses = self.engine.gradients(packed, features, labels, keys, weights)
        rate = self.settings.learning_rate_at(step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        if self.settings.clip_norm is not None:
            gradients = [tensor.grad for tensor in packed if tensor.grad is not None]
            leading = gradients if self.engine.lockstep else [gradient.unsqueeze(0) for gradient in gradients]
            clip_per_teacher(leading, self.settings.clip_norm)
        if decay is not None:
            decay(packed, rate)
        optimizer.step()
        return losses.float()

    def _batch(self, rows: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Gather (teachers, batch, ...) features, (teachers, batch) labels, and weights where there are any."""
        flat = rows.reshape(-1)
        features = torch.index_select(self.records.features, 0, flat)
        features = as_numbers(features, self.settings.dtype)
        features = features.reshape(*rows.shape, *features.shape[1:])
        if self.settings.augment is not None:
            features = self.settings.augment(features, derived_keys(keys, -1))
        weights = None if self.records.weights is None else self.records.weights[rows].to(self.settings.dtype)
        return features, torch.index_select(self.records.labels, 0, flat).reshape(rows.shape), weights

    def _finished(self, stack: Stack, losses: Tensor) -> TrainedChunk:
        diverged = torch.zeros(self.records.num_teachers, dtype=torch.bool, device=losses.device)
        for tensor in stack.values():
            diverged |= ~torch.isfinite(tensor).reshape(len(tensor), -1).all(1)
        abstaining = diverged.cpu() | self.records.unusable.cpu()
        return TrainedChunk({name: tensor.cpu() for name, tensor in stack.items()}, abstaining, losses.cpu())


def as_numbers(features: Tensor, dtype: torch.dtype) -> Tensor:
    """Return features in `dtype`; uint8 images are read as value / 255, a public rule."""
    return features.to(dtype).div_(255) if features.dtype == torch.uint8 else features.to(dtype)


def rehearse(engine: Engine, record: Tensor, device: torch.device) -> None:
    """Train one teacher without records for two steps, so that a mistake in network or settings shows before training.

    Raises:
        ArgumentError: the training fails on made-up records, hence for public reasons.
    """
    features, labels = torch.zeros((1, *record.shape), dtype=record.dtype), torch.zeros(1, dtype=torch.int64)
    records = ChunkRecords(features, labels, (0,), (0,), (0,), torch.ones(1, dtype=torch.bool)).to(device)
    brief = dataclasses.replace(engine.settings, steps=2, warmup_steps=0, batch_size=min(2, engine.settings.batch_size))
    trainer = ChunkTrainer(engine, records, master_seed=0, decays=[0.0], settings=brief)
    stack = {name: value.detach().clone().unsqueeze(0) for name, value in engine.network.state_dict().items()}
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            trainer.train(stack)
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ArgumentError(
            f"network and settings must train on records of shape {tuple(record.shape)}, but: {reason}"
        ) from error


def train_chunk(trainer: ChunkTrainer, start: Stack | UnfinishedChunk, save: Save | None = None) -> TrainedChunk:
    """Train a chunk; in a chunk of one teacher an error abstains, so that one shard's records cannot stop the run.

    The default generator is seeded from the teacher's own seed, for networks that draw from it, and put back afterwards.
    """
    if trainer.engine.lockstep:
        return trainer.train(start, save)
    stack = start.stack if isinstance(start, UnfinishedChunk) else start
    device = trainer.records.features.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(trainer._seed)
        try:
            return trainer.train(stack)
        except Exception:  # noqa: BLE001  whatever a shard's records provoke, it must stay with that shard's teacher
            failed = torch.ones(trainer.records.num_teachers, dtype=torch.bool)
            return TrainedChunk(stack, failed, torch.full((trainer.records.num_teachers,), torch.nan))
