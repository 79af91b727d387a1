"""Any torch Dataset, read once into arrays."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from teacher_student.arguments import ArgumentError, listed
from teacher_student.data.dataset import UNUSABLE, Features, Labels, PrivateDataset, evaluation_is_public


def from_torch(
    private: Any,
    public: Any,
    evaluation: Any = None,
    *,
    class_names: Sequence[str],
    ids: Any = None,
    users: Any = None,
    evaluation_public: bool | None = None,
    name: str = "torch",
) -> PrivateDataset:
    """Return a dataset from map-style torch Datasets (anything with `len` and `[i]`).

    Args:
        private: items are (features, label); the transforms must treat each record by itself. Features that cannot be read, or
            whose shape is not that of the public ones, are NaN; a record without an integer label has no teacher.
        public: items are features or (features, anything); the second part is not used.
        evaluation: as `private`, or None.
        class_names: the public class list.
        ids: (n,) ids stored with the records; None means `replace_one`, because a position is not an id.
        users: (n,) the owner of each record, or None.
        evaluation_public: whether figures on the evaluation set may be published; must be said if there is one.
        name: for reports.

    Raises:
        ArgumentError: public items of another form, and whatever `PrivateDataset` refuses.
    """
    names = listed("class_names", class_names)
    evaluation_public = evaluation_is_public(evaluation, evaluation_public)
    items = [public[index] for index in range(len(public))]
    queries = _stack("public", [item[0] if isinstance(item, tuple | list) else item for item in items])
    features, labels = _private(private, queries.shape[1:])
    held_out: tuple[Features | None, Labels | None] = (None, None)
    if evaluation is not None:
        held_out = _labelled("evaluation", evaluation) if evaluation_public else _private(evaluation, queries.shape[1:])
    return PrivateDataset(
        name=name,
        num_classes=len(names),
        class_names=names,
        private_features=features,
        private_labels=labels,
        private_ids=ids,
        public_features=queries,
        evaluation_features=held_out[0],
        evaluation_labels=held_out[1],
        private_users=users,
        evaluation_public=evaluation_public,
    )


def _private(dataset: Any, shape: tuple[int, ...]) -> tuple[Features, Labels]:
    """Return features and labels of items that may be anything: none of them may stop the run or warn."""
    number = len(dataset)
    features, labels = np.full((number, *shape), np.nan, dtype=np.float32), np.full(number, UNUSABLE, dtype=np.int64)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for row in range(number):
            with contextlib.suppress(Exception):
                found, label = dataset[row]
                labels[row] = int(label)
                array = np.asarray(found, dtype=np.float32)
                if array.shape == shape:  # assigning would broadcast another one
                    features[row] = array
    return features, labels


def _stack(argument: str, rows: list[Any]) -> Features:
    try:
        return np.stack([np.asarray(row, dtype=np.float32) for row in rows])
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{argument} must yield features of one shape, got {error}") from error


def _labelled(argument: str, dataset: Any) -> tuple[Features, Labels]:
    items = [dataset[index] for index in range(len(dataset))]
    if not all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
        raise ArgumentError(f"{argument} must yield pairs (features, label), got other items")
    try:
        labels = np.array([int(label) for _, label in items], dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{argument} must yield integer labels, got {error}") from error
    return _stack(argument, [features for features, _ in items]), labels
