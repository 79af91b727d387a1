"""The descent of a linear model whose gradients were released."""

from __future__ import annotations

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.student.descent import RIDGE, Descent

POINTS = np.random.default_rng(0).normal(size=(300, 5))
POINTS /= np.linalg.norm(POINTS, axis=1, keepdims=True)


def test_steps_are_those_of_momentum_and_a_public_preconditioner():
    gradients = np.random.default_rng(1).normal(size=(4, 5, 3))
    noise, rate, momentum = 1e-3, 0.3, 0.7
    inverse = np.linalg.inv(POINTS.T @ POINTS / 300 + RIDGE * noise * np.eye(5))
    weights, move = np.zeros((5, 3)), np.zeros((5, 3))
    for gradient in gradients:
        move = momentum * move + rate * inverse @ gradient
        weights = weights + move
    assert Descent(POINTS, rate, momentum).weights(gradients, noise) == pytest.approx(weights)
    assert not Descent(POINTS, rate, momentum).weights(gradients[:0], noise).any()


def test_it_finds_a_model_that_is_there():
    truth = np.random.default_rng(2).normal(size=(5, 3)) * 4
    descent = Descent(POINTS, 0.5, 0.8)
    wanted, steps = descent.probabilities(truth), []
    for _ in range(200):
        lacking = wanted - descent.probabilities(descent.weights(np.reshape(steps, (-1, 5, 3)), 1e-9))
        steps.append(POINTS.T @ lacking / 300)
    found = descent.probabilities(descent.weights(np.stack(steps), 1e-9))
    assert np.abs(found - wanted).max() < 0.05
    assert found.sum(axis=1) == pytest.approx(1)


def test_no_direction_is_followed_further_than_its_gradient_is_known():
    """The twin without a ridge divides by almost nothing where the points do not vary."""
    flat = POINTS * [1, 1, 1, 1, 1e-6]
    gradients = np.random.default_rng(3).normal(size=(20, 5, 3)) * 1e-3
    with_noise, without = (np.abs(Descent(flat, 0.5, 0.8).weights(gradients, noise)).max() for noise in (1e-3, 1e-300))
    assert with_noise < 10
    assert without > 1e6


def test_bad_arguments_get_one_line():
    with pytest.raises(ArgumentError, match=r"learner\.learning_rate"):
        Descent(POINTS, 0.0, 0.8)
    with pytest.raises(ArgumentError, match=r"learner\.momentum"):
        Descent(POINTS, 0.5, 1.5)
    with pytest.raises(ArgumentError, match="gradients must have the shape"):
        Descent(POINTS, 0.5, 0.8).weights(np.zeros((2, 4, 3)), 0.1)
