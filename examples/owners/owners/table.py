"""Tables: an owner's private records, public points, and the demonstration on UCI Adult. Nothing here knows Flower."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from teacher_student.arguments import ArgumentError


class Table(NamedTuple):
    """An owner's records.

    Attributes:
        features: (n, d) float32, encoded by a public rule that all owners share.
        labels: (n,) class indices.
        ids: (n,) ids that are stored with the records; None if there are none.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    ids: NDArray[np.int64] | None = None

    def rows(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Table:
        """Return some of the records."""
        return Table(self.features[chosen], self.labels[chosen], None if self.ids is None else self.ids[chosen])


def read_table(path: str) -> Table:
    """Read an owner's table: .npz with `features`, `labels` and, for several teachers, `ids`; or .csv of numbers with a header.

    In a .csv the column `label` holds class indices, `id` the ids, and all other columns are features.
    """
    source = Path(path).expanduser()
    if source.suffix == ".npz":
        with np.load(source, allow_pickle=False) as arrays:
            ids = arrays["ids"] if "ids" in arrays.files else None
            return Table(arrays["features"].astype(np.float32), arrays["labels"].astype(np.int64), ids)
    with source.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    cells = np.array(rows, dtype=np.float64).reshape(len(rows), len(head))
    features = [place for place, name in enumerate(head) if name not in {"label", "id"}]
    ids = cells[:, head.index("id")].astype(np.int64) if "id" in head else None
    return Table(cells[:, features].astype(np.float32), cells[:, head.index("label")].astype(np.int64), ids)


def read_points(path: str) -> NDArray[np.float32]:
    """Read public points, shape (n, d), from a .npy file."""
    try:
        points = np.load(Path(path).expanduser(), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"points must be a .npy file of numbers, got {path}: {error}") from error
    if points.ndim != 2 or not points.size or not np.issubdtype(points.dtype, np.number):
        raise ArgumentError(f"points must have the shape (points, features), got {points.shape}")
    return points.astype(np.float32)


def digest(points: NDArray[np.float32]) -> str:
    """Return the SHA-256 of points, with their shape."""
    array = np.ascontiguousarray(points, dtype="<f4")
    return hashlib.sha256(f"{array.shape} ".encode() + array.tobytes()).hexdigest()


def adult_points() -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """Return public points of UCI Adult, and the features and labels of other public people, to measure the student."""
    from teacher_student.data.adult import load_adult

    data = load_adult()
    return data.public_features, data.evaluation_features, data.evaluation_labels


def adult_owner(owner: int, owners: int, skew: float) -> Table:
    """Return one owner's part of UCI Adult's private records.

    Shares of each class are drawn from a Dirichlet distribution, as Hsu, Qi and Brown (2019) do, with a fixed public seed. This
    is a demonstration: in life an owner has its own table.
    """
    from teacher_student.data.adult import load_adult

    data = load_adult()
    return Table(data.private_features, data.private_labels, data.private_ids).rows(
        owner_of_records(data.private_labels, owners, skew) == owner
    )


def owner_of_records(labels: NDArray[np.int64], owners: int, skew: float, seed: int = 0) -> NDArray[np.int64]:
    """Return the owner of each record: for each class, a Dirichlet draw of the owners' shares."""
    generator = np.random.default_rng(seed)
    home = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        shares = generator.dirichlet(np.full(owners, skew))
        home[labels == label] = generator.choice(owners, size=int((labels == label).sum()), p=shares)
    return home
