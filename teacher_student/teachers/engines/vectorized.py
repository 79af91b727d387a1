"""Any network without state between records: gradients by `torch.func`, vectorised over the teachers of a chunk."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from teacher_student.teachers.engines.interface import Engine, Stack, mean_loss
from teacher_student.teachers.settings import TrainingSettings


class VmapEngine(Engine):
    """`vmap(grad)` over the teachers. `randomness="error"` refuses any draw that is not keyed by the teacher."""

    name: ClassVar[str] = "vmap"

    def __init__(self, network: nn.Module, settings: TrainingSettings, dropout_keys: Sequence[str] = ()) -> None:
        super().__init__(copy.deepcopy(network), settings, dropout_keys)
        self._step, self._weighted_step = self._vectorized(None), self._vectorized(0)
        self._scores = vmap(lambda stack, points: functional_call(self.network, stack, (points,)), (0, None), randomness="error")

    def _vectorized(self, weights: int | None) -> Callable[..., tuple[Stack, Tensor]]:
        step = vmap(grad_and_value(self._loss), in_dims=(0, 0, 0, 0, weights), randomness="error")
        return torch.compile(step, dynamic=False) if self.settings.compile else step

    def _loss(self, parameters: Stack, features: Tensor, labels: Tensor, key: Tensor, weights: Tensor | None) -> Tensor:
        keys = dict.fromkeys(self.dropout_keys, key)
        scores = functional_call(self.network, {**parameters, **keys}, (features,))
        return mean_loss(scores.to(self.settings.dtype), labels, weights, self.settings.label_smoothing)

    def gradients(
        self, packed: Sequence[Tensor], features: Tensor, labels: Tensor, keys: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """See `Engine.gradients`."""
        self.network.to(features.device).train()
        parameters = dict(zip(self._names, packed, strict=True))
        step = self._step if weights is None else self._weighted_step
        with self.autocast(features.device):
            gradients, losses = step(parameters, features, labels, keys, weights)
        for name, tensor in parameters.items():
            tensor.grad = gradients[name]
        return losses.detach()

    @torch.no_grad()
    def scores(self, stack: Stack, features: Tensor) -> Tensor:
        """See `Engine.scores`."""
        self.network.to(features.device).eval()
        with self.autocast(features.device):
            return self._scores(stack, features).to(self.settings.dtype)
