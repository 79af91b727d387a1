"""Fitting a student to public points, and its predictions."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import lightning as L
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from teacher_student.arguments import ArgumentError, positive_integer
from teacher_student.student.augmentations import Views, views_of
from teacher_student.student.label_noise import KnownNoise, known_noise
from teacher_student.student.module import Report, Student
from teacher_student.student.settings import StudentSettings
from teacher_student.student.targets import Targets, propagate

_LARGEST_SEED = 2**64 - 1
"""Largest seed of torch's generators."""

_SMALL_STEP = 5_000_000
"""Weights times batch size below which one thread trains faster than several."""


def fit_student(
    network: Callable[[], nn.Module],
    features: npt.NDArray[np.float32],
    targets: Targets,
    settings: StudentSettings,
    *,
    graph_features: npt.NDArray[np.float32] | None = None,
    seed: int = 0,
    trainer_options: Mapping[str, Any] | None = None,
    report: Report | None = None,
) -> Student:
    """Train a student on public points.

    Args:
        network: makes the untrained network; called after seeding, so that equal seeds give equal students.
        features: (num_queries, *shape) public features.
        targets: of these points.
        settings: how to learn.
        graph_features: (num_queries, ...) public features in which points are neighbours, for `settings.propagation`; `features`
            if None.
        seed: of initial weights, batch order and views; not secret.
        trainer_options: passed to `lightning.Trainer`.
        report: called with (epochs done in this round, loss) after every epoch.

    Raises:
        ArgumentError: no point with a target, numbers that are not finite, or label noise of other classes.
    """
    _check_points(features, targets)
    positive_integer("seed", seed, minimum=0, maximum=_LARGEST_SEED)
    if settings.propagation > 0:
        graph = features if graph_features is None else graph_features
        targets = propagate(graph, targets, settings.propagation, settings.propagation_neighbours, settings.propagation_share)
    settings = _possible(settings, targets)
    points = torch.as_tensor(features)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        noise = known_noise(settings.label_noise, targets.probabilities.shape[1])
        views, method, released = views_of(points, settings.augmentation), settings.learning_method, targets
        for fit in range(1, method.num_fits + 1):
            last = fit == method.num_fits  # only its curves are kept
            options = _quiet(trainer_options) | ({} if last else {"logger": False})
            student = _fit_once(network(), points, targets, settings, noise, views, options, report)
            if not last:
                said = torch.as_tensor(predict_probabilities(student.publishable, features))
                targets = method.next_targets(released, said, noise, settings.unlabeled_weight)
    return student.eval()


def _fit_once(
    network: nn.Module,
    points: Tensor,
    targets: Targets,
    settings: StudentSettings,
    noise: KnownNoise,
    views: Views,
    trainer_options: Mapping[str, Any],
    report: Report | None,
) -> Student:
    """Fit `network` once; `trainer_options` are complete (see `_quiet`)."""
    labeled = targets.weights > 0
    chosen = [points[labeled], *(torch.as_tensor(array[labeled]) for array in (targets.probabilities, targets.weights))]
    loaders = {"labeled": _batches(TensorDataset(*chosen), settings.batch_size)}
    if settings.learning_method.uses_unlabeled:  # Lightning restarts the shorter of the two until the longer one ends
        loaders["unlabeled"] = _batches(TensorDataset(points[targets.unlabeled]), settings.batch_size)
    steps = settings.epochs * max(len(loader) for loader in loaders.values())
    student = Student(network, settings, noise, views, total_steps=steps, num_targets=int(labeled.sum()))
    student.report = report
    with _one_thread_if_small(student.network, settings.batch_size):
        L.Trainer(max_epochs=settings.epochs, **trainer_options).fit(student, loaders)
    return student


def _batches(dataset: TensorDataset, batch_size: int) -> DataLoader[Any]:
    return DataLoader(dataset, sampler=BatchSampler(RandomSampler(dataset), batch_size, drop_last=False), batch_size=None)


def _check_points(features: npt.NDArray[np.float32], targets: Targets) -> None:
    """Refuse points and targets of different lengths, or from which nothing can be learned."""
    if len(features) != len(targets.weights):
        raise ArgumentError(f"targets must have one row for each of the {len(features)} points, got {len(targets.weights)}")
    if not (np.isfinite(targets.weights) & (targets.weights >= 0)).all():
        raise ArgumentError("targets must have finite weights of at least 0, got others")
    if not (targets.weights > 0).any():
        raise ArgumentError("targets must give at least one point a weight above 0, got none; raise epsilon or the cutoff")
    used = (targets.weights > 0) | targets.unlabeled
    if not np.isfinite(targets.probabilities[targets.weights > 0]).all() or not np.isfinite(features[used]).all():
        raise ArgumentError("features and targets must be finite, got NaN or infinity")


def _possible(settings: StudentSettings, targets: Targets) -> StudentSettings:
    """Return settings of a supervised student where a semi-supervised one has no unlabeled point."""
    method = settings.learning_method
    if not method.semi_supervised or targets.unlabeled.any():
        return settings
    warnings.warn(f"no point is left unlabeled: the student learns as supervised, not by {method.name}", stacklevel=3)
    return dataclasses.replace(settings, method="supervised")


def predict_probabilities(network: nn.Module, features: npt.NDArray[np.float32], *, block: int = 4096) -> npt.NDArray[np.float32]:
    """Return (num_points, num_classes) class probabilities, computed block by block on the network's device."""
    device = next(network.parameters()).device
    network.eval()
    with torch.inference_mode():
        batches = torch.as_tensor(features).split(block)
        return np.concatenate([F.softmax(network(batch.to(device)), dim=-1).float().cpu().numpy() for batch in batches])


@contextlib.contextmanager
def _one_thread_if_small(network: nn.Module, batch_size: int) -> Iterator[None]:
    """Use one thread where a step is a few microseconds of arithmetic: waking a second one costs up to ten times as much."""
    before = torch.get_num_threads()
    if batch_size * sum(weight.numel() for weight in network.parameters()) < _SMALL_STEP:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _quiet(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a trainer's options, completed so that it writes and prints nothing by default."""
    defaults: dict[str, Any] = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
    }
    return defaults | dict(options or {})
