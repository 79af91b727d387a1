"""GenHist: edges, strange values, and the sensitivity that the guarantee rests on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacher_student import ArgumentError
from teacher_student.mechanisms.soft_histogram import bins_of_width, check_bins, histograms, plain_bin, shifted_bin
from teacher_student.mechanisms.stability import plurality

ANY_SCORE = st.floats(allow_nan=True, allow_infinity=True, width=64)


def test_edges_belong_to_the_bin_on_their_right_and_one_to_the_last():
    bins = np.array(4)
    scores = np.array([0.0, 0.25, 0.5, 0.75, 1.0, np.nextafter(1.0, 0)])
    assert plain_bin(scores, bins).tolist() == [0, 1, 2, 3, 3, 3]
    assert shifted_bin(np.array([0.0, 0.124, 0.125, 0.375, 0.874, 0.875, 1.0]), bins).tolist() == [-1, -1, 0, 1, 2, -1, -1]


def test_strange_values_count_nowhere_or_are_clipped_and_never_raise():
    scores = np.array([[np.nan, np.inf, -np.inf, -3.0, 9.0, -0.0, 1e308, -1e308, 5e-324]])
    counts = histograms(scores, np.array([3]))
    assert counts[0, 1:4].tolist() == [4, 0, 2]  # -3, -0, -1e308 and the smallest double; 9 and 1e308
    assert counts[0, 4:].tolist() == [0, 0]
    assert histograms(np.full((2, 5), np.nan), np.array([3, 3]))[:, 1:].sum() == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floating_types_agree(dtype):
    scores = np.array([[0.0, 0.25, 0.5, 1.0]], dtype=dtype)
    assert histograms(scores, np.array([4]))[0].tolist() == [4, 1, 1, 1, 1, 1, 1, 0]


def test_bins_per_query_leave_columns_empty():
    counts = histograms(np.array([[0.9, 0.9], [0.9, 0.9]]), np.array([3, 10]))
    assert counts.shape == (2, 20)
    assert counts[0].nonzero()[0].tolist() == [0, 3]  # 0.9 * 3 - 1/2 = 2.2 is beyond the last shifted bin
    assert counts[1].nonzero()[0].tolist() == [0, 10, 11 + 8]


@given(st.lists(ANY_SCORE, min_size=1, max_size=12), ANY_SCORE, st.integers(3, 12), st.data())
def test_one_changed_score_moves_each_distance_by_at_most_one(scores, other, bins, data):
    changed = list(scores)
    changed[data.draw(st.integers(0, len(scores) - 1))] = other
    tables = [histograms(np.array([row]), np.array([bins])) for row in (scores, changed)]
    for part in (slice(1, bins + 1), slice(bins + 1, None)):
        before, after = (table[:, part] for table in tables)
        assert np.abs(before - after).sum() <= 2
        (winner, distance), (other_winner, other_distance) = plurality(before), plurality(after)
        assert abs(distance[0] - other_distance[0]) <= 1
        if winner[0] != other_winner[0]:
            assert distance[0] == other_distance[0] == 0


@given(st.lists(st.one_of(ANY_SCORE, st.floats(0, 1)), min_size=1, max_size=20), st.integers(3, 40), st.integers(0, 3))
def test_histograms_are_what_the_bins_count(scores, bins, wider):
    edges = [step / (2 * bins) for step in range(2 * bins + 1)]
    near = [np.nextafter(edge, side) for edge in edges for side in (0, 1)]
    values = np.array([scores + edges + near] * 2)
    counts = histograms(values, np.array([bins, bins + wider]))[0]
    widest = bins + wider
    plain, shifted = plain_bin(values[0], np.array(bins)), shifted_bin(values[0], np.array(bins))
    assert counts[1 : widest + 1].tolist() == np.bincount(plain[plain >= 0], minlength=widest).tolist()
    assert counts[widest + 1 :].tolist() == np.bincount(shifted[shifted >= 0], minlength=widest - 1).tolist()


def test_large_tables_are_counted_in_blocks():
    scores = np.random.default_rng(0).random((3000, 900))
    counts = histograms(scores, check_bins(5, 3000))
    assert (counts[:, 1:6].sum(axis=1) == 900).all()
    np.testing.assert_array_equal(counts[2999], histograms(scores[2999:], check_bins(5, 1))[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check_bins(2, 5), "bins must be at least 3, got 2"),
        (lambda: check_bins(4.0, 5), "bins must be an integer of at least 3, or one per query, got 4.0"),
        (lambda: check_bins([4, 5], 3), "bins must be one number, or one for each of the 3 queries, got 2"),
        (lambda: check_bins(True, 3), "bins must be an integer of at least 3"),
        (lambda: bins_of_width(0.3), "bin_width must be 1 over an integer of at least 3"),
        (lambda: bins_of_width(0.5), "bin_width must be 1 over an integer of at least 3"),
        (lambda: bins_of_width(-1), "bin_width must be a number above 0, got -1"),
    ],
)
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
