"""What every engine offers. A stack holds one network's tensors for many teachers: name -> (teachers, ...).

Stacks have the layout of `nn.Module.state_dict`, whatever layout an engine works in, so that teachers trained by one engine
can be saved, and can vote through another.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from teacher_student.teachers.settings import TrainingSettings

Stack = dict[str, Tensor]


class Engine(ABC):
    """Gradients and class scores of many teachers at once.

    An engine owns its copy of the network and serves one thread: two threads must not share one.

    Args:
        network: a network of the teachers' kind, with every dropout keyed; its values are not used.
        settings: public constants of the training.
        dropout_keys: names of the dropout keys in the network.
    """

    name: ClassVar[str]
    lockstep: ClassVar[bool] = True  # whether a chunk of several teachers advances together

    def __init__(self, network: nn.Module, settings: TrainingSettings, dropout_keys: Sequence[str] = ()) -> None:
        self.network, self.settings, self.dropout_keys = network, settings, tuple(dropout_keys)
        self._names = [name for name, _ in network.named_parameters()]

    def pack(self, stack: Stack) -> list[Tensor]:
        """Return leaf tensors for the optimiser, teachers first."""
        return [stack[name].clone() for name in self._names]

    def unpack(self, packed: Sequence[Tensor]) -> Stack:
        """Return the stack after training; the inverse of `pack`."""
        return {name: tensor.detach().clone() for name, tensor in zip(self._names, packed, strict=True)}

    @abstractmethod
    def gradients(
        self, packed: Sequence[Tensor], features: Tensor, labels: Tensor, keys: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Fill `.grad` of every packed tensor with the gradient of the *sum* of the teachers' losses.

        A mean over teachers would divide every learning rate by the number of teachers.

        Args:
            packed: from `pack`.
            features: (teachers, batch, ...).
            labels: (teachers, batch) int64.
            keys: (teachers,) int64, the teachers' random keys of this step.
            weights: (teachers, batch) factors of the records' losses; None for 1 each.

        Returns:
            (teachers,) losses, each a mean over its own batch.
        """

    @abstractmethod
    def scores(self, stack: Stack, features: Tensor) -> Tensor:
        """Return class scores (teachers, points, num_classes) of shared `features` (points, ...)."""

    def autocast(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        """Compute products in bfloat16, which needs no loss scaling, if the settings say so."""
        products = self.settings.precision == "bfloat16"
        return torch.autocast(device.type, torch.bfloat16) if products else contextlib.nullcontext()


def mean_loss(scores: Tensor, labels: Tensor, weights: Tensor | None, smoothing: float) -> Tensor:
    """Return one teacher's weighted mean cross-entropy; scores (batch, num_classes), labels and weights (batch,)."""
    losses = functional.cross_entropy(scores, labels, label_smoothing=smoothing, reduction="none")
    return losses.mean() if weights is None else (losses * weights).mean()
