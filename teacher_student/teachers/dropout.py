"""Dropout whose masks are a function of the teacher's own key, so that a mask depends on no other teacher."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from teacher_student.teachers.seeds import derived_keys, uniforms


def drop(values: Tensor, keys: Tensor, probability: float) -> Tensor:
    """Zero values with `probability` and scale the rest.

    Args:
        values: (*keys.shape, ...).
        keys: int64, one key for each teacher; a scalar for one teacher.
        probability: of dropping, below 1.
    """
    draws = uniforms(keys, tuple(values.shape[keys.ndim :]))
    return torch.where(draws >= probability, values / (1 - probability), torch.zeros_like(values))


class KeyedDropout(nn.Module):
    """`nn.Dropout` with counter-based masks. The engine sets `key` (the teacher's, for this step) before every forward pass.

    Args:
        probability: of dropping.
        layer: number of the layer, so that layers differ.
    """

    key: Tensor

    def __init__(self, probability: float, layer: int) -> None:
        super().__init__()
        self.probability, self.layer = probability, layer
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        """Return `values` (batch, ...), dropped while training."""
        if not self.training:
            return values
        return drop(values, derived_keys(self.key, self.layer), self.probability)


def key_dropouts(network: nn.Module) -> list[str]:
    """Replace every `nn.Dropout` in place and return the names of their keys in the module."""
    found = [(name, module) for name, module in network.named_modules() if type(module) is nn.Dropout]
    for layer, (name, module) in enumerate(found):
        parent, _, leaf = name.rpartition(".")
        setattr(network.get_submodule(parent), leaf, KeyedDropout(module.p, layer) if module.p < 1 else nn.Identity())
    return [f"{name}.key" for name, module in found if module.p < 1]
