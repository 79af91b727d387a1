"""Lightning's Trainer, set up for chunks of teachers: quiet, and without anything that would couple teachers.

An epoch is a chunk of teachers, so progress counts teachers. Several devices or machines split the teachers between them: no
parameter ever leaves its rank.
"""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import EarlyStopping, StochasticWeightAveraging
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, distributed, nn
from tqdm.auto import tqdm  # type: ignore[import-untyped]

from teacher_student.arguments import ArgumentError, listed

Report = Callable[[int, int, float], None]
"""Called with (teachers done, teachers in all, seconds left) after every chunk."""

# Options that would stop, scale or skip one teacher because of another: what is harmless, and what to use instead.
_COUPLING: dict[str, tuple[tuple[object, ...], str]] = {
    "gradient_clip_val": ((None, 0), "a norm over all teachers lets one record move every teacher; use the setting clip_norm"),
    "gradient_clip_algorithm": ((None,), "it clips by a norm over all teachers; use the setting clip_norm"),
    "accumulate_grad_batches": ((None, 1), "batches are public constants; use the setting batch_size"),
    "sync_batchnorm": ((None, False), "statistics must not cross teachers"),
    "precision": ((None, 32, "32", "32-true"), "use the setting precision; float16's loss scaling couples teachers"),
    "detect_anomaly": ((None, False), "a failing teacher must not stop the others"),
}
_OURS = (
    "max_epochs", "min_epochs", "max_steps", "min_steps", "max_time", "fast_dev_run", "overfit_batches",
    "limit_train_batches", "limit_predict_batches", "val_check_interval", "use_distributed_sampler", "logger",
    "enable_checkpointing",
)  # fmt: skip
_DEFAULTS: dict[str, Any] = {
    "devices": 1,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
    "log_every_n_steps": 1,
    "num_sanity_val_steps": 0,
}


_SMALL_NETWORK = 1_000
"""Weights of a network up to which stacked teachers take one thread: their steps are many and short, and on a busy machine
several threads wait for each other at every one. The rule knows the network alone, so a resumed run takes as many threads."""


