"""Active queries: the choice of each order, from predictions and seeds alone."""

from __future__ import annotations

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.student import ORDERS, QuerySettings, next_points, resample, targets_from_labels

OPEN = np.array([3, 5, 8, 13, 21, 34, 55, 89])
SURE = np.array([0.99, 0.5, 0.8, 0.55, 0.97, 0.1, 0.45, 0.7])
ONE = np.stack([1 - SURE, SURE], axis=1)[None]


def committee(*sure: list[float]) -> np.ndarray:
    return np.stack([np.stack([1 - np.array(row), np.array(row)], axis=1) for row in sure])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("predictions", [None, ONE])
def test_every_order_chooses_open_points_once_and_the_same_again(order, predictions):
    chosen = next_points(order, OPEN, 6, predictions, (1, 2))
    assert len(set(chosen.tolist())) == 6
    assert set(chosen.tolist()) <= set(OPEN.tolist())
    assert np.array_equal(chosen, next_points(order, OPEN, 6, predictions, (1, 2)))
    assert sorted(next_points(order, OPEN, 8, predictions, (0,)).tolist()) == OPEN.tolist()


def test_file_keeps_the_order_and_random_does_not():
    assert next_points("file", OPEN, 3, None, (0,)).tolist() == [3, 5, 8]
    assert any(next_points("random", OPEN, 8, None, (seed,)).tolist() != OPEN.tolist() for seed in range(3))


def test_uncertain_takes_the_points_nearest_to_a_tie():
    assert next_points("uncertain", OPEN, 3, ONE, (0,)).tolist()[0] == 5
    assert set(next_points("uncertain", OPEN, 3, ONE, (0,)).tolist()) == {5, 13, 55}


def test_equal_points_are_taken_in_no_fixed_order():
    flat = np.full((1, 8, 2), 0.5)
    assert len({tuple(next_points("uncertain", OPEN, 2, flat, (seed,))) for seed in range(10)}) > 1


def test_disagreement_is_not_uncertainty():
    """All members are unsure of the first point and agree on that; of the second each is sure, and they differ."""
    members = committee([0.5, 0.99, 0.9], [0.5, 0.01, 0.9], [0.5, 0.99, 0.9])
    assert next_points("disagreement", np.array([0, 1, 2]), 1, members, (0,)).tolist() == [1]
    assert next_points("uncertain", np.array([0, 1, 2]), 1, members, (0,)).tolist() == [0]


def test_class_balanced_lets_the_classes_take_turns():
    predicted = np.array([0] * 40 + [1] * 6 + [2] * 4)
    points = np.arange(50)
    chosen = next_points("class_balanced", points, 15, np.eye(3)[predicted][None], (0,))
    assert np.bincount(predicted[chosen]).tolist() == [6, 5, 4]


def test_half_random_is_half_uncertain():
    sure = np.linspace(0.5, 0.99, 200)
    chosen = next_points("half_random", np.arange(200), 40, committee(sure.tolist()), (0,))
    assert set(range(20)) <= set(chosen.tolist())
    assert np.mean(chosen >= 100) > 0.2


def test_batches_fill_the_total_and_no_more():
    assert [len(batch) for batch in QuerySettings(order="uncertain", rounds=4).batches(10)] == [3, 3, 2, 2]
    assert QuerySettings(order="random", rounds=4, total=7).batches(10) == [range(7)]
    assert len(QuerySettings(order="half_random", rounds=9).batches(3)) == 3


def test_resampling_keeps_the_number_of_targets_and_leaves_others_without():
    targets = targets_from_labels([0, 1, -2, 1, -2, 0], 2)
    drawn = resample(targets, (0, 1))
    assert drawn.weights.sum() == 4
    assert (drawn.weights[[2, 4]] == 0).all()
    assert len({tuple(resample(targets, (0, member)).weights) for member in range(10)}) > 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"order": "confident"}, "queries.order must be one of class_balanced, disagreement, file"),
        ({"rounds": 0}, "queries.rounds must be a positive integer, got 0"),
        ({"total": 0}, "queries.total must be a positive integer, got 0"),
    ],
)
def test_bad_settings_get_one_clear_line(options, says):
    with pytest.raises(ArgumentError, match=says):
        QuerySettings(**options)


def test_more_points_than_there_are():
    with pytest.raises(ArgumentError, match=r"queries\.total must be at most the number of public points, 10, got 11"):
        QuerySettings(total=11).batches(10)
