"""Views of public points that keep their class: weak ones for labels and guesses, strong ones to be consistent with them.

Images: shifts and mirror images are weak (as in FixMatch, Sohn et al. 2020); rotation, contrast, brightness and a blank square
(DeVries and Taylor 2017) are strong. Tables: jitter is weak; the strong view replaces each value with some probability by the
same column's value in another row (SCARF, Bahri et al., ICLR 2022). Draws come from torch's seeded generator, for every point its
own; torchvision's transforms draw one set of parameters for a whole batch.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from teacher_student.arguments import fraction_of_one, number_at_least_zero, positive_integer, true_or_false


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How a point may be changed without changing its class.

    Attributes:
        shift: weak view of an image: move by up to this many pixels each way, filling with the darkest pixel.
        flip: weak view of an image: mirror left and right with probability one half.
        jitter: weak view of a table's row: add Gaussian noise of this many standard deviations of each column.
        rotation: strong view of an image: turn by up to this many degrees.
        contrast: strong view of an image: change contrast by up to this share, brightness by up to this share of the range.
        cutout: strong view of an image: blank a square of this share of the side.
        corruption: strong view of a table's row: replace each value with this probability by another row's.
    """

    shift: int = 0
    flip: bool = False
    jitter: float = 0.0
    rotation: float = 15.0
    contrast: float = 0.2
    cutout: float = 0.3
    corruption: float = 0.3

    def __post_init__(self) -> None:
        positive_integer("student.settings.augmentation.shift", self.shift, minimum=0)
        true_or_false("student.settings.augmentation.flip", self.flip)
        for name in ("jitter", "rotation"):
            number_at_least_zero(f"student.settings.augmentation.{name}", getattr(self, name))
        for name in ("contrast", "cutout", "corruption"):
            fraction_of_one(f"student.settings.augmentation.{name}", getattr(self, name))


class Views(nn.Module):
    """Views of points like those of a public pool.

    Args:
        pool: (num_points, *shape) public features; the source of scales, and for tables of the strong view's values.
        settings: how far views may be from the point.
    """

    spread: Tensor

    def __init__(self, pool: Tensor, settings: Augmentation) -> None:
        super().__init__()
        self.settings = settings
        self.register_buffer("spread", pool.std(dim=0, correction=0), persistent=False)
        self.varying = int((self.spread > 0).sum())  # features that differ between points; read once, not in every step

    def weak(self, features: Tensor) -> Tensor:
        """Return a view of each point, (batch, *shape), that is almost the same."""
        raise NotImplementedError

    def strong(self, features: Tensor) -> Tensor:
        """Return a view of each point, (batch, *shape), that differs clearly and is of the same class."""
        raise NotImplementedError


class TableViews(Views):
    """Views of rows of a table, or of any features that are not images."""

    pool: Tensor

    def __init__(self, pool: Tensor, settings: Augmentation) -> None:
        super().__init__(pool, settings)
        self.register_buffer("pool", pool.flatten(1), persistent=False)

    def weak(self, features: Tensor) -> Tensor:
        """Add noise in proportion to each column's spread."""
        if self.settings.jitter == 0:
            return features
        return features + self.settings.jitter * self.spread * torch.randn_like(features)

    def strong(self, features: Tensor) -> Tensor:
        """Replace each value with some probability by the same column's value in a random row of the pool."""
        flat = self.weak(features).flatten(1)
        replaced = torch.rand_like(flat) < self.settings.corruption
        rows = torch.randint(len(self.pool), flat.shape, device=flat.device)
        return torch.where(replaced, self.pool.gather(0, rows), flat).reshape(features.shape)


class ImageViews(Views):
    """Views of images, (batch, channels, height, width)."""

    center: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, pool: Tensor, settings: Augmentation) -> None:
        super().__init__(pool, settings)
        self.register_buffer("center", pool.mean(dim=0), persistent=False)
        self.register_buffer("low", pool.min(), persistent=False)
        self.register_buffer("high", pool.max(), persistent=False)

    def weak(self, features: Tensor) -> Tensor:
        """Shift by whole pixels, and mirror half of the images where that is allowed."""
        if self.settings.shift == 0 and not self.settings.flip:
            return features
        return self._moved(features, torch.zeros(len(features), device=features.device))

    def strong(self, features: Tensor) -> Tensor:
        """Also turn, change contrast and brightness, and blank a square."""
        degrees = self.settings.rotation * _signed(len(features), features)
        return self._blanked(self._shaded(self._moved(features, degrees * math.pi / 180)))

    def _moved(self, images: Tensor, angles: Tensor) -> Tensor:
        """Turn by (batch,) `angles`, shift and mirror; fill with the darkest pixel of the pool."""
        count, (height, width), settings = len(images), images.shape[-2:], self.settings
        shifts = torch.randint(-settings.shift, settings.shift + 1, (count, 2), device=images.device)
        mirrored = torch.rand(count, device=images.device) < (0.5 if settings.flip else 0.0)
        sign = torch.where(mirrored, -1.0, 1.0)
        cos, sin = angles.cos(), angles.sin()
        across = torch.stack([sign * cos, -sin * height / width, shifts[:, 0] * 2 / width], dim=1)
        down = torch.stack([sign * sin * width / height, cos, shifts[:, 1] * 2 / height], dim=1)
        grid = F.affine_grid(torch.stack([across, down], dim=1).to(images.dtype), list(images.shape), align_corners=False)
        return F.grid_sample(images - self.low, grid, align_corners=False) + self.low

    def _shaded(self, images: Tensor) -> Tensor:
        """Change contrast around each image's own mean, and its brightness; the pool's range is kept."""
        contrast, brightness = (self.settings.contrast * _signed((len(images), 1, 1, 1), images) for _ in range(2))
        mean = images.mean(dim=(1, 2, 3), keepdim=True)
        shaded = mean + (images - mean) * (1 + contrast) + brightness * (self.high - self.low)
        return shaded.clamp(self.low, self.high)

    def _blanked(self, images: Tensor) -> Tensor:
        """Give a square somewhere in each image the pool's mean."""
        inside = []
        for size in images.shape[-2:]:
            middle = torch.rand((len(images), 1), device=images.device) * size
            places = torch.arange(size, device=images.device) + 0.5
            inside.append((places - middle).abs() < self.settings.cutout * size / 2)
        return torch.where((inside[0][:, :, None] & inside[1][:, None])[:, None], self.center, images)


def _signed(shape: int | tuple[int, ...], like: Tensor) -> Tensor:
    """Draw uniform numbers from -1 to 1."""
    return 2 * torch.rand(shape, device=like.device, dtype=like.dtype) - 1


def views_of(pool: Tensor, settings: Augmentation) -> Views:
    """Return views for points of the pool's shape: images have three dimensions each, everything else is a table."""
    return ImageViews(pool, settings) if pool.ndim == 4 else TableViews(pool, settings)
