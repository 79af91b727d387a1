"""PyTorch's own optimisers over stacked tensors. All are elementwise, so a stacked step is every teacher's own step.

Their shared step count is exact because every teacher takes every step. Norms are not elementwise: clipping is per teacher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from teacher_student.teachers.settings import TrainingSettings


def build_optimizer(parameters: Sequence[Tensor], settings: TrainingSettings, weight_decay: float) -> torch.optim.Optimizer:
    """Build the optimiser that `settings` names, over tensors that may each hold many teachers."""
    options: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": weight_decay, "fused": True}
    if settings.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=settings.momentum, **options)
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, **options)


def clip_per_teacher(gradients: Sequence[Tensor], largest: float) -> None:
    """Scale every teacher's gradient to a norm of at most `largest`, in place.

    One norm over the whole stack would let one record of one shard scale every teacher's step.

    Args:
        gradients: tensors (teachers, ...).
        largest: the norm allowed.
    """
    squares = sum(gradient.flatten(1).square().sum(1) for gradient in gradients)
    scales = (largest / (torch.as_tensor(squares).sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scales.reshape(-1, *[1] * (gradient.ndim - 1)))


class TeacherDecay:
    """Weight decay with a public rate for each teacher, in the optimiser's own form, applied before its step.

    SGD and Adam add `rate * parameter` to the gradient; AdamW shrinks the parameter by `1 - learning rate * rate`.
    """

    def __init__(self, rates: Sequence[float], decoupled: bool) -> None:
        self._rates, self._decoupled = tuple(rates), decoupled

    def __call__(self, parameters: Sequence[Tensor], learning_rate: float) -> None:
        """Apply one step's decay to `parameters` (teachers, ...) or to their gradients."""
        with torch.no_grad():
            for parameter in parameters:
                rates = torch.tensor(self._rates, dtype=parameter.dtype, device=parameter.device)
                rates = rates.reshape(-1, *[1] * (parameter.ndim - 1))
                if self._decoupled:
                    parameter.mul_(1 - learning_rate * rates)
                elif parameter.grad is not None:
                    parameter.grad.add_(parameter * rates)
