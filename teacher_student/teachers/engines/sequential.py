"""One teacher after the other: fastest for convolutions on a CPU, and the fallback for networks that cannot be stacked."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from teacher_student.teachers.engines.interface import Engine, Stack, mean_loss
from teacher_student.teachers.settings import TrainingSettings

_LARGEST_KERNEL, _FEWEST_CHANNELS = 3, 4  # a convolution that exceeds both is not laid out in channels_last
_IMAGE_BATCH = 4  # dimensions: batch, channels, height, width


def lay_out(network: nn.Module) -> None:
    """Make each layer of a network on a CPU use the layout in which it is fastest, in place; values do not change.

    Measured with float32, forward and backward: in channels_last pooling is 8 to 14 times as fast, convolutions of one to three
    channels 3 times and 1 x 1 convolutions 1.3 times; 3 x 3 convolutions take the same time, larger kernels over many channels a
    fifth more. GroupNorm loses in channels_last what convolutions gain, so a network with GroupNorm stays unchanged.
    """
    if any(isinstance(module, nn.GroupNorm) for module in network.modules()):
        return
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            large = max(module.kernel_size) > _LARGEST_KERNEL and module.in_channels > _FEWEST_CHANNELS
            layout = torch.contiguous_format if large else torch.channels_last
            module.to(memory_format=layout).register_forward_pre_hook(partial(_relaid, layout))
        elif isinstance(module, nn.MaxPool2d | nn.AvgPool2d):
            module.register_forward_pre_hook(partial(_relaid, torch.channels_last))


def _relaid(layout: torch.memory_format, _: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    images, *others = inputs
    return (images.contiguous(memory_format=layout) if images.ndim == _IMAGE_BATCH else images, *others)


class SequentialEngine(Engine):
    """A plain loop. Buffers belong to a teacher and are part of its stack.

    Every teacher gets a fresh copy of the untouched network: an attribute in which a user's module keeps something must not pass
    from one teacher to the next.
    """

    name: ClassVar[str] = "sequential"
    lockstep: ClassVar[bool] = False

    def __init__(self, network: nn.Module, settings: TrainingSettings, dropout_keys: Sequence[str] = ()) -> None:
        super().__init__(network, settings, dropout_keys)
        self._untouched = copy.deepcopy(network)

    def _load(self, stack: Stack, teacher: int) -> None:
        state = {name: tensor[teacher] for name, tensor in stack.items()}
        device = next(iter(stack.values())).device
        self.network = copy.deepcopy(self._untouched)
        self.network.to(device)
        if device.type == "cpu":
            lay_out(self.network)
        self.network.load_state_dict(state)

    def pack(self, stack: Stack) -> list[Tensor]:
        """Load the only teacher of `stack` and return its network's parameters, with no leading dimension."""
        self._load(stack, 0)
        return list(self.network.parameters())

    def unpack(self, packed: Sequence[Tensor]) -> Stack:  # noqa: ARG002
        """Return the network's state, buffers included; `packed` are its own parameters."""
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
            scores = self.network(features[0])
        mine = None if weights is None else weights[0]
        loss = mean_loss(scores.to(self.settings.dtype), labels[0], mine, self.settings.label_smoothing)
        loss.backward()
        return loss.detach().unsqueeze(0)

    @torch.no_grad()
    def scores(self, stack: Stack, features: Tensor) -> Tensor:
        """See `Engine.scores`."""
        scores = []
        for teacher in range(len(next(iter(stack.values())))):
            self._load(stack, teacher)
            self.network.eval()
            with self.autocast(features.device):
                scores.append(self.network(features).to(self.settings.dtype))
        return torch.stack(scores)
