"""What the student is asked to say about each public point, from what was released about it.

A paid non-answer is information too: it says that the teachers were divided. The paper replaces it with a uniformly random
label (section 5.2, "without loss of generality"); the same statement without the added noise is the uniform soft label.
A halted query says nothing, so its point is always left unlabeled.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, choice, positive_integer
from teacher_student.labels import ABSTAIN

UNANSWERED = ("uniform", "random", "drop", "unlabeled")
"""What a paid non-answer becomes: a soft label of 1/C each; a random label; nothing; an unlabeled point to learn from."""


@dataclasses.dataclass(frozen=True)
class Targets:
    """Soft targets for public points.

    Attributes:
        probabilities: (num_queries, num_classes) float32, rows sum to 1; meaningless where `weights` is 0.
        weights: (num_queries,) float32, how much a point's target counts; 0 for points without a target.
        unlabeled: (num_queries,) bool, points without a target that a semi-supervised student may still learn from.
    """

    probabilities: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]
    unlabeled: npt.NDArray[np.bool_]


def targets_from_labels(labels: npt.ArrayLike, num_classes: int, *, unanswered: str = "uniform", seed: int = 0) -> Targets:
    """Turn released labels into targets.

    Args:
        labels: (num_queries,) class index, `ABSTAIN` or `HALTED`.
        num_classes: number of classes.
        unanswered: one of `UNANSWERED`, what a paid non-answer becomes.
        seed: for `random`; post-processing needs no secret randomness.

    Raises:
        ArgumentError: a label that is no class, or a release without a single answer.
    """
    labels = np.asarray(labels)
    choice("unanswered", unanswered, UNANSWERED)
    positive_integer("num_classes", num_classes, minimum=2)
    if (
        labels.ndim != 1
        or not np.issubdtype(labels.dtype, np.integer)
        or labels.min(initial=0) < -2
        or labels.max(initial=0) >= num_classes
    ):
        raise ArgumentError(f"labels must be class indices below {num_classes}, -1 or -2, in one dimension; got {labels!r:.80}")
    answered, abstained = labels >= 0, labels == ABSTAIN
    if not answered.any():
        raise ArgumentError("labels must hold at least one answer, got none; raise epsilon, the cutoff or the number of teachers")
    probabilities = np.full((len(labels), num_classes), 1 / num_classes, dtype=np.float32)
    probabilities[answered] = np.eye(num_classes, dtype=np.float32)[labels[answered]]
    has_target = answered | abstained if unanswered in ("uniform", "random") else answered
    if unanswered == "random":
        guesses = np.random.default_rng(seed).integers(num_classes, size=int(abstained.sum()))
        probabilities[abstained] = np.eye(num_classes, dtype=np.float32)[guesses]
    unlabeled = ~has_target & ~(abstained & (unanswered == "drop"))
    return Targets(probabilities, has_target.astype(np.float32), unlabeled)


def targets_from_scores(scores: npt.ArrayLike) -> Targets:
    """Turn released soft labels of a binary problem into targets.

    Args:
        scores: (num_queries,) estimated probability of class 1, NaN where not answered (those points stay unlabeled).
    """
    scores = np.asarray(scores, dtype=np.float32)
    answered = np.isfinite(scores)
    if scores.ndim != 1 or not answered.any():
        raise ArgumentError("scores must hold at least one answer in one dimension; raise epsilon, the cutoff or the bin width")
    filled = np.where(answered, scores, np.float32(0.5))
    return Targets(np.stack([1 - filled, filled], axis=1), answered.astype(np.float32), ~answered)
