"""Votes: predictions of all teachers become counts per class, block by block, in the smallest integer type.

Counts can be accumulated over chunks of teachers (`add_votes`), so that only one chunk's predictions exist at a time.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from teacher_student.aggregation.statistic import MOST_TEACHERS, Statistic, Table, check_num_teachers, empty_table
from teacher_student.aggregation.store import UsedVotes
from teacher_student.arguments import ArgumentError, Integers, integer_matrix, positive_integer, true_or_false, vote_counts
from teacher_student.labels import ABSTAIN
from teacher_student.privacy.parameters import WITHDRAWN

_BLOCK = 1 << 12
_BYTE = 255
"""Largest number of teachers whose votes for one class fit into a byte."""
_WORD = 64
_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
_FEW_CLASSES = 127
"""Class indices up to here, and the abstention -1, fit a signed byte."""
_MOST_VOTES = 2**62
"""Most votes of all teachers together in a session with `votes_per_teacher`: the total is kept in 64 bits."""


@dataclasses.dataclass(frozen=True)
class Votes(Statistic):
    """Votes for each class of each query.

    Attributes:
        num_classes: size of the public label set.
        num_teachers: how many vote, a public number.
        votes_per_teacher: queries of a session on which one teacher votes at most; None for all. `reduce` enforces it; see
            `fractions.FractionSession`.
        number_is_private: whether `num_teachers` is only an order of magnitude, because every teacher is a private record, or
            because teachers choose where they vote. Counts are not compared with it then: a refusal would depend on records.
    """

    num_classes: int
    num_teachers: int
    votes_per_teacher: int | None = None
    number_is_private: bool = False

    def __post_init__(self) -> None:
        positive_integer("num_classes", self.num_classes)
        teachers, few = check_num_teachers(self.num_teachers), self.votes_per_teacher
        if few is not None and teachers * positive_integer("votes_per_teacher", few) > _MOST_VOTES:
            raise ArgumentError(f"votes_per_teacher must leave at most {_MOST_VOTES} votes in all, got {few}")

    def empty(self, num_queries: int) -> Table:
        """Return zero counts, shape (num_queries, num_classes)."""
        return empty_counts(num_queries, self.num_classes, num_teachers=self.num_teachers)

    def add(self, table: Table, said: object) -> None:
        """Add predictions, shape (num_queries, teachers of the chunk), to counts; see `add_votes`."""
        add_votes(table, said)

    def check(self, predictions: object, counts: object) -> Table:
        """Return counts from exactly one of `predictions` and `counts`; with `votes_per_teacher`, the checked input itself."""
        check = check_votes if self.votes_per_teacher is None else check_table
        most = MOST_TEACHERS if self.number_is_private and predictions is None else self.num_teachers
        return check(predictions, counts, self.num_classes, most)

    @property
    def squared_distance(self) -> int:
        """A vote moves from one class to another, or to none."""
        return min(2, self.num_classes)

    def reduce(self, given: Table, form: str, used: UsedVotes | None, *, begun: bool) -> tuple[Table, UsedVotes | None]:
        """Return counts of no more votes than the teachers have left, and the votes used then."""
        few = self.votes_per_teacher
        if few is None:
            return given, None
        if used is not None and used.form != form:
            raise ArgumentError(f"{used.form} must be given in every call of a session with votes_per_teacher, got {form}")
        if form == "predictions":
            if used is None and begun:
                raise ArgumentError(
                    "predictions must not go into a session that began before the votes used were recorded; start a new session"
                )
            before = np.zeros(self.num_teachers, dtype=np.int64) if used is None else used.votes.astype(np.int64)
            kept, now = keep_first(given, before, few)
            return count_votes(kept, self.num_classes), UsedVotes(form, now)
        total = sum(given.sum(axis=1, dtype=np.int64).tolist()) + (0 if used is None else int(used.votes[0]))
        if total > (most := self.num_teachers * few) and not self.number_is_private:
            raise ArgumentError(
                f"counts must add up to at most num_teachers * votes_per_teacher = {most} over the session, got more; make all "
                "votes of a teacher but votes_per_teacher abstentions before they are summed"
            )
        return given, UsedVotes(form, np.array([total], dtype=np.int64))


def voters(
    num_classes: int,
    num_teachers: object,
    neighbours: object,
    vote_change: object,
    votes_per_teacher: int | None = None,
    *,
    num_teachers_is_public: object = True,
) -> Votes:
    """Return the statistic of a session on votes; the arguments are the session's.

    Where every teacher is a record that may be added or removed, the number of teachers is private whatever is said of it.
    """
    public = true_or_false("num_teachers_is_public", num_teachers_is_public)
    private = not public or (vote_change == WITHDRAWN and neighbours == "add_remove")
    return Votes(positive_integer("num_classes", num_classes), check_num_teachers(num_teachers), votes_per_teacher, private)


def count_votes(predictions: object, num_classes: int) -> Table:
    """Return how many teachers vote for each class on each query.

    Args:
        predictions: shape (num_queries, num_teachers), class indices, -1 where a teacher abstains.
        num_classes: size of the public label set.

    Returns:
        counts, shape (num_queries, num_classes), of the smallest unsigned type that holds num_teachers.

    Raises:
        ArgumentError: not a non-empty table of whole numbers from -1 to num_classes - 1.

    >>> count_votes([[0, 2, 2, -1], [1, 1, 1, 1]], num_classes=3)
    array([[1, 0, 2],
           [0, 4, 0]], dtype=uint8)
    """
    table = check_predictions(predictions, num_classes)
    counts = empty_counts(len(table), num_classes, num_teachers=table.shape[1])
    add_votes(counts, table)
    return counts


def empty_counts(num_queries: int, num_classes: int, *, num_teachers: int) -> Table:
    """Return zero counts of the smallest unsigned type that holds `num_teachers`; fill them with `add_votes`."""
    kind = np.min_scalar_type(positive_integer("num_teachers", num_teachers, maximum=MOST_TEACHERS))
    return empty_table(num_queries, num_classes, kind)


def add_votes(counts: Table, predictions: object) -> None:
    """Add the votes of one more chunk of teachers to `counts`, in place.

    Args:
        counts: shape (num_queries, num_classes), from `empty_counts` for all teachers together, or some of its rows.
        predictions: shape (num_queries, teachers of the chunk), class indices, -1 where a teacher abstains.

    Raises:
        ArgumentError: bad predictions, another number of queries, or more votes than the type of `counts` can hold.

    >>> counts = empty_counts(2, 3, num_teachers=300)
    >>> add_votes(counts, [[0], [2]])
    >>> add_votes(counts, [[0, 1], [-1, -1]])
    >>> counts
    array([[2, 1, 0],
           [0, 0, 1]], dtype=uint16)
    """
    table = check_predictions(predictions, counts.shape[1])
    if len(table) != len(counts):
        raise ArgumentError(f"predictions must have {len(counts)} rows, one for each query, got {len(table)}")
    if (most := int(counts.max()) + table.shape[1]) > np.iinfo(counts.dtype).max:
        raise ArgumentError(f"predictions must fit counts made for all teachers (num_teachers), got up to {most} votes")
    add = _add_by_planes if counts.shape[1] <= _FEW_CLASSES else _add_by_position
    for start in range(0, len(table), _BLOCK):
        rows = slice(start, start + _BLOCK)
        for first in range(0, table.shape[1], _BYTE):
            add(counts[rows], table[rows, first : first + _BYTE])


def keep_allowed(predictions: object, allowed: Integers, first: int = 0) -> Table:
    """Return the predictions with abstentions for all votes but the allowed ones; this enforces `votes_per_teacher`.

    A teacher has as many votes as `allowed` has columns, whatever its values.

    Args:
        predictions: shape (queries of a block, num_teachers), class indices, -1 where a teacher abstains.
        allowed: shape (num_teachers, votes_per_teacher), for each teacher positions of queries among all of them, computed from
            that teacher's own shard and public values alone. A position of no query allows nothing.
        first: position of the block's first query.

    >>> keep_allowed([[0, 1], [2, 1], [2, 1]], np.array([[1], [0]]))
    array([[-1,  1],
           [ 2, -1],
           [-1, -1]])
    """
    table = _signed(integer_matrix("predictions", predictions))
    positions = integer_matrix("allowed", allowed) - positive_integer("first", first, minimum=0)
    if len(positions) != table.shape[1]:
        raise ArgumentError(f"allowed must have a row for each of {table.shape[1]} teachers, got {len(positions)}")
    teacher, column = np.nonzero((positions >= 0) & (positions < len(table)))
    kept = np.zeros(table.shape, dtype=bool)
    kept[positions[teacher, column], teacher] = True
    return np.where(kept, table, ABSTAIN).astype(table.dtype)


def _signed(table: Table) -> Table:
    """Return a table that can hold an abstention."""
    return table if np.issubdtype(table.dtype, np.signedinteger) else table.astype(np.int64)


def keep_first(predictions: Table, used: Integers, votes_per_teacher: int) -> tuple[Table, Integers]:
    """Return the predictions with abstentions for each teacher's votes after its first `votes_per_teacher`, and the votes used.

    Which votes of a teacher are kept depends on that teacher's own votes alone, so one record still moves one teacher. A refusal
    would reveal that some teacher voted more often: a function of private records that no noise covers.

    Args:
        predictions: shape (num_queries, num_teachers), class indices, -1 where a teacher abstains.
        used: shape (num_teachers,), votes that each teacher has used on earlier queries.
        votes_per_teacher: queries on which one teacher votes at most, including earlier ones.

    >>> keep_first(np.array([[0, 1], [2, -1], [2, 1]]), np.array([0, 1]), 2)
    (array([[ 0,  1],
           [ 2, -1],
           [-1, -1]]), array([2, 2]))
    """
    kept, used = _signed(predictions).copy(), np.array(used, dtype=np.int64)
    for row in kept:
        row[used >= votes_per_teacher] = ABSTAIN
        used += row != ABSTAIN
    return kept, used


def _add_by_planes(counts: Table, votes: Table) -> None:
    """Add a block of at most 255 teachers: as bit planes, 64 votes to a word, whose intersections hold the votes for a class.

    A vote takes as many bits as the classes need; all ones are an abstention, with which rows are padded to whole words. From the
    highest bit down, the planes split the votes into groups of classes with a common prefix, until each group is one class.
    """
    rows, teachers = votes.shape
    padded = np.empty((rows, -(-teachers // _WORD) * _WORD), dtype=np.int8)
    padded[:, :teachers], padded[:, teachers:] = votes, ABSTAIN
    codes, classes = padded.view(np.uint8), counts.shape[1]
    bits, groups = np.empty_like(codes), [np.full((1, 1), _ONES)]
    for bit in reversed(range(classes.bit_length())):
        np.bitwise_and(codes, np.uint8(1 << bit), out=bits)
        plane = np.packbits(bits.reshape(-1)).view(np.uint64).reshape(rows, -1).T.copy()  # words first: sums run down vectors
        halves = (~plane, plane)
        prefixes = 1 + ((classes - 1) >> bit)
        groups = [group & half for group in groups for half in halves][:prefixes]
    for label, group in enumerate(groups):
        found = np.add.reduce(np.bitwise_count(group), axis=0, dtype=np.uint8)
        counts[:, label] += found.astype(counts.dtype, copy=False)


def _add_by_position(counts: Table, votes: Table) -> None:
    """Add a block of teachers at a cost that does not grow with the number of classes."""
    rows, classes = counts.shape
    cells = votes.astype(np.int64) + (classes * np.arange(rows))[:, np.newaxis]
    found = np.bincount(cells[votes != ABSTAIN], minlength=rows * classes)
    counts += found.reshape(rows, classes).astype(counts.dtype)


def check_votes(predictions: object, counts: object, num_classes: int, num_teachers: object) -> Table:
    """Return checked vote counts from exactly one of `predictions` and `counts`."""
    table = check_table(predictions, counts, num_classes, num_teachers)
    return table if predictions is None else count_votes(table, num_classes)


def check_table(predictions: object, counts: object, num_classes: int, num_teachers: object) -> Table:
    """Return exactly one of `predictions` and `counts`, checked."""
    if (predictions is None) == (counts is None):
        raise ArgumentError(f"predictions or counts must be given, got {'neither' if counts is None else 'both'}")
    if counts is not None:
        return check_counts(counts, num_classes, num_teachers=check_num_teachers(num_teachers))
    table = check_predictions(predictions, num_classes)
    check_num_teachers(num_teachers, table)
    return table


def check_predictions(predictions: object, num_classes: int) -> Table:
    """Return `predictions` as a non-empty integer table with values from -1 to num_classes - 1.

    >>> check_predictions([[0, 3]], num_classes=3)
    Traceback (most recent call last):
    teacher_student.arguments.ArgumentError: predictions must lie between -1 (abstains) and 2, got 3
    """
    classes = positive_integer("num_classes", num_classes)
    table = integer_matrix("predictions", predictions)
    for bound in (int(table.min()), int(table.max())):
        if not ABSTAIN <= bound < classes:
            raise ArgumentError(f"predictions must lie between {ABSTAIN} (abstains) and {classes - 1}, got {bound}")
    return table


def check_counts(counts: object, num_classes: int, *, num_teachers: int) -> Table:
    """Return `counts` as a table of non-negative whole numbers, `num_classes` wide, no row above `num_teachers` votes.

    >>> check_counts([[3, 2]], num_classes=2, num_teachers=4)
    Traceback (most recent call last):
    teacher_student.arguments.ArgumentError: counts must add up to at most num_teachers = 4 in each row, got 5
    """
    table = vote_counts("counts", counts, columns=positive_integer("num_classes", num_classes))
    if (most := int(table.sum(axis=1, dtype=np.int64).max())) > num_teachers:
        raise ArgumentError(f"counts must add up to at most num_teachers = {num_teachers} in each row, got {most}")
    return table
