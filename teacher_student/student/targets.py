"""The student's target for each public point, made of what was released about it; and label propagation.

A paid non-answer is information too: the teachers were divided. The paper replaces it with a uniformly random label (section 5.2,
"without loss of generality"); the same statement without the added noise is the uniform soft label. A halted query says nothing,
so its point is always left unlabeled.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, choice, floats, positive_integer, whole_numbers
from teacher_student.labels import ABSTAIN

MOST_CLASSES = 2**15
"""Votes are 16-bit."""

UNANSWERED = ("uniform", "random", "drop", "unlabeled")
"""What a paid non-answer becomes: a soft label of 1/C each; a random label; nothing; an unlabeled point to learn from."""

_FLOOR = 1e-6
"""Weight of a point without a target in propagation: a component of the graph without any target would be singular."""


@dataclasses.dataclass(frozen=True)
class Targets:
    """Soft targets for public points.

    Attributes:
        probabilities: (num_queries, num_classes) float32, rows sum to 1; meaningless where `weights` is 0.
        weights: (num_queries,) float32 weights of the targets; 0 for points without a target.
        unlabeled: (num_queries,) bool, points without a target that a semi-supervised student may still learn from.
    """

    probabilities: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]
    unlabeled: npt.NDArray[np.bool_]

    def __getitem__(self, points: npt.NDArray[np.bool_]) -> Targets:
        """Return the targets of some of the points."""
        return Targets(self.probabilities[points], self.weights[points], self.unlabeled[points])


def targets_from_labels(labels: npt.ArrayLike, num_classes: int, *, unanswered: str = "uniform", seed: int = 0) -> Targets:
    """Turn released labels into targets.

    Args:
        labels: (num_queries,) class index, `ABSTAIN` or `HALTED`.
        num_classes: number of classes, at most `MOST_CLASSES`.
        unanswered: what a paid non-answer becomes, one of `UNANSWERED`.
        seed: for `random`; not secret.

    Raises:
        ArgumentError: too many classes, a label that is not a class, or a release without a single answer.
    """
    labels = whole_numbers("labels", labels)
    positive_integer("seed", seed, minimum=0)
    choice("unanswered", unanswered, UNANSWERED)
    num_classes = positive_integer("num_classes", num_classes, minimum=2, maximum=MOST_CLASSES)
    if labels.ndim != 1 or labels.min(initial=0) < -2 or labels.max(initial=0) >= num_classes:
        raise ArgumentError(f"labels must be class indices below {num_classes}, -1 or -2, in one dimension; got {labels!r:.80}")
    answered, abstained = labels >= 0, labels == ABSTAIN
    if not answered.any():
        raise ArgumentError("labels must hold at least one answer, got none; raise epsilon, the cutoff or the number of teachers")
    probabilities = np.full((len(labels), num_classes), 1 / num_classes, dtype=np.float32)
    _be_certain(probabilities, answered, labels[answered])
    return _targets(probabilities, answered, abstained, unanswered, seed)


def targets_from_scores(
    scores: npt.ArrayLike, *, abstained: npt.ArrayLike | None = None, unanswered: str = "uniform", seed: int = 0
) -> Targets:
    """Turn released soft labels into targets.

    Args:
        scores: (num_queries,) estimated probability of class 1, or (num_queries, num_classes) one-vs-rest; NaN where not
            answered. Classes without an answer share the remainder to 1 equally; each point's scores are then divided by
            their sum. A point without any answer has no target.
        abstained: (num_queries,) bool, points that were paid for and not answered; None for none.
        unanswered: what those become, one of `UNANSWERED`.
        seed: for `random`; not secret.

    Raises:
        ArgumentError: scores outside [0, 1], or a release without a single answer.
    """
    positive_integer("seed", seed, minimum=0)
    with np.errstate(over="ignore"):  # numbers too large for a float32 are refused as infinite below
        table = floats("scores", scores).astype(np.float32)
    choice("unanswered", unanswered, UNANSWERED)
    if table.ndim == 1:
        table = np.stack([np.full_like(table, np.nan), table], axis=1)
    if table.ndim != 2 or table.shape[1] < 2:
        raise ArgumentError(f"scores must have the shape (num_queries,) or (num_queries, num_classes), got {table.shape}")
    known = np.isfinite(table)
    if (known & ((table < 0) | (table > 1))).any() or np.isinf(table).any():
        raise ArgumentError("scores must lie in [0, 1], or be NaN where not answered")
    answered = np.asarray(known.any(axis=1))
    if not answered.any():
        raise ArgumentError("scores must hold at least one answer, got none; raise epsilon or the cutoff, or take fewer bins")
    silent = np.zeros(len(table), dtype=bool) if abstained is None else np.asarray(abstained)
    if silent.dtype != bool or silent.shape != (len(table),):
        raise ArgumentError(f"abstained must be true or false for each of {len(table)} points, got {abstained!r}")
    return _targets(_complete(table, known), answered, silent & ~answered, unanswered, seed)


def _complete(table: npt.NDArray[np.float32], known: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """Give classes without a score equal parts of the remainder to 1, and make each row sum to 1."""
    left = np.maximum(0, 1 - np.where(known, table, 0).sum(1, keepdims=True)) / np.maximum(1, (~known).sum(1, keepdims=True))
    filled = np.where(known, table, left)
    total = filled.sum(1, keepdims=True)
    return np.where(total > 0, filled / np.where(total > 0, total, 1), 1 / table.shape[1]).astype(np.float32)


def _be_certain(probabilities: npt.NDArray[np.float32], points: npt.NDArray[np.bool_], classes: npt.NDArray[np.integer]) -> None:
    """Put all probability of some points on one class each, in place."""
    probabilities[points] = 0
    probabilities[points, classes] = 1


def _targets(
    probabilities: npt.NDArray[np.float32],
    answered: npt.NDArray[np.bool_],
    abstained: npt.NDArray[np.bool_],
    unanswered: str,
    seed: int,
) -> Targets:
    """Treat paid non-answers as `unanswered` says; rows without an answer hold 1 / num_classes everywhere."""
    num_classes = probabilities.shape[1]
    has_target = answered | abstained if unanswered in ("uniform", "random") else answered
    if unanswered == "random":
        guesses = np.random.default_rng(seed).integers(num_classes, size=int(abstained.sum()))
        _be_certain(probabilities, abstained, guesses)
    unlabeled = ~has_target & ~(abstained & (unanswered == "drop"))
    return Targets(probabilities, has_target.astype(np.float32), unlabeled)


def propagate(
    features: npt.NDArray[np.float32], targets: Targets, strength: float, neighbours: int, share: float = 1.0
) -> Targets:
    """Return one-hot targets for points that had one or were unlabeled: the class with the largest propagated score.

    Zhou, Bousquet, Lal, Weston and Schoelkopf, "Learning with Local and Global Consistency", NeurIPS 2003, with one weight for
    each target. Every class's scores f over the points minimise

        sum_i weight_i (f_i - target_i)^2 + strength f^T L f,      L the normalised Laplacian of the nearest neighbours' graph.

    f is linear in the targets, so noise of mean zero keeps mean zero, and shrinks with the number of neighbours that share it:
    noisy shares of votes turn into labels that are mostly right, and points that were not asked get one too.

    Args:
        features: (num_points, *shape) public.
        targets: of the points; any numbers that sum to 1 in a row.
        strength: weight of the neighbours beside a point's own target, above 0.
        neighbours: of each point in the graph; fewer where there are not as many points.
        share: of these points that get a target: those whose largest score leads the second by most, as a share of all their
            scores. The others are unlabeled.
    """
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import splu

    used = np.flatnonzero((targets.weights > 0) | targets.unlabeled)
    weights = targets.weights[used].astype(np.float64) + _FLOOR
    centred = targets.probabilities[used] - 1 / targets.probabilities.shape[1]
    system = diags_array(weights) + strength * _laplacian(features[used], neighbours)
    wanted = np.where(targets.weights[used] > 0, weights, 0.0)[:, np.newaxis] * centred
    scores: npt.NDArray[np.float64] = splu(system.tocsc()).solve(wanted)
    probabilities, learnt = targets.probabilities.copy(), np.zeros(len(features), dtype=np.float32)
    first, second = np.sort(scores, axis=1)[:, :-3:-1].T
    sizes = np.abs(scores).sum(axis=1)
    lead = np.divide(first - second, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    taken = np.argsort(-lead, kind="stable")[: max(1, round(share * len(used)))]
    probabilities[used[taken]] = np.eye(scores.shape[1], dtype=np.float32)[scores[taken].argmax(axis=1)]
    learnt[used[taken]] = 1.0
    unlabeled = np.zeros(len(features), dtype=bool)
    unlabeled[used] = learnt[used] == 0
    return Targets(probabilities, learnt, unlabeled)


def _laplacian(points: npt.NDArray[np.float32], neighbours: int) -> Any:
    """Return the sparse normalised Laplacian; edges weigh exp(-(distance / the median distance)^2)."""
    from scipy.sparse import diags_array
    from sklearn.neighbors import kneighbors_graph

    if len(points) == 1:
        return diags_array([0.0])
    graph = kneighbors_graph(points.reshape(len(points), -1), min(neighbours, len(points) - 1), mode="distance")
    middle = np.median(graph.data)
    graph.data = np.exp(-((graph.data / middle) ** 2)) if middle > 0 else np.ones_like(graph.data)
    graph = graph.maximum(graph.T)
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    root = diags_array(1 / np.sqrt(np.maximum(degrees, np.finfo(float).tiny)))
    return diags_array(np.ones(len(points))) - root @ graph @ root
