"""Datasets by name, for configs: `load("adult", split_seed=3)`."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

from teacher_student.arguments import ArgumentError, choice, positive_integer
from teacher_student.data.adult import load_adult
from teacher_student.data.dataset import PrivateDataset
from teacher_student.data.image_folder import check_folders, load_image_folder
from teacher_student.data.splits import public_split
from teacher_student.data.synthetic import gaussian_blobs, halfspaces, low_label_noise, thresholds
from teacher_student.data.tabular import check_tables, load_table
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
"""By name. A module NAME of this package with a function `load_NAME` needs no entry: it is found when it is asked for."""

CHECKS: dict[Callable[..., PrivateDataset], Callable[..., None]] = {load_table: check_tables, load_image_folder: check_folders}
"""What can be refused before anything is imported or read that takes time; it takes some of the function's own arguments."""


def load(name: str, *, label_private: int | None = None, label_private_seed: int = 0, **options: Any) -> PrivateDataset:
    """Return a dataset by name.

    Args:
        name: one of `DATASETS`, or of a module as described there.
        label_private: for any dataset: drop its public points and query this many of the training records instead, stripped of
            their labels. The neighbours are then `label_only`.
        label_private_seed: public; chooses those records.
        **options: of the dataset's own function.

    Raises:
        ArgumentError: an unknown name or option, and whatever the function refuses.

    >>> load("thresholds", num_private=50, label_private=10).neighbours
    'label_only'
    """
    function = partial(_find(name), **options)
    try:
        signature(function).bind()
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"data options must be those of {name}, got {', '.join(options) or 'none'}: {error}") from error
    return function() if label_private is None else load_label_private(function, label_private, label_private_seed)


def _find(name: str) -> Callable[..., PrivateDataset]:
    """Import a module only when its dataset is asked for: some import torch, which takes seconds."""
    if isinstance(name, str) and name.isidentifier() and name not in DATASETS:
        package = __name__.rpartition(".")[0]
        if importlib.util.find_spec(f"{package}.{name}") is not None:
            found: Callable[..., PrivateDataset] | None = getattr(
                importlib.import_module(f"{package}.{name}"), f"load_{name}", None
            )
            if found is not None:
                return found
    return DATASETS[choice("data", name, DATASETS)]


def load_label_private(function: Callable[..., PrivateDataset], number: int, seed: int) -> PrivateDataset:
    """Return a dataset without public points: `number` of its training records, stripped of their labels, are the queries.

    Features, their number and their order are then public, and the neighbours are `label_only`: one label changes.

    Args:
        function: loads the data when called without arguments. One that takes `label_private` itself, because its data may come
            without any public points, is given it.
        number: of queries, fewer than there are records.
        seed: public; chooses them.
    """
    if "label_private" in signature(function).parameters:
        return function(label_private=number, split_seed=seed)
    dataset = function()
    last = len(dataset.private_features) - 1
    rows, _ = public_split(last + 1, positive_integer("label_private", number, maximum=last), seed)
    return dataset.label_private(rows)
