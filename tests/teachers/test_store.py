"""Kept teachers: kill and resume, load, refuse other trainings and damaged files."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.teachers import MLP, TrainingSettings, load_teachers, predict_votes, train_teachers
from teacher_student.teachers.chunk import UnfinishedChunk
from teacher_student.teachers.store import FolderStore

D, C, K = 6, 3, 7
NETWORK = partial(MLP, D, C, (5,))
SETTINGS = TrainingSettings(steps=10, chunk=2)


def made(seed=0):
    generator = np.random.default_rng(seed)
    n = 60
    offsets = np.concatenate([[0], np.sort(generator.integers(0, n, K - 1)), [n]])
    return generator.standard_normal((n, D)).astype(np.float32), generator.integers(0, C, n), generator.permutation(n), offsets


def votes_of(ensemble):
    return np.concatenate(list(predict_votes(ensemble, made(3)[0], block=16)))


class KilledError(Exception):
    pass


def killed_after(chunks, total=K):
    def report(done, in_all, seconds_left):
        assert in_all == total
        assert seconds_left >= 0
        if done >= chunks * 2:
            raise KilledError

    return report


def test_a_killed_training_resumes_and_ends_the_same(tmp_path):
    whole = train_teachers(*made(), NETWORK, SETTINGS)
    with pytest.raises(KilledError):
        train_teachers(*made(), NETWORK, SETTINGS, checkpoint_dir=tmp_path, report=killed_after(2))
    assert FolderStore(tmp_path).finished() == {0, 1}
    with pytest.raises(ArgumentError, match="2 of 4 are missing"):
        load_teachers(tmp_path, NETWORK)
    stamp = (tmp_path / "chunk_000000.safetensors").stat().st_mtime_ns
    resumed = train_teachers(*made(), NETWORK, SETTINGS, checkpoint_dir=tmp_path)
    assert (tmp_path / "chunk_000000.safetensors").stat().st_mtime_ns == stamp
    for teacher in range(K):
        expected = whole.teacher(teacher).state_dict()
        assert all(value.equal(expected[name]) for name, value in resumed.teacher(teacher).state_dict().items())
    np.testing.assert_array_equal(votes_of(resumed), votes_of(whole))
    np.testing.assert_array_equal(votes_of(load_teachers(tmp_path, NETWORK)), votes_of(whole))


OPTIMIZERS = {
    "sgd": {"momentum": 0.0, "weight_decay": tuple(0.1 * teacher for teacher in range(K))},
    "momentum": {"momentum": 0.9, "weight_decay": 0.1},
    "adam": {"optimizer": "adam", "label_smoothing": 0.1},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.5},
}


def same(one, other):
    states = [(one.teacher(teacher).state_dict(), other.teacher(teacher).state_dict()) for teacher in range(K)]
    return all(value.equal(expected[name]) for state, expected in states for name, value in state.items())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("engine", ["batched", "vmap"])
def test_a_training_killed_between_two_steps_resumes_and_ends_the_same(tmp_path, monkeypatch, engine, optimizer):
    monkeypatch.setattr("teacher_student.teachers.chunk._ROWS_PER_WINDOW", 2 * 32 * 3)
    settings = TrainingSettings(steps=10, chunk=2, schedule="cosine", engine=engine, **OPTIMIZERS[optimizer])
    network = partial(MLP, D, C, (5,), dropout=0.3)
    whole = train_teachers(*made(), network, settings)
    keep, saved = FolderStore.put_unfinished, []

    def killing(self, number, chunk):
        keep(self, number, chunk)
        saved.append((number, chunk.step))
        if len(saved) == 5:
            raise KilledError

    monkeypatch.setattr(FolderStore, "put_unfinished", killing)
    with pytest.raises(KilledError):
        train_teachers(*made(), network, settings, checkpoint_dir=tmp_path, save_seconds=0)
    assert saved == [(0, 3), (0, 6), (0, 9), (1, 3), (1, 6)]
    resumed = train_teachers(*made(), network, settings, checkpoint_dir=tmp_path, save_seconds=0)
    assert (saved[5], saved[-1]) == ((1, 9), (3, 6))  # the last chunk holds one teacher, hence more steps in a window
    assert not list(tmp_path.glob("unfinished*"))
    assert same(resumed, whole)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_teachers_trained_one_after_the_other_resume_and_end_the_same(tmp_path, optimizer):
    settings = TrainingSettings(steps=10, engine="sequential", warmup_steps=3, **OPTIMIZERS[optimizer])
    network = partial(MLP, D, C, (5,), dropout=0.3)
    whole = train_teachers(*made(), network, settings)
    with pytest.raises(KilledError):
        train_teachers(*made(), network, settings, checkpoint_dir=tmp_path, report=killed_after(2))
    assert FolderStore(tmp_path).finished() == {0, 1, 2, 3}
    assert same(train_teachers(*made(), network, settings, checkpoint_dir=tmp_path), whole)


@pytest.mark.parametrize("optimizer", ["momentum", "adam", "adamw"])
def test_a_training_that_forgets_its_optimizer_does_not_end_the_same(tmp_path, monkeypatch, optimizer):
    monkeypatch.setattr("teacher_student.teachers.chunk._ROWS_PER_WINDOW", 2 * 32 * 3)
    monkeypatch.setattr(UnfinishedChunk, "restore", lambda self, optimizer: None)
    settings = TrainingSettings(steps=10, chunk=2, **OPTIMIZERS[optimizer])
    whole = train_teachers(*made(), NETWORK, settings)
    keep = FolderStore.put_unfinished

    def killing(self, number, chunk):
        keep(self, number, chunk)
        raise KilledError

    monkeypatch.setattr(FolderStore, "put_unfinished", killing)
    with pytest.raises(KilledError):
        train_teachers(*made(), NETWORK, settings, checkpoint_dir=tmp_path, save_seconds=0)
    monkeypatch.setattr(FolderStore, "put_unfinished", keep)
    assert not same(train_teachers(*made(), NETWORK, settings, checkpoint_dir=tmp_path), whole)


def test_a_finished_training_is_not_repeated(tmp_path):
    train_teachers(*made(), NETWORK, SETTINGS, checkpoint_dir=tmp_path)
    train_teachers(*made(), NETWORK, SETTINGS, checkpoint_dir=tmp_path, report=killed_after(0))


def test_the_manifest_says_what_trained_and_its_chunk_holds(tmp_path):
    train_teachers(*made(), NETWORK, SETTINGS, checkpoint_dir=tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["engine"], manifest["chunk"], manifest["num_teachers"]) == ("batched", 2, K)
    assert manifest["settings"]["steps"] == 10
    assert tmp_path.stat().st_mode & 0o777 in (0o700, 0o755)


def test_the_folder_is_private(tmp_path):
    train_teachers(*made(), NETWORK, SETTINGS, checkpoint_dir=tmp_path / "teachers")
    assert (tmp_path / "teachers").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"data": made(1)}, "records"),
        ({"settings": TrainingSettings(steps=11, chunk=2)}, "settings"),
        ({"seed": 1}, "master_seed"),
        ({"network": partial(MLP, D, C, (6,))}, "network"),
        ({"network": partial(MLP, D, C, (5,), initial_bias=[0, 0, 1])}, "start"),
    ],
)
def test_teachers_of_another_training_are_refused(tmp_path, change, named):
    train_teachers(*made(), NETWORK, SETTINGS, checkpoint_dir=tmp_path)
    with pytest.raises(ArgumentError, match=f"its {named} differs"):
        train_teachers(
            *change.get("data", made()),
            change.get("network", NETWORK),
            change.get("settings", SETTINGS),
            master_seed=change.get("seed", 0),
            checkpoint_dir=tmp_path,
        )


def test_damage_is_reported_in_one_line(tmp_path):
    with pytest.raises(ArgumentError, match="must hold trained teachers"):
        load_teachers(tmp_path, NETWORK)
    train_teachers(*made(), NETWORK, SETTINGS, checkpoint_dir=tmp_path)
    with pytest.raises(ArgumentError, match="must be the one"):
        load_teachers(tmp_path, partial(MLP, D, C, (6,)))
    (tmp_path / "chunk_000001.safetensors").write_bytes(b"damaged")
    with pytest.raises(ArgumentError, match="cannot read chunk_000001"):
        votes_of(load_teachers(tmp_path, NETWORK))
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ArgumentError, match="readable manifest"):
        load_teachers(tmp_path, NETWORK)
