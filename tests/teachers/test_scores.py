"""Probabilities for soft labels: the same networks, the same offset and the same abstentions as the votes."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest

from teacher_student import ArgumentError
from teacher_student.teachers import LogisticRegression, TrainingSettings, predict_scores, predict_votes, train_teachers

OFFSET = (0.0, 0.75)


TWO = {"accelerator": "cpu", "devices": 2, "strategy": "ddp"}


def trained(num_classes: int = 2, chunk: int | None = None, options: dict | None = None):
    """Eight teachers; shard 3 is empty and shard 5 holds infinities, so that its teacher diverges."""
    rng = np.random.default_rng(0)
    labels = rng.integers(num_classes, size=80)
    features = (rng.normal(size=(80, 3)) + labels[:, None]).astype(np.float32)
    sizes = [10, 10, 10, 0, 10, 10, 10, 20]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    features[offsets[5] : offsets[6]] = np.inf
    network = functools.partial(LogisticRegression, 3, num_classes, prediction_offset=OFFSET if num_classes == 2 else None)
    settings = TrainingSettings(learning_rate=0.1, steps=20, batch_size=8, chunk=chunk)
    ensemble = train_teachers(
        features, labels, np.arange(80), offsets, network, settings, trainer_options=options, report=lambda *_: None
    )
    return ensemble, rng.normal(size=(50, 3)).astype(np.float32)


def test_scores_are_each_teachers_own_probabilities_with_the_offset():
    ensemble, points = trained()
    scores = np.concatenate(list(predict_scores(ensemble, points)))
    assert scores.dtype == np.float32
    assert np.isnan(scores).all(0).tolist() == [False, False, False, True, False, True, False, False]
    layer = ensemble.teacher(7)[1]
    logits = points @ layer.weight.detach().numpy().T + layer.bias.detach().numpy() + OFFSET
    expected = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    assert np.allclose(scores[:, 7], expected, atol=1e-6)


def test_scores_and_votes_agree_and_blocks_and_chunks_change_nothing():
    ensemble, points = trained(chunk=3)
    scores = np.concatenate(list(predict_scores(ensemble, points, block=7)))
    votes = np.concatenate(list(predict_votes(ensemble, points)))
    assert np.array_equal(np.where(np.isnan(scores), -1, scores > 0.5), votes)
    whole = np.concatenate(list(predict_scores(trained()[0], points)))
    assert np.allclose(scores, whole, atol=1e-6, equal_nan=True)


def test_more_classes_and_bad_blocks_are_refused():
    ensemble, points = trained(num_classes=3)
    with pytest.raises(ArgumentError, match="num_classes must be 2 for scores, got 3"):
        next(predict_scores(ensemble, points))
    with pytest.raises(ArgumentError, match="block must be"):
        next(predict_scores(trained()[0], points, block=0))
    assert list(predict_scores(trained()[0], points[:0])) == []


@pytest.mark.slow
def test_two_processes_give_the_scores_of_one(tmp_path):
    subprocess.run([sys.executable, "-W", "error::UserWarning", __file__, str(tmp_path)], check=True, timeout=300)
    ensemble, points = trained(chunk=2)
    expected = np.concatenate(list(predict_scores(ensemble, points, block=20)))
    for rank in range(2):
        np.testing.assert_array_equal(np.load(tmp_path / f"scores{rank}.npy"), expected)


def main(out: str) -> None:
    """What each of the two processes runs."""
    ensemble, points = trained(chunk=2, options=TWO)
    joined = np.concatenate(list(predict_scores(ensemble, points, block=20, trainer_options=TWO)))
    np.save(f"{out}/scores{ensemble.global_rank}.npy", joined)


if __name__ == "__main__":
    main(sys.argv[1])
