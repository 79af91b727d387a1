"""Datasets by name, for configs: `load("adult", split_seed=3)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from teacher_student.arguments import ArgumentError, choice
from teacher_student.data.adult import load_adult
from teacher_student.data.dataset import PrivateDataset
from teacher_student.data.image_folder import load_image_folder
from teacher_student.data.splits import public_split
from teacher_student.data.synthetic import gaussian_blobs, halfspaces, low_label_noise, thresholds
from teacher_student.data.tabular import load_table
from teacher_student.data.vision import SOURCES, load_digits, load_mnist5000, load_torchvision

DATASETS: dict[str, Callable[..., PrivateDataset]] = {
    "adult": load_adult,
    "csv": load_table,
    "digits": load_digits,
    "gaussian_blobs": gaussian_blobs,
    "halfspaces": halfspaces,
    "image_folder": load_image_folder,
    "low_label_noise": low_label_noise,
    "mnist5000": load_mnist5000,
    "parquet": load_table,
    "thresholds": thresholds,
    **{name: partial(load_torchvision, name) for name in SOURCES},
}


def load(name: str, *, label_private: int | None = None, label_private_seed: int = 0, **options: Any) -> PrivateDataset:
    """Return a dataset by name.

    Args:
        name: one of `DATASETS`.
        label_private: for any dataset: drop its public points and query this many of the training records instead, stripped of
            their labels. The neighbours are then `label_only`.
        label_private_seed: public; chooses those records.
        **options: of the dataset's own function.

    Raises:
        ArgumentError: an unknown name or option, and whatever the function refuses.

    >>> load("thresholds", num_private=50, label_private=10).neighbours
    'label_only'
    """
    function = DATASETS[choice("data", name, DATASETS)]
    if function is load_table and label_private is not None:
        return load_table(**options, label_private=label_private, split_seed=label_private_seed)
    try:
        dataset = function(**options)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # from inside the function: a fault of ours, not of the options
        raise ArgumentError(f"data options must be those of {name}, got {', '.join(options) or 'none'}: {error}") from error
    if label_private is None:
        return dataset
    rows, _ = public_split(len(dataset.private_features), label_private, label_private_seed)
    return dataset.label_private(rows)
