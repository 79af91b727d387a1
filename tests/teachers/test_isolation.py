"""No value may cross shards: altering one shard leaves every other teacher bit-identical."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from teacher_student.arguments import ArgumentError
from teacher_student.teachers import MLP, TrainingSettings, predict_votes, train_teachers
from teacher_student.teachers.engines.batched import BatchedEngine
from teacher_student.teachers.records import ChunkBatches

from .altered import ABSTAINS, ALTERATIONS, C, differing, exchanged, flat, shards_of

K, D = 5, 6
ALTERED = 2


def train(parts, network, settings, **options):
    return train_teachers(*flat(parts), network, settings, master_seed=7, **options)


# All alterations; `test_isolation_matrix` has all settings.
CASES = {
    "MLP batched clip": (partial(MLP, D, C, (7, 5)), {"clip_norm": 0.1, "label_smoothing": 0.1, "schedule": "cosine"}),
    "MLP vmap": (partial(MLP, D, C, (7,), dropout=0.3), {"engine": "vmap", "clip_norm": 0.1}),
    "MLP sequential": (partial(MLP, D, C, (7,), dropout=0.3), {"engine": "sequential", "optimizer": "adam", "clip_norm": 0.5}),
}


@pytest.mark.parametrize("case", CASES)
def test_altering_one_shard_leaves_every_other_teacher_bit_identical(case):
    network, options = CASES[case]
    settings = TrainingSettings(**{"steps": 6, "batch_size": 8, "chunk": 3, **options})
    parts = shards_of([11, 4, 9, 30, 8])
    points = shards_of([20], seed=5)[0][0]
    base = train(parts, network, settings)
    (votes,) = predict_votes(base, points)
    for name, alter in ALTERATIONS.items():
        ensemble = train(exchanged(parts, ALTERED, alter), network, settings)
        assert differing(base, ensemble) == {ALTERED}, name
        (other,) = predict_votes(ensemble, points)
        kept = np.arange(K) != ALTERED
        np.testing.assert_array_equal(votes[:, kept], other[:, kept], err_msg=name)
        if name in ABSTAINS:
            assert (other[:, ALTERED] == -1).all(), name
        assert np.flatnonzero(ensemble.abstaining()).tolist() in ([], [ALTERED])


def test_order_of_records_in_storage_does_not_matter():
    parts = shards_of([11, 4, 9])
    features, labels, order, offsets = flat(parts)
    shuffle = np.random.default_rng(1).permutation(len(labels))
    place = np.argsort(shuffle)
    settings, network = TrainingSettings(steps=5), partial(MLP, D, C, (4,))
    one = train_teachers(features, labels, order, offsets, network, settings)
    other = train_teachers(features[shuffle], labels[shuffle], place[order], offsets, network, settings)
    assert differing(one, other) == set()


def test_a_teacher_does_not_depend_on_the_number_of_teachers():
    parts = shards_of([11, 4, 9, 30, 8])
    settings = TrainingSettings(steps=12, chunk=3, precision="float64", optimizer="adam")
    network = partial(MLP, D, C, (4,), dropout=0.2)
    many, few = train(parts, network, settings), train(parts[:3], network, settings)
    assert differing(few, many) == set()


def test_everything_empty():
    ensemble = train(shards_of([0, 0]), partial(MLP, D, C), TrainingSettings(steps=2))
    (votes,) = predict_votes(ensemble, np.zeros((4, D), np.float32))
    assert (votes == -1).all()


# Broken twins: each leaks in one of the ways that the rules forbid, and the property above must see it.


def globally_clipped(gradients, largest):
    norm = sum(gradient.square().sum() for gradient in gradients).sqrt()
    for gradient in gradients:
        gradient.mul_((largest / norm).clamp(max=1.0))


class SharedOrder(ChunkBatches):
    """Draws the teachers' batches one after the other from one generator."""

    def rows(self, first_step, num_steps):
        generator = np.random.default_rng(0)
        count = num_steps * self._batch_size
        rows = []
        for start, sampler in zip(self._starts, self._samplers, strict=True):
            size = 0 if sampler is None else sampler.size
            rows.append(
                [
                    start + generator.choice(size, size=size, replace=False)[i % size] if size else self._dummy
                    for i in range(count)
                ]
            )
        return torch.tensor(rows).reshape(-1, num_steps, self._batch_size).transpose(0, 1).contiguous()


