"""The one function that an owner writes. This one trains gradient-boosted trees; any model of any library will do.

An owner that has its own function names it in its SuperNode's configuration: fit = "hospital:fit".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from owners.table import Table

Predict = Callable[[NDArray[np.float32]], NDArray[np.integer]]


def fit(table: Table) -> Predict:
    """Train a model on an owner's table, and return a function from points, shape (n, d), to class indices, shape (n,).

    What it does must depend on this table alone, never on another owner's. If it fails, the owner abstains.
    """
    return HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(table.features, table.labels).predict


def fit_linear(table: Table) -> Predict:
    """Train a linear model, which is enough for an owner's many teachers with few records each."""
    if len(np.unique(table.labels)) < 2:
        return lambda points: np.full(len(points), table.labels[0])
    return LogisticRegression(C=5.0, max_iter=200).fit(table.features, table.labels).predict


def fit_to_prior(table: Table, prior: float = 0.25) -> Predict:
    """Train a linear model of two classes as if a public share `prior` of its records had class 1.

    Owners whose records are of one kind mostly see other shares of the classes than the public points have. A teacher that has
    seen one class alone cannot know the other, so it abstains.
    """
    counts = np.bincount(table.labels, minlength=2)
    if not counts.all():
        return lambda points: np.full(len(points), -1)
    weights = {0: (1 - prior) * len(table.labels) / counts[0], 1: prior * len(table.labels) / counts[1]}
    return LogisticRegression(C=5.0, max_iter=200, class_weight=weights).fit(table.features, table.labels).predict
