"""The jobs of a worker process for one shard: build, fit, vote. No torch is imported, so that workers start quickly."""

from __future__ import annotations

import contextlib
import copy
import inspect
import multiprocessing
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.labels import ABSTAIN, vote_type
from teacher_student.teachers.containment import attempt, own_generators

Votes = npt.NDArray[np.signedinteger]


@dataclass(frozen=True)
class Constant:
    """A learner that votes for one class: all that a shard of one class can teach."""

    label: int

    def predict(self, features: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the label for every row of `features`."""
        return np.full(len(features), self.label, dtype=np.int64)


def build_learner(learner: Any, seed: int) -> Any:
    """Return a fresh learner with the teacher's seed."""
    if hasattr(learner, "fit") and not isinstance(learner, type):
        built = copy.deepcopy(learner)
    else:
        built = learner(seed=seed) if has_argument(learner, "seed") else learner()
    if hasattr(built, "get_params"):
        seeds = [name for name in built.get_params(deep=True) if name == "random_state" or name.endswith("__random_state")]
        built.set_params(**dict.fromkeys(seeds, seed % 2**31))
    return built


def has_argument(function: Callable[..., Any], name: str) -> bool:
    """Whether a callable has an argument of this name, as far as it tells."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def fit_learner(
    learner: Any,
    features: npt.NDArray[Any],
    labels: npt.NDArray[np.int64],
    num_classes: int,
    seed: int,
    weights: npt.NDArray[np.float32] | None = None,
) -> Any:
    """Train on one shard; None if there is nothing to learn from, or if the learner fails."""
    if not len(labels) or labels.min() < 0 or labels.max() >= num_classes:
        return None
    if labels.min() == labels.max():
        return Constant(int(labels[0]))

    def fitted() -> Any:
        with _apart(seed):
            built = build_learner(learner, seed)
            built.fit(features, labels, **({} if weights is None else {"sample_weight": weights}))
            return built

    return attempt(fitted)


@contextlib.contextmanager
def _apart(seed: int) -> Iterator[None]:
    """Give a learner its own generators, and discard what it prints, which may follow from its records."""
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
        _silent_worker(nowhere.fileno()),
        own_generators(seed),
    ):
        yield


@contextlib.contextmanager
def _silent_worker(nowhere: int) -> Iterator[None]:
    """In a worker, silence native code too, crashes included; the run's own process has other things to print."""
    if multiprocessing.current_process().name == "MainProcess":
        yield
        return
    kept = {stream: os.dup(stream) for stream in (1, 2)}
    for stream in kept:
        os.dup2(nowhere, stream)
    try:
        yield
    finally:
        for stream, duplicate in kept.items():
            os.dup2(duplicate, stream)
            os.close(duplicate)


def learner_votes(learner: Any, points: npt.NDArray[Any], num_classes: int) -> Votes:
    """Return one teacher's votes (points,); all -1 if it fails."""
    abstained = np.full(len(points), ABSTAIN, dtype=vote_type(num_classes))
    said = _asked(learner, "predict", points)
    if said is None or said.size != len(points):
        return abstained
    values = said.reshape(len(points))
    valid = np.isfinite(values) & (values == np.round(values)) & (values >= 0) & (values < num_classes)
    return np.where(valid, np.where(valid, values, 0).astype(abstained.dtype), abstained)


def learner_scores(learner: Any, points: npt.NDArray[Any], num_classes: int) -> npt.NDArray[np.float32]:
    """Return one teacher's (points, num_classes) probabilities, or votes, less 1 / num_classes; 0 if it fails."""
    probabilities = _probabilities(learner, points, num_classes)
    if probabilities is None:
        votes = learner_votes(learner, points, num_classes)
        probabilities = np.zeros((len(points), num_classes))
        probabilities[votes != ABSTAIN, votes[votes != ABSTAIN]] = 1
    plausible = np.asarray(((probabilities >= 0) & (probabilities <= 1)).all(axis=1) & probabilities.any(axis=1))
    return np.where(plausible[:, None], probabilities - 1 / num_classes, 0.0).astype(np.float32)


def _probabilities(learner: Any, points: npt.NDArray[Any], num_classes: int) -> npt.NDArray[np.float64] | None:
    """Return (points, num_classes) probabilities; None if the learner has none, or some of other classes."""

    def places() -> npt.NDArray[np.int64] | None:
        classes = np.asarray(learner.classes_)
        known = classes.ndim == 1 and set(classes.tolist()) <= set(range(num_classes))
        return classes.astype(np.int64) if known else None

    if (columns := attempt(places)) is None:
        return None
    said = _asked(learner, "predict_proba", points)
    if said is None or said.shape != (len(points), len(columns)):
        return None
    probabilities = np.zeros((len(points), num_classes))
    probabilities[:, columns] = said
    return probabilities


def _asked(learner: Any, method: str, points: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
    """Return a learner's predictions on points, None if it fails.

    It gets a copy of the points: a learner that scales them in place must not change what the next one sees.
    """

    def said() -> npt.NDArray[np.float64]:
        with _apart(0):  # every teacher starts from the same state
            return np.asarray(getattr(learner, method)(points.copy())).astype(np.float64)

    return None if learner is None else attempt(said)
