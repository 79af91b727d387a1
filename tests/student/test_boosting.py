"""A boosted student moves its logits by the shares, exactly where it can, and on average under noise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from teacher_student import ArgumentError
from teacher_student.student import NewtonStep, StudentSettings, Targets, VoteStep, boost_student

SETTINGS = StudentSettings(epochs=60, batch_size=100, learning_rate=0.1)
BRIEF = dataclasses.replace(SETTINGS, epochs=3)
"""Enough where nothing moves."""
POINTS = np.random.default_rng(0).standard_normal((200, 2)).astype(np.float32)


def linear(classes=2, seed=0):
    torch.manual_seed(seed)
    return nn.Linear(2, classes)


def targets(shares):
    ones = np.ones(len(shares), dtype=np.float32)
    return Targets(shares.astype(np.float32), ones, ones == 0)


def logits(network):
    with torch.no_grad():
        return network(torch.as_tensor(POINTS)).double().numpy()


def log_odds(network):
    return logits(network) @ [-1, 1]


def test_log_odds_move_by_the_stated_step():
    before = linear()
    move = POINTS @ [0.05, -0.1] + 0.02  # what a linear student can follow
    shares = np.stack([0.5 - move, 0.5 + move], axis=1)
    after = boost_student(before, POINTS, targets(shares), SETTINGS, VoteStep(2.0)).publishable
    assert log_odds(after) - log_odds(before) == pytest.approx(2.0 * 2 * move, abs=1e-2)


def test_logits_of_several_classes_move_against_each_other():
    before = linear(3)
    move = np.stack([POINTS @ [0.05, 0.0], POINTS @ [0.0, 0.05], POINTS @ [-0.05, -0.05]], axis=1)
    after = boost_student(before, POINTS, targets(1 / 3 + move), SETTINGS, VoteStep(1.0)).publishable
    difference = logits(after) - logits(before)
    centred = difference - difference.mean(axis=1, keepdims=True)
    assert centred == pytest.approx(0.5 * 3 * move, abs=1e-2)


def test_even_votes_move_nothing_and_the_old_student_stays():
    before = linear()
    kept = {name: value.clone() for name, value in before.state_dict().items()}
    after = boost_student(before, POINTS, targets(np.full((200, 2), 0.5)), BRIEF, VoteStep(2.0)).publishable
    assert log_odds(after) == pytest.approx(log_odds(before), abs=1e-4)
    assert all(torch.equal(value, kept[name]) for name, value in before.state_dict().items())


def minimiser(before, shares):
    """Log-odds of the linear student at which the loss of a vote step is smallest: one Newton step, since it is quadratic."""
    points, shares = torch.as_tensor(POINTS).double(), torch.as_tensor(shares)
    start = nn.utils.parameters_to_vector(before.double().parameters()).detach()

    def loss(flat):
        now = points @ flat[:4].reshape(2, 2).T + flat[4:]
        return VoteStep(2.0).losses(before(points).detach(), now, shares).mean()

    found = start - torch.linalg.pinv(torch.func.hessian(loss)(start)) @ torch.func.grad(loss)(start)
    return (points @ found[:4].reshape(2, 2).T + found[4:]).numpy() @ [-1, 1]


def test_noise_of_mean_zero_moves_nothing_on_average():
    """Noise n and its mirror image -n: the two minimisers lie symmetrically about the one without noise.

    Shares cut off at 0 and 1, the broken twin, are far from symmetric.
    """
    base = np.full((200, 2), 0.5) + np.outer(POINTS[:, 0], [-0.1, 0.1])
    noise = np.outer(np.random.default_rng(1).standard_normal(200), [-1, 1])
    plain, up, down = (minimiser(linear(), base + sign * noise) for sign in (0, 1, -1))
    assert (up + down) / 2 == pytest.approx(plain, abs=1e-9)
    cut = sum(minimiser(linear(), np.clip(base + sign * noise, 0, 1)) for sign in (1, -1)) / 2
    assert np.abs(cut - plain).max() > 0.05
    fitted = boost_student(linear(), POINTS, targets(base), SETTINGS, VoteStep(2.0)).publishable
    assert log_odds(fitted) == pytest.approx(plain, abs=0.02)


@pytest.mark.parametrize("step", [0.0, -1.0, float("nan"), "far"])
def test_bad_steps(step):
    with pytest.raises(ArgumentError, match="step"):
        VoteStep(step)


def probabilities(network):
    exponents = np.exp(logits(network))
    return exponents / exponents.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("shrinkage", [0.02, 0.5])
def test_scores_move_the_student_by_newtons_step(shrinkage):
    """Two classes, a linear student: the move of its log-odds is the closed form of the stated loss, noise and all."""
    before = linear()
    noise = np.random.default_rng(1).standard_normal(200) * 0.3
    missing = POINTS @ [0.05, -0.1] + 0.02 + noise
    scores = np.stack([-missing, missing], axis=1)
    after = boost_student(before, POINTS, targets(scores), SETTINGS, NewtonStep(0.5, shrinkage)).publishable
    design, believed = np.hstack([POINTS, np.ones((200, 1))]).astype(float), probabilities(before)
    curvature = believed.prod(axis=1) + shrinkage / 2
    solved = np.linalg.solve((design * curvature[:, None]).T @ design, 0.5 * design.T @ missing)
    assert log_odds(after) - log_odds(before) == pytest.approx(design @ solved, abs=2e-2)


def test_scores_of_zero_move_nothing():
    before = linear(3)
    after = boost_student(before, POINTS, targets(np.zeros((200, 3))), BRIEF, NewtonStep(2.0, 0.1)).publishable
    assert logits(after) == pytest.approx(logits(before), abs=1e-4)


@pytest.mark.parametrize(("changes", "message"), [({"step": 0.0}, "step"), ({"shrinkage": -0.1}, "shrinkage")])
def test_bad_numbers_of_scores_are_refused(changes, message):
    with pytest.raises(ArgumentError, match=message):
        NewtonStep(**({"step": 1.0, "shrinkage": 0.1} | changes))


def test_what_a_student_is_corrected_by_must_say_how():
    with pytest.raises(ArgumentError, match="by must be VoteStep"):
        boost_student(linear(), POINTS, targets(np.zeros((200, 2))), SETTINGS, 2.0)
