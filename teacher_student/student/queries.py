"""Active queries: which public points to ask about next, as a function of public features and of labels released before.

Any function of those two is post-processing, so a good order costs nothing. A session is asked in rounds: a batch is chosen and
answered, a student learns from all labels so far, and its predictions choose the next batch.

| order | the next batch |
|---|---|
| `file` | points in the order of the file |
| `representative` | for each of `total` clusters of the public points the one nearest to its centre (k-means) |
| `random` | random points |
| `uncertain` | points on which the student's prediction has the largest entropy (Lewis, Gale 1994) |
| `disagreement` | points on which a committee of students disagrees most |
| `class_balanced` | predicted classes in turn, at random within a class |
| `half_random` | one half `uncertain`, one half `random` |

Disagreement is the entropy of the mean prediction, less the mean of the entropies. Each member of the committee has its own seed
and its own resample of the released labels (query by bagging: Abe, Mamitsuka 1998): students with a convex loss would otherwise
be equal. The first round of every order except `file` is random, since there is no student yet.
"""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, Integers, choice, positive_integer
from teacher_student.student.targets import Targets

WITHOUT_STUDENT = ("file", "random", "representative")
"""Orders that need no student."""

ORDERS = (*WITHOUT_STUDENT, "uncertain", "disagreement", "class_balanced", "half_random")

COMMITTEE = 5
"""Students in the committee of `disagreement`."""

Probabilities = npt.NDArray[np.floating]


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuerySettings:
    """Which public points are asked, and how many. All are public constants.

    Attributes:
        order: one of `ORDERS`.
        rounds: number of batches; without effect for `file` and `random`.
        total: number of points that are asked; None for all. With fewer, mechanisms that pay for every answer need less noise.
    """

    order: str = "file"
    rounds: int = 1
    total: int | None = None

    def __post_init__(self) -> None:
        choice("queries.order", self.order, ORDERS)
        positive_integer("queries.rounds", self.rounds)
        if self.total is not None:
            positive_integer("queries.total", self.total)
        elif self.order == "representative":
            raise ArgumentError("queries.total must be given for queries.order=representative, got null")

    @property
    def students(self) -> int:
        """Number of students that the order needs after each round."""
        return 0 if self.order in WITHOUT_STUDENT else COMMITTEE if self.order == "disagreement" else 1

    def asked(self, num_points: int) -> int:
        """Return the number of points that are asked, of `num_points` public ones.

        Raises:
            ArgumentError: more are wanted than there are.
        """
        if self.total is not None and self.total > num_points:
            raise ArgumentError(f"queries.total must be at most the number of public points, {num_points}, got {self.total}")
        return num_points if self.total is None else self.total

    def batches(self, num_points: int) -> list[range]:
        """Return each round's places in the order of asking; sizes differ by at most one.

        >>> QuerySettings(order="uncertain", rounds=3, total=8).batches(10)
        [range(0, 3), range(3, 6), range(6, 8)]
        """
        total = self.asked(num_points)
        rounds = min(self.rounds, total) if self.students else 1
        ends = np.cumsum([len(part) for part in np.array_split(np.arange(total), rounds)]).tolist()
        return [range(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]


def representatives(points: npt.NDArray[np.float32], number: int, seed: int) -> Integers:
    """Return (number,) positions of public points, (m, ...), that stand for all: one for each cluster of k-means.

    Larger clusters come first. The result is a function of the arguments: one thread, and a generator of its own.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    rows = points.reshape(len(points), -1).astype(np.float64)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal points leave clusters empty
        clusters = KMeans(number, n_init=1, random_state=seed).fit(rows)
    apart = ((rows - clusters.cluster_centers_[clusters.labels_]) ** 2).sum(axis=1)
    first = np.lexsort((apart, clusters.labels_))  # cluster by cluster, the nearest to the centre first
    found, starts, sizes = np.unique(clusters.labels_[first], return_index=True, return_counts=True)
    missing = np.setdiff1d(np.arange(len(rows)), first[starts])[: number - len(found)]
    return np.concatenate([first[starts][np.argsort(-sizes, kind="stable")], missing]).astype(np.int64)


def next_points(
    order: str, open_points: Integers, size: int, predictions: Probabilities | None, seed: tuple[int, ...]
) -> Integers:
    """Return the points to ask next, best first.

    Args:
        order: one of `ORDERS`.
        open_points: (n,) positions of the public points that were not asked yet, rising.
        size: number of points to choose, at most n.
        predictions: (students, n, num_classes) class probabilities on the open points; None if there is no student yet.
        seed: public; orders equal points.

    Returns:
        (size,) int64 positions.
    """
    if order == "file":
        return open_points[:size]
    shuffled = np.random.default_rng(seed).permutation(len(open_points))
    if order == "random" or predictions is None:
        return open_points[shuffled[:size]]
    ranked = _ranked(order, predictions, shuffled)
    if order == "half_random":
        first = ranked[: (size + 1) // 2]
        others = shuffled[~np.isin(shuffled, first)]
        return open_points[np.concatenate([first, others[: size - len(first)]])]
    return open_points[ranked[:size]]


def resample(targets: Targets, seed: tuple[int, ...]) -> Targets:
    """Return a bootstrap resample: each weight times the number of draws of its point, as many draws as targets."""
    drawn = np.zeros(len(targets.weights), dtype=np.float32)
    points = np.flatnonzero(targets.weights > 0)
    np.add.at(drawn, np.random.default_rng(seed).choice(points, len(points)), 1)
    return dataclasses.replace(targets, weights=targets.weights * drawn)


def _ranked(order: str, predictions: Probabilities, shuffled: Integers) -> Integers:
    """Return the places of all open points, best first; equal ones in shuffled order."""
    if order == "class_balanced":
        return shuffled[_turns(predictions[0].argmax(1)[shuffled])]
    worth = _entropy(predictions.mean(0))
    if order == "disagreement":
        worth -= _entropy(predictions).mean(0)
    return shuffled[np.argsort(-worth[shuffled], kind="stable")]


def _turns(classes: Integers) -> Integers:
    """Return the order in which the classes take turns: all first points of a class, then all second ones, and so on.

    >>> _turns(np.array([1, 1, 1, 0, 0])).tolist()
    [3, 0, 4, 1, 2]
    """
    turn = np.empty(len(classes), dtype=np.int64)
    for label in np.unique(classes):
        turn[classes == label] = np.arange((classes == label).sum())
    return np.lexsort((classes, turn))


def _entropy(probabilities: Probabilities) -> npt.NDArray[np.float64]:
    sure = np.maximum(np.asarray(probabilities, dtype=np.float64), 1e-12)
    return np.asarray(-(sure * np.log(sure)).sum(-1))
