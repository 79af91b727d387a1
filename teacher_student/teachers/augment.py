"""Augmentation of images, record by record, from the teacher's own random numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from teacher_student.arguments import ArgumentError, positive_integer
from teacher_student.teachers.seeds import uniforms


@dataclass(frozen=True)
class ShiftAndFlip:
    """Shifts every image by up to `padding` pixels each way, zeros flowing in, and mirrors half of them.

    Attributes:
        padding: largest shift.
        flip: mirror left and right with probability one half.
    """

    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        """Check the padding."""
        positive_integer("padding", self.padding, minimum=0)

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        """Return augmented images.

        Args:
            images: (teachers, batch, channels, height, width).
            keys: (teachers,) int64, each teacher's key of this step.

        Raises:
            ArgumentError: the records are no images.
        """
        if images.ndim != 5:
            raise ArgumentError(f"augment must get images (channels, height, width), got records of shape {images.shape[2:]}")
        height, width = images.shape[-2:]
        draws = uniforms(keys, (images.shape[1], 3)).flatten(0, 1)
        shifts = (draws[:, :2] * (2 * self.padding + 1)).long()
        rows = torch.arange(height, device=images.device) + shifts[:, :1]
        columns = torch.arange(width, device=images.device) + shifts[:, 1:2]
        if self.flip:
            columns = torch.where(draws[:, 2:] < 0.5, columns, columns.flip(1))
        padded = functional.pad(images.flatten(0, 1), [self.padding] * 4)
        places = torch.arange(len(padded), device=images.device)[:, None, None, None]
        channels = torch.arange(images.shape[2], device=images.device)[None, :, None, None]
        return padded[places, channels, rows[:, None, :, None], columns[:, None, None, :]].reshape(images.shape)
