"""The inner loop: one chunk of teachers from their start to their last step, and their class scores. No Lightning here.

PyTorch's own optimisers step stacked tensors. All are elementwise, so a stacked step is every teacher's own step; their shared
step count is exact because every teacher takes every step. Norms are not elementwise: clipping is per teacher.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from teacher_student.arguments import ArgumentError
from teacher_student.teachers.containment import attempt, failing, own_generators
from teacher_student.teachers.engines import Engine, Stack
from teacher_student.teachers.randomness import KeyedDropout, derived_keys, shard_seed
from teacher_student.teachers.records import ChunkBatches, ChunkRecords
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
    """A chunk between two steps: all that its training needs to continue.

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
    """Trains one chunk. All its choices are public constants; the records, on the device, enter only through batches.

    `decays` are the weight decays of the chunk's teachers; `settings` are the engine's unless others are given.
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
        self.seed = seeds[0]
        same = len(set(decays)) == 1
        self._common_decay = decays[0] if same else 0.0
        device = records.features.device  # constants are moved once: a copy in every step would wait for the device
        self._decays = None if same else torch.tensor(decays, dtype=self.settings.dtype, device=device)
        dropout = any(isinstance(module, KeyedDropout) for module in engine.network.modules())
        self._draws = dropout or self.settings.augment is not None
        self._window = max(1, _ROWS_PER_WINDOW // (records.num_teachers * self.settings.batch_size))
        self._failed = torch.zeros(records.num_teachers, dtype=torch.bool)  # on the CPU: every step reads it
        self._contain = False

    def train(self, start: Stack | UnfinishedChunk, save: Save | None = None, *, contain: bool = False) -> TrainedChunk:
        """Train to the settings' last step.

        Args:
            start: parameters of the chunk's teachers before the first step, or what `save` was given.
            save: called now and then with a function that returns the unfinished chunk.
            contain: a teacher of a stack whose step raises fails alone: its parameters become NaN, and it abstains.
        """
        self._contain = contain
        begun = start if isinstance(start, UnfinishedChunk) else None
        stack = start.stack if isinstance(start, UnfinishedChunk) else start
        device = self.records.features.device
        packed = self.engine.pack({name: tensor.to(device) for name, tensor in stack.items()})
        optimizer = build_optimizer(packed, self.settings, self._common_decay)
        if begun is not None:
            begun.restore(optimizer)
            self._failed = _all_nan(packed)
        losses = torch.zeros(self.records.num_teachers, device=device)
        for first in range(begun.step if begun else 0, self.settings.steps, self._window):
            steps = min(self._window, self.settings.steps - first)
            rows = self._batches.rows(first, steps).to(device)
            total = torch.zeros_like(losses)
            for step in range(steps):
                total += self._step(packed, optimizer, rows[step], first + step)
            losses = total / steps
            if save is not None and (done := first + steps) < self.settings.steps:
                save(lambda done=done: UnfinishedChunk.of(done, self._stack(packed), optimizer))  # type: ignore[misc]
        return self._finished(self._stack(packed), losses)

    def _stack(self, packed: Sequence[Tensor]) -> Stack:
        """Return the teachers' parameters, NaN where one has failed: this is how an unfinished chunk remembers it."""
        stack = self.engine.unpack(packed)
        for tensor in stack.values() if self._failed.any() else ():
            tensor[self._failed] = torch.nan
        return stack

    def _step(self, packed: Sequence[Tensor], optimizer: torch.optim.Optimizer, rows: Tensor, step: int) -> Tensor:
        keys = derived_keys(self._keys, step) if self._draws else self._keys
        losses = self._gradients(packed, rows, keys)
        rate = self.settings.learning_rate_at(step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        if self.settings.clip_norm is not None:
            gradients = [tensor.grad for tensor in packed if tensor.grad is not None]
            leading = gradients if self.engine.lockstep else [gradient.unsqueeze(0) for gradient in gradients]
            clip_per_teacher(leading, self.settings.clip_norm)
        if self._decays is not None:
            self._decay(packed, self._decays, rate)
        optimizer.step()
        return losses.float()

    @torch.no_grad()
    def _decay(self, packed: Sequence[Tensor], rates: Tensor, learning_rate: float) -> None:
        """Decay each teacher's weights at its own public rate, as the optimiser would: a part of its step.

        SGD and Adam add `rate * parameter` to the gradient; AdamW shrinks the parameter by `1 - learning rate * rate`.
        """
        for parameter in packed:
            mine = rates.reshape(-1, *[1] * (parameter.ndim - 1))
            if self.settings.optimizer == "adamw":
                parameter.mul_(1 - learning_rate * mine)
            elif parameter.grad is not None:
                parameter.grad.add_(parameter * mine)

    def _gradients(self, packed: Sequence[Tensor], rows: Tensor, keys: Tensor) -> Tensor:
        """Fill the gradients and return the losses; if that raises, do it for all teachers but those at fault.

        Teachers at rest keep their places, so that every product has the same shape and all others get the same bits.
        """
        compute = functools.partial(self._computed, packed, keys=keys)
        if not self._contain:
            return compute(rows)
        if self._failed.all():
            return torch.full((len(rows),), torch.nan, device=rows.device)
        if self._failed.any():
            rows = self._rest(packed, rows, self._failed)
        losses = attempt(functools.partial(compute, rows))
        return self._separate(packed, rows, compute) if losses is None else losses

    def _computed(self, packed: Sequence[Tensor], rows: Tensor, keys: Tensor) -> Tensor:
        features, labels, weights = self._batch(rows, keys)
        return self.engine.gradients(packed, features, labels, keys, weights)

    def _separate(self, packed: Sequence[Tensor], rows: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Compute ever smaller groups of teachers while the others rest, until only those are left who fail alone."""
        kept = [tensor.detach().clone() for tensor in packed]
        gradients, losses = [torch.zeros_like(tensor) for tensor in kept], torch.zeros(len(rows), device=rows.device)

        def succeeds(group: Sequence[int]) -> bool:
            resting = torch.ones_like(self._failed)
            resting[list(group)] = False
            _copy(kept, packed)
            found = attempt(functools.partial(compute, self._rest(packed, rows, resting)))
            if found is not None:
                losses[~resting] = found[~resting].float()
                for gradient, tensor in zip(gradients, packed, strict=True):
                    gradient[~resting] = tensor.grad[~resting]  # type: ignore[index]
            return found is not None

        self._failed[failing((~self._failed).nonzero().flatten().tolist(), succeeds)] = True
        _copy(kept, packed)
        for tensor, gradient in zip(packed, gradients, strict=True):
            tensor.grad = gradient
        return losses

    def _rest(self, packed: Sequence[Tensor], rows: Tensor, resting: Tensor) -> Tensor:
        """Give the parameters and the record of the rehearsal, which are public, to `resting` teachers; return the rows."""
        for tensor, rehearsed in zip(packed, self._rehearsed, strict=True):
            tensor[resting] = rehearsed
        return torch.where(resting[:, None].to(rows.device), len(self.records.labels) - 1, rows)

    @functools.cached_property
    def _rehearsed(self) -> list[Tensor]:
        device = self.records.features.device
        return self.engine.pack({name: tensor.to(device) for name, tensor in untrained(self.engine, 1).items()})

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


def untrained(engine: Engine, num_teachers: int) -> Stack:
    """Return the stack of an engine's own network, the same for every teacher; it is public."""
    state = engine.network.state_dict()
    return {name: value.detach().unsqueeze(0).repeat(num_teachers, *[1] * value.ndim) for name, value in state.items()}


def build_optimizer(parameters: Sequence[Tensor], settings: TrainingSettings, weight_decay: float) -> torch.optim.Optimizer:
    """Build the optimiser that `settings` names, over tensors that may each hold many teachers."""
    options: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": weight_decay, "fused": True}
    if settings.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=settings.momentum, **options)
    return (torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW)(parameters, **options)


def clip_per_teacher(gradients: Sequence[Tensor], largest: float) -> None:
    """Scale every teacher's gradient to a norm of at most `largest`, in place; `gradients` are tensors (teachers, ...).

    One norm over the whole stack would let one record of one shard scale every teacher's step.
    """
    squares = sum(gradient.flatten(1).square().sum(1) for gradient in gradients)
    scales = (largest / (torch.as_tensor(squares).sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scales.reshape(-1, *[1] * (gradient.ndim - 1)))


def rehearse(engine: Engine, record: Tensor, device: torch.device, num_teachers: int) -> int:
    """Train a chunk without records for two steps, so that a mistake in network, settings or sizes shows before training.

    Returns:
        The number of steps.

    Raises:
        ArgumentError: the training fails on made-up records, hence for public reasons.
    """
    features, labels = torch.zeros((1, *record.shape), dtype=record.dtype), torch.zeros(1, dtype=torch.int64)
    nobody = (0,) * num_teachers
    unusable = torch.ones(num_teachers, dtype=torch.bool)
    records = ChunkRecords(features, labels, nobody, nobody, tuple(range(num_teachers)), unusable).to(device)
    brief = dataclasses.replace(engine.settings, steps=2, warmup_steps=0)
    trainer = ChunkTrainer(engine, records, master_seed=0, decays=[0.0] * num_teachers, settings=brief)
    try:
        with torch.random.fork_rng(devices=_cuda(device)):
            trainer.train(untrained(engine, num_teachers))
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ArgumentError(
            f"network and settings must train on records of shape {tuple(record.shape)}, but: {reason}"
        ) from error
    return brief.steps


def train_chunk(trainer: ChunkTrainer, start: Stack | UnfinishedChunk, save: Save | None = None) -> TrainedChunk:
    """Train a chunk. A teacher that raises abstains, and the others get the same bits as beside any other teacher."""
    device = trainer.records.features.device
    with torch.random.fork_rng(devices=_cuda(device)), own_generators(trainer.seed):
        if trainer.engine.lockstep:
            return trainer.train(start, save, contain=True)
        stack = start.stack if isinstance(start, UnfinishedChunk) else start
        trained = attempt(lambda: trainer.train(stack))
    failed = torch.ones(trainer.records.num_teachers, dtype=torch.bool)
    return trained or TrainedChunk(stack, failed, torch.full((trainer.records.num_teachers,), torch.nan))


def score_chunk(engine: Engine, stack: Stack, points: Tensor, abstaining: Tensor, num_classes: int) -> Tensor:
    """Return class scores (teachers, points, num_classes) of a chunk; NaN where a teacher's network raises.

    Args:
        engine: evaluates the chunk.
        stack: the teachers' tensors, on the device of `points`.
        points: public, (points, ...).
        abstaining: (teachers,) bool, on the CPU: whose scores mean nothing; they are left out where anything raises.
        num_classes: number of classes.
    """
    numbers = as_numbers(points, engine.settings.dtype)
    shape = (len(abstaining), len(points), num_classes)

    def computed(some: Stack) -> Tensor | None:
        with torch.random.fork_rng(devices=_cuda(points.device)), own_generators(0):  # every teacher starts from the same state
            scores = attempt(lambda: engine.scores(some, numbers.clone()))  # a network may change its input in place
        return None if scores is None or scores.shape != shape else scores

    def succeeds(group: Sequence[int]) -> bool:
        chosen = {name: tensor.clone() for name, tensor in resting.items()}
        for name, tensor in chosen.items():
            tensor[list(group)] = stack[name][list(group)]
        found = computed(chosen)
        if found is not None:
            scores[list(group)] = found[list(group)]
        return found is not None

    if (together := computed(stack)) is not None:
        return together
    scores = torch.full(shape, torch.nan, dtype=engine.settings.dtype, device=points.device)
    if not engine.lockstep:
        return scores
    rehearsed = untrained(engine, len(abstaining))
    resting = {name: rehearsed[name].to(points.device) for name in stack}
    speaking = (~abstaining).nonzero().flatten().tolist()
    if speaking and not succeeds(speaking):
        failing(speaking, succeeds)
    return scores


def _cuda(device: torch.device) -> list[torch.device]:
    return [device] if device.type == "cuda" else []


def _copy(source: Sequence[Tensor], target: Sequence[Tensor]) -> None:
    for one, other in zip(source, target, strict=True):
        other.copy_(one)


def _all_nan(packed: Sequence[Tensor]) -> Tensor:
    """Return (teachers,) bool, on the CPU: the teachers that have failed, according to an `UnfinishedChunk`."""
    return torch.stack([tensor.detach().reshape(len(tensor), -1).isnan().all(1) for tensor in packed]).all(0).cpu()
