"""Lightning's Trainer, set up for chunks of teachers: quiet, without what would couple teachers."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import EarlyStopping, StochasticWeightAveraging

from teacher_student.arguments import ArgumentError, listed
from teacher_student.teachers.progress import Report, TeacherProgress
from teacher_student.teachers.strategy import chosen_strategy

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
        if chosen.get(name) is not None:
            raise ArgumentError(f"trainer.{name} must not be set for teachers: an epoch is a chunk; use the setting steps")
        chosen.pop(name, None)
    callbacks = chosen.pop("callbacks", None)
    callbacks = [] if callbacks is None else listed("trainer.callbacks", callbacks)
    for callback in callbacks:
        if not isinstance(callback, lightning.Callback):
            raise ArgumentError(f"trainer.callbacks must be callbacks of Lightning, got {callback!r}")
        if isinstance(callback, EarlyStopping | StochasticWeightAveraging):
            raise ArgumentError(f"trainer.callbacks must not hold {type(callback).__name__}, which would couple teachers")
    strategy = chosen_strategy(chosen)
    try:
        with quiet():
            return lightning.Trainer(
                max_epochs=1,
                logger=logger if logger is not None else False,
                callbacks=[*callbacks, TeacherProgress(report)],
                **{**_DEFAULTS, **chosen, "strategy": strategy},
            )
    except (
        MisconfigurationException,
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise ArgumentError(f"trainer must be options of Lightning's Trainer, but: {' '.join(str(error).split())}") from error


_DEFAULTS: dict[str, Any] = {
    "devices": 1,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
    "log_every_n_steps": 1,
    "num_sanity_val_steps": 0,
}


def device_of(trainer: lightning.Trainer) -> torch.device:
    """The device that this rank trains on."""
    return trainer.strategy.root_device


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hold back Lightning's remarks on loaders and devices, which mean nothing for chunks; errors still pass."""
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
