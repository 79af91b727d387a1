"""Targets: what non-answers become, that halted queries never get one, and propagation under heavy noise and on odd graphs."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from torch import nn

from teacher_student import ABSTAIN, HALTED, ArgumentError
from teacher_student.student import (
    Standardized,
    StudentSettings,
    Targets,
    TransitionMatrix,
    fit_student,
    predict_probabilities,
    targets_from_labels,
    targets_from_scores,
)
from teacher_student.student.targets import MOST_CLASSES, propagate

LABELS = np.array([2, 0, ABSTAIN, HALTED, 1, ABSTAIN])


def test_answers_are_one_hot_and_halted_points_have_no_target():
    for unanswered in ("uniform", "random", "drop", "unlabeled"):
        targets = targets_from_labels(LABELS, 3, unanswered=unanswered)
        assert np.array_equal(targets.probabilities[[0, 1, 4]], np.eye(3)[[2, 0, 1]])
        assert targets.weights[3] == 0
        assert targets.unlabeled[3]


def test_paid_non_answers_follow_the_setting():
    uniform = targets_from_labels(LABELS, 3, unanswered="uniform")
    assert np.allclose(uniform.probabilities[2], 1 / 3)
    assert uniform.weights[2] == 1
    random = targets_from_labels(LABELS, 3, unanswered="random", seed=3)
    assert random.probabilities[2].max() == 1
    drop = targets_from_labels(LABELS, 3, unanswered="drop")
    assert drop.weights[2] == 0
    assert not drop.unlabeled[2]
    unlabeled = targets_from_labels(LABELS, 3, unanswered="unlabeled")
    assert unlabeled.weights[2] == 0
    assert unlabeled.unlabeled[2]


def test_random_labels_cover_all_classes_evenly():
    targets = targets_from_labels(np.array([0] + [ABSTAIN] * 3000), 3, unanswered="random", seed=0)
    shares = targets.probabilities[1:].mean(0)
    assert np.abs(shares - 1 / 3).max() < 6 * np.sqrt(2 / 9 / 3000)  # six standard errors of a seeded draw


def test_scores_become_two_class_targets():
    targets = targets_from_scores([0.25, np.nan, 1.0])
    assert np.allclose(targets.probabilities[[0, 2]], [[0.75, 0.25], [0, 1]])
    assert targets.weights.tolist() == [1, 0, 1]
    assert targets.unlabeled.tolist() == [False, True, False]


def test_one_vs_rest_scores_are_normalised_and_missing_classes_share_what_is_left():
    table = [[0.5, 0.25, 0.25], [0.9, 0.9, 0.2], [0.7, np.nan, np.nan], [0.9, 0.9, np.nan], [np.nan] * 3, [0.0, 0.0, 0.0]]
    targets = targets_from_scores(table)
    expected = [[0.5, 0.25, 0.25], [0.45, 0.45, 0.1], [0.7, 0.15, 0.15], [0.5, 0.5, 0.0], [1 / 3] * 3, [1 / 3] * 3]
    assert np.allclose(targets.probabilities, expected)
    assert targets.weights.tolist() == [1, 1, 1, 1, 0, 1]
    assert targets.unlabeled.tolist() == [False, False, False, False, True, False]


def test_two_classes_one_vs_rest_say_what_one_score_says():
    one, both = targets_from_scores([0.3, np.nan]), targets_from_scores([[0.7, 0.3], [np.nan, np.nan]])
    assert np.allclose(one.probabilities, both.probabilities)
    assert np.array_equal(one.weights, both.weights)


def test_paid_non_answers_of_scores_follow_the_setting():
    scores, abstained = [0.9, np.nan, np.nan], [False, True, False]
    for unanswered in ("uniform", "random", "drop", "unlabeled"):
        targets = targets_from_scores(scores, abstained=abstained, unanswered=unanswered)
        assert targets.weights.tolist() == [1, unanswered in ("uniform", "random"), 0]
        assert targets.unlabeled.tolist() == [False, unanswered == "unlabeled", True]
        assert targets.probabilities[1].max() == (1 if unanswered == "random" else 0.5)


@pytest.mark.parametrize(
    "scores", [[1.1, 0.5], [-0.1], [np.inf, 0.5], [1e308, 0.5], [np.nan], 0.5, [[0.5], [0.5]], [[[0.5, 0.5]]]]
)
def test_bad_scores_are_refused(scores):
    with pytest.raises(ArgumentError, match="scores must"):
        targets_from_scores(scores)


@pytest.mark.parametrize("labels", [[3, 0], [-3, 0], [0.5, 1.0], [[0, 1]], [ABSTAIN, HALTED]])
def test_bad_labels_are_refused(labels):
    with pytest.raises(ArgumentError, match="labels must"):
        targets_from_labels(np.array(labels), 3)


@pytest.mark.parametrize("num_classes", [1, MOST_CLASSES + 1, 2**63, 10**400])
def test_too_few_or_too_many_classes_are_refused(num_classes):
    with pytest.raises(ArgumentError, match="num_classes must be an integer from 2 to"):
        targets_from_labels(LABELS, num_classes)


def test_memory_grows_with_classes_and_not_with_their_square():
    tracemalloc.start()
    for targets in (
        targets_from_labels(LABELS, MOST_CLASSES, unanswered="random"),
        targets_from_scores(np.eye(2, MOST_CLASSES), abstained=[False, False], unanswered="random"),
    ):
        assert targets.probabilities.shape[1] == MOST_CLASSES
        assert np.allclose(targets.probabilities.sum(1), 1, atol=1e-4)
    assert TransitionMatrix(0.0, MOST_CLASSES).transition is None
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**27 < MOST_CLASSES**2


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


def test_only_the_clearest_take_a_label():
    most, all_of_them = (propagate(POINTS, targets(), strength=20.0, neighbours=5, share=share) for share in (0.6, 1.0))
    taken = most.weights > 0
    assert taken.sum() == 180
    assert np.array_equal(most.unlabeled, ~taken)
    assert np.array_equal(most.probabilities[taken], all_of_them.probabilities[taken])
    wrong = all_of_them.probabilities.argmax(axis=1) != CLASSES
    assert wrong[taken].mean() < wrong[~taken].mean()


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

    assert accuracy(propagation=20.0) > max(0.9, accuracy() + 0.1)


def test_neighbours_in_other_public_features():
    """What the student sees says nothing about neighbourhood: one column that means nothing is far larger than the others."""
    seen = np.concatenate([POINTS, 100 * RNG.standard_normal((300, 1))], axis=1).astype(np.float32)

    def accuracy(graph):
        settings = StudentSettings(epochs=40, batch_size=100, learning_rate=0.05, propagation=20.0)
        student = fit_student(
            lambda: Standardized(nn.Linear(4, 3), (4,)).fit(seen), seen, targets(), settings, graph_features=graph
        )
        return (predict_probabilities(student.publishable, seen).argmax(axis=1) == CLASSES).mean()

    unaided = accuracy(None)
    assert accuracy(POINTS) > max(0.95, unaided + 0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"propagation": -1.0}, "student.settings.propagation"),
        ({"propagation_share": 1.5}, "student.settings.propagation_share"),
        ({"propagation_neighbours": 0}, "student.settings.propagation_neighbours"),
        ({"propagation": 1.0, "label_noise": 0.1}, "student.settings.label_noise"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ArgumentError, match=message):
        StudentSettings(**options)
