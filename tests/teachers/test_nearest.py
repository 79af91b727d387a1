"""The points nearest to a shard's records: right, and untouched by any other shard."""

from __future__ import annotations

import numpy as np
import pytest

from teacher_student.aggregation.votes import keep_allowed
from teacher_student.arguments import ArgumentError
from teacher_student.teachers.nearest import nearest_points

RNG = np.random.default_rng(0)
RECORDS = RNG.standard_normal((500, 2, 3)).astype(np.float32)
POINTS = RNG.standard_normal((90, 2, 3)).astype(np.float32)


def sharded(sizes):
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return np.random.default_rng(1).permutation(offsets[-1]).astype(np.int64), offsets


def test_the_nearest_to_any_record_of_the_shard():
    order, offsets = sharded([3, 0, 200, 1])
    found = nearest_points(RECORDS, order, offsets, POINTS, 7)
    assert found.shape == (4, 7)
    for teacher in (0, 2, 3):
        mine = RECORDS[order[offsets[teacher] : offsets[teacher + 1]]].reshape(-1, 1, 6).astype(np.float64)
        distances = ((mine - POINTS.reshape(1, 90, 6)) ** 2).sum(axis=2).min(axis=0)
        assert sorted(found[teacher]) == sorted(np.argsort(distances)[:7])
    assert found[1].tolist() == list(range(7))


def test_no_shard_moves_another():
    """Records, NaN, sizes of shard 2 change: the places of all others keep every bit, near ties included."""
    columns = np.round(RECORDS, 1)  # many distances are equal but for rounding
    order, offsets = sharded([3, 5, 200, 1])
    before = nearest_points(columns, order, offsets, np.round(POINTS, 1), 20)
    changed = columns.copy()
    changed[order[8:208]] += 0.37
    changed[order[9]] = np.nan
    after = nearest_points(changed, order, offsets, np.round(POINTS, 1), 20)
    fewer = nearest_points(columns, np.delete(order, np.s_[8:207]), np.array([0, 3, 8, 9, 10]), np.round(POINTS, 1), 20)
    for other in (after, fewer):
        assert np.array_equal(before[[0, 1, 3]], other[[0, 1, 3]])
    assert not np.array_equal(before[2], after[2])


def test_a_record_that_is_not_finite_is_near_nothing():
    order, offsets = sharded([2, 1])
    broken = RECORDS.copy()
    broken[order[0]] = np.nan
    broken[order[2], 0, 0] = np.inf
    found = nearest_points(broken, order, offsets, POINTS, 5)
    alone = nearest_points(RECORDS, order[1:2], np.array([0, 1]), POINTS, 5)
    assert np.array_equal(found[0], alone[0])
    assert found[1].tolist() == list(range(5))


@pytest.mark.parametrize("number", [0, 91, 2.5])
def test_bad_numbers(number):
    with pytest.raises(ArgumentError, match="votes_per_teacher"):
        nearest_points(RECORDS, *sharded([1]), POINTS, number)


def test_one_record_moves_at_most_its_teachers_votes():
    """The claim of the cost: of all counts at most two for each vote that a teacher has. A twin without a cap moves more."""
    order, offsets = sharded([1] * 60)
    labels = RNG.integers(0, 3, 500)

    def counts(records, labels, few):
        votes = np.tile(labels[order], (90, 1))  # every teacher has one record and votes for its class everywhere
        kept = votes if few is None else keep_allowed(votes, nearest_points(records, order, offsets, POINTS, few))
        return np.stack([(kept == label).sum(axis=1) for label in range(3)], axis=1)

    other_records, other_labels = RECORDS.copy(), labels.copy()
    other_records[order[11]] = 3 - RECORDS[order[11]]
    other_labels[order[11]] = (labels[order[11]] + 1) % 3
    moved = {few: np.abs(counts(RECORDS, labels, few) - counts(other_records, other_labels, few)) for few in (4, None)}
    assert moved[4].max() == 1
    assert moved[4].sum() == 8
    assert moved[None].sum() == 180
