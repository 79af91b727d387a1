"""Memory grows with the chunk and the block, not with the number of teachers or of public points."""

from __future__ import annotations

import gc
import json
import resource
import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch

from teacher_student.aggregation.votes import add_votes, empty_counts
from teacher_student.teachers import CNN, MLP, LogisticRegression, TrainingSettings, predict_votes, train_teachers
from teacher_student.teachers.record_voters import vote_of_records

D, C = 20, 3
NETWORK = partial(MLP, D, C, (200,))
BYTES = 4 * sum(parameter.numel() for parameter in NETWORK().parameters())
"""Of one teacher's parameters."""


def made(num_teachers, shape=(D,), classes=C, records=300):
    generator = np.random.default_rng(0)
    features = generator.standard_normal((records, *shape), dtype=np.float32)
    offsets = np.linspace(0, records, num_teachers + 1).astype(np.int64)
    return features, generator.integers(0, classes, records), generator.permutation(records), offsets


def live_bytes():
    """Bytes of all tensors that are alive."""
    gc.collect()
    tensors = [value for value in gc.get_objects() if isinstance(value, torch.Tensor)]
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}.values())


def held(num_teachers, folder, monkeypatch):
    """Most bytes that are alive between two chunks, while training and while voting, above those from before."""
    before, seen = live_bytes(), []
    ensemble = train_teachers(
        *made(num_teachers),
        NETWORK,
        TrainingSettings(steps=1, chunk=2),
        checkpoint_dir=folder,
        report=lambda *_: seen.append(live_bytes()),
    )
    get = ensemble.store.get
    monkeypatch.setattr(ensemble.store, "get", lambda number: (seen.append(live_bytes()), get(number))[1])
    list(predict_votes(ensemble, made(1)[0]))
    assert len(seen) == num_teachers
    return max(seen) - before


@pytest.mark.slow
def test_teachers_on_disk_need_the_memory_of_a_chunk(tmp_path, monkeypatch):
    few, many = (held(count, tmp_path / str(count), monkeypatch) for count in (6, 30))
    assert many - few < 2 * BYTES
    few, many = (held(count, None, monkeypatch) for count in (6, 30))
    assert many - few > 20 * BYTES  # teachers in memory stay there: this is what the first figures would show


def test_points_on_disk_are_read_a_block_at_a_time(tmp_path, monkeypatch):
    points = np.random.default_rng(1).standard_normal((1_000, D), dtype=np.float32)
    np.save(tmp_path / "points.npy", points)
    on_disk = np.load(tmp_path / "points.npy", mmap_mode="r")
    ensemble = train_teachers(*made(6), NETWORK, TrainingSettings(steps=1))
    step, seen = ensemble.predict_step, []
    monkeypatch.setattr(ensemble, "predict_step", lambda batch, batch_idx: (seen.append(batch[0]), step(batch, batch_idx))[1])
    votes = np.concatenate(list(predict_votes(ensemble, on_disk, block=300)))
    assert [len(points) for points in seen] == [300, 300, 300, 100]
    start, stop = on_disk.ctypes.data, on_disk.ctypes.data + on_disk.nbytes
    assert all(start <= points.data_ptr() < stop for points in seen)  # views into the file: nothing was copied into memory
    np.testing.assert_array_equal(votes, next(predict_votes(ensemble, points)))


def thousand_cnns(folder):
    settings = TrainingSettings(steps=1, batch_size=2)
    data = made(1_000, shape=(1, 28, 28), classes=10, records=2_000)
    ensemble = train_teachers(*data, partial(CNN, (1, 28, 28), 10), settings, checkpoint_dir=folder)
    (votes,) = predict_votes(ensemble, data[0][:20])
    return [*votes.shape, int((votes >= 0).sum())]


def ten_thousand_regressions(folder):
    settings = TrainingSettings(optimizer="adam", steps=50)
    data = made(10_000, shape=(105,), classes=2, records=60_000)
    ensemble = train_teachers(*data, partial(LogisticRegression, 105, 2), settings)
    (votes,) = predict_votes(ensemble, data[0][:20])
    return [*votes.shape, int((votes >= 0).sum())]


def billion_votes(folder):
    points = np.lib.format.open_memmap(f"{folder}/points.npy", mode="w+", dtype=np.float32, shape=(1_000_000, 4))
    points[:] = np.random.default_rng(1).standard_normal(points.shape, dtype=np.float32)
    data = made(1_000, shape=(4,), classes=2, records=5_000)
    ensemble = train_teachers(*data, partial(LogisticRegression, 4, 2), TrainingSettings(steps=1))
    counts, done = empty_counts(len(points), 2, num_teachers=1_000), 0
    for block in predict_votes(ensemble, points):
        add_votes(counts[done : done + len(block)], block)
        done += len(block)
    assert counts.dtype == np.uint16
    return [*counts.shape, int(counts.sum(dtype=np.int64))]


def million_record_voters(folder):
    records, block = 1_000_000, 50_000
    private = np.lib.format.open_memmap(f"{folder}/private.npy", mode="w+", dtype=np.float32, shape=(records, 50))
    generator = np.random.default_rng(1)
    for start in range(0, records, block):
        private[start : start + block] = generator.standard_normal((block, 50), dtype=np.float32)
    points, labels = generator.standard_normal((2_000, 50), dtype=np.float32), generator.integers(0, 10, records)
    counts = vote_of_records(private, labels, points, 6, num_classes=10)
    return [*counts.shape, int(counts.sum())]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "result", "gigabytes"),
    [
        (thousand_cnns, [20, 1_000, 20_000], 1.5),  # their parameters are 10.8 GB
        (ten_thousand_regressions, [20, 10_000, 200_000], 1.5),
        (billion_votes, [1_000_000, 2, 1_000_000_000], 1.5),  # a table of all votes is 2 GB
        (million_record_voters, [2_000, 10, 6_000_000], 1.5),  # a table of all distances is 8 GB
    ],
)
def test_large_ensembles_fit_into_little_memory(work, result, gigabytes, tmp_path):
    try:
        command = [sys.executable, __file__, work.__name__, str(tmp_path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    finally:
        shutil.rmtree(tmp_path)
    found, peak = json.loads(done.stdout.splitlines()[-1])
    print(f"{work.__name__}: {peak / 1e9:.2f} GB at most")
    assert found == result
    assert peak < gigabytes * 1e9


if __name__ == "__main__":
    found = globals()[sys.argv[1]](sys.argv[2])
    print(json.dumps([found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
