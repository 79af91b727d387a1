"""Noisy means of bounded scores: teachers say how much, not only which. `ScoreSession` online; `add_scores` enforces the bound.

A score is any finite number: a class score of a network, a probability less 1/C, a prediction of a regression. In a round of
questions each teacher has one vector of them, over all queries and classes of the round. Before vectors are summed, each is
shrunk to at most the length of one whose every entry is `norm`, and rounded to integer steps of norm / 64 toward 0. The guarantee
rests on this (`teacher_student.privacy.noisy_scores`).

A round is answered whole, in one transaction, or refused. Otherwise a vector could have its whole length in the part that is
released first, and again in the part that is released next.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import GradientRelease, ScoreRelease, means_of
from teacher_student.aggregation.session import Session, SessionOptions
from teacher_student.aggregation.statistic import Statistic, check_num_teachers, empty_table
from teacher_student.arguments import ArgumentError, Floats, Integers, floats, integer_matrix, positive_integer, positive_number
from teacher_student.mechanisms.noise import Noise
from teacher_student.mechanisms.noisy_sums import check_sums
from teacher_student.privacy import calibrate
from teacher_student.privacy.noisy_sums import STEPS
from teacher_student.privacy.parameters import REPLACED

_BLOCK = 2**16
"""Scores bounded at a time, few enough for a CPU's cache."""


@dataclasses.dataclass(frozen=True)
class BoundedScores(Statistic):
    """Sums of the teachers' bounded vectors over one round of questions.

    Attributes:
        num_classes: scores of a query.
        num_teachers: how many scores a sum has, a public number.
        num_queries: queries of a round.
        norm: public; longer vectors are shrunk to the length of one whose every entry is this.
        steps: whole number that stands for the norm.
    """

    steps: ClassVar[int] = STEPS

    num_classes: int
    num_teachers: int
    num_queries: int
    norm: float

    def __post_init__(self) -> None:
        positive_integer("num_classes", self.num_classes)
        check_num_teachers(self.num_teachers)
        positive_integer("num_queries", self.num_queries)
        object.__setattr__(self, "norm", positive_number("norm", self.norm))

    @property
    def settings(self) -> dict[str, Any]:
        """Public facts, including the norm."""
        return {**super().settings, "norm": self.norm}

    def empty(self, num_queries: int) -> Integers:
        """Return zero sums, shape (num_queries, num_classes)."""
        return empty_sums(num_queries, self.num_classes)

    def add(self, table: Integers, said: object) -> None:
        """Add the bounded scores of one more chunk of teachers to sums; see `add_scores`."""
        add_scores(table, said, self.norm)

    def check(self, sums: object) -> Integers:
        """Return sums as int64, shape (num_queries, num_classes)."""
        return check_sums(integer_matrix("sums", sums, columns=self.num_classes))

    @property
    def squared_distance(self) -> int:
        """A vector of a round may turn into its opposite, twice its length away."""
        return 4 * self.steps**2 * self.num_classes

    def check_batch(self, fresh: int, asked: int) -> None:
        """Refuse anything but a whole round."""
        if asked != self.num_queries or fresh not in (0, asked):
            raise ArgumentError(
                f"sums must be of one whole round of {self.num_queries} queries, all new or all asked before, got {asked} of "
                f"which {fresh} are new"
            )


@dataclasses.dataclass(frozen=True)
class BoundedGradients(BoundedScores):
    """Sums of the bounded gradients of persons, over one step of gradient descent; a query is a feature of the model.

    A gradient is the product of two vectors, each of which is bounded as scores are, so the squares of its integers add up to at
    most 64^4 for every number (`teachers.record_gradients` has the proof).
    """

    steps = STEPS**2

    def add(self, table: Integers, said: object) -> None:
        """Add the sums over one more chunk of persons to sums."""
        table += self.check(said)


def empty_sums(num_queries: int, num_classes: int) -> Integers:
    """Return zero sums, shape (num_queries, num_classes); fill them with `add_scores`."""
    return empty_table(num_queries, num_classes, np.int64).astype(np.int64, copy=False)


def add_scores(sums: Integers, scores: object, norm: float) -> None:
    """Add the bounded scores of one more chunk of teachers to `sums`, in place.

    Args:
        sums: shape (num_queries, num_classes), of one round of questions, from `empty_sums`.
        scores: shape (num_queries, teachers of the chunk, num_classes), each teacher's whole vector, never twice, computed from
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

    Rounding toward 0 never makes a vector longer. Should floating-point error have made one too long, it is dropped.
    """
    size = positive_number("norm", norm)
    with np.errstate(over="ignore", invalid="ignore"):  # a private infinity must cause no warning
        finite = np.where(np.isfinite(vectors), vectors, 0.0) / size
        largest = np.abs(finite).max(axis=1, keepdims=True)
        shape = finite / np.where(largest > 0, largest, 1.0)  # squares of huge scores would overflow
        length = largest * np.sqrt((shape * shape).mean(axis=1, keepdims=True))
        steps = np.trunc(finite * (STEPS / np.maximum(length, 1.0)))
    whole = np.where(np.isfinite(steps), steps, 0.0).astype(np.int64)
    short = (whole * whole).sum(axis=1) <= STEPS**2 * vectors.shape[1]
    return np.where(short[:, None], whole, 0)