class LargestShard(ChunkBatches):
    """Takes as many records in a step as the largest shard has."""

    def __init__(self, records, batch_size, master_seed):
        super().__init__(records, max(1, *records.sizes), master_seed)


def batch_loss(self, scores, labels, weights):
    """Centres the scores over teachers, as a batch norm over the stack would."""
    return original_loss(self, scores - scores.mean((0, 1), keepdim=True), labels, weights)


original_loss = BatchedEngine._loss


@pytest.mark.parametrize(
    "breakage",
    [
        ("teacher_student.teachers.chunk.clip_per_teacher", globally_clipped),
        ("teacher_student.teachers.chunk.ChunkBatches", SharedOrder),
        ("teacher_student.teachers.chunk.ChunkBatches", LargestShard),
        ("teacher_student.teachers.engines.batched.BatchedEngine._loss", batch_loss),
    ],
    ids=["global norm", "shared generator", "batch of the largest shard", "statistics over the stack"],
)
def test_the_property_rejects_broken_twins(monkeypatch, breakage):
    monkeypatch.setattr(*breakage)
    settings = TrainingSettings(steps=6, batch_size=8, chunk=5, clip_norm=0.1)
    parts = shards_of([11, 4, 9, 30, 8])
    altered = exchanged(parts, ALTERED, ALTERATIONS["largest"])
    network = partial(MLP, D, C, (4,))
    assert len(differing(train(parts, network, settings), train(altered, network, settings))) > 1


class Remembering(nn.Module):
    """Adds what it saw last: state between batches, outside parameters and buffers."""

    def __init__(self):
        super().__init__()
        self.linear, self.seen = nn.Linear(D, C), None

    def forward(self, values):
        scores = self.linear(values)
        previous, self.seen = self.seen, scores.detach()
        return scores if previous is None else scores * (1 + previous.mean())


class Collecting(Remembering):
    """Does the same in a way that no attribute shows."""

    def __init__(self):
        super().__init__()
        self.past = []

    def forward(self, values):
        scores = self.linear(values)
        scale = 1 + sum(past.mean() for past in self.past)
        self.past.append(scores.detach())
        return scores * scale


class Normalized(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(D, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, C))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.linear = nn.LSTM(2, 5, batch_first=True, num_layers=2, dropout=0.2), nn.Linear(5, C)

    def forward(self, values):
        return self.linear(self.lstm(values.reshape(len(values), -1, 2))[0][:, -1])


class Drawing(nn.Module):
    """Draws from the default generator."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(D, C)

    def forward(self, values):
        return self.linear(nn.functional.dropout(values, 0.3, self.training))


@pytest.mark.parametrize("network", [Remembering, Collecting, Normalized, Recurrent, Drawing])
def test_networks_that_cannot_be_stacked_are_not_stacked(network):
    ensemble = train(shards_of([5, 5]), network, TrainingSettings(steps=2))
    assert ensemble.engine.name == "sequential"
    assert not ensemble.abstaining().any()
    with pytest.raises(ArgumentError, match="engine=vmap must get"):
        train(shards_of([5, 5]), network, TrainingSettings(steps=2, engine="vmap"))
    with pytest.raises(ArgumentError, match="engine=batched must get"):
        train(shards_of([5, 5]), network, TrainingSettings(steps=2, engine="batched"))


@pytest.mark.parametrize("network", [Remembering, Collecting, Normalized, Recurrent, Drawing])
def test_sequential_teachers_are_isolated_whatever_the_network(network):
    parts = shards_of([6, 5, 7])
    settings = TrainingSettings(steps=4, batch_size=4)
    base = train(parts, network, settings)
    for name in ("largest", "labels", "empty", "NaN"):  # all alterations are tried above, on the same engine
        assert differing(base, train(exchanged(parts, 0, ALTERATIONS[name]), network, settings)) == {0}, name
