"""Soft labels from the teachers' scores: `label_soft` in one call, `SoftLabelSession` online."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from teacher_student.aggregation.histograms import Histograms, as_array, check_scores
from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import SoftRelease
from teacher_student.aggregation.session import Session, SessionOptions
from teacher_student.aggregation.statistic import check_num_teachers
from teacher_student.arguments import ArgumentError, Floats, Integers, positive_integer
from teacher_student.mechanisms.noise import Noise
from teacher_student.mechanisms.soft_histogram import bins_of_width, check_bins
from teacher_student.mechanisms.soft_label import scores_of
from teacher_student.privacy import calibrate_soft
from teacher_student.privacy.registry import SOFT_LABELS


class SoftLabelSession(Session[SoftRelease]):
    """Private soft labels for queries that arrive online, in batches, over days and restarts.

    One session is one budget, also for several classes: with `num_classes` a query has the teachers' scores for each class, and
    every class is one soft query of its own (one-vs-rest). One record still changes one teacher, hence one vote in each
    histogram, and the guarantee is the same for any number of queries. The cost is units: a point on which no class is stable
    pays 2 units for each class, where a hard label pays 1.

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
        histograms = Histograms(num_classes, check_num_teachers(num_teachers), width)
        tests = None if num_queries is None else positive_integer("num_queries", num_queries) * (num_classes or 1)
        spec = calibrate_soft(mechanism, epsilon=epsilon, delta=delta, cutoff=cutoff, num_queries=tests, **options)
        kept = SessionOptions(state, noise, neighbours, account, hyperparameters)
        super().__init__(spec, histograms, SoftRelease, epsilon=epsilon, delta=delta, options=kept)

    def answer(self, scores: object, *, bins: object = None, query_ids: Sequence[str | int] | None = None) -> Floats:
        """Return a private score for each query, in order; NaN where not answered.

        Args:
            scores: shape (num_queries, num_teachers), or (num_queries, num_teachers, num_classes) for one-vs-rest. NaN where a
                teacher abstains. No value raises: see the module.
            bins: number of bins, one or one per query, chosen from public information only; None for the session's.
            query_ids: public names, one for each query. A query asked again under its name gets the score that it got; a call
                names each query once.

        Raises:
            ArgumentError: scores that are no table of numbers, bins below 3; nothing was spent.
        """
        return scores_of(self.answer_codes(scores, bins=bins, query_ids=query_ids))[0]

    def answer_codes(self, scores: object, *, bins: object = None, query_ids: Sequence[str | int] | None = None) -> Integers:
        """Do what `answer` does, and return integer codes, which tell plain from shifted and `ABSTAIN` from `HALTED`."""
        return self.ask(self.statistic.check(scores, bins), query_ids)

    @property
    def remaining_cutoff(self) -> int:
        """How many more queries can fail both tests before the session halts; each pays two units."""
        return self.remaining_units // 2


def label_soft(  # noqa: D417 - what every session takes is documented once
    scores: object,
    bins: object = 10,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    cutoff: int = 50,
    mechanism: str = "stability",
    *,
    bin_width: float | None = None,
    num_teachers: int | None = None,
    state: str | os.PathLike[str] | None = None,
    noise: Noise | None = None,
    neighbours: str = "add_remove",
    account: Account | None = None,
    hyperparameters: str = "fixed",
    **options: Any,
) -> SoftRelease:
    """Return private soft labels for a table of scores, in one call. No torch is needed.

    Args:
        scores: shape (num_queries, num_teachers), NaN where a teacher abstains; or (num_queries, num_teachers, num_classes) for
            several classes one-vs-rest under the one budget. No value raises: NaN and infinities count nowhere, values outside
            [0, 1] are clipped, since whether they occur is private.
        bins: number of bins, at least 3: one, or one per query chosen from public information.
        epsilon: for all scores together, above 0.
        delta: for all scores together, strictly between 0 and 1.
        cutoff: T, unstable queries that can be paid (2T failed tests).
        mechanism: stability, stability_paper, stability_redraw or stability_laplace.
        bin_width: instead of bins: 1 over an integer.
        num_teachers: how many give scores, a public number. Must be given, as in `label`.
        state, noise, neighbours, account, hyperparameters: see `session.SessionOptions`.
        options: further options of the calibration.

    Raises:
        ArgumentError: a bad argument; nothing was spent.
    """
    table = as_array(scores)
    classes = table.shape[2] if table.ndim == 3 else None
    table = check_scores(table, classes, num_teachers)
    width = check_bins(bins, len(table)) if bin_width is None else np.full(len(table), bins_of_width(bin_width))
    kept = vars(SessionOptions(state, noise, neighbours, account, hyperparameters))
    options |= {**kept, "num_classes": classes, "num_teachers": num_teachers, "num_queries": len(table)}
    with SoftLabelSession(int(width.max()), epsilon, delta, cutoff, mechanism, **options) as session:
        session.answer_codes(table, bins=width, query_ids=None if state is None else range(len(table)))
        return session.release()
