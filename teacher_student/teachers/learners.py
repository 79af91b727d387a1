"""Any learner as a teacher: scikit-learn estimators, gradient boosting, XGBoost-like objects, a user's callable.

A learner is anything with `fit(features, labels)` and `predict(features)`; one is built for every shard and sees that shard
alone. The teacher of a shard with one class votes for that class. A teacher without records, or whose learner fails, abstains,
and the others continue. With several workers a learner may even end its process (a crash in native code, `os._exit`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed

from teacher_student import arguments
from teacher_student.arguments import ArgumentError
from teacher_student.teachers.containment import attempt
from teacher_student.teachers.learner_jobs import (
    Votes,
    build_learner,
    fit_learner,
    has_argument,
    learner_scores,
    learner_votes,
)
from teacher_student.teachers.randomness import shard_seed
from teacher_student.teachers.records import ShardedRecords

_BLOCK = 16_384
_CHUNK = 64


@dataclass(frozen=True)
class LearnerEnsemble:
    """Trained learners, one for each shard; None where a teacher abstains. Private.

    Attributes:
        learners: one for each shard.
        num_classes: number of classes; a vote outside them abstains.
        num_workers: processes.
    """

    learners: Sequence[Any]
    num_classes: int
    num_workers: int = 1

    @property
    def num_teachers(self) -> int:
        """Number of shards."""
        return len(self.learners)

    def abstaining(self) -> npt.NDArray[np.bool_]:
        """Return (num_teachers,) bool: teachers that never vote. Private."""
        return np.array([learner is None for learner in self.learners])

    def predict_votes(self, public_features: Any, *, block: int = _BLOCK) -> Iterator[Votes]:
        """Yield votes (points in the block, num_teachers), of the type of `labels.vote_type`, -1 where a teacher abstains."""
        points = np.asarray(public_features)
        size = arguments.positive_integer("block", block)
        for first in range(0, len(points), size):
            part = points[first : first + size]
            silent = learner_votes(None, part, self.num_classes)
            calls = ((learner, part, self.num_classes) for learner in self.learners)
            yield np.stack(_computed(learner_votes, calls, self.num_workers, silent), axis=1)

    def predict_class_scores(self, public_features: Any, *, chunk: int = _CHUNK) -> Iterator[npt.NDArray[np.float32]]:
        """Yield (teachers of a chunk, points, num_classes) float32: probabilities less 1 / num_classes; 0 where one abstains."""
        points, size = np.asarray(public_features), arguments.positive_integer("chunk", chunk)
        silent = learner_scores(None, points, self.num_classes)
        for first in range(0, self.num_teachers, size):
            calls = ((learner, points, self.num_classes) for learner in self.learners[first : first + size])
            yield np.stack(_computed(learner_scores, calls, self.num_workers, silent))


def _computed(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], num_workers: int, silent: Any) -> list[Any]:
    """Return the results of `function` for all `calls`; `silent` where a call ends its process or its result cannot be sent."""
    results: list[Any] = []
    waiting = iter(calls)
    while group := list(islice(waiting, _CHUNK)):
        together = _in_workers(function, group, num_workers)
        if together is None:  # each call alone, so that only the one at fault fails
            alone = [_in_workers(function, [call], num_workers) for call in group]
            together = [silent if found is None else found[0] for found in alone]
        results += together
    return results


def _in_workers(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], num_workers: int) -> list[Any] | None:
    """Return the results of `function` for all calls; None if a worker fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # joblib warns of workers that grow or end
        return attempt(lambda: list(Parallel(n_jobs=num_workers)(delayed(function)(*call) for call in calls)))


def train_learners(
    features: Any,
    labels: Any,
    order: Any,
    offsets: Any,
    learner: Any,
    *,
    num_classes: int,
    weights: Any = None,
    master_seed: int = 0,
    num_workers: int = 1,
) -> LearnerEnsemble:
    """Train one learner on each shard, in parallel over processes.

    Args:
        features: (n, ...), uint8 or floating point. Private.
        labels: (n,) classes. Private.
        order: (n,) record positions, shard after shard.
        offsets: (num_teachers + 1,), rising from 0.
        learner: a scikit-learn estimator (copied, never fitted itself), or a callable that builds a learner; a callable with an
            argument named `seed` gets the teacher's seed, and a `random_state` parameter is set to it.
        num_classes: number of classes, public.
        weights: (n,) weights of the records, each from its own record and public values alone, for learners whose `fit` takes
            `sample_weight`; None for 1 each. Private.
        master_seed: every teacher's seed is a keyed hash of it and the shard's index.
        num_workers: processes; -1 for all cores. The result does not depend on it.

    Raises:
        ArgumentError: bad records, or an object that is not a learner.
    """
    classes = arguments.positive_integer("num_classes", num_classes, minimum=2)
    seed = arguments.positive_integer("master_seed", master_seed, minimum=0)
    records = ShardedRecords.of(features, labels, order, offsets, weights)
    check_learner(learner, weighted=records.weights is not None)
    flat, classes_of, rows = records.features.numpy(), records.labels.numpy(), records.order.numpy()
    counts = None if records.weights is None else records.weights.numpy()

    def job(shard: int, mine: npt.NDArray[np.int64]) -> tuple[Any, ...]:
        drawn = shard_seed(seed, shard, "learner")
        return learner, flat[mine], classes_of[mine], classes, drawn, None if counts is None else counts[mine]

    calls = (job(shard, rows[low:high]) for shard, (low, high) in enumerate(pairwise(records.offsets.tolist())))
    nobody = (learner, flat[:0], classes_of[:0], classes, 0)
    if _in_workers(fit_learner, [nobody], num_workers) is None:
        raise ArgumentError(
            f"learner must be such that worker processes can load it, got {type(learner).__name__}; or set num_workers to 1"
        )
    return LearnerEnsemble(_computed(fit_learner, calls, num_workers, None), classes, num_workers)


def check_learner(learner: Any, *, weighted: bool = False) -> None:
    """Build a learner without records, and refuse what is not one.

    Raises:
        ArgumentError: an object that is not a learner, or that does not take weights where records are weighted.
    """
    try:
        built = build_learner(learner, 0)
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ArgumentError(f"learner must build without records, but: {reason}") from error
    if not (callable(getattr(built, "fit", None)) and callable(getattr(built, "predict", None))):
        raise ArgumentError(f"learner must have, or build something with, fit and predict; got {type(built).__name__}")
    if weighted and not has_argument(built.fit, "sample_weight"):
        raise ArgumentError(f"learner must take sample_weight in fit where records are weighted, got {type(built).__name__}")
