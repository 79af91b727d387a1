"""Networks for images. Normalisation is by groups of channels within a record: it keeps nothing from one record to the next."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from teacher_student.arguments import ArgumentError, fraction_of_one, listed, positive_integer

_WIDEST = 2**14


class CNN(nn.Sequential):
    """Two convolutions with pooling and two hidden layers, as the published code of PATE has for MNIST.

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
        channels, height, width = checked_shape(image_shape)
        dropout = fraction_of_one("dropout", dropout)
        layers: list[nn.Module] = []
        for size in listed("filters", filters):
            positive_integer("filters", size, maximum=_WIDEST)
            layers += [nn.Conv2d(channels, size, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
            channels, height, width = size, -(-height // 2), -(-width // 2)
        layers.append(nn.Flatten())
        inputs = channels * height * width
        for size in listed("hidden", hidden):
            layers += [nn.Linear(inputs, positive_integer("hidden", size, maximum=_WIDEST)), nn.ReLU()]
            layers += [nn.Dropout(dropout)] if dropout else []
            inputs = size
        layers.append(nn.Linear(inputs, positive_integer("num_classes", num_classes, minimum=2, maximum=_WIDEST)))
        super().__init__(*layers)


class _Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(group_count(outputs), outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(group_count(outputs), outputs)
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
        blocks = [positive_integer("blocks", count, maximum=_WIDEST) for count in listed("blocks", blocks)]
        widths = [positive_integer("widths", width, maximum=_WIDEST) for width in listed("widths", widths)]
        if len(blocks) != len(widths) or not blocks:
            raise ArgumentError(f"blocks and widths must have one entry for each stage, got {len(blocks)} and {len(widths)}")
        channels = widths[0]
        self.stem = nn.Conv2d(checked_shape(image_shape)[0], channels, 3, padding=1, bias=False)
        self.stem_norm = nn.GroupNorm(group_count(channels), channels)
        stages: list[nn.Module] = []
        for stage, (count, width) in enumerate(zip(blocks, widths, strict=True)):
            for place in range(count):
                stages.append(_Block(channels, width, 2 if stage and not place else 1))
                channels = width
        self.stages = nn.Sequential(*stages)
        self.scores = nn.Linear(channels, positive_integer("num_classes", num_classes, minimum=2, maximum=_WIDEST))

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
            parent, _, leaf = name.rpartition(".")
            norm = nn.GroupNorm(group_count(module.num_features, groups), module.num_features, affine=module.affine)
            if not name:
                return norm
            setattr(converted.get_submodule(parent), leaf, norm)
    return converted


def group_count(channels: int, groups: int = 8) -> int:
    """Return the greatest common divisor of `channels` and `groups`."""
    return math.gcd(channels, groups)


def checked_shape(image_shape: Sequence[int]) -> tuple[int, int, int]:
    """Return (channels, height, width).

    Raises:
        ArgumentError: not three positive integers.
    """
    sizes = [positive_integer("image_shape", size, maximum=_WIDEST) for size in listed("image_shape", image_shape)]
    if len(sizes) != 3:
        raise ArgumentError(f"image_shape must be (channels, height, width), got {tuple(image_shape)}")
    channels, height, width = sizes
    return channels, height, width


def image_example(image_shape: Sequence[int], batch: int = 2) -> Tensor:
    """Return blank images (batch, channels, height, width), to try a network on."""
    return torch.zeros((batch, *checked_shape(image_shape)))
