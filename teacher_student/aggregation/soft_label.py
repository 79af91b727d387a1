"""Soft labels from the teachers' scores: histograms, `label_soft` in one call, `SoftLabelSession` online.

Only shapes, types and public settings are checked. A *value* of a score is private: it never raises, whatever it is. NaN and
infinities count nowhere (that teacher abstains), anything outside [0, 1] is clipped, and a row without a single usable score is
simply a query on which no teacher agrees. To refuse such rows would reveal for free what the mechanism charges for.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import SoftRelease
from teacher_student.aggregation.session import Session, SessionOptions
from teacher_student.aggregation.statistic import Statistic, Table, check_num_teachers
from teacher_student.arguments import ArgumentError, Floats, Integers, any_array, positive_integer
from teacher_student.mechanisms.interface import Mechanism
from teacher_student.mechanisms.noise import Noise
from teacher_student.mechanisms.soft_histogram import bins_of_width, check_bins, histograms
from teacher_student.mechanisms.soft_label import SoftLabelRelease, scores_of
from teacher_student.privacy import MechanismSpec, ThresholdParameters, calibrate_soft
from teacher_student.privacy.registry import SOFT_LABELS


@dataclasses.dataclass(frozen=True)
class Histograms(Statistic):
    """A plain and a shifted histogram of the scores of each query, or of each class of it (`mechanisms.soft_histogram`).

    Attributes:
        num_classes: None for one score per teacher; otherwise scores are one-vs-rest, and every class is a soft query.
        num_teachers: how many give scores, a public number.
        bins: of [0, 1], at least 3.
    """

    num_classes: int | None
    num_teachers: int
    bins: int

    def __post_init__(self) -> None:
        if self.num_classes is not None:
            positive_integer("num_classes", self.num_classes, minimum=2)
        check_num_teachers(self.num_teachers)

    @property
    def settings(self) -> dict[str, Any]:
        """Public facts, including the number of bins."""
        return {"bins": self.bins, **super().settings}

    def empty(self, num_queries: int) -> Table:
        """Return the histograms of no teachers, shape (num_queries, 2 bins), or (num_queries, num_classes 2 bins)."""
        shape = (num_queries, 0) if self.num_classes is None else (num_queries, 0, self.num_classes)
        return self._count(np.empty(shape), check_bins(self.bins, num_queries))

    def add(self, table: Table, said: Any) -> None:
        """Add the scores of one more chunk of teachers, shape (num_queries, teachers[, num_classes])."""
        more = self._count(np.asarray(said, dtype=np.float64), check_bins(self.bins, len(table)))
        more[:, :: 2 * self.bins] = 0  # the number of bins, which is there already
        table += more

    def check(self, scores: object, bins: object = None) -> Table:
        """Return the histograms of the scores of all teachers.

        Args:
            scores: shape (num_queries, num_teachers), or (num_queries, num_teachers, num_classes) for one-vs-rest.
            bins: number of bins, one or one for each query, chosen from public information only; None for the statistic's.
        """
        table = check_scores(scores, self.num_classes, self.num_teachers)
        return self._count(table, check_bins(self.bins if bins is None else bins, len(table)))

    def _count(self, scores: npt.NDArray[np.floating], bins: Integers) -> Integers:
        if self.num_classes is None:
            return histograms(scores, bins)
        rows = np.moveaxis(scores, 2, 1).reshape(len(scores) * self.num_classes, scores.shape[1])
        return histograms(rows, np.repeat(bins, self.num_classes)).reshape(len(scores), -1)

    @property
    def squared_distance(self) -> int:
        """A score moves from one bin to another, in the plain and in the shifted histogram of each class."""
        return 4 * (self.num_classes or 1)

    def mechanism(self, spec: MechanismSpec) -> Mechanism:
        """Return the two tests of a soft query."""
        if not isinstance(spec, ThresholdParameters):
            raise ArgumentError(f"mechanism must have a threshold, got {spec.mechanism}")
        return SoftLabelRelease(spec)


def check_scores(scores: object, num_classes: int | None, num_teachers: object) -> npt.NDArray[np.floating]:
    """Return `scores` as a non-empty table of floating-point numbers of the right shape, whatever its values."""
    table = any_array("scores", scores, "be a table whose rows have one width")
    if table.ndim != (2 if num_classes is None else 3):
        wanted = "(num_queries, num_teachers)" if num_classes is None else "(num_queries, num_teachers, num_classes)"
        raise ArgumentError(f"scores must have the shape {wanted}, got {table.shape}")
    if table.size == 0:
        raise ArgumentError(f"scores must not be empty, got shape {table.shape}")
    if num_classes is not None and table.shape[2] != num_classes:
        raise ArgumentError(f"scores must have num_classes = {num_classes} in the last dimension, got {table.shape[2]}")
    if not (np.issubdtype(table.dtype, np.floating) or np.issubdtype(table.dtype, np.integer)):
        raise ArgumentError(f"scores must be numbers, got values of type {table.dtype}")
    check_num_teachers(num_teachers, table, "scores")
    return table.astype(table.dtype if np.issubdtype(table.dtype, np.floating) else np.float64, copy=False)


class SoftLabelSession(Session[SoftRelease]):
    """Private soft labels for queries that arrive online, in batches, over days and restarts.

    One session is one budget, also for several classes: with `num_classes` a query has the teachers' scores for each class, and
    every class is one soft query of its own (one-vs-rest). One record still changes one teacher, hence one vote in each
    histogram, and the guarantee is the same for any number of queries. The cost is counted in units: a point on which no class is
    stable pays 2 units for each class, where a hard label pays 1.

    Args:
        bins: number of bins of [0, 1], at least 3; a single answer may use another (see `answer`).
        epsilon: for all answers of the session together.
        delta: for all answers of the session together.
        cutoff: T, unstable queries that can be paid; the budget is U = 2T units, one for every failed test.
        mechanism: stability, stability_paper, stability_redraw or stability_laplace.
        bin_width: instead of bins: 1 over an integer.
        num_classes: None for one score per teacher; otherwise scores are one-vs-rest.
        num_teachers: how many give scores, a public number. Must be given; it holds for all calls and restarts.
        num_queries: most queries ever asked; needed by stability_paper (each class of a query counts).
        state, noise, neighbours, account, hyperparameters: see `session.SessionOptions`.
        options: further options of the calibration.

    >>> session = SoftLabelSession(bins=10, epsilon=1.0, delta=1e-5, cutoff=50, num_teachers=4000)
    >>> session.answer(np.full((2, 4000), 0.42))
    array([0.45, 0.45])
    >>> session.remaining_units, session.halted
    (100, False)
    """

    def __init__(
        self,
        bins: int = 10,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        cutoff: int = 50,
        mechanism: str = "stability",
        *,
        bin_width: float | None = None,
        num_classes: int | None = None,
        num_teachers: int | None = None,
        num_queries: int | None = None,
        state: str | os.PathLike[str] | None = None,
        noise: Noise | None = None,
        neighbours: str = "add_remove",
        account: Account | None = None,
        hyperparameters: str = "fixed",
        **options: Any,
    ) -> None:
        if not isinstance(mechanism, str) or mechanism not in SOFT_LABELS:
            raise ArgumentError(f"mechanism must be one of {', '.join(SOFT_LABELS)} for soft labels; got {mechanism!r}")
        width = int(check_bins(bins, 1)[0]) if bin_width is None else bins_of_width(bin_width)
        statistic = Histograms(num_classes, check_num_teachers(num_teachers), width)
        tests = None if num_queries is None else positive_integer("num_queries", num_queries) * (num_classes or 1)
        spec = calibrate_soft(mechanism, epsilon=epsilon, delta=delta, cutoff=cutoff, num_queries=tests, **options)
        kept = SessionOptions(state, noise, neighbours, account, hyperparameters)
        super().__init__(spec, statistic, SoftRelease, epsilon=epsilon, delta=delta, options=kept)

    def answer(self, scores: object, *, bins: object = None, query_ids: Sequence[str | int] | None = None) -> Floats:
        """Return a private score for each query, in order; NaN where not answered.

        Args:
            scores: shape (num_queries, num_teachers), or (num_queries, num_teachers, num_classes) for one-vs-rest. NaN where a
                teacher abstains. No value raises: see the module.
            bins: number of bins, one or one per query, chosen from public information only; None for the session's.
            query_ids: public names, one for each query. A query asked again under its name gets its recorded score; a call names
                each query once.

        Raises:
            ArgumentError: scores that are no table of numbers, bins below 3; nothing was spent.
        """
        return scores_of(self.answer_codes(scores, bins=bins, query_ids=query_ids))[0]

    def answer_codes(self, scores: object, *, bins: object = None, query_ids: Sequence[str | int] | None = None) -> Integers:
        """Do what `answer` does, but return integer codes, which tell plain from shifted and `ABSTAIN` from `HALTED`."""
        return self.ask(self.statistic.check(scores, bins), query_ids)

    @property
    def remaining_cutoff(self) -> int:
        """How many more queries can fail both tests before the session halts; each pays two units."""
        return self.remaining_units // 2


def label_soft(
    scores: object,
    bins: object = 10,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    cutoff: int = 50,
    mechanism: str = "stability",
    *,
    bin_width: float | None = None,
    num_teachers: int | None = None,
    **options: Any,
) -> SoftRelease:
    """Return private soft labels for a table of scores, in one call. No torch is needed.

    Arguments are those of `SoftLabelSession` and of its `answer`. Scores of shape (num_queries, num_teachers, num_classes) are
    one-vs-rest, under the one budget; `bins` may be one number per query, chosen from public information.

    Raises:
        ArgumentError: a bad argument; nothing was spent.
    """
    table = any_array("scores", scores, "be a table whose rows have one width")
    classes = table.shape[2] if table.ndim == 3 else None
    table = check_scores(table, classes, num_teachers)
    width = check_bins(bins, len(table)) if bin_width is None else np.full(len(table), bins_of_width(bin_width))
    options |= {"num_classes": classes, "num_teachers": num_teachers, "num_queries": len(table)}
    with SoftLabelSession(int(width.max()), epsilon, delta, cutoff, mechanism, **options) as session:
        return session.ask_once(session.statistic.check(table, width))
