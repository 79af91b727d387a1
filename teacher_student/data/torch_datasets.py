"""Any torch Dataset, read once into arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, listed
from teacher_student.data.dataset import PrivateDataset


def from_torch(
    private: Any,
    public: Any,
    evaluation: Any = None,
    *,
    class_names: Sequence[str],
    ids: npt.ArrayLike | None = None,
    users: npt.ArrayLike | None = None,
    name: str = "torch",
) -> PrivateDataset:
    """Return a dataset from map-style torch Datasets (anything with `len` and `[i]`).

    Args:
        private: items are (features, label); the transforms must treat each record by itself.
        public: items are features or (features, anything); the second part is not used.
        evaluation: as `private`, or None.
        class_names: the public class list.
        ids: (n,) ids stored with the records; None means `replace_one`, because a position is not an id.
        users: (n,) the owner of each record, or None.
        name: for reports.

    Raises:
        ArgumentError: items of another form, and whatever `PrivateDataset` refuses.
    """
    names = listed("class_names", class_names)
    features, labels = _labelled("private", private)
    held_out = (None, None) if evaluation is None else _labelled("evaluation", evaluation)
    queries = [item[0] if isinstance(item, tuple | list) else item for item in _items(public)]
    return PrivateDataset(
        name=name,
        num_classes=len(names),
        class_names=names,
        private_features=features,
        private_labels=labels,
        private_ids=None if ids is None else np.asarray(ids),
        public_features=_stack("public", queries),
        evaluation_features=held_out[0],
        evaluation_labels=held_out[1],
        private_users=None if users is None else np.asarray(users),
    )


def _items(dataset: Any) -> list[Any]:
    return [dataset[index] for index in range(len(dataset))]


def _stack(argument: str, rows: list[Any]) -> npt.NDArray[np.float32]:
    try:
        return np.stack([np.asarray(row, dtype=np.float32) for row in rows])
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{argument} must yield features of one shape, got {error}") from error


def _labelled(argument: str, dataset: Any) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    items = _items(dataset)
    if not all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
        raise ArgumentError(f"{argument} must yield pairs (features, label), got other items")
    try:
        labels = np.array([int(label) for _, label in items], dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{argument} must yield integer labels, got {error}") from error
    return _stack(argument, [features for features, _ in items]), labels
