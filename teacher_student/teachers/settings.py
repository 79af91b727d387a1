"""How a teacher is trained. Every number here is a public constant: none may be derived from the private records."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from teacher_student import arguments
from teacher_student.arguments import ArgumentError

OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine", "linear")
ENGINES = ("auto", "batched", "vmap", "sequential")
PRECISIONS = ("float32", "float64", "bfloat16")


@dataclass(frozen=True)
class TrainingSettings:
    """Public constants of a teacher's training.

    Attributes:
        optimizer: "sgd", "adam" or "adamw".
        learning_rate: highest learning rate.
        momentum: of SGD.
        weight_decay: one number, or one for each teacher.
        steps: optimiser steps of every teacher, whatever the size of its shard.
        batch_size: records in a step; a smaller shard repeats its records.
        schedule: "constant", "cosine" or "linear" decay to 0, by step count.
        warmup_steps: steps in which the learning rate rises linearly.
        label_smoothing: share of a label spread evenly over the classes.
        clip_norm: largest gradient norm of one teacher, each teacher by itself; None for no clipping.
        precision: "float32", "float64", or "bfloat16" (products in bfloat16, parameters in float32; no loss scaling).
        engine: "auto", "batched", "vmap" or "sequential".
        chunk: teachers in flight; None for the rule (by cache on a CPU, by memory elsewhere).
        augment: None, or an augmentation such as `ShiftAndFlip`.
        compile: compile the step of the vmap engine.
    """

    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float | tuple[float, ...] = 0.0
    steps: int = 200
    batch_size: int = 32
    schedule: str = "constant"
    warmup_steps: int = 0
    label_smoothing: float = 0.0
    clip_norm: float | None = None
    precision: str = "float32"
    engine: str = "auto"
    chunk: int | None = None
    augment: Any = None
    compile: bool = False

    def __post_init__(self) -> None:
        """Refuse what is out of range, and what would couple teachers."""
        if isinstance(self.schedule, str) and self.schedule in ("plateau", "reduce_on_plateau"):
            raise ArgumentError("schedule must not follow a measured loss, which would couple teachers; use cosine or linear")
        for name, options in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("engine", ENGINES)):
            arguments.choice(name, getattr(self, name), options)
        if isinstance(self.precision, str) and self.precision in ("float16", "16", "16-mixed"):
            raise ArgumentError("precision must not be float16: its loss scaling couples teachers; use bfloat16")
        arguments.choice("precision", self.precision, PRECISIONS)
        arguments.positive_number("learning_rate", self.learning_rate)
        arguments.positive_integer("steps", self.steps)
        arguments.positive_integer("batch_size", self.batch_size)
        arguments.positive_integer("warmup_steps", self.warmup_steps, minimum=0)
        for name in ("momentum", "label_smoothing"):
            arguments.fraction_of_one(name, getattr(self, name))
        if self.clip_norm is not None:
            arguments.positive_number("clip_norm", self.clip_norm)
        if self.chunk is not None:
            arguments.positive_integer("chunk", self.chunk)
        rates = self.weight_decay if isinstance(self.weight_decay, list | tuple) else [self.weight_decay]
        decays = tuple(arguments.number_at_least_zero("weight_decay", rate) for rate in rates)
        object.__setattr__(self, "weight_decay", decays if rates is self.weight_decay else decays[0])

    @property
    def dtype(self) -> torch.dtype:
        """The type of parameters and features."""
        return torch.float64 if self.precision == "float64" else torch.float32

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of `step` (from 0), a function of public constants.

        >>> TrainingSettings(learning_rate=1.0, steps=100, schedule="linear").learning_rate_at(25)
        0.75
        """
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        shares = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
        return self.learning_rate * shares[self.schedule]

    def decays(self, num_teachers: int) -> list[float]:
        """Return the weight decay of every teacher.

        Raises:
            ArgumentError: a list of another length.
        """
        if not isinstance(self.weight_decay, tuple):
            return [float(self.weight_decay)] * num_teachers
        if len(self.weight_decay) != num_teachers:
            raise ArgumentError(f"weight_decay must be one number or {num_teachers}, got {len(self.weight_decay)}")
        return list(self.weight_decay)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON-able values; the augmentation as its text."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values["augment"] = None if self.augment is None else repr(self.augment)
        values["weight_decay"] = list(self.weight_decay) if isinstance(self.weight_decay, tuple) else self.weight_decay
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingSettings:
        """Inverse of `to_dict`, without the augmentation, which only training needs."""
        if not isinstance(values, Mapping):
            raise ArgumentError(f"training settings must be a mapping, got {values!r}")
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(map(str, set(values) - known)):
            raise ArgumentError(f"training settings must be among {', '.join(sorted(known))}; got {unknown[0]!r}")
        kept = {name: value for name, value in values.items() if name != "augment"}
        return cls(**kept)
