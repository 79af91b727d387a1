"""Teachers on a GPU, and their chunk sizes without one. With one, `uv run pytest -m gpu -rP tests` runs all that need it."""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

from teacher_student.teachers import (
    CNN,
    MLP,
    LogisticRegression,
    ResNet,
    ShiftAndFlip,
    TrainingSettings,
    load_teachers,
    predict_votes,
    train_teachers,
)
from teacher_student.teachers.engines import build_engine, chunk_size
from teacher_student.teachers.store import FolderStore

from .altered import ALTERATIONS, differing, exchanged, flat, shards_of

IMAGE, D, C = (2, 8, 8), 6, 3
GPU = {"accelerator": "gpu", "devices": 1}
needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator")]

NETWORKS = {
    "logistic": (partial(LogisticRegression, D, C), (D,), "batched"),
    "MLP": (partial(MLP, D, C, (7, 5), dropout=0.3), (D,), "batched"),
    "MLP vmap": (partial(MLP, D, C, (7,), dropout=0.3), (D,), "vmap"),
    "MLP sequential": (partial(MLP, D, C, (7,), dropout=0.3), (D,), "sequential"),
    "CNN": (partial(CNN, IMAGE, C, filters=(3, 4), hidden=(5,), dropout=0.2), IMAGE, "vmap"),
    "CNN sequential": (partial(CNN, IMAGE, C, filters=(3, 4), hidden=(5,)), IMAGE, "sequential"),
    "ResNet": (partial(ResNet, IMAGE, C, blocks=(1,), widths=(4,)), IMAGE, "vmap"),
}


def settings_of(name, **changes):
    image = NETWORKS[name][1] is IMAGE
    common = {"steps": 8, "batch_size": 5, "learning_rate": 0.02, "engine": NETWORKS[name][2], "chunk": 2, "clip_norm": 1.0}
    return TrainingSettings(**{**common, "augment": ShiftAndFlip(1) if image else None, **changes})


def parts_of(name):
    return shards_of([11, 0, 4, 30, 1], NETWORKS[name][1])


def states(ensemble):
    return [ensemble.teacher(index).state_dict() for index in range(ensemble.num_teachers)]


def kept_bytes(network, shape, batch):
    """What one teacher's step keeps on its way forward, and its parameters with gradients and momentum, counted here."""
    sizes = {}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.update({t.data_ptr(): t.nbytes}) or t, lambda t: t):
        loss = functional.cross_entropy(network(torch.zeros(batch, *shape)), torch.zeros(batch, dtype=torch.int64))
    assert torch.isfinite(loss)
    return sum(sizes.values()) + 3 * sum(parameter.nbytes for parameter in network.parameters())


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (partial(MLP, 784, 10, (128,)), (784,)),
        (partial(CNN, (1, 28, 28), 10), (1, 28, 28)),
        (partial(ResNet, (3, 32, 32), 10), (3, 32, 32)),
    ],
)
def test_a_chunk_fits_into_an_accelerators_memory_and_uses_it(network, shape, monkeypatch):
    memory = 24e9
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=memory))
    settings, record, cuda = TrainingSettings(engine="vmap"), torch.zeros(shape), torch.device("cuda")
    engine = build_engine(network, settings, torch.zeros(2, *shape), torch.device("cpu"))
    chunk = chunk_size(engine, settings, 10**6, record, cuda)
    assert 0.15 * memory < chunk * kept_bytes(network(), shape, settings.batch_size) < 0.55 * memory
    assert chunk_size(engine, settings, 7, record, cuda) == 7


def on_gpu(name, parts, settings, **options):
    return train_teachers(*flat(parts), NETWORKS[name][0], settings, trainer_options=GPU, **options)


@pytest.mark.parametrize("optimizer", [pytest.param(name, marks=needs_gpu) for name in ("sgd", "adam", "adamw")])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_gpu_trains_the_teachers_of_a_cpu(name, optimizer):
    settings = settings_of(name, optimizer=optimizer, precision="float64", weight_decay=(0.01, 0.0, 0.1, 0.02, 0.0))
    parts = parts_of(name)
    ours = on_gpu(name, parts, settings)
    theirs = train_teachers(*flat(parts), NETWORKS[name][0], settings, trainer_options={"accelerator": "cpu"})
    for one, other in zip(states(ours), states(theirs), strict=True):
        assert all((value - other[key]).abs().max() <= 1e-10 for key, value in one.items())
    (votes,), (expected,) = (
        predict_votes(ensemble, flat(parts)[0], trainer_options=options)
        for ensemble, options in ((ours, GPU), (theirs, {"accelerator": "cpu"}))
    )
    np.testing.assert_array_equal(votes, expected)
    assert (votes[:, 1] == -1).all()


