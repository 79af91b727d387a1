"""One teacher after the other: fastest for convolutions on a CPU, and the way out for what cannot be stacked."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from teacher_student.teachers.engines.interface import Engine, Stack, mean_loss
from teacher_student.teachers.settings import TrainingSettings


class SequentialEngine(Engine):
    """A plain loop, convolutions in channels_last. Buffers are the teacher's own and travel in its stack.

    Every teacher gets a fresh copy of the untouched network: what a user's module remembers in an attribute must not pass from
    one teacher to the next.
    """

    name: ClassVar[str] = "sequential"
    lockstep: ClassVar[bool] = False

    def __init__(self, network: nn.Module, settings: TrainingSettings, dropout_keys: Sequence[str] = ()) -> None:
        super().__init__(network, settings, dropout_keys)
        self._untouched = copy.deepcopy(network)
        images = any(isinstance(module, nn.Conv2d) for module in network.modules())
        grouped = any(isinstance(module, nn.GroupNorm) for module in network.modules())
        # GroupNorm gathers whole channels, which costs it in channels_last what the convolutions gain.
        self._format = torch.channels_last if images and not grouped else torch.preserve_format

    def _load(self, stack: Stack, teacher: int) -> None:
        state = {name: tensor[teacher] for name, tensor in stack.items()}
        device = next(iter(stack.values())).device
        self.network = copy.deepcopy(self._untouched)
        self.network.to(device)
        if self._format is torch.channels_last:
            self.network.to(memory_format=self._format)
        self.network.load_state_dict(state)

    def pack(self, stack: Stack) -> list[Tensor]:
        """Load the only teacher of `stack` and return its network's parameters, with no leading dimension."""
        self._load(stack, 0)
        return list(self.network.parameters())

    def unpack(self, packed: Sequence[Tensor]) -> Stack:  # noqa: ARG002
        """The network's state, buffers included; `packed` are its own parameters."""
        return {
            name: tensor.detach().clone(memory_format=torch.contiguous_format).unsqueeze(0)
            for name, tensor in self.network.state_dict().items()
        }

    def gradients(
        self, packed: Sequence[Tensor], features: Tensor, labels: Tensor, keys: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """See `Engine.gradients`; `features` (1, batch, ...)."""
        self.network.train()
        for name in self.dropout_keys:
            self.network.get_buffer(name).copy_(keys[0])
        for parameter in packed:
            parameter.grad = None
        with self.autocast(features.device):
            scores = self.network(self._formatted(features[0]))
        mine = None if weights is None else weights[0]
        loss = mean_loss(scores.to(self.settings.dtype), labels[0], mine, self.settings.label_smoothing)
        loss.backward()
        return loss.detach().unsqueeze(0)

    def _formatted(self, features: Tensor) -> Tensor:
        keep = features.ndim != 4 or self._format is torch.preserve_format
        return features if keep else features.contiguous(memory_format=self._format)

    @torch.no_grad()
    def scores(self, stack: Stack, features: Tensor) -> Tensor:
        """See `Engine.scores`."""
        features, scores = self._formatted(features), []
        for teacher in range(len(next(iter(stack.values())))):
            self._load(stack, teacher)
            self.network.eval()
            with self.autocast(features.device):
                scores.append(self.network(features).to(self.settings.dtype))
        return torch.stack(scores)
