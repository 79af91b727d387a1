"""A small convolutional network for handwritten digits of any size; it brings each image into one form by itself.

The form is that of the UCI digits (Alpaydin and Kaynak 1998): the box around the ink is scaled to 32 × 32 and made black or
white, and the share of ink is taken in each of 8 × 8 blocks. Digits of another source then look like those it was trained on.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

SIDE = 8
_FINE = 32  # the side of what is counted in blocks


class DigitNetwork(nn.Module):
    """From images (n, 1, height, width) to 64 features that tell digits apart.

    Attributes:
        trained_on: the public data set that it learned from, or "".
    """

    trained_on = ""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(1, 32),
            *_convolution(32, 64),
            *_convolution(64, 64),
            nn.Flatten(),
            nn.Linear(64 * (SIDE // 4) ** 2, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, 64) of images, each brought into the form by itself."""
        return self.features(torch.stack([digit_form(image) for image in images]))

    def features(self, forms: Tensor) -> Tensor:
        """Return features (n, 64) of images (n, 1, 8, 8) in the form."""
        found: Tensor = self.body(functional.interpolate(forms, scale_factor=2, mode="bilinear"))
        return found


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]


def digit_form(image: Tensor) -> Tensor:
    """Return (1, 8, 8) from 0 to 1, of a finite image (1, height, width) on any scale; an 8 × 8 one is only rescaled."""
    image = image.reshape(1, *image.shape[-2:]) - image.min()
    image = image / image.max().clamp(min=torch.finfo(image.dtype).tiny)
    if image.shape[1:] == (SIDE, SIDE):
        return image
    ink = (image[0] > 0.5).nonzero()
    if not len(ink):
        return image.new_zeros(1, SIDE, SIDE)
    (top, left), (bottom, right) = ink.min(dim=0).values.tolist(), (ink.max(dim=0).values + 1).tolist()
    height, width = bottom - top, right - left
    side = max(height, width)
    above, before = (side - height) // 2, (side - width) // 2
    square = image.new_zeros(1, 1, side, side)
    square[..., above : above + height, before : before + width] = image[:, top:bottom, left:right]
    fine = functional.interpolate(square, size=(_FINE, _FINE), mode="bilinear")
    return functional.avg_pool2d((fine > 0.5).to(image.dtype), _FINE // SIDE)[0]
