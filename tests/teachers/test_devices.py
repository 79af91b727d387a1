"""Teachers on a GPU, and what can be checked without one: chunk sizes, and that no step mixes devices or waits for the host.

With a GPU, `uv run pytest -m gpu -rP tests` runs all that need it.
"""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
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
from teacher_student.teachers import chunk as chunk_module
from teacher_student.teachers.chunk import ChunkTrainer, TrainedChunk, build_optimizer, untrained
from teacher_student.teachers.engines import build_engine, chunk_size
from teacher_student.teachers.module import TeacherEnsemble
from teacher_student.teachers.prediction import votes_of
from teacher_student.teachers.records import ChunkRecords
from teacher_student.teachers.store import FolderStore

from ..no_device import HostTrafficError, no_host_traffic
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


@pytest.fixture
def uncontained(monkeypatch):
    monkeypatch.setattr(chunk_module, "attempt", lambda call: call())


def chunk_of(engine, shape, device, unsigned=False):
    """A chunk of three shards, or of one; on a fake device, within its mode."""
    sizes = (4, 6, 0) if engine.lockstep else (10,)
    rows = sum(sizes) + 1
    starts, shards = tuple(np.cumsum((0, *sizes[:-1])).tolist()), tuple(range(len(sizes)))
    features = torch.zeros(rows, *shape, dtype=torch.uint8 if unsigned else torch.float32)
    labels, unusable = torch.zeros(rows, dtype=torch.int64), torch.zeros(len(sizes), dtype=torch.bool)
    return ChunkRecords(features, labels, starts, sizes, shards, unusable, torch.ones(rows)).to(torch.device(device))


def steps_without_the_host(engine, shape, device, **options):
    """Take three steps of a chunk as `train` does, where nothing may pass between host and device; return the parameters."""
    records = chunk_of(engine, shape, device, **options)
    trainer = ChunkTrainer(engine, records, 0, [0.0, 0.1, 0.2][: records.num_teachers])
    trainer._contain = engine.lockstep and device == "meta"  # in the fake mode even the host's tensors have no values
    if engine.lockstep and device == "meta":
        engine.network.to(device)  # as the first step does
    start = {key: value.to(device) for key, value in untrained(engine, records.num_teachers).items()}
    packed = engine.pack(start)
    optimizer = build_optimizer(packed, engine.settings, 0.01)
    optimizer.param_groups[0].update(fused=False, foreach=True)  # the fused update has no kernel without hardware
    rows = trainer._batches.rows(0, 3).to(device)
    with no_host_traffic():
        for step in range(3):
            trainer._step(packed, optimizer, rows[step], step)
    return packed


def engine_of(name, network=None, **changes):
    changes = {"engine": changes.pop("engine", NETWORKS[name][2]), **changes}
    example = torch.zeros(2, *NETWORKS[name][1])
    return build_engine(network or NETWORKS[name][0], settings_of(name, **changes), example, torch.device("cuda"))


@pytest.mark.parametrize(("name", "optimizer"), [("MLP", "sgd"), *((name, "adamw") for name in NETWORKS)])
def test_no_training_step_mixes_devices_or_waits_for_the_host(name, optimizer, uncontained):
    engine = engine_of(name, optimizer=optimizer, label_smoothing=0.1 if optimizer == "adamw" else 0.0)
    packed = steps_without_the_host(engine, NETWORKS[name][1], "meta", unsigned=optimizer == "adamw")
    assert all(tensor.is_meta and tensor.grad is not None for tensor in packed)


@pytest.fixture
def fake_cuda(monkeypatch):
    """Tensors that say they are on a GPU: only shapes, types and devices are computed. Autocast believes that there is one."""
    monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_: True)
    monkeypatch.setattr(chunk_module, "_cuda", lambda _: [])  # no generator of a GPU to keep
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield "cuda"


@pytest.mark.parametrize("precision", ["float64", "bfloat16"])
def test_the_batched_engine_trains_on_a_fake_gpu(precision, request, uncontained):
    engine = engine_of("MLP", precision=precision)
    device = request.getfixturevalue("fake_cuda")
    packed = steps_without_the_host(engine, NETWORKS["MLP"][1], device)
    dtype = torch.float64 if precision == "float64" else torch.float32
    assert all(tensor.grad.device.type == "cuda" and tensor.grad.dtype is dtype for tensor in packed)


class Stored:
    def __init__(self, chunk):
        self.chunk = chunk

    def get(self, number):
        return self.chunk


@pytest.mark.parametrize(
    ("name", "precision"), [("MLP", "float32"), ("MLP", "bfloat16"), ("CNN", "bfloat16"), ("ResNet", "bfloat16")]
)
def test_votes_on_a_fake_gpu(name, precision, request, monkeypatch, uncontained):
    """Points and parameters are on the device from the first to the last product; only votes leave it, once a pass."""
    engine, seen = engine_of(name, precision=precision), []
    scores = type(engine).scores

    def watched(self, stack, points):
        with no_host_traffic():
            seen.append(scores(self, stack, points))
        return seen[-1]

    monkeypatch.setattr(type(engine), "scores", watched)
    stack = untrained(engine, 3)
    device = request.getfixturevalue("fake_cuda")
    monkeypatch.setattr(engine.network, "to", lambda _: engine.network)  # its own values are not used
    trained = TrainedChunk({key: value.clone() for key, value in stack.items()}, torch.zeros(3, dtype=torch.bool), torch.zeros(3))
    sizes = {"num_teachers": 3, "num_classes": C, "master_seed": 0, "chunk": 3}
    ensemble = TeacherEnsemble(NETWORKS[name][0], engine.settings, engine=engine, store=Stored(trained), **sizes)
    points = torch.zeros(7, *NETWORKS[name][1], device=device)
    (votes,) = ensemble.predict_step((points, votes_of(C), [0]), 0)
    assert (votes.device.type, votes.shape) == ("cpu", (3, 7))
    assert [(each.device.type, each.dtype) for each in seen] == [("cuda", torch.float32)]


class OfTheHost(nn.Linear):
    def forward(self, features):
        return super().forward(features) + torch.zeros(C)


class Waiting(nn.Linear):
    def forward(self, features):
        return super().forward(features) if features.sum().item() > -1 else features[:, :C]


class Constants(nn.Linear):
    def forward(self, features):
        return super().forward(features) + torch.tensor([0.0] * C, device=features.device)


def augmented_on_the_host(features, keys):
    return features * torch.ones(features.shape[-1])


@pytest.mark.parametrize("network", [OfTheHost, Waiting, Constants])
def test_a_network_that_mixes_devices_or_waits_is_found(network, uncontained):
    engine = engine_of("logistic", partial(network, D, C), engine="sequential")
    with pytest.raises((HostTrafficError, RuntimeError), match=r"meta|aten::_local_scalar_dense|torch.tensor"):
        steps_without_the_host(engine, (D,), "meta")


def test_an_augmentation_or_a_decay_of_the_host_is_found(monkeypatch, uncontained):
    engine = engine_of("logistic", augment=augmented_on_the_host)
    with pytest.raises((HostTrafficError, RuntimeError), match="meta"):
        steps_without_the_host(engine, (D,), "meta")
    kept = ChunkTrainer.__init__

    def reading(self, *args):
        kept(self, *args)
        self._failed = self._failed.to("meta")

    monkeypatch.setattr(ChunkTrainer, "__init__", reading)
    with pytest.raises((HostTrafficError, RuntimeError), match=r"is_nonzero|_local_scalar_dense|meta"):
        steps_without_the_host(engine_of("logistic"), (D,), "meta")


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
