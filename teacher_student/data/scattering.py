"""Scattering: wavelet features of small images, with nothing learned (Bruna, Mallat 2013, arXiv:1203.1513).

    order 0   the image, smoothed
    order 1   |image * wavelet of one scale and angle|, smoothed
    order 2   ||image * finer wavelet| * coarser wavelet|, smoothed

Smoothing averages over squares of four pixels, so small shifts and deformations change the features little; moduli keep what an
average alone would lose. The map is fixed and public, and costs no privacy. Two scales, eight angles: 81 maps a channel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from teacher_student.arguments import ArgumentError

_MARGIN = 4
"""Pixels by which an image is mirrored beyond its edges: the wavelets' reach."""
_SQUARE = 4
"""Width of the squares over which maps are averaged."""
_WIDTH, _FREQUENCY = 0.8, 0.75 * math.pi
"""Standard deviation of the finest wavelet in pixels, and its frequency in radians per pixel; each scale halves the frequency."""


class Scattering(nn.Module):
    """Two-scale scattering of images, (n, channels, height, width) to (n, 81 channels, height / 4, width / 4).

    Args:
        shape: of one image, (channels, height, width); height and width multiples of 4.
        angles: directions of the wavelets.

    Raises:
        ArgumentError: another shape.

    >>> Scattering((1, 28, 28))(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 81, 7, 7])
    """

    def __init__(self, shape: Sequence[int] = (1, 28, 28), angles: int = 8) -> None:
        super().__init__()
        sizes = tuple(shape)
        if len(sizes) != 3 or any(size % _SQUARE or size < 2 * _SQUARE for size in sizes[1:]):
            raise ArgumentError(f"shape must be (channels, height, width), both multiples of {_SQUARE}, got {sizes}")
        padded = [size + 2 * _MARGIN for size in sizes[1:]]
        for scale, name in enumerate(("fine", "coarse")):
            waves = [_wavelet(padded, scale, math.pi * turn / angles, 4 / angles) for turn in range(angles)]
            self.register_buffer(name, torch.stack(waves), persistent=False)
        for step, name in ((1, "all"), (2, "half")):
            for axis, size in zip(("rows", "columns"), sizes[1:], strict=True):
                self.register_buffer(f"{axis}_of_{name}", _averages(size, step), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the smoothed maps of all three orders."""
        padded = functional.pad(images, (_MARGIN,) * 4, mode="reflect")
        spectrum = torch.fft.fft2(padded)[:, :, None]
        fine = torch.fft.ifft2(spectrum * self.get_buffer("fine")).abs()
        coarse = torch.fft.ifft2(_every_second_pixel(spectrum * self.get_buffer("coarse"))).abs()
        finer = torch.fft.fft2(fine)[:, :, :, None]
        second = torch.fft.ifft2(_every_second_pixel(finer * self.get_buffer("coarse"))).abs()
        maps = [
            self._smooth(padded, "all"),
            self._smooth(fine, "all"),
            self._smooth(coarse, "half"),
            self._smooth(second, "half"),
        ]
        return torch.cat([found.flatten(1, -3) for found in maps], dim=1)

    def _smooth(self, maps: Tensor, name: str) -> Tensor:
        return self.get_buffer(f"rows_of_{name}") @ maps @ self.get_buffer(f"columns_of_{name}").T


def _every_second_pixel(spectrum: Tensor) -> Tensor:
    """Return the spectrum of every second pixel in each direction: frequencies that then look alike are averaged."""
    height, width = spectrum.shape[-2] // 2, spectrum.shape[-1] // 2
    folded = spectrum[..., :width] + spectrum[..., width:]  # a mean over an axis of two takes five times as long
    return (folded[..., :height, :] + folded[..., height:, :]) / 4


def _wavelet(size: Sequence[int], scale: int, angle: float, slant: float) -> Tensor:
    """Return the real spectrum of a Morlet wavelet, (height, width): a wave under a Gaussian, less what makes its mean zero."""
    deviation, frequency = _WIDTH * 2**scale, _FREQUENCY / 2**scale
    y, x = torch.meshgrid(*((torch.arange(n, dtype=torch.float64) + n // 2) % n - n // 2 for n in size), indexing="ij")
    along, across = math.cos(angle) * x + math.sin(angle) * y, math.cos(angle) * y - math.sin(angle) * x
    gaussian = torch.exp(-(along**2 + (slant * across) ** 2) / (2 * deviation**2)) * slant / (2 * math.pi * deviation**2)
    wave = gaussian * torch.exp(1j * frequency * along)
    return torch.fft.fft2(wave - gaussian * (wave.sum() / gaussian.sum())).real.float()


def _averages(size: int, step: int) -> Tensor:
    """Return (size / 4, padded / step) weights of a Gaussian around the centre of each square of four pixels."""
    pixels = torch.arange(0, size + 2 * _MARGIN, step, dtype=torch.float64)
    centres = _MARGIN + (_SQUARE - 1) / 2 + _SQUARE * torch.arange(size // _SQUARE, dtype=torch.float64)
    weights = torch.exp(-((pixels - centres[:, None]) ** 2) / (2 * (2 * _WIDTH) ** 2))
    return (weights / weights.sum(dim=1, keepdim=True)).float()
