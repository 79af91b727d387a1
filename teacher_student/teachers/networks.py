"""Networks for teachers: none keeps state from one record to the next, so that any number of them can be stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from teacher_student.arguments import ArgumentError, finite_number, fraction_of_one, listed, positive_integer

WIDEST = 2**24
"""Wider layers are a mistake."""


class Offset(nn.Module):
    """Adds public constants to the class scores when predicting, and nothing while training.

    Small shards lean to the majority class of the population; a constant per class, chosen beforehand, moves every vote back.
    """

    def __init__(self, offsets: Sequence[float]) -> None:
        super().__init__()
        self.offsets = tuple(float(value) for value in offsets)

    def forward(self, scores: Tensor) -> Tensor:
        """Return `scores` (..., num_classes), shifted unless training."""
        if self.training:
            return scores
        return scores + torch.tensor(self.offsets, dtype=scores.dtype, device=scores.device)

    def extra_repr(self) -> str:
        """Constants, for the manifest."""
        return f"offsets={self.offsets}"


def _per_class(name: str, values: Sequence[float] | None, num_classes: int) -> Sequence[float] | None:
    if values is None:
        return None
    numbers = [finite_number(name, value) for value in listed(name, values)]
    if len(numbers) != num_classes:
        raise ArgumentError(f"{name} must hold {num_classes} numbers, one for each class, got {len(numbers)}")
    return numbers


class MLP(nn.Sequential):
    """A multilayer perceptron with ReLU: `num_features` -> `hidden` ... -> `num_classes`.

    Args:
        num_features: length of a record after flattening.
        num_classes: number of classes.
        hidden: widths of the hidden layers; empty for logistic regression.
        dropout: probability of dropping a hidden unit, 0 for none.
        initial_bias: public constants that the last bias starts from, one for each class (default: PyTorch's own start).
        prediction_offset: public constants added to the class scores when voting.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        hidden: Sequence[int] = (128,),
        *,
        dropout: float = 0.0,
        initial_bias: Sequence[float] | None = None,
        prediction_offset: Sequence[float] | None = None,
    ) -> None:
        width = positive_integer("num_features", num_features, maximum=WIDEST)
        positive_integer("num_classes", num_classes, minimum=2, maximum=WIDEST)
        dropout = fraction_of_one("dropout", dropout)
        initial_bias = _per_class("initial_bias", initial_bias, num_classes)
        prediction_offset = _per_class("prediction_offset", prediction_offset, num_classes)
        layers: list[nn.Module] = [nn.Flatten()]
        for size in listed("hidden", hidden):
            layers += [nn.Linear(width, positive_integer("hidden", size, maximum=WIDEST)), nn.ReLU()]
            layers += [nn.Dropout(dropout)] if dropout else []
            width = size
        last = nn.Linear(width, num_classes)
        if initial_bias is not None:
            last.bias.data.copy_(torch.tensor(initial_bias))
        layers.append(last)
        if prediction_offset is not None:
            layers.append(Offset(prediction_offset))
        super().__init__(*layers)


class LogisticRegression(MLP):
    """Multinomial logistic regression, started from zero weights: the loss is convex, so the start need not be random.

    Args:
        num_features: length of a record after flattening.
        num_classes: number of classes.
        initial_bias: public constants that the intercept starts from, one for each class (default: 0).
        prediction_offset: public constants added to the class scores when voting.
    """

    starts_alike: ClassVar[bool] = True

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        initial_bias: Sequence[float] | None = None,
        prediction_offset: Sequence[float] | None = None,
    ) -> None:
        positive_integer("num_classes", num_classes, minimum=2, maximum=WIDEST)
        start = [0.0] * num_classes if initial_bias is None else initial_bias
        super().__init__(num_features, num_classes, (), initial_bias=start, prediction_offset=prediction_offset)
        nn.init.zeros_(self[1].weight)  # type: ignore[arg-type]
