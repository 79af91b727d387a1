"""Small learners in NumPy that train many datasets at once, for the estimators and experiments of this package.

A stacked learner is a function (features (r, n, d), labels (r, n) in {0, 1}, seeds (r,)) -> weights or thresholds of r models; a
prediction function turns these and queries (q, d) into (r, q). No loop runs over datasets.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from teacher_student.arguments import Floats, Integers

Predictor = Callable[[Floats], Floats]
"""Queries, shape (q, d) -> scores in [0, 1], shape (r, q), one row per trained model."""

StackedLearner = Callable[[Floats, Integers, Integers], Predictor]
"""(features (r, n, d), labels (r, n), seeds (r,)) -> predictor of r models, each from its own dataset and its own coins."""


def fit_thresholds(features: Floats, labels: Integers) -> Floats:
    """Return for each dataset a threshold of least empirical error; x is labeled 1 iff x >= threshold.

    Args:
        features: shape (r, n).
        labels: 0 or 1, shape (r, n).

    Returns:
        shape (r,): the middle between the two neighbouring records (the first of several minimisers); beyond the ends, the end.
    """
    order = np.argsort(features, axis=1)
    points = np.take_along_axis(features, order, axis=1)
    ones = np.cumsum(np.take_along_axis(labels, order, axis=1), axis=1)
    below = np.concatenate([np.zeros((len(points), 1), dtype=np.int64), ones], axis=1)  # ones among the first i records
    errors = below + (labels.shape[1] - np.arange(labels.shape[1] + 1)) - (ones[:, -1:] - below)
    best = np.argmin(errors, axis=1)
    rows = np.arange(len(points))
    left, right = points[rows, np.maximum(best - 1, 0)], points[rows, np.minimum(best, points.shape[1] - 1)]
    return (left + right) / 2


def fit_consistent_thresholds(features: Floats, labels: Integers) -> Floats:
    """Return for each separable dataset, shape (r, n), the middle between its largest 0 and smallest 1, in one pass."""
    largest_zero = np.where(labels == 0, features, -np.inf).max(axis=1)
    smallest_one = np.where(labels == 1, features, np.inf).min(axis=1)
    lone = np.where(np.isfinite(largest_zero), largest_zero, smallest_one)
    both = np.isfinite(largest_zero) & np.isfinite(smallest_one)
    return np.where(both, (np.where(both, largest_zero, 0) + np.where(both, smallest_one, 0)) / 2, lone)


def fit_logistic(features: Floats, labels: Integers, *, ridge: float = 1e-3, steps: int = 12) -> Floats:
    """Return the weights of ridge logistic regression for each dataset, by damped Newton steps on all of them at once.

    Args:
        features: shape (r, n, d); no intercept is added.
        labels: 0 or 1, shape (r, n).
        ridge: weight of the quadratic term (the loss is a mean over records).
        steps: Newton steps.

    Returns:
        shape (r, d).
    """
    sets, size, dimension = features.shape
    weights = np.zeros((sets, dimension))
    identity = ridge * np.eye(dimension)
    for _ in range(steps):
        scores = logistic(np.einsum("rnd,rd->rn", features, weights))
        gradient = np.einsum("rnd,rn->rd", features, scores - labels) / size + ridge * weights
        curvature = np.einsum("rnd,rn,rne->rde", features, np.maximum(scores * (1 - scores), 1e-6), features) / size + identity
        step = np.linalg.solve(curvature, gradient[..., None])[..., 0]
        longest = 5 + np.linalg.norm(weights, axis=1, keepdims=True)  # damping, for separable datasets
        weights = weights - step * np.minimum(1.0, longest / np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-12))
    return weights


def fit_logistic_sgd(features: Floats, labels: Integers, step_sizes: Floats, *, ridge: float = 0.0) -> Floats:
    """Return the weights after one pass over each dataset in its given order: loss ln(1 + e^(-y w x)) + ridge |w|^2 / 2.

    Args:
        features: shape (r, n, d).
        labels: 0 or 1, shape (r, n).
        step_sizes: shape (n,).
        ridge: weight of the quadratic term.

    Returns:
        shape (r, d).
    """
    weights = np.zeros((features.shape[0], features.shape[2]))
    for index, step in enumerate(step_sizes):
        record, label = features[:, index], labels[:, index]
        residual = logistic(np.einsum("rd,rd->r", record, weights)) - label
        weights = (1 - step * ridge) * weights - step * residual[:, None] * record
    return weights


def fit_separating(features: Floats, labels: Integers, *, rounds: int = 2000) -> Floats:
    """Return a halfspace (through the origin) for each dataset: a separating one if the iteration finds it in time.

    Starts from logistic regression with a small ridge, which already separates most separable sets. Then each round projects,
    per dataset, just beyond the hyperplane of its worst misclassified record (the relaxation method).
    """
    signs = 2.0 * labels - 1
    weights = fit_logistic(features, labels, ridge=1e-4, steps=15)
    weights /= np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-12)
    active = np.arange(len(features))
    for _ in range(rounds):
        margins = signs[active] * np.einsum("rnd,rd->rn", features[active], weights[active])
        worst = margins.argmin(axis=1)
        wrong = margins[np.arange(len(active)), worst] <= 0
        active, worst = active[wrong], worst[wrong]
        if not len(active):
            break
        record, missed = features[active, worst], -margins[wrong].min(axis=1)
        step = (1.5 * missed + 1e-6) / np.maximum(np.einsum("rd,rd->r", record, record), 1e-12)
        weights[active] += (signs[active, worst] * step)[:, None] * record
    return weights


def logistic_predictor(weights: Floats) -> Predictor:
    """Return the predictor of logistic models with `weights`, shape (r, d)."""
    return lambda queries: logistic(weights @ np.asarray(queries).T)


def logistic(values: Floats) -> Floats:
    """Return 1 / (1 + e^-values), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * np.asarray(values)))
