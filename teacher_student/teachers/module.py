"""Many teachers as one LightningModule: one Lightning epoch trains one chunk of stacked teachers.

The parameters of teachers are never registered with the module: a distributed strategy can neither average nor broadcast what
it does not see. Each rank trains whole chunks, number `rank`, `rank + world size` and so on, so that the chunks, and with them
every teacher's last bit, are the same on any number of devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import lightning
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teacher_student.arguments import ArgumentError
from teacher_student.teachers.chunk import ChunkTrainer, Save, UnfinishedChunk, score_chunk, train_chunk
from teacher_student.teachers.engines import Engine, Network, initial_stack
from teacher_student.teachers.records import ChunkRecords
from teacher_student.teachers.settings import TrainingSettings
from teacher_student.teachers.store import TeacherStore

# Class scores are computed this many at a time, so that votes need the memory of a block and not of a block times a chunk.
_SCORES_PER_PASS = 2**22


class OneBatchPerEpoch:
    """Feeds a Lightning loop one of `batches` in each epoch. Not a list: Lightning would take its members for loaders."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = iter(batches)

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        yield next(self._batches)


class Reading(NamedTuple):
    """What is read from the teachers' class scores.

    Attributes:
        read: makes (teachers, points) or (teachers, points, num_classes) values of (teachers, points, num_classes) scores.
        dtype: of the values.
        silent: value of a teacher that abstains, and of one whose scores of a point are not finite.
    """

    read: Callable[[Tensor], Tensor]
    dtype: torch.dtype
    silent: float


class TeacherEnsemble(lightning.LightningModule):
    """k teachers of one architecture, each trained on its own shard alone.

    Args:
        network: builds one teacher's network; called once for each teacher, with the teacher's seed.
        settings: public constants of the training.
        num_teachers: k.
        num_classes: number of classes.
        master_seed: every teacher's seed is a keyed hash of it and the shard's index.
        engine: trains and evaluates a chunk.
        chunk: teachers in a chunk.
        store: keeps finished chunks.
        save_seconds: time between two copies of an unfinished chunk, in a store that outlives the process.
    """

    def __init__(
        self,
        network: Network,
        settings: TrainingSettings,
        *,
        num_teachers: int,
        num_classes: int,
        master_seed: int,
        engine: Engine,
        chunk: int,
        store: TeacherStore,
        save_seconds: float = 60.0,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.network, self.settings, self.master_seed = network, settings, master_seed
        self.num_teachers, self.num_classes, self.chunk = num_teachers, num_classes, chunk
        self.store, self.save_seconds = store, save_seconds
        self._engine = [engine]  # in a list, so that Lightning does not register its network

    @property
    def engine(self) -> Engine:
        """The engine in use."""
        return self._engine[0]

    @property
    def num_chunks(self) -> int:
        """Chunks of teachers; the last may be smaller."""
        return -(-self.num_teachers // self.chunk)

    def shards_of(self, number: int) -> range:
        """Return the indices of the teachers in a chunk."""
        return range(number * self.chunk, min((number + 1) * self.chunk, self.num_teachers))

    def chunks_of_rank(self, rank: int, world_size: int) -> list[int]:
        """Return the numbers of the chunks that a rank trains."""
        return list(range(rank, self.num_chunks, world_size))

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Give Lightning none: every chunk has its own, over the chunk's tensors."""
        return []

    def on_fit_start(self) -> None:
        """Make sure that all ranks cut the teachers into the same chunks.

        Raises:
            ArgumentError: they do not, because their machines differ.
        """
        if (first := self.trainer.strategy.broadcast(self.chunk)) != self.chunk:
            raise ArgumentError(f"chunk must be the same on every rank, got {first} and {self.chunk}; set it")

    def training_step(self, batch: tuple[int, ChunkRecords | None], batch_idx: int) -> None:  # noqa: ARG002
        """Train one chunk from its start to its last step, and keep it; without records, do nothing."""
        number, records = batch
        if records is None:
            return
        shards = self.shards_of(number)
        decays = self.settings.decays(self.num_teachers)
        trainer = ChunkTrainer(self.engine, records, self.master_seed, [decays[shard] for shard in shards])
        begun = self.store.get_unfinished(number) if self.engine.lockstep else None
        start = begun or initial_stack(self.network, self.settings, self.master_seed, shards)
        trained = train_chunk(trainer, start, self._saver(number))
        self.store.put(number, trained)
        if self.trainer.logger is not None:
            mean = trained.losses[~trained.abstaining].mean()
            self.trainer.logger.log_metrics({"teachers/loss": float(mean.nan_to_num(0.0))}, step=shards.stop)

    def _saver(self, number: int) -> Save:
        """Return what keeps the unfinished chunk every `save_seconds`, so that a killed training loses no more."""
        last = time.monotonic()

        def save(unfinished: Callable[[], UnfinishedChunk]) -> None:
            nonlocal last
            if time.monotonic() - last >= self.save_seconds:
                self.store.put_unfinished(number, unfinished())
                last = time.monotonic()

        return save

    def predict_step(self, batch: tuple[Tensor, Reading, Sequence[int]], batch_idx: int) -> list[Tensor]:  # noqa: ARG002
        """Return what the teachers of some chunks say of public points.

        Args:
            batch: (points, ...), what is read, and the numbers of the chunks.
            batch_idx: not used.

        Returns:
            For each chunk values (teachers, points, ...), on the CPU.
        """
        points, reading, numbers = batch
        return [self._said(number, points, reading) for number in numbers]

    def _said(self, number: int, points: Tensor, reading: Reading) -> Tensor:
        trained, parts = self.store.get(number), []
        stack = {name: tensor.to(points.device) for name, tensor in trained.stack.items()}
        for part in self.passes(points, len(trained.abstaining)):
            # An engine's scores have the classes in their second place in memory; reading them there is ten times slower.
            scores = score_chunk(self.engine, stack, part, trained.abstaining, self.num_classes).contiguous()
            values = reading.read(scores)
            values[~torch.isfinite(scores).all(-1)] = reading.silent
            parts.append(values.to("cpu", reading.dtype))
        said = torch.cat(parts, dim=1)
        said[trained.abstaining] = reading.silent
        return said

    def passes(self, points: Tensor, num_teachers: int) -> Sequence[Tensor]:
        """Split points so that the scores of `num_teachers` on each part fit into memory; public sizes decide."""
        tensors = self.engine.network.state_dict().values()
        widest = max((tensor.numel() // max(1, tensor.shape[-1]) for tensor in tensors if tensor.ndim), default=1)
        return points.split(max(1, _SCORES_PER_PASS // (num_teachers * widest)))

    def teacher(self, index: int) -> torch.nn.Module:
        """Return one teacher as a network of its own, for inspection. Private, like its predictions."""
        network = self.network().to(self.settings.dtype)
        trained = self.store.get(index // self.chunk)
        network.load_state_dict({name: tensor[index % self.chunk] for name, tensor in trained.stack.items()})
        return network.eval()

    def abstaining(self) -> npt.NDArray[np.bool_]:
        """Return (num_teachers,) bool: teachers that never vote. Private."""
        return np.concatenate([self.store.get(number).abstaining.numpy() for number in range(self.num_chunks)])
