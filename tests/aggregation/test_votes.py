"""Votes are counted as a plain loop would, in the smallest type, whatever the blocks; bad votes are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacher_student.aggregation import add_votes, count_votes, empty_counts
from teacher_student.aggregation.votes import check_counts, keep_allowed
from teacher_student.arguments import ArgumentError
from teacher_student.labels import ABSTAIN


def plain_counts(predictions: np.ndarray, num_classes: int) -> np.ndarray:
    return np.stack([(predictions == label).sum(axis=1) for label in range(num_classes)], axis=1)


@given(
    queries=st.integers(1, 30),
    teachers=st.integers(1, 600),
    classes=st.sampled_from([1, 2, 3, 10, 126, 127, 128, 300]),
    kind=st.sampled_from([np.int16, np.int32, np.int64, np.float64]),
    seed=st.integers(0, 10**6),
)
def test_counts_are_those_of_a_plain_loop(queries, teachers, classes, kind, seed) -> None:
    predictions = np.random.default_rng(seed).integers(-1, classes, (queries, teachers)).astype(kind)
    counts = count_votes(predictions, classes)
    assert np.array_equal(counts, plain_counts(predictions, classes))
    assert counts.dtype == (np.uint8 if teachers < 256 else np.uint16)


@pytest.mark.parametrize(("teachers", "kind"), [(1, np.uint8), (255, np.uint8), (256, np.uint16), (65_536, np.uint32)])
def test_a_unanimous_vote_fits_the_smallest_type(teachers: int, kind: type) -> None:
    counts = count_votes(np.ones((2, teachers), dtype=np.int8), 3)
    assert counts.dtype == kind
    assert counts.tolist() == [[0, teachers, 0]] * 2


def test_blocks_of_queries_join_without_a_seam() -> None:
    predictions = np.random.default_rng(0).integers(-1, 3, (10_000, 20), dtype=np.int8)
    assert np.array_equal(count_votes(predictions, 3), plain_counts(predictions, 3))


@given(chunks=st.lists(st.integers(1, 70), min_size=1, max_size=8), seed=st.integers(0, 10**6))
def test_chunks_of_teachers_add_up(chunks: list[int], seed: int) -> None:
    predictions = np.random.default_rng(seed).integers(-1, 4, (9, sum(chunks)))
    counts = empty_counts(9, 4, num_teachers=sum(chunks))
    for part in np.split(predictions, np.cumsum(chunks)[:-1], axis=1):
        add_votes(counts, part)
    assert np.array_equal(counts, count_votes(predictions, 4))


def test_unsigned_and_read_only_predictions_are_taken() -> None:
    predictions = np.array([[0, 1, 1]], dtype=np.uint64)
    predictions.flags.writeable = False
    assert count_votes(predictions, 2).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    "predictions",
    [
        [],
        [[]],
        [0, 1],
        [[0, 3]],
        [[-2, 0]],
        [[0.5]],
        [[float("nan")]],
        [[float("inf")]],
        [[0], [1, 2]],
        [["cat"]],
        None,
        [[None]],
    ],
)
def test_bad_predictions_get_one_clear_line(predictions: object) -> None:
    with pytest.raises(ArgumentError, match=r"^predictions must [^\n]*, got [^\n]*$"):
        count_votes(predictions, 3)


@pytest.mark.parametrize("num_classes", [0, -1, 2.5, "two", None, True])
def test_bad_numbers_of_classes_are_refused(num_classes: object) -> None:
    with pytest.raises(ArgumentError, match=r"^num_classes must be a positive integer, got "):
        count_votes([[0]], num_classes)


def test_votes_beyond_the_type_are_refused_and_not_wrapped() -> None:
    counts = empty_counts(1, 1, num_teachers=255)
    add_votes(counts, [[0] * 255])
    with pytest.raises(ArgumentError, match="got up to 256 votes"):
        add_votes(counts, [[0]])
    assert counts.tolist() == [[255]]


def test_a_chunk_with_other_queries_is_refused() -> None:
    with pytest.raises(ArgumentError, match="must have 2 rows"):
        add_votes(empty_counts(2, 2, num_teachers=4), [[0, 1]])


def test_more_votes_than_teachers_are_refused() -> None:
    assert check_counts([[2, 2]], 2, num_teachers=4).tolist() == [[2, 2]]
    with pytest.raises(ArgumentError, match="at most num_teachers = 3 in each row, got 4"):
        check_counts([[2, 2]], 2, num_teachers=3)
    with pytest.raises(ArgumentError, match="at most num_teachers = 300 in each row, got 510"):
        check_counts(np.array([[255, 255]], dtype=np.uint8), 2, num_teachers=300)


def test_counts_of_another_width_are_refused() -> None:
    with pytest.raises(ArgumentError, match="counts must have 3 columns, got 2"):
        check_counts([[1, 2]], 3, num_teachers=3)


def test_no_teacher_votes_more_often_than_it_has_places():
    """Whatever the places: repeated, outside the block, or of no query."""
    rng = np.random.default_rng(0)
    predictions = rng.integers(-1, 3, (40, 30))
    allowed = rng.integers(-5, 50, (30, 6))
    kept = keep_allowed(predictions, allowed)
    assert ((kept >= 0).sum(axis=0) <= 6).all()
    for teacher, places in enumerate(allowed):
        inside = np.isin(np.arange(40), places)
        assert np.array_equal(kept[:, teacher], np.where(inside, predictions[:, teacher], ABSTAIN))


def test_places_do_not_depend_on_blocks():
    predictions, allowed = np.ones((40, 7), dtype=np.int16), np.random.default_rng(1).integers(0, 40, (7, 5))
    blocks = [keep_allowed(predictions[first : first + 9], allowed, first) for first in range(0, 40, 9)]
    assert np.array_equal(np.concatenate(blocks), keep_allowed(predictions, allowed))
    assert blocks[0].dtype == np.int16


@pytest.mark.parametrize("allowed", [[[0]], [[0.5], [1]], [0, 1], "all"])
def test_bad_places(allowed):
    with pytest.raises(ArgumentError):
        keep_allowed([[0, 1]], allowed)
