"""Teachers split over two processes vote as in one."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch

from teacher_student.arguments import ArgumentError
from teacher_student.teachers import MLP, TrainingSettings, predict_votes, train_teachers

D, C, K = 6, 3, 7
SETTINGS = TrainingSettings(steps=8, chunk=2)


def made():
    generator = np.random.default_rng(0)
    n = 60
    offsets = np.concatenate([[0, 0], np.sort(generator.integers(0, n, K - 2)), [n]])
    return generator.standard_normal((n, D)).astype(np.float32), generator.integers(0, C, n), generator.permutation(n), offsets


TWO = {"accelerator": "cpu", "devices": 2, "strategy": "ddp"}


def main(out, altered):
    """What each of the two processes runs; the records of shard `altered` are others, where it is not -1."""
    features, labels, order, offsets = made()
    if altered >= 0:
        labels[order[offsets[altered] : offsets[altered + 1]]] = 0
    ensemble = train_teachers(features, labels, order, offsets, partial(MLP, D, C, (5,)), SETTINGS, trainer_options=TWO)
    own = [teacher for teacher in range(K) if teacher // SETTINGS.chunk in ensemble.store.finished()]
    weights = {str(j): torch.nn.utils.parameters_to_vector(ensemble.teacher(j).parameters()).detach().numpy() for j in own}
    np.savez(f"{out}/weights{ensemble.global_rank}.npz", **weights)
    joined = np.concatenate(list(predict_votes(ensemble, features, block=25, trainer_options=TWO)))
    np.save(f"{out}/votes{ensemble.global_rank}.npy", joined)
    np.save(f"{out}/chunks{ensemble.global_rank}.npy", sorted(ensemble.store.finished()))


def two_processes(folder, altered=-1):
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-W", "error::UserWarning", __file__, str(folder), str(altered)]
    subprocess.run(command, check=True, timeout=300)
    return {int(name): weights for rank in range(2) for name, weights in np.load(folder / f"weights{rank}.npz").items()}


@pytest.mark.slow
def test_altering_a_shard_leaves_all_other_teachers_of_both_processes_bit_identical(tmp_path):
    before, altered = two_processes(tmp_path / "before"), 4
    after = two_processes(tmp_path / "after", altered)
    assert sorted(before) == sorted(after) == list(range(K))
    assert [j for j in range(K) if not np.array_equal(before[j], after[j])] == [altered]


@pytest.mark.slow
def test_two_processes_give_the_votes_of_one(tmp_path):
    two_processes(tmp_path)
    ensemble = train_teachers(*made(), partial(MLP, D, C, (5,)), SETTINGS)
    (expected,) = predict_votes(ensemble, made()[0])
    for rank in range(2):
        np.testing.assert_array_equal(np.load(tmp_path / f"votes{rank}.npy"), expected)
        assert np.load(tmp_path / f"chunks{rank}.npy").tolist() == [rank, rank + 2]


def test_strategies_that_share_parameters_are_refused():
    for strategy in ("fsdp", "deepspeed", "ddp_spawn"):
        with pytest.raises(ArgumentError, match=r"trainer\.strategy must be auto or ddp"):
            train_teachers(*made(), partial(MLP, D, C), SETTINGS, trainer_options={"strategy": strategy})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
