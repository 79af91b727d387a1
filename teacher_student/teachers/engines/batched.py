"""Stacked linear layers as batched products: one `bmm` serves a chunk of teachers.

Hidden values are kept as (teachers, units, batch): with the weights in `nn.Linear`'s layout (teachers, outputs, inputs) every
product then has a long inner or last dimension. In the other layout, (teachers, inputs, outputs), narrow layers cost a CPU four
to seven times as much. The backward pass is written out: it is short, it writes into the gradients of the step before, and it
saves autograd's bookkeeping. Every product is one matrix product per teacher: no teacher's numbers enter another's sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from teacher_student.arguments import ArgumentError
from teacher_student.teachers.engines.interface import Engine, Stack
from teacher_student.teachers.networks import Offset
from teacher_student.teachers.randomness import KeyedDropout, derived_keys, drop
from teacher_student.teachers.settings import TrainingSettings

_TRANSPARENT = (nn.Flatten, nn.Identity, Offset)  # these do nothing to a flat record while training


def linear_layers(network: nn.Module) -> list[tuple[str, nn.Module]] | None:
    """Return the network's layers, named, if it is a plain sequence of linear layers, ReLU and dropout; else None."""
    layers: list[tuple[str, nn.Module]] = []

    def walk(prefix: str, module: nn.Module) -> bool:
        if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
            return all(walk(f"{prefix}.{name}" if prefix else name, child) for name, child in module.named_children())
        layers.append((prefix, module))
        return type(module) in (nn.Linear, nn.ReLU, KeyedDropout, *_TRANSPARENT)

    if not walk("", network) or has_hooks(network):
        return None
    kinds = [type(module) for _, module in layers if not isinstance(module, _TRANSPARENT)]
    return layers if kinds and kinds[0] is kinds[-1] is nn.Linear else None


def has_hooks(network: nn.Module) -> bool:
    """Whether the network has hooks, which its layers alone do not show."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


class BatchedEngine(Engine):
    """Linear layers and ReLU, all teachers of a chunk in one product.

    Raises:
        ArgumentError: the network is not a plain sequence of such layers.
    """

    name: ClassVar[str] = "batched"

    def __init__(self, network: nn.Module, settings: TrainingSettings, dropout_keys: Sequence[str] = ()) -> None:
        super().__init__(network, settings, dropout_keys)
        layers = linear_layers(network)
        if layers is None:
            raise ArgumentError("engine=batched must get a sequence of linear layers and ReLU; use engine=auto or engine=vmap")
        self._all_layers = layers
        self._layers = [(name, module) for name, module in layers if not isinstance(module, _TRANSPARENT)]

    @torch.no_grad()
    def gradients(
        self, packed: Sequence[Tensor], features: Tensor, labels: Tensor, keys: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """See `Engine.gradients`."""
        rest, inputs, values = iter(packed), [], features.flatten(2).transpose(1, 2)
        with self.autocast(values.device):
            for _, module in self._layers:
                inputs.append(values)
                if isinstance(module, nn.Linear):
                    weight = next(rest)
                    bias = next(rest) if module.bias is not None else None
                    values = torch.bmm(weight, values) if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, values)
                elif isinstance(module, KeyedDropout):
                    values = self._drop(values, keys, module)
                else:
                    values = values.relu_()
            losses, error = self._loss(values.transpose(1, 2).to(self.settings.dtype).contiguous(), labels, weights)
            self._backward(packed, inputs, error.transpose(1, 2).contiguous(), keys)
        return losses

    @staticmethod
    def _drop(values: Tensor, keys: Tensor, module: KeyedDropout) -> Tensor:
        """Draw masks record by record, as a teacher alone does, though values lie unit by unit."""
        dropped = drop(values.transpose(1, 2), derived_keys(keys, module.layer), module.probability)
        return dropped.transpose(1, 2).contiguous()

    def _loss(self, scores: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        log_shares, share = functional.log_softmax(scores, -1), 1 / labels.shape[1]
        if self.settings.label_smoothing:
            targets = _smooth_targets(labels, scores.shape[-1], self.settings.label_smoothing, scores.dtype)
            losses = -(log_shares * targets).sum(-1)
            errors = log_shares.exp_().sub_(targets).mul_(share)
        else:  # the same in fewer operations: in a chunk of small teachers each costs more than its arithmetic
            places = labels.unsqueeze(-1)
            chosen = log_shares.gather(-1, places)
            losses = -chosen.squeeze(-1)
            errors = log_shares.exp_().mul_(share).scatter_(-1, places, chosen.expm1_().mul_(share))
        if weights is not None:
            losses, errors = losses * weights, errors.mul_(weights.unsqueeze(-1))
        return losses.mean(-1), errors

    def _backward(self, packed: Sequence[Tensor], inputs: Sequence[Tensor], error: Tensor, keys: Tensor) -> None:
        rest = list(packed)
        for position in reversed(range(len(self._layers))):
            module, values = self._layers[position][1], inputs[position]
            if isinstance(module, nn.Linear):
                if module.bias is not None:
                    self._fill(rest.pop(), partial(torch.sum, error, 2))
                weight = rest.pop()
                self._fill(weight, partial(torch.bmm, error, values.transpose(1, 2)))
                error = torch.bmm(weight.transpose(1, 2), error) if position else error
            elif isinstance(module, KeyedDropout):
                error = self._drop(error, keys, module)
            else:
                error = torch.ops.aten.threshold_backward(error, inputs[position + 1], 0)

    def _fill(self, parameter: Tensor, compute: Callable[..., Tensor]) -> None:
        """Write what `compute` returns to the parameter's gradient, without a copy where the types agree."""
        if parameter.grad is None:
            parameter.grad = compute().to(parameter.dtype)
        elif self.settings.precision == "bfloat16":
            parameter.grad.copy_(compute())
        else:
            compute(out=parameter.grad)

    def scores(self, stack: Stack, features: Tensor) -> Tensor:
        """See `Engine.scores`. The first layer is one product for all teachers, since they share its input."""
        self.network.eval()
        values, shared = features.flatten(1).T, True
        with self.autocast(features.device):
            for name, module in self._all_layers:
                if isinstance(module, nn.Linear):
                    weight = stack[_key(name, "weight")]
                    if shared:
                        values, shared = (weight.flatten(0, 1) @ values).unflatten(0, weight.shape[:2]), False
                    else:
                        values = torch.bmm(weight, values)
                    values = values if module.bias is None else values.add_(stack[_key(name, "bias")].unsqueeze(2))
                elif isinstance(module, nn.ReLU):
                    values = values.relu_()
                elif isinstance(module, Offset):
                    values = module(values.transpose(1, 2)).transpose(1, 2)
        return values.transpose(1, 2).to(self.settings.dtype)


def _key(layer: str, parameter: str) -> str:
    """A parameter's name in a stack; a network that is one layer has no name before it."""
    return f"{layer}.{parameter}" if layer else parameter


def _smooth_targets(labels: Tensor, num_classes: int, smoothing: float, dtype: torch.dtype) -> Tensor:
    """Return target distributions (..., num_classes): 1 - smoothing on the label, plus smoothing / num_classes everywhere."""
    targets = torch.full((*labels.shape, num_classes), smoothing / num_classes, dtype=dtype, device=labels.device)
    return targets.scatter_(-1, labels.unsqueeze(-1), 1 - smoothing + smoothing / num_classes)
