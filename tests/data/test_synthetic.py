from __future__ import annotations

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.data import (
    gaussian_blobs,
    halfspaces,
    low_label_noise,
    low_label_noise_probability,
    thresholds,
)

GENERATORS = [gaussian_blobs, thresholds, halfspaces, low_label_noise]


@pytest.mark.parametrize("generate", GENERATORS)
def test_generators_are_seeded_and_nested(generate):
    data, again, other = generate(200, 50, 30), generate(200, 50, 30), generate(200, 50, 30, seed=1)
    assert (data.private_features == again.private_features).all()
    assert not (data.private_features == other.private_features).any(axis=1).all()
    assert (len(data.private_features), len(data.public_features), len(data.evaluation_labels)) == (200, 50, 30)
    larger = generate(300, 50, 30)
    assert (larger.private_features[:200] == data.private_features).all()
    assert (larger.private_labels[:200] == data.private_labels).all()
    assert (larger.public_features == data.public_features).all()
    assert data.neighbours == "add_remove"
    for name, sizes in (("num_private", (0, 1, 1)), ("num_public", (1, 0, 1)), ("num_evaluation", (1, 1, 0))):
        with pytest.raises(ArgumentError, match=f"{name} must be an integer from 1 to"):
            generate(*sizes)


def test_blobs_lie_around_their_means():
    data = gaussian_blobs(30_000, num_classes=4, dimension=3, separation=10.0)
    for label, mean in enumerate([(10, 0, 0), (0, 10, 0), (-10, 0, 0), (0, -10, 0)]):
        own = data.private_features[data.private_labels == label]
        assert np.allclose(own.mean(axis=0), mean, atol=0.08)  # 6 standard errors are 0.07
        assert np.allclose(own.std(axis=0), 1, atol=0.05)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_label_noise_is_the_error_of_the_best_hypothesis(noise):
    data = thresholds(20_000, threshold=0.3, label_noise=noise)
    wrong = ((data.private_features[:, 0] > np.float32(0.3)) != data.private_labels).mean()
    assert wrong == pytest.approx(noise, abs=6 * np.sqrt(noise / 20_000))
    data = halfspaces(20_000, dimension=7, label_noise=noise)
    assert data.private_features.shape == (20_000, 7)
    wrong = ((data.private_features.astype(np.float64).sum(axis=1) > 0) != data.private_labels).mean()
    assert wrong == pytest.approx(noise, abs=1e-3 + 6 * np.sqrt(noise / 20_000))


@pytest.mark.parametrize("gap", [0.5, 1.0, 4.0])
def test_the_papers_example(gap):
    data = low_label_noise(40_000, gap=gap)
    x = data.private_features[:, 0].astype(np.float64)
    assert (np.abs(x) >= gap * 0.999999).all()
    assert (np.abs(x) <= 3 * gap * 1.000001).all()
    probability = low_label_noise_probability(x, gap)
    bound = np.exp(-4 * x * x / (gap * gap))  # the paper's: p(y = 1 | x) > 1 - bound right of c, < bound left of -c
    assert (np.where(x > 0, 1 - probability, probability) < bound).all()
    wrong = ((x > 0) != data.private_labels).sum()
    expected = np.minimum(probability, 1 - probability).sum()
    assert abs(wrong - expected) < 6 * np.sqrt(expected)
    edge = np.abs(x) < 1.1 * gap  # where labels are noisiest, the noise is that of the formula
    share = np.minimum(probability, 1 - probability)[edge].sum()
    assert abs(((x > 0) != data.private_labels)[edge].sum() - share) < 6 * np.sqrt(share)
