"""Record voters: every private record votes with its own label on the public points nearest to it.

There is nothing to train. A voter is one person (one id). If a person has several records, the nearest of them casts the vote, so
a person has at most one vote on a point and at most `votes` votes in all. On every other point the voter abstains. Private-kNN
(Zhu, Yu, Chandraker, Wang, CVPR 2020) has the same voters with another mechanism.

A person's votes depend on that person's records and on public points alone, to the last bit. Features are first rounded to a
public grid of integers. Squared distances are then integers below 2^24, which float32 matrix products compute exactly in any
order of summation, so neither the batch nor the BLAS library can change a vote. Of points at the same distance, the first one
counts as nearer.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teacher_student.arguments import ArgumentError, Integers, positive_integer

EXACT = 2**24
"""Integers up to this are exact in float32."""

_FINEST = 255
_BLOCK_CELLS = 2**23
"""Distances computed at a time: 32 MB."""
_QUANTILE = 0.999
"""Share of the public values that the grid covers; values outside are moved to its edge."""


@dataclasses.dataclass(frozen=True, eq=False)
class IntegerGrid:
    """A public map from features to small integers, the same step in every column.

    Attributes:
        center: (num_features,) float32, subtracted first.
        step: width of a cell.
        largest: integers lie between -largest and largest; 3 * num_features * largest^2 is below 2^24.
    """

    center: npt.NDArray[np.float32]
    step: np.float32
    largest: int

    @classmethod
    def fit(cls, points: npt.NDArray[np.float32]) -> IntegerGrid:
        """Return the finest grid for public points, shape (num_points, ...), on which distances are exact in float32.

        Raises:
            ArgumentError: more features than distances can be exact for.
        """
        rows = points.reshape(len(points), -1)
        largest = min(_FINEST, math.isqrt((EXACT - 1) // (3 * rows.shape[1])))
        if largest < 1:
            raise ArgumentError(f"features must be at most {EXACT // 3} numbers, got {rows.shape[1]}")
        center = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
        reach = float(np.quantile(np.abs(rows - center), _QUANTILE))
        return cls(center, np.float32(reach / largest if reach > 0 else 1.0), largest)

    def apply(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return (n, num_features) whole numbers as float32; a row that is not finite becomes NaN.

        Every number is subtracted, divided and rounded by itself, so a row does not depend on the others.
        """
        rows = features.reshape(len(features), -1)
        with np.errstate(over="ignore", invalid="ignore"):  # one private infinity must not show as a warning
            cells = np.clip(np.rint((rows - self.center) / self.step), -self.largest, self.largest)
        return np.where(np.isfinite(rows), cells, np.float32(np.nan)).astype(np.float32, copy=False)


def vote_of_records(
    features: npt.NDArray[np.float32],
    labels: Integers,
    points: npt.NDArray[np.float32],
    votes: int,
    *,
    num_classes: int,
    ids: npt.NDArray[np.generic] | None = None,
) -> Integers:
    """Return (num_points, num_classes) vote counts: each person votes on the `votes` public points nearest to a record of theirs.

    Args:
        features: (n, ...) of the private records. A record that is not finite casts no vote.
        labels: (n,) int64; a record whose label is not in [0, num_classes) casts no vote.
        points: (num_points, ...) public and finite, of the same shape.
        votes: points on which a person votes, B; at most num_points.
        num_classes: size of the public label set.
        ids: (n,) the person of each record; None for one record each.

    Raises:
        ArgumentError: more votes than points.
    """
    number = positive_integer("votes", votes, maximum=len(points))
    grid = IntegerGrid.fit(points)
    places = torch.from_numpy(grid.apply(points))
    squares = (places * places).sum(dim=1)
    counts = np.zeros((len(points), positive_integer("num_classes", num_classes)), dtype=np.int64)
    single, several = persons(len(features), ids)
    size = max(1, _BLOCK_CELLS // len(points))
    for start in range(0, len(single), size):
        rows = single[start : start + size]
        records = grid.apply(features[rows])
        usable = np.isfinite(records).all(axis=1) & (labels[rows] >= 0) & (labels[rows] < num_classes)
        if usable.any():
            near = _nearest(_distances(torch.from_numpy(records[usable]), places, squares), number).numpy()
            np.add.at(counts, (near.ravel(), np.repeat(labels[rows][usable], number)), 1)
    for rows in several:
        _vote_of_person(counts, grid.apply(features[rows]), labels[rows], places, squares, number)
    return counts


def persons(length: int, ids: npt.NDArray[np.generic] | None) -> tuple[Integers, list[Integers]]:
    """Return the rows of persons with one record, and for each other person their rows."""
    if ids is None:
        return np.arange(length, dtype=np.int64), []
    _, person, records = np.unique(ids, return_inverse=True, return_counts=True)
    alone = records[person] == 1
    order = np.argsort(person, kind="stable")
    groups = np.split(order, np.cumsum(records)[:-1]) if length else []
    return np.flatnonzero(alone), [rows for rows in groups if len(rows) > 1]


def _distances(records: Tensor, places: Tensor, squares: Tensor) -> Tensor:
    """Return (records, points): squared distance less the record's own square, exact."""
    return torch.addmm(squares, records, places.T, alpha=-2)


def _nearest(distances: Tensor, number: int) -> Tensor:
    """Return (records, number) columns of the smallest distances; of equal ones the first columns."""
    points = distances.shape[1]
    if number == points:
        return torch.arange(points).expand(len(distances), points)
    values, columns = torch.topk(distances, number + 1, dim=1, largest=False)
    tied = torch.nonzero(values[:, number - 1] == values[:, number]).ravel()  # topk may take any of equal values
    found = columns[:, :number].clone()
    if len(tied):
        found[tied] = torch.argsort(distances[tied], dim=1, stable=True)[:, :number]
    return found


def _vote_of_person(
    counts: Integers, records: npt.NDArray[np.float32], labels: Integers, places: Tensor, squares: Tensor, number: int
) -> None:
    """Add one person's votes: on the points nearest to any of their records, each with the label of the nearest record."""
    usable = np.isfinite(records).all(axis=1) & (labels >= 0) & (labels < counts.shape[1])
    if not usable.any():
        return
    own = torch.from_numpy(records[usable])
    distances = _distances(own, places, squares).double() + (own * own).sum(dim=1, dtype=torch.float64)[:, None]
    nearest = distances.amin(dim=0)
    record = (distances == nearest).to(torch.int8).argmax(dim=0)  # of equally near records the first one
    chosen = torch.argsort(nearest, stable=True)[:number].numpy()
    np.add.at(counts, (chosen, labels[usable][record.numpy()[chosen]]), 1)
