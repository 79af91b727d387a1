"""Record voters: held against a literal loop in integers, and independent of each other."""

from __future__ import annotations

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.teachers.record_voters import EXACT, IntegerGrid, vote_of_records

CLASSES = 3


def _data(records=40, points=25, features=6, seed=0):
    draw = np.random.default_rng(seed)
    private = draw.normal(size=(records, features)).astype(np.float32)
    public = draw.normal(size=(points, features)).astype(np.float32)
    return private, draw.integers(0, CLASSES, records), public


def _literally(features, labels, points, votes, ids):
    """Do what the module says in Python's integers, one person after the other."""
    grid = IntegerGrid.fit(points)
    places = [[int(value) for value in row] for row in grid.apply(points)]
    counts = np.zeros((len(points), CLASSES), dtype=np.int64)
    for person in dict.fromkeys(ids):
        rows = [row for row, owner in enumerate(ids) if owner == person and np.isfinite(features[row]).all()]
        rows = [row for row in rows if 0 <= labels[row] < CLASSES]
        if not rows:
            continue
        records = [[int(value) for value in row] for row in grid.apply(features[rows])]
        found = []
        for position, place in enumerate(places):
            apart = [sum((a - b) ** 2 for a, b in zip(record, place, strict=True)) for record in records]
            found.append((min(apart), position, labels[rows[apart.index(min(apart))]]))
        for _, position, label in sorted(found)[:votes]:
            counts[position, label] += 1
    return counts


@pytest.mark.parametrize("votes", [1, 4, 25])
@pytest.mark.parametrize("persons", [40, 9])
def test_the_votes_are_those_of_a_literal_loop(votes, persons):
    features, labels, points = _data()
    features[3], features[5, 2], labels[7] = np.nan, np.inf, CLASSES
    ids = np.arange(40) % persons
    found = vote_of_records(features, labels, points, votes, num_classes=CLASSES, ids=ids)
    assert np.array_equal(found, _literally(features, labels, points, votes, ids.tolist()))


def test_of_points_equally_near_the_first_ones_count_as_nearer():
    points = np.zeros((8, 2), dtype=np.float32)
    points[5:] = 1.0
    counts = vote_of_records(np.zeros((3, 2), dtype=np.float32), np.zeros(3, dtype=np.int64), points, 3, num_classes=1)
    assert counts.ravel().tolist() == [3, 3, 3, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("change", ["removed", "nan", "huge", "repeated"])
def test_a_record_moves_its_own_votes_alone(change):
    features, labels, points = _data(records=3000, points=200, features=64)
    whole = vote_of_records(features, labels, points, 5, num_classes=CLASSES)
    without = vote_of_records(features[1:], labels[1:], points, 5, num_classes=CLASSES)
    own = whole - without
    assert own.sum() == 5
    assert set(np.unique(own)) == {0, 1}
    if change == "removed":
        return
    changed = features.copy()
    changed[0] = {"nan": np.float32(np.nan), "huge": np.float32(3e38), "repeated": features[1]}[change]
    moved = vote_of_records(changed, labels, points, 5, num_classes=CLASSES) - without
    assert moved.sum() == (0 if change == "nan" else 5)
    assert set(np.unique(moved)) <= {0, 1}


def test_a_person_votes_at_most_once_on_a_point():
    features, labels, points = _data(records=500)
    counts = vote_of_records(features, labels, points, 25, num_classes=CLASSES, ids=np.zeros(500, dtype=np.int64))
    assert counts.sum(axis=1).tolist() == [1] * 25


@pytest.mark.parametrize("features", [1, 100, 256, 784, 3072])
def test_distances_are_exact_at_the_edge_of_the_grid(features):
    grid = IntegerGrid.fit(np.random.default_rng(1).normal(size=(50, features)).astype(np.float32))
    assert 3 * features * grid.largest**2 < EXACT
    edge = grid.apply(np.full((1, features), 3e38, dtype=np.float32))
    assert np.abs(edge).max() == grid.largest


def test_more_votes_than_points_are_refused():
    features, labels, points = _data()
    with pytest.raises(ArgumentError, match="votes must be an integer from 1 to 25, got 26"):
        vote_of_records(features, labels, points, 26, num_classes=CLASSES)
