"""Which public points to ask about next: a function of public features and of the labels that were released before.

Whatever is computed from those two is post-processing, so a good order costs nothing. A session is asked in rounds: a batch is
chosen, answered, a student learns from all labels so far, and its predictions choose the next batch.

| order | the next batch |
|---|---|
| `file` | the points in their order |
| `random` | any points |
| `uncertain` | those on which the student's prediction has the largest entropy (Lewis, Gale 1994) |
| `disagreement` | those on which a committee of students disagrees most |
| `class_balanced` | the classes that the student predicts take turns, at random within a class |
| `half_random` | one half `uncertain`, one half `random` |

Disagreement is the entropy of the mean prediction, less the mean of the entropies; each member of the committee has a seed of its
own and learned from its own resample of the released labels (query by bagging: Abe, Mamitsuka 1998), since students whose loss is
convex would otherwise all be one. The first round of every order except `file` is random: there is no student yet.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, Integers, choice, positive_integer
from teacher_student.student.targets import Targets

ORDERS = ("file", "random", "uncertain", "disagreement", "class_balanced", "half_random")
"""Ways to choose; those from the third on ask a student."""

COMMITTEE = 5
"""Students whose disagreement is looked at."""

Probabilities = npt.NDArray[np.floating]


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuerySettings:
    """Which public points are asked, and how many. All are public constants.

    Attributes:
        order: one of `ORDERS`.
        rounds: batches; for `file` and `random` their number changes nothing.
        total: points asked at most; None for all. Mechanisms that pay for every answer then need less noise for each.
    """

    order: str = "file"
    rounds: int = 1
    total: int | None = None

    def __post_init__(self) -> None:
        choice("queries.order", self.order, ORDERS)
        positive_integer("queries.rounds", self.rounds)
        if self.total is not None:
            positive_integer("queries.total", self.total)

    @property
    def students(self) -> int:
        """How many students the order looks at after each round."""
        return {"file": 0, "random": 0, "disagreement": COMMITTEE}.get(self.order, 1)

    def asked(self, num_points: int) -> int:
        """Return how many of `num_points` public points are asked.

        Raises:
            ArgumentError: more are wanted than there are.
        """
        if self.total is not None and self.total > num_points:
            raise ArgumentError(f"queries.total must be at most the number of public points, {num_points}, got {self.total}")
        return num_points if self.total is None else self.total

    def batches(self, num_points: int) -> list[range]:
        """Return for each round the places in the order of asking that it fills; sizes differ by one at most.

        >>> QuerySettings(order="uncertain", rounds=3, total=8).batches(10)
        [range(0, 3), range(3, 6), range(6, 8)]
        """
        total = self.asked(num_points)
        rounds = min(self.rounds, total) if self.students else 1
        ends = np.cumsum([len(part) for part in np.array_split(np.arange(total), rounds)]).tolist()
        return [range(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]


def next_points(
    order: str, open_points: Integers, size: int, predictions: Probabilities | None, seed: tuple[int, ...]
) -> Integers:
    """Return the points to ask next, best first.

    Args:
        order: one of `ORDERS`.
        open_points: (n,) positions of the public points that were not asked yet, rising.
        size: how many to choose, at most n.
        predictions: (students, n, num_classes) class probabilities on the open points; None if there is no student yet.
        seed: public; chooses where nothing else does.

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
    """Return the targets with each weight times how often its point is drawn, as many draws as targets, with replacement."""
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
