"""Noisy means of bounded scores: teachers say how much, not only which. `ScoreSession` online, `add_scores` holds the bound.

A score is any finite number: a class score of a network, a probability less 1/C, a prediction of a regression. In a round of
questions each teacher has one vector of them, over all queries and classes of the round. Before vectors are summed, each is made
at most as long as one whose every entry is `norm`, by shrinking it, and rounded to integer steps of norm / 64 toward 0. That is
what the guarantee rests on (`teacher_student.privacy.noisy_scores`).

A round is answered whole, in one transaction, or refused: were part of it answered, or other scores of the same teachers for the
rest, a vector could have its whole length in what is released, and again in what is released next.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.session import Keeping
from teacher_student.aggregation.sum_release import ScoreRelease, means_of
from teacher_student.aggregation.sum_session import SumSession
from teacher_student.aggregation.votes import check_num_teachers, empty_table
from teacher_student.arguments import ArgumentError, Floats, Integers, floats, integer_matrix, positive_integer, positive_number
from teacher_student.mechanisms.noise import Noise
from teacher_student.mechanisms.noisy_sums import check_sums
from teacher_student.privacy import NoisyScores, calibrate
from teacher_student.privacy.noisy_scores import STEPS

_BLOCK = 2**16
"""Scores that are bounded at a time, which a CPU's cache holds."""


def empty_sums(num_queries: int, num_classes: int) -> Integers:
    """Return zero sums, shape (num_queries, num_classes); fill them with `add_scores`."""
    return empty_table(num_queries, num_classes, np.int64).astype(np.int64, copy=False)


