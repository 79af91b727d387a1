"""What a worker process does for one shard: build, fit, vote. It imports no torch, so that workers start quickly."""

from __future__ import annotations

import copy
import inspect
import random
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.labels import ABSTAIN

Votes = npt.NDArray[np.int16]


@dataclass(frozen=True)
class Constant:
    """Votes for one class: all that a shard of one class can teach."""

    label: int

    def predict(self, features: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the label for every row of `features`."""
        return np.full(len(features), self.label, dtype=np.int64)


def build_learner(learner: Any, seed: int) -> Any:
    """Return a fresh learner with the teacher's seed."""
    if hasattr(learner, "fit") and not isinstance(learner, type):
        built = copy.deepcopy(learner)
    else:
        built = learner(seed=seed) if _takes_seed(learner) else learner()
    if hasattr(built, "get_params"):
        seeds = [name for name in built.get_params(deep=True) if name == "random_state" or name.endswith("__random_state")]
        built.set_params(**dict.fromkeys(seeds, seed % 2**31))
    return built


def _takes_seed(learner: Callable[..., Any]) -> bool:
    try:
        return "seed" in inspect.signature(learner).parameters
    except (TypeError, ValueError):
        return False


def takes_weights(built: Any) -> bool:
    """Whether the learner's `fit` has an argument named `sample_weight`."""
    try:
        return "sample_weight" in inspect.signature(built.fit).parameters
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
    try:
        built = build_learner(learner, seed)
        with warnings.catch_warnings(), _seeded(seed):
            warnings.simplefilter("ignore")
            built.fit(features, labels, **({} if weights is None else {"sample_weight": weights}))
    except Exception:  # noqa: BLE001  whatever a shard's records provoke, it must stay with that shard's teacher
        return None
    return built


class _seeded:  # noqa: N801  reads as a statement
    """Seeds the global generators of NumPy, Python and torch (where it is loaded), and puts them back.

    Learners may use them, and teachers may share a process: how much one draws depends on its shard, and must not show in the
    next one.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __enter__(self) -> None:
        self._kept = np.random.get_state(), random.getstate()  # noqa: NPY002
        np.random.seed(self._seed % 2**32)  # noqa: NPY002
        random.seed(self._seed)
        self._torch = sys.modules.get("torch")
        if self._torch is not None:
            self._torch_kept = self._torch.get_rng_state()
            self._torch.manual_seed(self._seed)

    def __exit__(self, *_: object) -> None:
        np.random.set_state(self._kept[0])  # noqa: NPY002
        random.setstate(self._kept[1])
        if self._torch is not None:
            self._torch.set_rng_state(self._torch_kept)


def learner_votes(learner: Any, points: npt.NDArray[Any], num_classes: int) -> Votes:
    """One teacher's votes (points,); all -1 if it fails."""
    abstained = np.full(len(points), ABSTAIN, dtype=np.int16)
    said = _asked(learner, "predict", points)
    if said is None or said.size != len(points):
        return abstained
    values = said.reshape(len(points))
    valid = np.isfinite(values) & (values == np.round(values)) & (values >= 0) & (values < num_classes)
    return np.where(valid, np.where(valid, values, 0).astype(np.int16), abstained)


def learner_scores(learner: Any, points: npt.NDArray[Any], num_classes: int) -> npt.NDArray[np.float32]:
    """One teacher's probabilities less 1 / num_classes, (points, num_classes); its votes where it has none, 0 if it fails."""
    probabilities = _probabilities(learner, points, num_classes)
    if probabilities is None:
        votes = learner_votes(learner, points, num_classes)
        probabilities = np.zeros((len(points), num_classes))
        probabilities[votes != ABSTAIN, votes[votes != ABSTAIN]] = 1
    plausible = np.asarray(((probabilities >= 0) & (probabilities <= 1)).all(axis=1) & probabilities.any(axis=1))
    return np.where(plausible[:, None], probabilities - 1 / num_classes, 0.0).astype(np.float32)


def _probabilities(learner: Any, points: npt.NDArray[Any], num_classes: int) -> npt.NDArray[np.float64] | None:
    """Return (points, num_classes) of what a learner says; None if it has no probabilities of these classes."""
    try:
        classes = np.asarray(learner.classes_)
        if classes.ndim != 1 or not set(classes.tolist()) <= set(range(num_classes)):
            return None
        places = classes.astype(np.int64)
    except Exception:  # noqa: BLE001  whatever a learner is like, it must stay with its teacher
        return None
    said = _asked(learner, "predict_proba", points)
    if said is None or said.shape != (len(points), len(places)):
        return None
    probabilities = np.zeros((len(points), num_classes))
    probabilities[:, places] = said
    return probabilities


def _asked(learner: Any, method: str, points: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
    """Return what a learner says about points; None if it cannot, or fails."""
    if learner is None:
        return None
    try:
        with warnings.catch_warnings(), _seeded(0):  # a constant does: no teacher goes on where another stopped
            warnings.simplefilter("ignore")
            return np.asarray(getattr(learner, method)(points)).astype(np.float64)
    except Exception:  # noqa: BLE001  a teacher that fails abstains
        return None
