"""Views: by shape, of the same shape, each point's own, within the pool's range, and repeatable."""

import numpy as np
import pytest
import torch

from teacher_student.student import Augmentation
from teacher_student.student.augmentations import ImageViews, TableViews, views_of


def image(row: int = 4, column: int = 5) -> torch.Tensor:
    """One bright pixel on black, of nine by nine."""
    pixels = torch.zeros(1, 1, 9, 9)
    pixels[0, 0, row, column] = 1
    return pixels


def test_shape_chooses_the_views():
    assert isinstance(views_of(torch.zeros(5, 3), Augmentation()), TableViews)
    assert isinstance(views_of(torch.zeros(5, 4, 3), Augmentation()), TableViews)
    assert isinstance(views_of(torch.zeros(5, 1, 4, 4), Augmentation()), ImageViews)


@pytest.mark.parametrize("shape", [(40, 6), (40, 4, 3), (40, 1, 8, 8), (40, 3, 6, 9)])
def test_views_have_the_shape_of_the_points_and_follow_the_seed(shape):
    pool = torch.rand(shape)
    views = views_of(pool, Augmentation(shift=1, flip=True, jitter=0.1))
    for view in (views.weak, views.strong):
        torch.manual_seed(0)
        one = view(pool[:7])
        torch.manual_seed(0)
        assert torch.equal(one, view(pool[:7]))
        assert one.shape == pool[:7].shape
        assert torch.isfinite(one).all()
        assert not torch.equal(one, pool[:7])


def test_without_settings_the_weak_view_is_the_point():
    for pool in (torch.rand(5, 3), torch.rand(5, 1, 4, 4)):
        assert views_of(pool, Augmentation()).weak(pool) is pool


def test_weak_images_are_shifted_by_whole_pixels_each_by_its_own():
    torch.manual_seed(0)
    views = views_of(image(), Augmentation(shift=2)).weak(image().expand(500, -1, -1, -1))
    assert torch.allclose(views.amax(dim=(1, 2, 3)), torch.ones(500), atol=1e-4)
    places = views.flatten(1).argmax(1)
    assert set(places.tolist()) == {9 * row + column for row in range(2, 7) for column in range(3, 8)}


def test_mirrored_images_are_mirrored_left_and_right():
    torch.manual_seed(0)
    views = views_of(image(), Augmentation(flip=True)).weak(image(2, 1).expand(200, -1, -1, -1))
    places = views.flatten(1).argmax(1)
    assert set(places.tolist()) == {9 * 2 + 1, 9 * 2 + 7}
    assert 60 < int((places == 9 * 2 + 1).sum()) < 140  # five standard deviations of a fair coin


def test_rotation_keeps_distances_also_where_images_are_not_square():
    pool = torch.zeros(1, 1, 21, 31)
    pool[..., 10, 25] = 1  # ten pixels right of the middle
    settings = Augmentation(rotation=90, contrast=0, cutout=0)
    torch.manual_seed(0)
    views = views_of(pool, settings).strong(pool.expand(100, -1, -1, -1))
    mass = views / views.sum(dim=(2, 3), keepdim=True)
    rows, columns = torch.arange(21.0) - 10, torch.arange(31.0) - 15
    distance = (mass * (rows[:, None] ** 2 + columns[None] ** 2).sqrt()).sum(dim=(1, 2, 3))
    assert torch.allclose(distance[views.sum(dim=(1, 2, 3)) > 0.5], torch.tensor(10.0), atol=0.7)
    assert (mass * columns).sum(dim=(1, 2, 3)).std() > 1


def test_strong_images_stay_in_the_range_and_lose_a_square_to_the_mean():
    pool = torch.rand(50, 1, 10, 10) * 3 - 1
    torch.manual_seed(0)
    views = views_of(pool, Augmentation(contrast=0.5)).strong(pool)
    assert views.min() >= pool.min()
    assert views.max() <= pool.max()
    alone = views_of(pool, Augmentation(rotation=0, contrast=0, cutout=0.5)).strong(pool)
    blanked = torch.isclose(alone, pool.mean(0).expand_as(alone), atol=1e-5).flatten(1).sum(1)
    assert blanked.max() == 25
    assert blanked.min() >= 4  # a corner of the square is always inside


def test_corrupted_rows_hold_other_rows_values_column_by_column():
    pool = torch.stack([torch.arange(100.0), 1000 + torch.arange(100.0)], dim=1)
    torch.manual_seed(0)
    view = views_of(pool, Augmentation(corruption=0.4)).strong(pool)
    assert (view[:, 0] < 100).all()
    assert (view[:, 1] >= 1000).all()
    kept = np.asarray((view == pool).float().mean())
    assert abs(kept - 0.6 - 0.4 / 100) < 5 * np.sqrt(0.24 / 200)  # five standard errors


def test_jitter_is_in_standard_deviations_of_each_column():
    pool = torch.randn(2000, 3) * torch.tensor([1.0, 100.0, 0.0])
    torch.manual_seed(0)
    moved = views_of(pool, Augmentation(jitter=0.5)).weak(pool) - pool
    assert torch.allclose(moved.std(dim=0) / pool.std(dim=0).clamp_min(1), torch.tensor([0.5, 0.5, 0.0]), atol=0.05)
