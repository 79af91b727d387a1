"""Small generated data for tests, demonstrations and experiments about the theorems.

Every generator draws the private, the public and the evaluation points from one distribution, in separate random streams. The
ids count from 0. The first records do not depend on how many follow, so samples of growing size are nested.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from teacher_student.arguments import floats, fraction_of_one, positive_integer, positive_number
from teacher_student.data.dataset import PrivateDataset

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
_LARGEST = 10**7
Draw = Callable[[Generator, Generator, int], tuple[Floats, Integers]]  # points, labels, size -> (size, d), (size,)


def gaussian_blobs(
    num_private: int = 2000,
    num_public: int = 500,
    num_evaluation: int = 500,
    *,
    num_classes: int = 3,
    dimension: int = 2,
    separation: float = 3.0,
    seed: int = 0,
) -> PrivateDataset:
    """One unit Gaussian for each class, the means evenly on a circle of radius `separation` in the first two coordinates."""
    classes = positive_integer("num_classes", num_classes, maximum=_LARGEST)
    dimension = positive_integer("dimension", dimension, minimum=2, maximum=_LARGEST)
    angles = 2 * np.pi * np.arange(classes) / classes
    means = np.zeros((classes, dimension))
    means[:, 0], means[:, 1] = np.cos(angles), np.sin(angles)
    means *= positive_number("separation", separation)

    def draw(points: Generator, labels: Generator, size: int) -> tuple[Floats, Integers]:
        classes_drawn = labels.integers(classes, size=size)
        return means[classes_drawn] + points.normal(size=(size, dimension)), classes_drawn

    return _assemble("gaussian_blobs", draw, (num_private, num_public, num_evaluation), classes, seed)


def thresholds(
    num_private: int = 2000,
    num_public: int = 500,
    num_evaluation: int = 500,
    *,
    threshold: float = 0.5,
    label_noise: float = 0.0,
    seed: int = 0,
) -> PrivateDataset:
    """X uniform on [0, 1], y = 1 iff x > `threshold` (VC dimension 1), each label flipped with probability `label_noise`."""
    threshold = fraction_of_one("threshold", threshold)
    noise = fraction_of_one("label_noise", label_noise)

    def draw(points: Generator, labels: Generator, size: int) -> tuple[Floats, Integers]:
        x = points.random((size, 1))
        return x, ((x[:, 0] > threshold) ^ (labels.random(size) < noise)).astype(np.int64)

    return _assemble("thresholds", draw, (num_private, num_public, num_evaluation), 2, seed)


def halfspaces(
    num_private: int = 2000,
    num_public: int = 500,
    num_evaluation: int = 500,
    *,
    dimension: int = 5,
    label_noise: float = 0.0,
    seed: int = 0,
) -> PrivateDataset:
    """X standard Gaussian, y = 1 iff <x, u> > 0 with u = (1, ..., 1); VC dimension `dimension`.

    Without `label_noise` the class of homogeneous halfspaces is realizable. With it every label is flipped with this
    probability, and the best hypothesis errs exactly that often (agnostic).
    """
    dimension = positive_integer("dimension", dimension, maximum=_LARGEST)
    noise = fraction_of_one("label_noise", label_noise)

    def draw(points: Generator, labels: Generator, size: int) -> tuple[Floats, Integers]:
        x = points.normal(size=(size, dimension))
        return x, ((x.sum(axis=1) > 0) ^ (labels.random(size) < noise)).astype(np.int64)

    return _assemble("halfspaces", draw, (num_private, num_public, num_evaluation), 2, seed)


def low_label_noise(
    num_private: int = 2000, num_public: int = 500, num_evaluation: int = 500, *, gap: float = 1.0, seed: int = 0
) -> PrivateDataset:
    """The paper's example of weak quality (arXiv:1803.05101, after the definition of nu-weak quality).

    x lies outside (-c, c) with c = `gap`; y = sign(x + z) with z ~ N(0, c^2 / 8). The paper leaves the distribution of x open:
    here its sign is fair and |x| uniform on [c, 3c]. The label's probability is `low_label_noise_probability`.
    """
    gap = positive_number("gap", gap)

    def draw(points: Generator, labels: Generator, size: int) -> tuple[Floats, Integers]:
        uniform = points.random((size, 1)) * 2 - 1
        x = np.where(uniform < 0, -1.0, 1.0) * gap * (1 + 2 * np.abs(uniform))
        return x, (x[:, 0] + labels.normal(scale=gap / math.sqrt(8), size=size) > 0).astype(np.int64)

    return _assemble("low_label_noise", draw, (num_private, num_public, num_evaluation), 2, seed)


def low_label_noise_probability(points: Floats, gap: float = 1.0) -> Floats:
    """P(y = 1 | x) of `low_label_noise` for each point: the normal distribution function at sqrt(8) x / c.

    At |x| = c it is 0.0023 from 0 or 1; the paper's tail bound says e^-4 = 0.018.

    >>> low_label_noise_probability(np.array([-1.0, 1.0])).round(4)
    array([0.0023, 0.9977])
    """
    gap, points = positive_number("gap", gap), floats("points", points)
    return np.array([math.erfc(-2 * float(x) / gap) / 2 for x in points.ravel()]).reshape(points.shape)


def _assemble(name: str, draw: Draw, sizes: tuple[int, int, int], num_classes: int, seed: int) -> PrivateDataset:
    names = ("num_private", "num_public", "num_evaluation")
    streams = np.random.SeedSequence(positive_integer("seed", seed, minimum=0)).spawn(6)
    parts = []
    for index, (size_name, size) in enumerate(zip(names, sizes, strict=True)):
        points, labels = (np.random.default_rng(stream) for stream in streams[2 * index : 2 * index + 2])
        parts.append(draw(points, labels, positive_integer(size_name, size, maximum=_LARGEST)))
    (private, private_labels), (public, _), (evaluation, evaluation_labels) = parts
    return PrivateDataset(
        name=name,
        num_classes=num_classes,
        class_names=tuple(str(label) for label in range(num_classes)),
        private_features=private.astype(np.float32),
        private_labels=private_labels,
        private_ids=np.arange(len(private), dtype=np.int64),
        public_features=public.astype(np.float32),
        evaluation_features=evaluation.astype(np.float32),
        evaluation_labels=evaluation_labels,
        feature_names=tuple(f"x{column}" for column in range(1, private.shape[1] + 1)),
    )
