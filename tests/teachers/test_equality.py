"""A stacked teacher equals the same teacher trained alone, in plain PyTorch written out here."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from teacher_student.teachers import MLP, LogisticRegression, TrainingSettings, predict_votes, train_teachers
from teacher_student.teachers.records import ShardPasses
from teacher_student.teachers.seeds import shard_seed

D, C, SEED = 6, 3, 5
NETWORKS = {"logistic": partial(LogisticRegression, D, C), "MLP": partial(MLP, D, C, (7, 5))}
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
}


def made(sizes=(9, 40, 3, 21, 8)):
    generator = np.random.default_rng(0)
    n = sum(sizes)
    features, labels = generator.standard_normal((n, D)), generator.integers(0, C, n)
    return features, labels, generator.permutation(n), np.cumsum([0, *sizes])


def alone(data, shard, network, kind, options, settings, decay):
    """One teacher by itself: a module, an optimiser, a loop."""
    features, labels, order, offsets = data
    rows = order[offsets[shard] : offsets[shard + 1]]
    torch.manual_seed(shard_seed(SEED, shard, "start"))
    module = network().double()
    optimizer = kind(module.parameters(), lr=settings.learning_rate, weight_decay=decay, **options)
    passes = ShardPasses(len(rows), SEED, shard)
    for step in range(settings.steps):
        batch = rows[passes.take(step * settings.batch_size, settings.batch_size)]
        optimizer.param_groups[0]["lr"] = settings.learning_rate_at(step)
        optimizer.zero_grad()
        values, targets = torch.from_numpy(features[batch]), torch.from_numpy(labels[batch])
        nn.functional.cross_entropy(module(values), targets, label_smoothing=settings.label_smoothing).backward()
        if settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(module.parameters(), settings.clip_norm)
        optimizer.step()
    return module.eval()


@pytest.mark.parametrize("engine", ["batched", "vmap", "sequential"])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_stacked_equals_alone(engine, network, optimizer):
    decays = (0.01, 0.0, 0.1, 0.02, 0.03)
    if engine == "batched" and network == "logistic":
        decays = (0.01,) * 5
    settings = TrainingSettings(
        optimizer=optimizer,
        learning_rate=0.03,
        weight_decay=decays,
        steps=25,
        batch_size=8,
        schedule="cosine",
        warmup_steps=3,
        label_smoothing=0.1,
        clip_norm=0.5,
        precision="float64",
        engine=engine,
        chunk=2,
    )
    data = made()
    ensemble = train_teachers(*data, NETWORKS[network], settings, master_seed=SEED)
    points = np.random.default_rng(1).standard_normal((50, D))
    (votes,) = predict_votes(ensemble, points)
    for shard in range(5):
        expected = alone(data, shard, NETWORKS[network], *OPTIMIZERS[optimizer], settings, decays[shard])
        for name, value in ensemble.teacher(shard).state_dict().items():
            assert (value - expected.state_dict()[name]).abs().max() <= 1e-12
        np.testing.assert_array_equal(votes[:, shard], expected(torch.from_numpy(points)).argmax(1).numpy())


def test_engines_and_chunks_agree_with_dropout():
    network = partial(MLP, D, C, (7, 5), dropout=0.4)
    ensembles = [
        train_teachers(*made(), network, TrainingSettings(steps=20, precision="float64", engine=engine, chunk=chunk))
        for engine, chunk in (("batched", 5), ("batched", 2), ("vmap", 3), ("sequential", None))
    ]
    for shard in range(5):
        states = [ensemble.teacher(shard).state_dict() for ensemble in ensembles]
        for name, value in states[0].items():
            assert all((value - state[name]).abs().max() <= 1e-12 for state in states[1:])


def test_dropout_drops_the_stated_share_and_differs_between_teachers_layers_and_steps():
    from teacher_student.teachers.dropout import drop
    from teacher_student.teachers.seeds import derived_keys

    keys = derived_keys(torch.tensor([3, 4]), 9)
    kept = drop(torch.ones(2, 100, 500), keys, 0.3) > 0
    assert abs(kept.double().mean() - 0.7) < 6 * (0.21 / 100_000) ** 0.5
    assert not torch.equal(kept[0], kept[1])
    assert len({int(derived_keys(torch.tensor(3), counter)) for counter in range(1000)}) == 1000


def test_every_pass_is_a_permutation_and_can_be_read_from_anywhere():
    for size in (1, 7, 300, 5000):
        passes = ShardPasses(size, SEED, 3)
        sequence = passes.take(0, 3 * size)
        assert all(sorted(part) == list(range(size)) for part in sequence.reshape(3, size))
        np.testing.assert_array_equal(
            ShardPasses(size, SEED, 3).take(size + size // 2, size), sequence[size + size // 2 :][:size]
        )


def test_initial_bias_and_prediction_offset_are_public_constants():
    data = made()
    network = partial(LogisticRegression, D, C, initial_bias=[0.0, 5.0, 0.0], prediction_offset=[0.0, 0.0, 1e6])
    ensemble = train_teachers(*data, network, TrainingSettings(steps=1, learning_rate=1e-6))
    assert ensemble.teacher(0)[1].bias.round().tolist() == [0.0, 5.0, 0.0]
    (votes,) = predict_votes(ensemble, data[0].astype(np.float32))
    assert (votes == 2).all()


def test_uint8_images_are_read_as_shares_of_255():
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, (30, 2, 3), dtype=np.uint8), generator.integers(0, C, 30)
    rest = np.arange(30), np.array([0, 10, 30])
    one = train_teachers(images, labels, *rest, NETWORKS["MLP"], TrainingSettings(steps=5))
    other = train_teachers((images / 255).astype(np.float32), labels, *rest, NETWORKS["MLP"], TrainingSettings(steps=5))
    for name, value in one.teacher(1).state_dict().items():
        torch.testing.assert_close(value, other.teacher(1).state_dict()[name])