@pytest.mark.parametrize("precision", [pytest.param(name, marks=needs_gpu) for name in ("float32", "bfloat16")])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_gpu_keeps_teachers_apart(name, precision):
    parts, settings = parts_of(name), settings_of(name, precision=precision)
    base = on_gpu(name, parts, settings)
    for alteration, alter in ALTERATIONS.items():
        assert differing(base, on_gpu(name, exchanged(parts, 3, alter), settings)) == {3}, alteration


class KilledError(Exception):
    pass


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs_gpu) for name in ("MLP", "MLP vmap", "CNN")])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_killed_training_resumes_on_a_gpu(name, optimizer, tmp_path, monkeypatch):
    monkeypatch.setattr("teacher_student.teachers.chunk._ROWS_PER_WINDOW", 2 * 5 * 3)
    parts, settings = parts_of(name), settings_of(name, optimizer=optimizer)
    whole = on_gpu(name, parts, settings)
    keep, saved = FolderStore.put_unfinished, []

    def killing(self, number, chunk):
        keep(self, number, chunk)
        saved.append(number)
        if len(saved) == 3:
            raise KilledError

    monkeypatch.setattr(FolderStore, "put_unfinished", killing)
    with pytest.raises(KilledError):
        on_gpu(name, parts, settings, checkpoint_dir=tmp_path, save_seconds=0)
    resumed = on_gpu(name, parts, settings, checkpoint_dir=tmp_path, save_seconds=0)
    assert not differing(resumed, whole)
    points = flat(parts)[0]
    (votes,) = predict_votes(load_teachers(tmp_path, NETWORKS[name][0]), points, trainer_options=GPU)
    np.testing.assert_array_equal(votes, next(predict_votes(whole, points, trainer_options=GPU)))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_records_and_points_may_be_tensors_of_any_device(device):
    features, labels, order, offsets = (torch.as_tensor(array).to(device) for array in flat(parts_of("logistic")))
    features.requires_grad_()
    network, settings = NETWORKS["logistic"][0], settings_of("logistic")
    ensemble = train_teachers(features, labels, order, offsets, network, settings)
    (votes,) = predict_votes(ensemble, features)
    np.testing.assert_array_equal(votes, next(predict_votes(ensemble, flat(parts_of("logistic"))[0])))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "shape", "teachers"),
    [
        pytest.param(partial(MLP, 784, 10, (128,)), (784,), 10_000, marks=needs_gpu, id="MLP"),
        pytest.param(partial(CNN, (1, 28, 28), 10), (1, 28, 28), 1_000, marks=needs_gpu, id="CNN"),
        pytest.param(partial(ResNet, (3, 32, 32), 10), (3, 32, 32), 1_000, marks=needs_gpu, id="ResNet"),
    ],
)
def test_large_ensembles_fit_onto_a_gpu(network, shape, teachers, tmp_path):
    generator = np.random.default_rng(0)
    features, labels = generator.standard_normal((60_000, *shape), dtype=np.float32), generator.integers(0, 10, 60_000)
    order, offsets = generator.permutation(60_000), np.linspace(0, 60_000, teachers + 1).astype(np.int64)
    start = time.perf_counter()
    settings = TrainingSettings(learning_rate=0.01, steps=100)
    ensemble = train_teachers(features, labels, order, offsets, network, settings, trainer_options=GPU, checkpoint_dir=tmp_path)
    seconds, peak = time.perf_counter() - start, torch.cuda.max_memory_allocated() / 1e9
    print(f"{teachers} x {network.func.__name__}, {ensemble.engine.name} by {ensemble.chunk}: {seconds:.1f} s, {peak:.1f} GB")
    (votes,) = predict_votes(ensemble, features[:100], trainer_options=GPU)
    assert (votes >= 0).all()
