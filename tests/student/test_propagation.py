"""Propagated labels: right on clusters under heavy noise, also where nothing was asked; odd graphs do no harm."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from teacher_student import ArgumentError
from teacher_student.student import StudentSettings, Targets, fit_student, predict_probabilities
from teacher_student.student.targets import propagate

RNG = np.random.default_rng(0)
CLASSES = np.arange(300) % 3
POINTS = (np.eye(3)[CLASSES] * 6 + RNG.standard_normal((300, 3))).astype(np.float32)
SHARES = (np.eye(3)[CLASSES] + 1.2 * RNG.standard_normal((300, 3))).astype(np.float32)
ASKED = np.arange(300) % 4 > 0


def targets(asked=ASKED):
    return Targets(SHARES, asked.astype(np.float32), ~asked)


def right(found):
    return (found.probabilities.argmax(axis=1) == CLASSES).mean()


def test_neighbours_share_the_noise():
    found = propagate(POINTS, targets(), strength=20.0, neighbours=5)
    assert right(targets()) < 0.75
    assert right(found) > 0.9
    assert (found.probabilities[~ASKED].argmax(axis=1) == CLASSES[~ASKED]).mean() > 0.9
    assert set(np.unique(found.probabilities)) == {0.0, 1.0}
    assert found.weights.all()
    assert not found.unlabeled.any()


def test_a_weak_pull_leaves_the_largest_share():
    found = propagate(POINTS, targets(), strength=1e-4, neighbours=5)
    assert np.array_equal(found.probabilities[ASKED].argmax(axis=1), SHARES[ASKED].argmax(axis=1))


def test_points_that_are_left_out_stay_out():
    dropped = Targets(SHARES, ASKED.astype(np.float32), np.zeros(300, dtype=bool))
    found = propagate(POINTS, dropped, strength=20.0, neighbours=5)
    assert np.array_equal(found.weights > 0, ASKED)
    assert np.array_equal(found.probabilities[~ASKED], SHARES[~ASKED])


@pytest.mark.parametrize("points", [POINTS[:1], np.zeros((4, 3), dtype=np.float32), np.repeat(POINTS[:2], 50, axis=0)])
def test_odd_graphs(points):
    """One point; all points in one place; two places far apart, in one of which nothing was asked."""
    asked = np.arange(len(points)) < max(1, len(points) // 2)
    given = Targets(SHARES[: len(points)], asked.astype(np.float32), ~asked)
    found = propagate(points, given, strength=10.0, neighbours=5)
    assert np.isfinite(found.probabilities).all()
    assert found.weights.all()


def test_the_student_learns_what_was_propagated():
    def accuracy(**changes):
        settings = StudentSettings(epochs=40, batch_size=100, learning_rate=0.05, **changes)
        student = fit_student(lambda: nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 3)), POINTS, targets(), settings)
        return (predict_probabilities(student.publishable, POINTS).argmax(axis=1) == CLASSES).mean()

    assert accuracy(propagation=20.0) > 0.9
    assert accuracy(propagation=20.0) > accuracy() + 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"propagation": -1.0}, "student.settings.propagation"),
        ({"propagation_neighbours": 0}, "student.settings.propagation_neighbours"),
        ({"propagation": 1.0, "label_noise": 0.1}, "student.settings.label_noise"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ArgumentError, match=message):
        StudentSettings(**options)
