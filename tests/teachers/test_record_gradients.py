"""Record gradients: held against a literal loop, never longer than is paid for, and independent of each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from teacher_student.arguments import ArgumentError
from teacher_student.teachers import record_gradients
from teacher_student.teachers.record_gradients import RecordGradients, WholeFeatures
from teacher_student.teachers.record_voters import IntegerGrid

CLASSES, STEPS = 3, 64
HOSTILE = (0.0, 1.0, -1.0, 1e-30, 1e18, -1e18, 3e38, np.inf, -np.inf, np.nan)


def _data(records=40, points=25, features=6, seed=0):
    draw = np.random.default_rng(seed)
    private = draw.normal(size=(records, features)).astype(np.float32)
    public = draw.normal(size=(points, features)).astype(np.float32)
    return private, draw.integers(0, CLASSES, records), public, draw.normal(size=(features + 1, CLASSES))


def _gradients(features, labels, points, weights, norm=0.2, ids=None):
    return RecordGradients(features, labels, points, steps=STEPS, ids=ids).sums(weights, norm)


def squares(matrix):
    return sum(int(value) ** 2 for value in matrix.ravel().tolist())  # Python's integers do not overflow


def _literally(features, labels, points, weights, norm, ids):
    """Do what the module says one record after the other, in Python's integers and in softmax's own formula."""
    grid, length = IntegerGrid.fit(points), points.shape[1] + 1
    total = np.zeros(weights.shape, dtype=np.int64)
    for person in dict.fromkeys(ids):
        own, rows = np.zeros(weights.shape), [row for row, owner in enumerate(ids) if owner == person]
        for row in rows:
            if not np.isfinite(features[row] ** 2).all() or not 0 <= labels[row] < CLASSES:
                continue
            cells = [int(value) for value in grid.apply(features[row : row + 1])[0]]
            size = math.sqrt(sum(cell * cell for cell in cells) or 1)
            known = [math.trunc(cell * (STEPS * math.sqrt(length - 1) / size)) for cell in cells] + [STEPS]
            logits = np.array(known) @ weights / (STEPS * math.sqrt(length))
            residual = np.eye(CLASSES)[labels[row]] - np.exp(logits) / np.exp(logits).sum()
            shrink = min(1.0, norm * math.sqrt(CLASSES) / np.linalg.norm(residual))
            own += np.outer(known, residual * shrink / norm * STEPS)
        total += np.trunc(own / len(rows)).astype(np.int64)
    return total


@pytest.mark.parametrize("norm", [0.1, 0.5])
@pytest.mark.parametrize("persons", [40, 9])
def test_the_sums_are_those_of_a_literal_loop(norm, persons):
    """Up to the rounding of residuals: one step of each for each of 40 records, and the table of exponentials."""
    features, labels, points, weights = _data()
    features[3], features[5, 2], labels[7] = np.nan, np.inf, CLASSES
    ids = np.arange(40) % persons
    found = _gradients(features, labels, points, weights, norm, ids)
    wanted = _literally(features, labels, points, weights, norm, ids.tolist())
    assert np.abs(found - wanted).max() <= 0.03 * np.abs(wanted).max()


@pytest.mark.parametrize("features", [1, 7, 300])
@pytest.mark.parametrize("norm", [1e-6, 0.08, 0.5, 1e3])
def test_no_gradient_is_longer_than_is_paid_for(features, norm):
    draw = np.random.default_rng(features)
    points = draw.normal(size=(20, features)).astype(np.float32)
    odd = draw.choice(HOSTILE, size=(30, features)).astype(np.float32)
    plain = draw.normal(size=(30, features)) * 10.0 ** draw.integers(-6, 7, (30, 1))
    weights = draw.normal(size=(features + 1, CLASSES)) * 10.0 ** draw.integers(-3, 12)
    bound = (STEPS**2) ** 2 * (features + 1) * CLASSES
    longest = 0
    for row in np.concatenate([odd, plain.astype(np.float32)]):
        for label in (-1, 0, CLASSES - 1, CLASSES):
            longest = max(longest, squares(_gradients(row[None], np.array([label]), points, weights, norm)))
    assert longest <= bound
    if norm < 0.5:
        assert longest > 0.8 * bound  # the budget is used, and an unclipped residual would be far above it


def test_unclipped_residuals_and_features_are_longer_than_is_paid_for(monkeypatch):
    """The twin of the bound: whole numbers as they are. The lengths in the test above are not those of harmless data."""
    features, labels, points, weights = _data(records=30)
    bound = (STEPS**2) ** 2 * 7 * CLASSES
    monkeypatch.setattr(record_gradients, "_shrunk", lambda whole, most, _: whole * min(most, 1e3))
    rows = [_gradients(features[row : row + 1], labels[row : row + 1], points, weights, 0.05) for row in range(30)]
    assert max(squares(row) for row in rows) > bound


@pytest.mark.parametrize("change", ["removed", "nan", "3e38", "no class"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_record_moves_the_sums_by_its_own_gradient_alone(change, threads, monkeypatch):
    """Bit for bit, whatever the blocks and the threads of the library."""
    features, labels, points, weights = _data(records=2000, points=200, features=64)
    with threadpool_limits(threads):
        whole = _gradients(features, labels, points, weights)
    monkeypatch.setattr(record_gradients, "_BLOCK_CELLS", 65 * 7)
    without = _gradients(features[1:], labels[1:], points, weights)
    own = _gradients(features[:1], labels[:1], points, weights)
    assert np.array_equal(whole - without, own)
    assert own.any()
    if change == "removed":
        return
    changed, classes = features.copy(), labels.copy()
    if change == "no class":
        classes[0] = -1
    else:
        changed[0, 3] = float(change)
    assert np.array_equal(_gradients(changed, classes, points, weights), without)


def test_a_person_gives_the_mean_however_many_records():
    """The twin, a gradient for each record, moves the sums by 50 times as much as is paid for."""
    features, labels, points, weights = _data()
    features, labels = np.repeat(features[:1], 50, axis=0), np.repeat(labels[:1], 50)
    own = _gradients(features[:1], labels[:1], points, weights)
    assert np.array_equal(_gradients(features, labels, points, weights, ids=np.zeros(50, dtype=np.int64)), own)
    twin = _gradients(features, labels, points, weights)
    assert np.array_equal(twin, 50 * own)
    assert squares(twin) > (STEPS**2) ** 2 * 7 * CLASSES


def test_the_mean_of_a_person_is_no_longer_than_is_paid_for():
    features, labels, points, weights = _data(records=200)
    for person in range(20):
        rows = slice(10 * person, 10 * person + 10)
        found = _gradients(features[rows], labels[rows], points, weights, 0.01, np.zeros(10, dtype=np.int64))
        assert squares(found) <= (STEPS**2) ** 2 * 7 * CLASSES


def test_the_sum_follows_the_gradient_of_cross_entropy():
    """Torch's own gradient, for a norm so large that nothing is shrunk."""
    features, labels, points, weights = _data(records=500)
    unit = torch.from_numpy(WholeFeatures(points, STEPS).unit(features))
    model = torch.from_numpy(weights).requires_grad_()
    torch.nn.functional.cross_entropy(unit @ model, torch.from_numpy(labels), reduction="sum").backward()
    found = _gradients(features, labels, points, weights, 1.0)
    scale = STEPS**2 * math.sqrt(7)  # a residual of 1 counts as 64, a feature of 1 as 64 * sqrt(D)
    assert torch.from_numpy(found / scale).numpy() == pytest.approx(-model.grad.numpy(), abs=0.02 * 500 / 7)


def test_bad_arguments_get_one_line():
    features, labels, points, weights = _data()
    with pytest.raises(ArgumentError, match="weights must have 7 rows"):
        _gradients(features, labels, points, weights[:-1])
    with pytest.raises(ArgumentError, match="norm"):
        _gradients(features, labels, points, weights, 0.0)
    with pytest.raises(ArgumentError, match="features must be at most 65535 numbers"):
        WholeFeatures(np.zeros((2, 70_000), dtype=np.float32), STEPS)
    assert not _gradients(features[:0], labels[:0], points, weights).any()
