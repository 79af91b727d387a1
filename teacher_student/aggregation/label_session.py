"""`LabelSession`: class labels from votes, online."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.session import Keeping, Session
from teacher_student.aggregation.votes import Table, check_counts, check_num_teachers, check_predictions, count_votes
from teacher_student.arguments import ArgumentError, Integers, choice, positive_integer
from teacher_student.mechanisms.interface import build_mechanism
from teacher_student.mechanisms.noise import Noise
from teacher_student.privacy import MechanismSpec, calibrate
from teacher_student.privacy.registry import LABELS


class LabelSession(Session):
    """Private labels for queries that arrive online, in batches, over days and restarts.

    Args:
        num_classes: size of the public label set.
        epsilon: for all answers of the session together.
        delta: for all answers of the session together.
        cutoff: paid non-answers before the session halts; None lets the planner choose it from public sizes.
        mechanism: a name of `privacy.MECHANISMS`, such as stability, gnmax or confident_gnmax.
        state: an SQLite file that keeps the session across restarts and processes, or None for memory. Reopened with the same
            arguments, the session goes on under the same noisy threshold with what is left of its cutoff.
        num_queries: most queries ever asked; some calibrations need it and answer no more than that.
        num_teachers: how many vote, a public number. Must be given; it holds for all calls and restarts.
        noise: None for the operating system's entropy; anything else is for studies and is certified as not private.
        neighbours: add_remove, replace_one or label_only.
        account: the private data's account in a ledger (`Ledger.account`); refused before any noise is drawn if it is exceeded.
        hyperparameters: how they were chosen: fixed, or on a public_surrogate; the certificate says so.
        options: further options of the calibration, such as threshold_ratio.

    >>> session = LabelSession(num_classes=2, epsilon=1.0, delta=1e-5, cutoff=50, num_teachers=4000)
    >>> session.answer(counts=[[4000, 0], [0, 4000]])
    array([0, 1])
    >>> session.remaining_cutoff, session.halted
    (50, False)
    """

    def __init__(
        self,
        num_classes: int,
        epsilon: float,
        delta: float,
        cutoff: int | None = 50,
        mechanism: str = "stability",
        *,
        state: str | os.PathLike[str] | None = None,
        num_queries: int | None = None,
        num_teachers: int | None = None,
        noise: Noise | None = None,
        neighbours: str = "add_remove",
        account: Account | None = None,
        hyperparameters: str = "fixed",
        **options: Any,
    ) -> None:
        self._num_classes = positive_integer("num_classes", num_classes)
        self._num_teachers = check_num_teachers(num_teachers)
        parameters = choose(
            mechanism, epsilon, delta, cutoff, num_queries, num_teachers=self._num_teachers, num_classes=num_classes, **options
        )
        settings = {"num_classes": self._num_classes, "num_teachers": self._num_teachers}
        super().__init__(
            build_mechanism(parameters),
            epsilon=epsilon,
            delta=delta,
            settings=settings,
            keeping=Keeping(state, noise, neighbours, account, hyperparameters),
        )

    def answer(
        self, predictions: object = None, *, counts: object = None, query_ids: Sequence[str | int] | None = None
    ) -> Integers:
        """Return a label for each query, in order.

        Args:
            predictions: shape (num_queries, num_teachers), class indices, -1 where a teacher abstains.
            counts: instead of predictions: votes per class, shape (num_queries, num_classes).
            query_ids: public names, one for each query. A query asked again under its name gets the label that it got; a call
                names each query once.

        Returns:
            shape (num_queries,), int64: a class, `ABSTAIN` (paid for) or `HALTED` (the cutoff was spent; free).

        Raises:
            ArgumentError: bad votes; nothing was spent.
        """
        return self.ask(check_votes(predictions, counts, self._num_classes, self._num_teachers), query_ids)


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


def choose(
    mechanism: str,
    epsilon: float,
    delta: float,
    cutoff: int | None,
    num_queries: int | None,
    *,
    num_teachers: int,
    num_classes: int,
    **options: Any,
) -> MechanismSpec:
    """Return calibrated parameters; without a cutoff the planner chooses it, from public sizes alone."""
    kind = LABELS[choice("mechanism", mechanism, LABELS)]
    if cutoff is None:
        if num_queries is None:
            raise ArgumentError("cutoff must be given where num_queries is not, got None")
        from teacher_student.planning.request import Request, choose_cutoff, choose_parameters

        request = Request(
            num_teachers=num_teachers, num_queries=num_queries, epsilon=epsilon, delta=delta, num_classes=max(2, num_classes)
        )
        if not options:
            return choose_parameters(mechanism, request)
        cutoff = choose_cutoff(
            mechanism,
            num_teachers=num_teachers,
            num_queries=num_queries,
            epsilon=epsilon,
            delta=delta,
            num_classes=request.num_classes,
        )
    if kind.pays_for == "answers":
        options["num_teachers"] = num_teachers
    return calibrate(mechanism, epsilon=epsilon, delta=delta, cutoff=cutoff, num_queries=num_queries, **options)
