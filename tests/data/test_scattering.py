"""Scattering: what the features are, and that an image's do not depend on others."""

from __future__ import annotations

import math

import pytest
import torch

from teacher_student.arguments import ArgumentError
from teacher_student.data.scattering import Scattering

SHAPE = (1, 16, 20)


@pytest.fixture(scope="module")
def network():
    return Scattering(SHAPE)


def waves(angle: float, frequency: float) -> torch.Tensor:
    y, x = torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in SHAPE[1:]), indexing="ij")
    return torch.cos(frequency * (math.cos(angle) * x + math.sin(angle) * y))[None, None]


def test_a_constant_image_has_itself_and_no_waves(network):
    found = network(torch.full((1, *SHAPE), 3.0))
    assert found.shape == (1, 81, 4, 5)
    assert torch.allclose(found[:, 0], torch.tensor(3.0), atol=1e-5)
    assert found[:, 1:].abs().max() < 1e-5


@pytest.mark.parametrize("turn", range(8))
def test_a_wave_is_found_by_its_own_angle_and_scale(network, turn):
    for scale in (0, 1):
        image = waves(math.pi * turn / 8, 0.75 * math.pi / 2**scale)
        first = network(image)[0, 1:17].mean(dim=(1, 2))  # eight angles of the fine scale, eight of the coarse one
        assert int(first.argmax()) == 8 * scale + turn


def test_every_second_pixel_is_what_the_definition_says(network):
    """Order 1 of the coarse scale, by convolution on all pixels."""
    image = torch.rand(1, *SHAPE, generator=torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(image, (4,) * 4, mode="reflect")
    maps = torch.fft.ifft2(torch.fft.fft2(padded)[:, :, None] * network.coarse).abs()[..., ::2, ::2]
    by_hand = network.rows_of_half @ maps @ network.columns_of_half.T
    assert torch.allclose(network(image)[:, 9:17], by_hand[:, 0], atol=1e-5)


def test_a_small_shift_moves_features_less_than_pixels(network):
    image = torch.rand(1, *SHAPE, generator=torch.Generator().manual_seed(1))
    image = torch.nn.functional.avg_pool2d(image, 3, 1, 1)
    moved = image.roll(1, dims=-1)
    apart = (network(image) - network(moved)).norm() / network(image).norm()
    assert apart < 0.5 * (image - moved).norm() / image.norm()


@pytest.mark.parametrize("shape", [(28, 28), (1, 30, 28), (1, 4, 28)])
def test_bad_shapes_get_one_line(shape):
    with pytest.raises(ArgumentError, match="shape must be"):
        Scattering(shape)
