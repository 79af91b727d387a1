"""A stacked teacher equals the same teacher trained alone, in plain PyTorch written out here."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

from teacher_student.teachers import (
    CNN,
    MLP,
    LogisticRegression,
    ResNet,
    ShiftAndFlip,
    TrainingSettings,
    group_normalized,
    predict_votes,
    train_teachers,
)
from teacher_student.teachers.engines import initial_stack
from teacher_student.teachers.randomness import derived_keys, key_dropouts, shard_seed
from teacher_student.teachers.records import ShardSampler

D, C, SEED = 6, 3, 5
IMAGE = (3, 8, 8)
TOLERANCE = 1e-12  # of parameters, in float64


class Recurrent(nn.Module):
    """A user's own network, without the dropout that would draw from torch's generator."""

    def __init__(self):
        super().__init__()
        self.lstm, self.linear = nn.LSTM(2, 4, batch_first=True), nn.Linear(4, C)

    def forward(self, values):
        return self.linear(self.lstm(values.reshape(len(values), -1, 2))[0][:, -1])


NETWORKS = {
    "logistic": (partial(LogisticRegression, D, C), (D,), ("batched", "vmap", "sequential")),
    "MLP": (partial(MLP, D, C, (7, 5)), (D,), ("batched", "vmap", "sequential")),
    "MLP with dropout": (partial(MLP, D, C, (7,), dropout=0.3), (D,), ("batched", "vmap", "sequential")),
    "LSTM": (Recurrent, (D,), ("sequential",)),
    "CNN": (partial(CNN, IMAGE, C, filters=(3,), hidden=(5,), dropout=0.2), IMAGE, ("vmap", "sequential")),
    "ResNet": (partial(ResNet, IMAGE, C, blocks=(1,), widths=(4,)), IMAGE, ("vmap", "sequential")),
    "torchvision": (
        lambda: group_normalized(torchvision.models.DenseNet(2, (1,), 4, num_classes=C)),
        IMAGE,
        ("vmap", "sequential"),
    ),
}
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {}, {"optimizer": "sgd", "momentum": 0.0}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}, {"optimizer": "sgd", "momentum": 0.9}),
    "adam": (torch.optim.Adam, {}, {"optimizer": "adam"}),
    "adamw": (torch.optim.AdamW, {}, {"optimizer": "adamw"}),
}


def made(sizes=(9, 40, 1, 0, 21, 8), shape=(D,)):
    generator = np.random.default_rng(0)
    n = sum(sizes)
    features, labels = generator.standard_normal((n, *shape)), generator.integers(0, C, n)
    return features, labels, generator.permutation(n), np.cumsum([0, *sizes])


def alone(data, shard, network, optimizer, settings, decay):
    """One teacher by itself: a module, an optimiser, a loop. Its masks and shifts are those of its own keys."""
    features, labels, order, offsets = data
    kind, options, _ = OPTIMIZERS[optimizer]
    rows = order[offsets[shard] : offsets[shard + 1]]
    torch.manual_seed(shard_seed(SEED, shard, "start"))
    module = network().double()
    masks = [module.get_buffer(name) for name in key_dropouts(module)]
    optimizer = kind(module.parameters(), lr=settings.learning_rate, weight_decay=decay, **options)
    sampler = ShardSampler(len(rows), SEED, shard)
    for step in range(settings.steps):
        batch = rows[sampler.take(step * settings.batch_size, settings.batch_size)]
        key = derived_keys(torch.tensor([shard_seed(SEED, shard, "draws")]), step)
        for mask in masks:
            mask.copy_(key[0])
        optimizer.param_groups[0]["lr"] = settings.learning_rate_at(step)
        optimizer.zero_grad()
        values, targets = torch.from_numpy(features[batch]), torch.from_numpy(labels[batch])
        values = values if settings.augment is None else settings.augment(values.unsqueeze(0), derived_keys(key, -1))[0]
        nn.functional.cross_entropy(module(values), targets, label_smoothing=settings.label_smoothing).backward()
        if settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(module.parameters(), settings.clip_norm)
        optimizer.step()
    return module.eval()


def cases():
    """All networks and optimisers; images with another optimiser than Adam take their time."""
    for name, optimizer in itertools.product(NETWORKS, OPTIMIZERS):
        later = NETWORKS[name][1] is IMAGE and optimizer != "adam"
        yield pytest.param(name, optimizer, marks=[pytest.mark.slow] if later else [])


@pytest.mark.parametrize(("name", "optimizer"), cases())
def test_every_engine_equals_a_plain_loop(name, optimizer):
    network, shape, engines = NETWORKS[name]
    decays = (0.01,) * 6 if name == "logistic" else (0.01, 0.0, 0.1, 0.02, 0.03, 0.0)
    settings = TrainingSettings(
        learning_rate=0.03,
        weight_decay=decays,
        steps=6,
        batch_size=8,
        schedule="cosine",
        warmup_steps=2,
        label_smoothing=0.1,
        clip_norm=0.5,
        precision="float64",
        chunk=2,
        augment=ShiftAndFlip(1) if shape is IMAGE else None,
        **OPTIMIZERS[optimizer][2],
    )
    data = made(shape=shape)
    points = np.random.default_rng(1).standard_normal((30, *shape))
    expected = {shard: alone(data, shard, network, optimizer, settings, decays[shard]) for shard in (0, 1, 2, 4, 5)}
    for engine in engines:
        ensemble = train_teachers(*data, network, dataclasses.replace(settings, engine=engine), master_seed=SEED)
        (votes,) = predict_votes(ensemble, points)
        assert (votes[:, 3] == -1).all()
        for shard, module in expected.items():
            for key, value in ensemble.teacher(shard).state_dict().items():
                assert (value - module.state_dict()[key]).abs().max() <= TOLERANCE, (engine, shard, key)
            assert_votes_where_clear(votes[:, shard], module(torch.from_numpy(points)))


def assert_votes_where_clear(votes, scores):
    """Votes are the largest scores. Where two classes tie (one record pushes all others down alike) the last bit may decide."""
    top = scores.topk(2).values
    clear = (top[:, 0] - top[:, 1] > 1e-9).numpy()
    np.testing.assert_array_equal(votes[clear], scores.argmax(1).numpy()[clear])
    tied = scores.detach().numpy() > top[:, :1].detach().numpy() - 1e-9
    assert tied[np.arange(len(votes)), votes].all()


def test_votes_are_compared_where_they_are_clear():
    scores = torch.tensor([[0.0, 1.0, 1.0 + 1e-12], [0.0, 1.0, 2.0]], dtype=torch.float64)
    assert_votes_where_clear(np.array([1, 2]), scores)
    for wrong in ([0, 2], [1, 1]):
        with pytest.raises(AssertionError):
            assert_votes_where_clear(np.array(wrong), scores)


def test_engines_and_chunks_agree_with_dropout():
    network = partial(MLP, D, C, (7, 5), dropout=0.4)
    ensembles = [
        train_teachers(*made(), network, TrainingSettings(steps=8, precision="float64", engine=engine, chunk=chunk))
        for engine, chunk in (("batched", 5), ("batched", 2), ("vmap", 3), ("sequential", None))
    ]
    for shard in range(6):
        states = [ensemble.teacher(shard).state_dict() for ensemble in ensembles]
        for name, value in states[0].items():
            assert all((value - state[name]).abs().max() <= 1e-12 for state in states[1:])


def test_dropout_drops_the_stated_share_and_differs_between_teachers_layers_and_steps():
    from teacher_student.teachers.randomness import derived_keys, drop

    keys = derived_keys(torch.tensor([3, 4]), 9)
    kept = drop(torch.ones(2, 100, 500), keys, 0.3) > 0
    assert abs(kept.double().mean() - 0.7) < 6 * (0.21 / 100_000) ** 0.5
    assert not torch.equal(kept[0], kept[1])
    assert len({int(derived_keys(torch.tensor(3), counter)) for counter in range(1000)}) == 1000


def test_every_pass_is_a_permutation_and_can_be_read_from_anywhere():
    for size in (1, 7, 300, 5000):
        passes = ShardSampler(size, SEED, 3)
        sequence = passes.take(0, 3 * size)
        assert all(sorted(part) == list(range(size)) for part in sequence.reshape(3, size))
        np.testing.assert_array_equal(
            ShardSampler(size, SEED, 3).take(size + size // 2, size), sequence[size + size // 2 :][:size]
        )


def test_initial_bias_and_prediction_offset_are_public_constants():
    data = made((9, 40))
    network = partial(LogisticRegression, D, C, initial_bias=[0.0, 5.0, 0.0], prediction_offset=[0.0, 0.0, 1e6])
    ensemble = train_teachers(*data, network, TrainingSettings(steps=1, learning_rate=1e-6))
    assert ensemble.teacher(0)[1].bias.round().tolist() == [0.0, 5.0, 0.0]
    (votes,) = predict_votes(ensemble, data[0].astype(np.float32))
    assert (votes == 2).all()


def test_uint8_images_are_read_as_shares_of_255():
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, (30, 2, 3), dtype=np.uint8), generator.integers(0, C, 30)
    rest = np.arange(30), np.array([0, 10, 30])
    one = train_teachers(images, labels, *rest, NETWORKS["MLP"][0], TrainingSettings(steps=5))
    other = train_teachers((images / 255).astype(np.float32), labels, *rest, NETWORKS["MLP"][0], TrainingSettings(steps=5))
    for name, value in one.teacher(1).state_dict().items():
        torch.testing.assert_close(value, other.teacher(1).state_dict()[name])


def test_starts_alike_are_those_of_each_teachers_own_seed():
    """A class that says so is started once; a function that changes its network's start is asked for every teacher."""

    def changed():
        network = LogisticRegression(3, 2)
        nn.init.normal_(network[1].weight)
        return network

    settings = TrainingSettings(steps=1)
    alike = initial_stack(partial(LogisticRegression, 3, 2, initial_bias=[0.5, -0.5]), settings, 0, range(3))
    assert torch.equal(alike["1.weight"], torch.zeros(3, 2, 3))
    assert torch.equal(alike["1.bias"], torch.tensor([[0.5, -0.5]] * 3))
    own = initial_stack(changed, settings, 0, range(3))["1.weight"]
    assert len(own.flatten(1).unique(dim=0)) == 3
