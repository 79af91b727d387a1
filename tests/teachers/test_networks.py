"""Image networks: stacked equals sequential, isolation, conversion, augmentation."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

from teacher_student.arguments import ArgumentError
from teacher_student.teachers import CNN, ResNet, ShiftAndFlip, TrainingSettings, group_normalized, predict_votes, train_teachers
from teacher_student.teachers.engines.sequential import lay_out

SHAPE, C = (2, 8, 8), 3
NETWORKS = {
    "CNN": partial(CNN, SHAPE, C, filters=(3, 4), hidden=(5,), dropout=0.2),
    "ResNet": partial(ResNet, SHAPE, C, blocks=(1, 1), widths=(4, 8)),
}


def made(sizes=(5, 0, 9)):
    parts = []
    for shard, size in enumerate(sizes):
        generator = np.random.default_rng(shard)
        parts.append((generator.standard_normal((size, *SHAPE)).astype(np.float32), generator.integers(0, C, size)))
    return flat(parts), parts


def flat(parts):
    features, labels = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return features, labels, np.arange(len(labels)), np.cumsum([0, *[len(part[1]) for part in parts]])


def states(ensemble):
    return [ensemble.teacher(j).state_dict() for j in range(ensemble.num_teachers)]


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("name", NETWORKS)
def test_engines_agree(name, optimizer):
    data, _ = made()
    results = [
        states(
            train_teachers(
                *data,
                NETWORKS[name],
                TrainingSettings(
                    steps=6,
                    batch_size=4,
                    learning_rate=0.01,
                    optimizer=optimizer,
                    precision="float64",
                    engine=engine,
                    augment=ShiftAndFlip(2),
                ),
            )
        )
        for engine in ("vmap", "sequential")
    ]
    for one, other in zip(*results, strict=True):
        assert all((value - other[key]).abs().max() <= 1e-12 for key, value in one.items())


@pytest.mark.parametrize("engine", ["vmap", "sequential"])
@pytest.mark.parametrize("name", NETWORKS)
def test_isolation(name, engine):
    settings = TrainingSettings(steps=3, batch_size=4, learning_rate=0.01, engine=engine, augment=ShiftAndFlip(1), clip_norm=1.0)
    _, parts = made()
    base = train_teachers(*flat(parts), NETWORKS[name], settings)
    large = made((40,))[1][0]
    changes = [
        (parts[0][0][:0], parts[0][1][:0]),
        (np.full_like(parts[0][0], np.nan), parts[0][1]),
        large,
        (-parts[0][0], parts[0][1]),
    ]
    for change in changes:
        other = train_teachers(*flat([change, *parts[1:]]), NETWORKS[name], settings)
        for one, two in zip(states(base)[1:], states(other)[1:], strict=True):
            assert all(value.equal(two[key]) for key, value in one.items())
        assert not all(value.equal(states(other)[0][key]) for key, value in states(base)[0].items())


def test_convolutions_on_a_cpu_are_sequential_and_vote():
    data, _ = made()
    ensemble = train_teachers(*data, NETWORKS["CNN"], TrainingSettings(steps=2))
    assert (ensemble.engine.name, ensemble.chunk) == ("sequential", 1)
    (votes,) = predict_votes(ensemble, data[0])
    assert votes.shape == (14, 3)
    assert (votes[:, 1] == -1).all()
    expected = ensemble.teacher(0)(torch.from_numpy(data[0])).argmax(1)
    np.testing.assert_array_equal(votes[:, 0], expected)


def test_layouts_of_a_cpu_change_no_values():
    network = CNN((1, 12, 12), C, filters=(6, 7), hidden=(5,)).double()
    laid_out, images = copy.deepcopy(network), torch.randn(4, 1, 12, 12, dtype=torch.float64)
    lay_out(laid_out)
    layouts = {}
    for place, layer in enumerate(laid_out):
        layer.register_forward_hook(
            lambda _, inputs, __, place=place: layouts.update({place: inputs[0].is_contiguous(memory_format=torch.channels_last)})
        )
    outputs = [module(images) for module in (network, laid_out)]
    assert [layouts[place] for place in (0, 2, 3, 5)] == [True, True, False, True]  # convolution, pooling, 5 x 5 x 6, pooling
    assert (outputs[0] - outputs[1]).abs().max() <= 1e-12
    for output in outputs:
        output.square().sum().backward()
    for one, other in zip(network.parameters(), laid_out.parameters(), strict=True):
        assert (one.grad - other.grad).abs().max() <= 1e-12 * one.grad.abs().max()
    grouped = ResNet(SHAPE, C, blocks=(1,), widths=(4,))
    lay_out(grouped)
    assert not any(module._forward_pre_hooks for module in grouped.modules())


def test_published_shape():
    network = CNN((1, 28, 28), 10)
    assert sum(parameter.numel() for parameter in network.parameters()) == 2_691_274
    assert network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert ResNet((3, 32, 32), 10, blocks=(3, 3, 3))(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_torchvision_models_are_converted():
    original = torchvision.models.resnet18(num_classes=C)
    converted = group_normalized(original)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in converted.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in original.modules())
    assert not list(converted.buffers())
    assert converted(torch.zeros(2, 3, 32, 32)).shape == (2, C)


def test_augmentation_is_per_teacher_and_moves_whole_images():
    images = torch.arange(1.0, 17).reshape(1, 1, 1, 4, 4).expand(2, 50, 1, 4, 4)
    keys = torch.tensor([1, 2])
    moved = ShiftAndFlip(1)(images, keys)
    assert not moved[0].equal(moved[1])
    assert moved[1:].equal(ShiftAndFlip(1)(images[1:], keys[1:]))
    kept = {tuple(image.flatten().tolist()) for image in moved.flatten(0, 2)}
    assert 10 < len(kept) <= 18
    assert tuple(range(1, 17)) in kept
    assert ShiftAndFlip(0, flip=False)(images, keys).equal(images)
    with pytest.raises(ArgumentError, match="augment must get images"):
        ShiftAndFlip(1)(torch.zeros(2, 3, 4), keys)
    with pytest.raises(ArgumentError, match="image_shape must be"):
        CNN((28, 28), 10)
