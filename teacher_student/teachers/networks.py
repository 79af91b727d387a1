"""Networks for teachers: none keeps state from one record to the next, so that any number of them can be stacked.

Networks for images normalise by groups of channels within a record, not over a batch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from teacher_student.arguments import ArgumentError, finite_number, fraction_of_one, listed, positive_integer

_WIDEST = 2**24
_WIDEST_OF_IMAGES = 2**14  # wider layers are a mistake


class Offset(nn.Module):
    """Adds public constants to the class scores when predicting, and nothing while training.

    Small shards lean to the majority class of the population; a constant per class, chosen beforehand, moves every vote back.
    """

    def __init__(self, offsets: Sequence[float]) -> None:
        super().__init__()
        self.offsets = tuple(float(value) for value in offsets)

    def forward(self, scores: Tensor) -> Tensor:
        """Return `scores` (..., num_classes), shifted unless training."""
        return scores if self.training else scores + torch.tensor(self.offsets, dtype=scores.dtype, device=scores.device)

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
        width = positive_integer("num_features", num_features, maximum=_WIDEST)
        positive_integer("num_classes", num_classes, minimum=2, maximum=_WIDEST)
        initial_bias = _per_class("initial_bias", initial_bias, num_classes)
        prediction_offset = _per_class("prediction_offset", prediction_offset, num_classes)
        hidden_layers, width = _hidden_layers(width, hidden, dropout, _WIDEST)
        last = nn.Linear(width, num_classes)
        if initial_bias is not None:
            last.bias.data.copy_(torch.tensor(initial_bias))
        offset = [] if prediction_offset is None else [Offset(prediction_offset)]
        super().__init__(nn.Flatten(), *hidden_layers, last, *offset)


def _hidden_layers(inputs: int, hidden: Sequence[int], dropout: float, widest: int) -> tuple[list[nn.Module], int]:
    """Return linear layers with ReLU and dropout, and the width of the last."""
    dropout, layers = fraction_of_one("dropout", dropout), []
    for size in listed("hidden", hidden):
        layers += [nn.Linear(inputs, positive_integer("hidden", size, maximum=widest)), nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
        inputs = size
    return layers, inputs


class LogisticRegression(MLP):
    """Multinomial logistic regression, started from zero weights: the loss is convex, so the start need not be random.

    Arguments are those of `MLP`; `initial_bias` is 0 by default.
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
        positive_integer("num_classes", num_classes, minimum=2, maximum=_WIDEST)
        start = [0.0] * num_classes if initial_bias is None else initial_bias
        super().__init__(num_features, num_classes, (), initial_bias=start, prediction_offset=prediction_offset)
        nn.init.zeros_(self[1].weight)  # type: ignore[arg-type]


class CNN(nn.Sequential):
    """Two convolutions with pooling and two hidden layers, as in the published code of PATE for MNIST.

    Papernot et al. 2018 (arXiv:1802.08908). Left out: local response normalisation, which costs time and no longer helps.

    Args:
        image_shape: (channels, height, width).
        num_classes: number of classes.
        filters: of the two convolutions, 5 x 5 each and followed by 3 x 3 pooling of stride 2.
        hidden: widths of the hidden layers.
        dropout: probability of dropping a hidden unit.
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        num_classes: int,
        *,
        filters: Sequence[int] = (64, 128),
        hidden: Sequence[int] = (384, 192),
        dropout: float = 0.0,
    ) -> None:
        channels, height, width = _checked_shape(image_shape)
        layers: list[nn.Module] = []
        for size in listed("filters", filters):
            positive_integer("filters", size, maximum=_WIDEST_OF_IMAGES)
            layers += [nn.Conv2d(channels, size, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
            channels, height, width = size, -(-height // 2), -(-width // 2)
        hidden_layers, inputs = _hidden_layers(channels * height * width, hidden, dropout, _WIDEST_OF_IMAGES)
        last = nn.Linear(inputs, positive_integer("num_classes", num_classes, minimum=2, maximum=_WIDEST_OF_IMAGES))
        super().__init__(*layers, nn.Flatten(), *hidden_layers, last)


class _Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.first_norm = _group_norm(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = _group_norm(outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return features (batch, outputs, height / stride, width / stride)."""
        features = functional.relu(self.first_norm(self.first(images)))
        return functional.relu(self.second_norm(self.second(features)) + self.shortcut(images))


class ResNet(nn.Module):
    """A residual network for small images (He et al. 2016, section 4.2) with GroupNorm in place of BatchNorm.

    Args:
        image_shape: (channels, height, width).
        num_classes: number of classes.
        blocks: residual blocks of each stage; (1, 1, 1) is ResNet-8, (3, 3, 3) ResNet-20.
        widths: channels of each stage.
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        num_classes: int,
        *,
        blocks: Sequence[int] = (1, 1, 1),
        widths: Sequence[int] = (16, 32, 64),
    ) -> None:
        super().__init__()
        blocks = [positive_integer("blocks", count, maximum=_WIDEST_OF_IMAGES) for count in listed("blocks", blocks)]
        widths = [positive_integer("widths", width, maximum=_WIDEST_OF_IMAGES) for width in listed("widths", widths)]
        if len(blocks) != len(widths) or not blocks:
            raise ArgumentError(f"blocks and widths must have one entry for each stage, got {len(blocks)} and {len(widths)}")
        channels = widths[0]
        self.stem = nn.Conv2d(_checked_shape(image_shape)[0], channels, 3, padding=1, bias=False)
        self.stem_norm = _group_norm(channels)
        stages: list[nn.Module] = []
        for stage, (count, width) in enumerate(zip(blocks, widths, strict=True)):
            for place in range(count):
                stages.append(_Block(channels, width, 2 if stage and not place else 1))
                channels = width
        self.stages = nn.Sequential(*stages)
        self.scores = nn.Linear(channels, positive_integer("num_classes", num_classes, minimum=2, maximum=_WIDEST_OF_IMAGES))

    def forward(self, images: Tensor) -> Tensor:
        """Return class scores (batch, num_classes) of images (batch, channels, height, width)."""
        features = self.stages(functional.relu(self.stem_norm(self.stem(images))))
        return self.scores(features.mean((2, 3)))


def group_normalized(network: nn.Module, groups: int = 8) -> nn.Module:
    """Return a copy of `network` (of torchvision, say) with every 2-d BatchNorm replaced by a fresh GroupNorm.

    Args:
        network: any module.
        groups: number of groups wherever it divides the channels, else their greatest common divisor.
    """
    converted = copy.deepcopy(network)
    for name, module in list(converted.named_modules()):
        if isinstance(module, nn.BatchNorm2d):
            norm = _group_norm(module.num_features, groups, affine=module.affine)
            if not name:
                return norm
            parent, _, leaf = name.rpartition(".")
            setattr(converted.get_submodule(parent), leaf, norm)
    return converted


def _group_norm(channels: int, groups: int = 8, *, affine: bool = True) -> nn.GroupNorm:
    return nn.GroupNorm(math.gcd(channels, groups), channels, affine=affine)


def _checked_shape(image_shape: Sequence[int]) -> tuple[int, int, int]:
    sizes = [positive_integer("image_shape", size, maximum=_WIDEST_OF_IMAGES) for size in listed("image_shape", image_shape)]
    if len(sizes) != 3:
        raise ArgumentError(f"image_shape must be (channels, height, width), got {tuple(image_shape)}")
    channels, height, width = sizes
    return channels, height, width