class ScoreSession(Session[ScoreRelease]):
    """Noisy mean scores for queries that are asked in rounds, over days and restarts.

    Args:
        num_classes: scores of a query.
        epsilon: for all answers of the session together.
        delta: for all answers of the session together.
        num_queries: queries of a round.
        num_teachers: how many scores a mean has, a public number. Must be given; it holds for all rounds and restarts.
        norm: public; the bound that `add_scores` applied.
        rounds: how many rounds are asked.
        vote_change: "withdrawn" if every vector is that of one protected person, so that no neighbour replaces it (see
            docs/privacy.md, "Votes that are only added or withdrawn"); "replaced" otherwise.
        state, noise, neighbours, account, hyperparameters: see `session.SessionOptions`.
    """

    STATISTIC: ClassVar[type[BoundedScores]] = BoundedScores
    KIND: ClassVar[type[ScoreRelease]] = ScoreRelease

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
        vote_change: str = REPLACED,
        state: str | os.PathLike[str] | None = None,
        noise: Noise | None = None,
        neighbours: str = "add_remove",
        account: Account | None = None,
        hyperparameters: str = "fixed",
    ) -> None:
        times, self._norm, self._steps = positive_integer("rounds", rounds), positive_number("norm", norm), self.STATISTIC.steps
        scores = self.STATISTIC(num_classes, check_num_teachers(num_teachers), num_queries, norm)
        sizes: dict[str, Any] = {"num_queries": num_queries * times, "num_classes": num_classes}
        spec = calibrate("noisy_scores", epsilon=epsilon, delta=delta, steps=self._steps, vote_change=vote_change, **sizes)
        kept = SessionOptions(state, noise, neighbours, account, hyperparameters)
        super().__init__(spec, scores, self.KIND, epsilon=epsilon, delta=delta, settings={"rounds": times}, options=kept)

    def answer(self, sums: object, *, query_ids: Sequence[str | int] | None = None) -> Floats:
        """Return noisy means for each query of one round, shape (num_queries, num_classes); NaN where the session had halted.

        Args:
            sums: shape (num_queries, num_classes), of `add_scores` over all teachers.
            query_ids: public names, one for each query and round. A round asked again under its names gets its answers again.

        Raises:
            ArgumentError: bad sums, or not one whole round, all of it new or all of it asked before; nothing was spent.
        """
        codes = self.ask(self.statistic.check(sums), query_ids)
        return means_of(codes, self.statistic.num_teachers, self._norm, self._steps)


class GradientSession(ScoreSession):
    """Noisy sums of gradients of a linear model, one round for each step of gradient descent.

    A round has a query for each feature of the model, and its sums are those of `teachers.record_gradients`. See `ScoreSession`.
    """

    STATISTIC = BoundedGradients
    KIND = GradientRelease


def average_scores(
    scores: npt.ArrayLike, *, norm: float, epsilon: float, delta: float, num_teachers: int | None = None, **options: Any
) -> ScoreRelease:
    """Release noisy means of the scores that disjointly trained teachers gave. No torch is needed.

    Args:
        scores: shape (num_queries, num_teachers, num_classes), any number of scores per query (1 for a regression).
        norm: public; a teacher's scores are shrunk to a root mean square of this, if theirs is larger. Choose it without them.
        epsilon: for all answers together.
        delta: for all answers together.
        num_teachers: how many gave scores, a public number. Must be given, as in `label`.
        options: of `ScoreSession`.

    Raises:
        ArgumentError: bad input. Nothing was spent: no noise is drawn before all is checked.
    """
    given = floats("scores", scores)
    if given.ndim != 3 or not given.size:
        raise ArgumentError(f"scores must have the shape (num_queries, num_teachers, num_classes), got {given.shape}")
    teachers = check_num_teachers(num_teachers, given, "scores")
    queries, _, classes = given.shape
    options |= {"num_queries": queries, "num_teachers": teachers, "norm": norm}
    with ScoreSession(classes, epsilon, delta, **options) as session:
        sums = session.statistic.empty(queries)
        session.statistic.add(sums, given)
        return session.ask_once(session.statistic.check(sums))
