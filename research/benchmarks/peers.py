"""DP-SGD on the same records, a baseline for tables of private models. Needs opacus (development only)."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from teacher_student.data import PrivateDataset
from teacher_student.student import Standardized

BATCH, EPOCHS, LEARNING_RATE, CLIP = 1024, 20, 2.0, 1.0
"""Tried on Adult at epsilon 1: learning rates 1, 2 and 4, norms 0.5 and 1, 20 and 40 epochs; all lie within 0.3 points."""


def fit_dp_sgd(
    dataset: PrivateDataset,
    epsilon: float,
    delta: float,
    *,
    seed: int = 0,
    learning_rate: float = LEARNING_RATE,
    clip: float = CLIP,
    epochs: int = EPOCHS,
    batch: int | None = BATCH,
) -> nn.Module:
    """Return a logistic regression on the student's columns, trained by DP-SGD with Poisson sampling (Opacus).

    Its noise is that of Opacus, from a seeded generator and in floating point: good for tables, but not a private release. If
    records name their users, each user's mean gradient is clipped, and whole users are protected, as they are by teachers.

    Args:
        dataset: its private records, in the student's columns, are learned; inputs are scaled by public points, as for students.
        epsilon: of the whole training, add_remove.
        delta: of the whole training.
        seed: of sampling and noise.
        learning_rate: of plain SGD.
        clip: norm to which each user's gradient is clipped.
        epochs: expected passes.
        batch: expected number of users in a step; None for all users in every step.
    """
    from opacus import PrivacyEngine

    records = dataset.student_private_features
    assert records is not None
    torch.manual_seed(seed)
    shape = records.shape[1:]
    scaling = Standardized(nn.Identity(), shape).fit(dataset.student_points)
    with torch.no_grad():
        inputs = scaling(torch.as_tensor(records)).flatten(1)
    model: nn.Module = nn.Linear(int(np.prod(shape)), dataset.num_classes)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    users = _by_user(inputs, torch.as_tensor(dataset.private_labels), dataset.private_users)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    loader = DataLoader(users, batch_size=len(users) if batch is None else min(batch, len(users)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns that its noise is not secure, as the docstring says
        private, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            target_epsilon=epsilon,
            target_delta=delta,
            epochs=epochs,
            max_grad_norm=clip,
        )
        for _ in range(epochs):
            for features, labels, shares in loader:
                optimizer.zero_grad()
                losses = functional.cross_entropy(private(features).flatten(0, 1), labels.flatten(), reduction="none")
                (losses * shares.flatten()).sum().div(max(1, len(shares))).backward()
                optimizer.step()
    scaling.network = nn.Sequential(nn.Flatten(), model.eval())
    return scaling


def _by_user(features: Tensor, labels: Tensor, users: npt.NDArray[np.generic] | None) -> TensorDataset:
    """Return (users, records, columns) features, (users, records) labels, and shares of a user's loss, 0 beyond its records."""
    if users is None:
        return TensorDataset(features[:, None], labels[:, None], torch.ones(len(labels), 1))
    _, user, sizes = np.unique(users, return_inverse=True, return_counts=True)
    order = np.argsort(user, kind="stable")
    place = np.arange(len(user)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = torch.full((len(sizes), int(sizes.max())), -1)
    rows[user[order], place] = torch.as_tensor(order)
    there = rows >= 0
    return TensorDataset(features[rows] * there[..., None], labels[rows], there / there.sum(1, keepdim=True))
