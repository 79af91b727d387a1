"""Data sets by name: `load("adult", split_seed=3, view=Projection(components=15))`."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import warnings
from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from typing import Any

from teacher_student.arguments import ArgumentError, choice
from teacher_student.data.adult import load_adult
from teacher_student.data.dataset import PrivateDataset
from teacher_student.data.images import SOURCES, check_folders, load_digits, load_image_folder, load_mnist5000, load_torchvision
from teacher_student.data.synthetic import gaussian_blobs, halfspaces, low_label_noise, thresholds
from teacher_student.data.tables import check_tables, load_table
from teacher_student.data.views import LabelsOnly, Loader, View, take_old_keywords

DATASETS: dict[str, Loader] = {
    "adult": load_adult,
    "digits": load_digits,
    "gaussian_blobs": gaussian_blobs,
    "halfspaces": halfspaces,
    "image_folder": load_image_folder,
    "low_label_noise": low_label_noise,
    "mnist5000": load_mnist5000,
    "table": load_table,
    "thresholds": thresholds,
    **{name: partial(load_torchvision, name) for name in SOURCES},
}
"""Loaders by name. A module NAME of this package with a function `load_NAME` needs no entry: it is found when it is asked for."""

_RENAMED = {"csv": "table", "parquet": "table"}

CHECKS: dict[str, Callable[..., None]] = {"load_table": check_tables, "load_image_folder": check_folders}
"""By the loader's name: what can be refused before anything slow is imported or read. Takes some of the loader's arguments."""


def load(name: str, *, view: View | LabelsOnly | None = None, **options: Any) -> PrivateDataset:
    """Return a data set by name.

    Args:
        name: one of `DATASETS`, or of a module as described there.
        view: how teachers and student see the records; None for as they are.
        **options: of the data set's own loader.

    Raises:
        ArgumentError: an unknown name or option, and whatever loader and view refuse.

    >>> load("thresholds", num_private=50, view=LabelsOnly(number=10)).neighbours
    'label_only'
    """
    function = _find(name)
    seen = take_old_keywords(function, options, view)
    loader = partial(function, **options)
    try:
        signature(loader).bind()
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"data options must be those of {name}, got {', '.join(options) or 'none'}: {error}") from error
    return seen.load(loader)


def _find(name: str) -> Loader:
    """Import a module only when its data set is asked for: some import torch, which takes seconds."""
    if isinstance(name, str) and name in _RENAMED:
        warnings.warn(
            f"{name} is now {_RENAMED[name]}; the old name is accepted in this version only", FutureWarning, stacklevel=3
        )
        name = _RENAMED[name]
    package = __name__.rpartition(".")[0]
    if isinstance(name, str) and name.isidentifier() and name not in DATASETS and importlib.util.find_spec(f"{package}.{name}"):
        found: Loader | None = getattr(importlib.import_module(f"{package}.{name}"), f"load_{name}", None)
        if found is not None:
            return found
    return DATASETS[choice("data", name, DATASETS)]


def viewed(loader: Loader) -> Loader:
    """Return the loader with a parameter `view`; in this version it also takes what is now in views (`take_old_keywords`)."""

    @functools.wraps(loader)
    def load_view(*arguments: Any, view: View | LabelsOnly | None = None, **keywords: Any) -> PrivateDataset:
        seen = take_old_keywords(loader, keywords, view)
        return seen.load(partial(loader, *arguments, **keywords))

    own = signature(loader)
    parameter = Parameter("view", Parameter.KEYWORD_ONLY, default=None, annotation=View | LabelsOnly | None)
    load_view.__signature__ = own.replace(parameters=[*own.parameters.values(), parameter])  # type: ignore[attr-defined]
    return load_view


def load_label_private(function: Loader, number: int, seed: int) -> PrivateDataset:
    """Return what `LabelsOnly(number=number, seed=seed).load(function)` does; accepted in this version only."""
    warnings.warn(
        "load_label_private is now LabelsOnly; the old name is accepted in this version only", FutureWarning, stacklevel=2
    )
    return LabelsOnly(number=number, seed=seed).load(function)
