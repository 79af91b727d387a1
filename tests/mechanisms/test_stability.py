"""Distance to instability: sensitivity 1, and 0 on both sides of every split query, by exhaustive search."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from teacher_student.arguments import ArgumentError
from teacher_student.labels import ABSTAIN
from teacher_student.mechanisms import distance_to_instability
from teacher_student.mechanisms.stability import distance_of_gap, stable_answer

CASES = [(1, 8), (2, 8), (3, 7)]
"""(classes, most teachers) searched through; every split of the teachers over the classes and abstention."""


def all_counts(classes: int, teachers: int) -> list[tuple[int, ...]]:
    return [row for row in itertools.product(range(teachers + 1), repeat=classes) if sum(row) <= teachers]


def neighbours(counts: tuple[int, ...]) -> set[tuple[int, ...]]:
    """All counts after one teacher changes, casts or withholds its vote (another teacher's abstention is no vote)."""
    steps = [*np.eye(len(counts), dtype=int), np.zeros(len(counts), dtype=int)]
    moved = {tuple(int(v) for v in np.add(counts, up) - down) for up in steps for down in steps}
    return {row for row in moved if min(row) >= 0} - {counts}


def halved_distance(counts: tuple[int, ...]) -> int:
    return int(distance_to_instability([counts])[1][0])


def printed_distance(counts: tuple[int, ...]) -> int:
    """The broken twin: the paper's max(0, gap - 1)."""
    first, second = sorted((*counts, 0), reverse=True)[:2]
    return max(0, first - second - 1)


def additions(counts: tuple[int, ...]) -> set[tuple[int, ...]]:
    """All counts after one more vote is cast."""
    return {tuple(int(v) for v in np.add(counts, up)) for up in np.eye(len(counts), dtype=int)}


def sensitivity(distance, classes: int, teachers: int) -> int:
    table = {row: distance(row) for row in all_counts(classes, teachers + 1)}
    pairs = ((row, other) for row in all_counts(classes, teachers) for other in neighbours(row) if other in table)
    return max(abs(table[row] - table[other]) for row, other in pairs)


def split_queries_are_at_zero(distance, classes: int, teachers: int, order: tuple[int, ...]) -> bool:
    """Whether a winner that one vote can change always comes with distance 0, when ties go to the first class in `order`."""

    def winner(row: tuple[int, ...]) -> int:
        return max(order, key=lambda label: row[label])  # max keeps the first of equals

    table = {row: (winner(row), distance(row)) for row in all_counts(classes, teachers + 1)}
    for row in all_counts(classes, teachers):
        for other in neighbours(row):
            if other in table and table[row][0] != table[other][0] and (table[row][1] or table[other][1]):
                return False
    return True


def fewest_changes(classes: int, teachers: int) -> dict[tuple[int, ...], float]:
    """Oracle: for each counts, the fewest changed votes after which the winner (ties to the lowest label) is another one."""
    rows = all_counts(classes, teachers)
    winner = {row: int(np.argmax(row)) for row in rows}
    steps = {row: [other for other in neighbours(row) if other in winner] for row in rows}
    changes, settled = dict.fromkeys(rows, float("inf")), False
    while not settled:
        better = {row: 1 + min(changes[o] if winner[o] == winner[row] else 0 for o in steps[row]) for row in rows}
        changes, settled = better, better == changes
    return changes


@pytest.mark.parametrize(("classes", "teachers"), CASES)
def test_one_vote_moves_the_distance_by_at_most_one(classes: int, teachers: int) -> None:
    assert sensitivity(halved_distance, classes, teachers) == 1


@pytest.mark.parametrize(("classes", "teachers"), CASES)
def test_a_split_query_has_distance_zero_whatever_the_tie_order(classes: int, teachers: int) -> None:
    for order in itertools.permutations(range(classes)):
        assert split_queries_are_at_zero(halved_distance, classes, teachers, order)


@pytest.mark.parametrize(("classes", "teachers"), CASES[1:])
def test_the_printed_distance_fails_both(classes: int, teachers: int) -> None:
    assert sensitivity(printed_distance, classes, teachers) == 2
    assert not split_queries_are_at_zero(printed_distance, classes, teachers, tuple(range(classes)))


@pytest.mark.parametrize(("classes", "voters"), [*CASES, (4, 6)])
def test_where_votes_are_only_added_or_withdrawn_the_gap_less_one_will_do(classes: int, voters: int) -> None:
    """docs/privacy.md, "Votes that are only added or withdrawn"; where a vote may turn into another, it fails (above)."""
    for row in all_counts(classes, voters):
        for other in additions(row):
            assert abs(printed_distance(row) - printed_distance(other)) <= 1
            for order in itertools.permutations(range(classes)):
                winners = [max(order, key=lambda label: counts[label]) for counts in (row, other)]
                assert winners[0] == winners[1] or printed_distance(row) == printed_distance(other) == 0


@pytest.mark.parametrize(("classes", "teachers"), CASES[1:])
def test_the_printed_distance_exceeds_the_oracle(classes: int, teachers: int) -> None:
    assert any(printed_distance(row) > fewest - 1 for row, fewest in fewest_changes(classes, teachers).items())


def test_the_example_in_the_documentation() -> None:
    assert (printed_distance((2, 2)), printed_distance((1, 3))) == (0, 1)
    assert (halved_distance((2, 2)), halved_distance((1, 3))) == (0, 0)


@pytest.mark.parametrize(("classes", "teachers"), CASES)
def test_never_more_than_the_changes_that_a_new_winner_takes_less_one(classes: int, teachers: int) -> None:
    assert all(halved_distance(row) <= fewest - 1 for row, fewest in fewest_changes(classes, teachers).items())


@pytest.mark.parametrize(
    ("counts", "winner", "distance"),
    [
        ([0, 0, 0], 0, 0),
        ([0], 0, 0),
        ([7], 0, 3),
        ([8], 0, 3),
        ([4, 4], 0, 0),
        ([0, 5, 5], 1, 0),
        ([1, 9, 2], 1, 3),
        ([2, 9, 9], 1, 0),
    ],
)
def test_known_answers(counts: list[int], winner: int, distance: int) -> None:
    assert [int(part[0]) for part in distance_to_instability([counts])] == [winner, distance]


@given(
    arrays.arrays(
        st.sampled_from([np.uint8, np.uint16, np.int16, np.int64, np.uint64]),
        st.tuples(st.integers(1, 40), st.integers(1, 6)),
        elements=st.integers(0, 255),
    )
)
def test_bulk_form_equals_sorting(counts: np.ndarray) -> None:
    winner, distance = distance_to_instability(counts)
    ordered = np.sort(np.c_[counts.astype(int), np.zeros(len(counts), dtype=int)], axis=1)
    gap = ordered[:, -1] - ordered[:, -2]
    assert np.array_equal(winner, counts.argmax(axis=1))
    assert np.array_equal(distance, np.maximum(0, np.ceil(gap / 2).astype(int) - 1))
    assert winner.dtype == distance.dtype == np.int64


def test_blocks_join_without_a_seam() -> None:
    counts = np.random.default_rng(0).integers(0, 250, (40_000, 3), dtype=np.uint8)
    winner, distance = distance_to_instability(counts)
    for row in (0, 16_383, 16_384, 32_768, 39_999):
        assert (winner[row], distance[row]) == tuple(part[0] for part in distance_to_instability(counts[row : row + 1]))


def test_a_stab_compares_strictly() -> None:
    assert stable_answer(2, 10, noisy_threshold=9, query_noise=0) == 2
    assert stable_answer(2, 10, noisy_threshold=10, query_noise=0) == ABSTAIN


def test_a_gap_may_have_any_integer_type() -> None:
    assert distance_of_gap(np.array([0, 255], dtype=np.uint8)).tolist() == [0, 127]


@pytest.mark.parametrize(
    "counts",
    [[], [[]], [1, 2], [[1, -1]], [[1.5, 2]], [[float("nan"), 1]], [[1, 2], [3]], [["a", "b"]], None, [[2**60, 0]], "votes"],
)
def test_bad_counts_get_one_clear_line(counts: object) -> None:
    with pytest.raises(ArgumentError, match=r"^counts must [^\n]*, got [^\n]*$"):
        distance_to_instability(counts)