def add_scores(sums: Integers, scores: object, norm: float) -> None:
    """Add the bounded scores of one more chunk of teachers to `sums`, in place.

    Args:
        sums: shape (num_queries, num_classes), of one round of questions, from `empty_sums`.
        scores: shape (num_queries, teachers of the chunk, num_classes), each teacher's whole vector, never twice; it follows from
            that teacher's own shard and public values alone. What is not finite counts as 0.
        norm: public; longer vectors are shrunk to the length of one whose every entry is this.

    >>> sums = empty_sums(1, 2)
    >>> add_scores(sums, [[[0.5, -0.5], [30.0, -30.0]]], norm=1.0)
    >>> sums.tolist()
    [[96, -96]]
    """
    if not isinstance(sums, np.ndarray) or sums.dtype != np.int64 or sums.ndim != 2 or not sums.size:
        raise ArgumentError("sums must be those of empty_sums, got others")  # a narrower type would wrap around
    given = scores if isinstance(scores, np.ndarray) else floats("scores", scores)
    if given.ndim != 3 or given.shape[::2] != sums.shape:
        raise ArgumentError(f"scores must have the shape ({sums.shape[0]}, teachers, {sums.shape[1]}), got {given.shape}")
    positive_number("norm", norm)
    for first in range(0, given.shape[1], teachers := max(1, _BLOCK // sums.size)):
        vectors = np.moveaxis(floats("scores", given[:, first : first + teachers]), 1, 0)
        sums += bounded(vectors.reshape(len(vectors), -1), norm).sum(axis=0).reshape(sums.shape)


def bounded(vectors: Floats, norm: float) -> Integers:
    """Return integers, shape (teachers, entries), whose squares add up to at most 64^2 entries in each row.

    Rounding toward 0 never makes a vector longer; should floating point have made one so, it is dropped: no bound, no answer.
    """
    size = positive_number("norm", norm)
    with np.errstate(over="ignore", invalid="ignore"):  # one private infinity must not show as a warning
        finite = np.where(np.isfinite(vectors), vectors, 0.0) / size
        largest = np.abs(finite).max(axis=1, keepdims=True)
        shape = finite / np.where(largest > 0, largest, 1.0)  # squares of huge scores would overflow
        length = largest * np.sqrt((shape * shape).mean(axis=1, keepdims=True))
        steps = np.trunc(finite * (STEPS / np.maximum(length, 1.0)))
    whole = np.where(np.isfinite(steps), steps, 0.0).astype(np.int64)
    short = (whole * whole).sum(axis=1) <= STEPS**2 * vectors.shape[1]
    return np.where(short[:, None], whole, 0)


class ScoreSession(SumSession):
    """Noisy mean scores for queries that are asked in rounds, over days and restarts.

    Args:
        num_classes: scores of a query.
        epsilon: for all answers of the session together.
        delta: for all answers of the session together.
        num_queries: queries of a round.
        num_teachers: how many scores a mean is of, a public number. Must be given; it holds for all rounds and restarts.
        norm: at which `add_scores` bounded them: public.
        rounds: how often they are asked.
        state: an SQLite file that keeps the session across restarts and processes, or None for memory.
        noise: None for the operating system's entropy; anything else is for studies and is certified as not private.
        neighbours: add_remove, replace_one or label_only.
        account: the private data's account in a ledger (`Ledger.account`); refused before any noise is drawn if it is exceeded.
        hyperparameters: how they were chosen: fixed, or on a public_surrogate; the certificate says so.
    """

    def __init__(
        self,
        num_classes: int,
        epsilon: float,
        delta: float,
        *,
        num_queries: int,
        num_teachers: int | None = None,
        norm: float,
        rounds: int = 1,
        state: str | os.PathLike[str] | None = None,
        noise: Noise | None = None,
        neighbours: str = "add_remove",
        account: Account | None = None,
        hyperparameters: str = "fixed",
    ) -> None:
        queries, times = positive_integer("num_queries", num_queries), positive_integer("rounds", rounds)
        self._norm = positive_number("norm", norm)
        parameters = calibrate(
            "noisy_scores",
            epsilon=epsilon,
            delta=delta,
            num_queries=queries * times,
            num_classes=positive_integer("num_classes", num_classes),
        )
        assert isinstance(parameters, NoisyScores)
        self._round = queries
        super().__init__(
            "mean scores",
            parameters,
            epsilon=epsilon,
            delta=delta,
            num_teachers=num_teachers,
            keeping=Keeping(state, noise, neighbours, account, hyperparameters),
            norm=self._norm,
            rounds=times,
        )

    def answer(self, sums: object, *, query_ids: Sequence[str | int] | None = None) -> Floats:
        """Return noisy means for each query of one round, shape (num_queries, num_classes); NaN where the session had halted.

        Args:
            sums: shape (num_queries, num_classes), of `add_scores` over all teachers.
            query_ids: public names, one for each query and round. A round asked again under its names gets its answers again.

        Raises:
            ArgumentError: bad sums, or not one whole round, all of it new or all of it asked before; nothing was spent.
        """
        table = check_sums(integer_matrix("sums", sums, columns=self._num_classes))
        return means_of(self.ask(table, query_ids), self._num_teachers, self._norm)

    def _check_fresh(self, fresh: int, asked: int) -> None:
        """Refuse all but whole rounds, which are what is paid for."""
        if asked != self._round or fresh not in (0, asked):
            raise ArgumentError(
                f"sums must be of one whole round of {self._round} queries, all new or all asked before, got {asked} of which "
                f"{fresh} are new"
            )

    def release(self) -> ScoreRelease:  # type: ignore[override]
        """Return all noisy sums so far, in the order of the queries, with their certificate."""
        return ScoreRelease(*self._so_far())


def average_scores(
    scores: npt.ArrayLike,
    *,
    norm: float,
    epsilon: float,
    delta: float,
    num_teachers: int | None = None,
    state: str | os.PathLike[str] | None = None,
    noise: Noise | None = None,
    neighbours: str = "add_remove",
    account: Account | None = None,
    hyperparameters: str = "fixed",
) -> ScoreRelease:
    """Release noisy means of the scores that disjointly trained teachers gave. No torch is needed.

    Args:
        scores: shape (num_queries, num_teachers, num_classes): of each query as many numbers as are wanted (1 for a regression).
        norm: public; a teacher's scores are shrunk to a root mean square of this, if theirs is larger. Choose it without them.
        epsilon: for all answers together, above 0.
        delta: for all answers together, strictly between 0 and 1.
        num_teachers: how many gave scores, a public number. Must be given, as in `label`.
        state: a file that keeps the session; None for memory.
        noise: None for the operating system's entropy; anything else is for studies and is certified as not private.
        neighbours: add_remove, replace_one or label_only.
        account: the private data's account in a ledger; refused before any noise is drawn if it is exceeded.
        hyperparameters: how they were chosen: fixed, or on a public_surrogate; the certificate says so.

    Raises:
        ArgumentError: bad input. Nothing was spent: no noise is drawn before all is checked.
    """
    given = floats("scores", scores)
    if given.ndim != 3 or not given.size:
        raise ArgumentError(f"scores must have the shape (num_queries, num_teachers, num_classes), got {given.shape}")
    teachers = check_num_teachers(num_teachers, given, "scores")
    sums = empty_sums(*given.shape[::2])
    add_scores(sums, given, norm)
    session = ScoreSession(
        sums.shape[1],
        epsilon,
        delta,
        num_queries=len(sums),
        num_teachers=teachers,
        norm=norm,
        state=state,
        noise=noise,
        neighbours=neighbours,
        account=account,
        hyperparameters=hyperparameters,
    )
    session.answer(sums, query_ids=None if state is None else range(len(sums)))
    return session.release()
