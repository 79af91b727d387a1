"""The public points on which a teacher votes, where each has few votes: those nearest to its own records.

A teacher of a few records has seen a few classes and votes for one of them everywhere. Far from its records its vote carries no
information, and it should abstain (`teacher_student.privacy.noisy_sums` has the cost with `votes_per_teacher`). The choice of
points is a function of the shard's own records and of public points alone, whatever the learner.

Distances are sums over the columns in their order, each from correctly rounded products, so that the distances of a record have
the same bits whatever records stand beside it (see `PublicProjection.apply`).
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import positive_integer

_BLOCK = 64  # records per block: its distances to ten thousand points stay in the cache


def nearest_points(
    features: npt.NDArray[np.float32],
    order: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    points: npt.NDArray[np.float32],
    number: int,
) -> npt.NDArray[np.int64]:
    """Return (num_teachers, number) positions of the points nearest to any record of each shard. Private.

    Args:
        features: (n, ...) of the records; a record that is not finite is infinitely far from every point.
        order: (n,) record positions, shard after shard.
        offsets: (num_teachers + 1,), rising from 0.
        points: (m, ...) public, of the same shape.
        number: how many of them, at most m; the first ones of equally distant points. A shard without records gets some too.

    Raises:
        ArgumentError: more than there are points.
    """
    kept = positive_integer("votes_per_teacher", number, maximum=len(points))
    places = np.ascontiguousarray(points.reshape(len(points), -1).T, dtype=np.float64)
    rows = features.reshape(len(features), -1)
    found = np.empty((len(offsets) - 1, kept), dtype=np.int64)
    for teacher, (first, last) in enumerate(itertools.pairwise(offsets.tolist())):
        nearest = np.full(len(points), np.inf)
        for start in range(first, last, _BLOCK):
            distances = _squared_distances(rows[order[start : min(last, start + _BLOCK)]], places)
            np.minimum(nearest, distances.min(axis=0), out=nearest)
        found[teacher] = np.argsort(nearest, kind="stable")[:kept]
    return found


def _squared_distances(rows: npt.NDArray[np.float32], places: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return (rows, points) squared distances; infinite where a row is not finite."""
    total = np.zeros((len(rows), places.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):  # one private NaN must not show as a warning
        for values, column in zip(rows.T.astype(np.float64), places, strict=True):
            apart = values[:, None] - column
            total += apart * apart
    total[~np.isfinite(total)] = np.inf
    return total
