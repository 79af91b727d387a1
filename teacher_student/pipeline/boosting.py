"""Boosting: rounds of teachers that correct the student; a record counts by how little the student so far believes its label.

The student of a round is a function of released answers, so it is public, and so is what it says about any features. In the next
round a teacher is trained on its own shard again, record i weighted by 1 - p(y_i | x_i) under that student, and votes for the
class that the student should believe *more* on a point: in the limit of a rich learner the sign of E[1(y = c) - p(c | x)], the
direction in which cross-entropy falls (functional gradient descent: Friedman 2001; reweighting as in boosting). The shares of
those votes move the student's logits (`modes.Fractions`). Or it says how much: the scores of a linear teacher after one step of
training are its records' 1(y = c) - p(c | x), and their mean moves the student (`modes.MeanScores`).

Privacy. A record reaches its own shard's teacher in every round and no other, so it still moves one vote of each query; that the
teachers of a round depend on earlier answers makes the queries adaptive, which the session's cost covers. Weights are computed
shard by shard: vectorised arithmetic may depend in its last bit on a record's place in a batch, and no bit may cross shards. The
default generator, from which a student may draw, is put back: it would count the shards that are not empty.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from teacher_student.data import PrivateDataset, Shards
from teacher_student.pipeline.folder import read_array, write_array
from teacher_student.pipeline.stages import Run, Teachers, make_shards, train
from teacher_student.student import Standardized, predict_probabilities
from teacher_student.teachers import MLP, LogisticRegression
from teacher_student.teachers.engines.batched import has_hooks

_FORGETFUL = {nn.Sequential, nn.Flatten, nn.Linear, nn.ReLU, nn.Dropout, Standardized, MLP, LogisticRegression}


def residual_teachers(run: Run, student: Callable[[], nn.Module], number: int) -> Teachers:
    """Return the teachers of round `number`; weights and teachers are kept, so that a killed run makes the same ones.

    Args:
        run: whose records they learn from.
        student: returns the network so far, if the weights are not there yet.
        number: of the round, from 1.
    """
    shards, path = make_shards(run), run.folder.votes / f"weights_{number}.npy"
    if not path.exists():
        write_array(path, residual_weights(student(), run.dataset, shards))
    weights = read_array(path)
    return train(run, shards, silent, weights=weights, name=f"teachers_{number}")


def silent(done: int, text: str) -> None:
    """Show nothing: the display's bar counts the points that are asked."""


def residual_weights(student: nn.Module, dataset: PrivateDataset, shards: Shards) -> npt.NDArray[np.float32]:
    """Return (n,) weights 1 - p(label | features) of the private records, shard by shard; NaN where features are. Private.

    Args:
        student: maps the student's features to logits.
        dataset: whose records are weighted.
        shards: of the records.
    """
    features = dataset.student_private_features
    assert features is not None  # `rounds.check_rounds` refused a run without them
    weights, forgets = np.zeros(len(features), dtype=np.float32), _forgets(student)
    with torch.random.fork_rng(devices=[]):
        for first, last in zip(shards.offsets[:-1], shards.offsets[1:], strict=True):
            rows = shards.order[first:last]
            if len(rows):
                asked = student if forgets else copy.deepcopy(student)  # so that no shard leaks into another or into the release
                believed = predict_probabilities(asked, features[rows])[np.arange(len(rows)), dataset.private_labels[rows]]
                weights[rows] = 1 - believed
    return weights


def _forgets(network: nn.Module) -> bool:
    """Whether a network surely keeps nothing of what it sees when it predicts: of such layers alone, and without hooks."""
    layers = network.modules()
    return not has_hooks(network) and all(type(layer) in _FORGETFUL and "forward" not in vars(layer) for layer in layers)