@contextlib.contextmanager
def one_thread_if_small(network: nn.Module) -> Iterator[None]:
    """Use one thread while stacks of a small network are trained or asked."""
    before = torch.get_num_threads()
    if sum(weight.numel() for weight in network.parameters()) <= _SMALL_NETWORK:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def build_trainer(
    options: Mapping[str, Any] | None = None, *, logger: Any = None, report: Report | None = None
) -> lightning.Trainer:
    """Build a Trainer whose epochs are chunks.

    Raises:
        ArgumentError: an option that couples teachers, that the engine sets itself, or that Lightning does not take.
    """
    if not isinstance(options, Mapping | None):
        raise ArgumentError(f"trainer must be a mapping of options, got {options!r}")
    chosen = dict(options or {})
    for name, (harmless, reason) in _COUPLING.items():
        value = chosen.pop(name, None)
        if not any(value is same or (type(value) is type(same) and value == same) for same in harmless):
            raise ArgumentError(f"trainer.{name} must not be set for teachers, got {value!r}: {reason}")
    for name in _OURS:
        if chosen.pop(name, None) is not None:
            raise ArgumentError(f"trainer.{name} must not be set for teachers: an epoch is a chunk; use the setting steps")
    callbacks = chosen.pop("callbacks", None)
    callbacks = [] if callbacks is None else listed("trainer.callbacks", callbacks)
    for callback in callbacks:
        if not isinstance(callback, lightning.Callback):
            raise ArgumentError(f"trainer.callbacks must be callbacks of Lightning, got {callback!r}")
        if isinstance(callback, EarlyStopping | StochasticWeightAveraging):
            raise ArgumentError(f"trainer.callbacks must not hold {type(callback).__name__}, which would couple teachers")
    chosen["strategy"] = _strategy(chosen)
    wrong = (MisconfigurationException, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
    try:
        with silence_lightning():
            return lightning.Trainer(
                max_epochs=1,
                logger=logger if logger is not None else False,
                callbacks=[*callbacks, TeacherProgress(report)],
                **{**_DEFAULTS, **chosen},
            )
    except wrong as error:
        raise ArgumentError(f"trainer must be options of Lightning's Trainer, but: {' '.join(str(error).split())}") from error


class TeacherParallel(DDPStrategy):
    """Lightning's distributed data parallel strategy, its launchers and process groups, without the gradient averaging.

    The module is never wrapped, so no gradient, parameter or buffer is averaged or broadcast. The ranks meet to begin, to end
    and to put together what their teachers say.
    """

    def configure_ddp(self) -> None:
        """Leave the module as it is."""


def _strategy(options: Mapping[str, Any]) -> Any:
    """Return the strategy for a Trainer's options; refuse one that would average or share parameters."""
    strategy = options.get("strategy", "auto")
    if isinstance(strategy, TeacherParallel | SingleDeviceStrategy):
        return strategy
    if strategy is not None and not (isinstance(strategy, str) and strategy in ("auto", "ddp")):
        raise ArgumentError(f"trainer.strategy must be auto or ddp, got {strategy!r}: others would share teachers' parameters")
    one = isinstance(devices := options.get("devices", 1), int | str | list) and devices in (1, "1", [0])
    nodes = options.get("num_nodes", 1)
    several = not one or not isinstance(nodes, int) or nodes != 1
    return TeacherParallel() if several or strategy == "ddp" else "auto"


def device_of(trainer: lightning.Trainer) -> torch.device:
    """Return the device that this rank trains on."""
    return trainer.strategy.root_device


def summed_over_ranks(table: Tensor, trainer: lightning.Trainer) -> Tensor:
    """Return the sum of all ranks' tables, on the CPU: where only one rank has a value and the others 0, that value or NaN."""
    if trainer.world_size == 1:
        return table
    summed = table.to(device_of(trainer), table.dtype if table.is_floating_point() else torch.int32)
    distributed.all_reduce(summed)
    return summed.to("cpu", table.dtype)


@contextlib.contextmanager
def first_rank_first() -> Iterator[None]:
    """Let the first rank go through the block before the others, where ranks have met already."""
    met = distributed.is_available() and distributed.is_initialized()
    if met and distributed.get_rank():
        distributed.barrier()
    yield
    if met and not distributed.get_rank():
        distributed.barrier()


class TeacherProgress(lightning.Callback):
    """Reports teachers done and the time left after every chunk, on every rank; without `report`, shows a bar on a terminal."""

    def __init__(self, report: Report | None = None) -> None:
        self._report: Report | None = report
        self._bar: Any = None
        self._started, self._before = 0.0, 0

    def on_train_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        """Count what an earlier training has finished, and start the clock."""
        self._started, self._before = time.monotonic(), self._done(pl_module)
        if self._report is None and trainer.is_global_zero:
            self._bar = tqdm(total=pl_module.num_teachers, initial=self._before, desc="teachers", disable=None, leave=False)

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        """Report after a chunk. The time left is that of this rank's own chunks."""
        done, total = self._done(pl_module), pl_module.num_teachers
        mine = sum(len(pl_module.shards_of(n)) for n in pl_module.chunks_of_rank(trainer.global_rank, trainer.world_size))
        left = (time.monotonic() - self._started) * max(0, mine - done) / max(1, done - self._before)
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
        if self._report is not None:
            self._report(done, total, left)

    def on_train_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:  # noqa: ARG002
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()

    @staticmethod
    def _done(pl_module: Any) -> int:
        return sum(len(pl_module.shards_of(number)) for number in pl_module.store.finished())


@contextlib.contextmanager
def silence_lightning() -> Iterator[None]:
    """Silence Lightning's remarks on loaders and devices, which mean nothing for chunks; errors still pass."""
    names = ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning.*")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
