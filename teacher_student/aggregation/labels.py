"""Class labels from votes: `label` in one call, `LabelSession` online."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import Release
from teacher_student.aggregation.session import Session, SessionOptions
from teacher_student.aggregation.statistic import Statistic
from teacher_student.aggregation.votes import Votes, check_votes, voters
from teacher_student.arguments import ArgumentError, Integers, choice, positive_integer
from teacher_student.mechanisms.noise import Noise
from teacher_student.planning.preflight import mostly_noise, warn, weak_guarantee
from teacher_student.planning.recipe import AUTO, choose_mechanism
from teacher_student.planning.request import Request, choose_cutoff, choose_parameters
from teacher_student.privacy import MechanismSpec, calibrate
from teacher_student.privacy.parameters import REPLACED
from teacher_student.privacy.registry import LABELS


class LabelSession(Session[Release]):
    """Private labels for queries that arrive online, in batches, over days and restarts.

    Args:
        num_classes: size of the public label set.
        epsilon: for all answers of the session together.
        delta: for all answers of the session together.
        cutoff: paid abstentions before the session halts; None lets the planner choose it from public sizes.
        mechanism: a name of `privacy.MECHANISMS`, such as stability, gnmax or confident_gnmax; or auto, which chooses mechanism
            and cutoff from public sizes (`planning.recipe`), for `num_queries` queries. The certificate then says why.
        state, noise, neighbours, account, hyperparameters: see `session.SessionOptions`.
        num_queries: most queries ever asked; some calibrations need it and answer no more.
        num_teachers: how many vote, a public number. Must be given; it holds for all calls and restarts.
        num_teachers_is_public: False if `num_teachers` is only an order of magnitude of the votes on a query, as where records
            choose the queries on which they vote. Counts are not compared with it then.
        options: further options of the calibration, such as threshold_ratio. vote_change="withdrawn" states that each
            teacher is itself the protected unit: one record, or one owner.

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
        noise: Noise | None = None,
        neighbours: str = "add_remove",
        account: Account | None = None,
        hyperparameters: str = "fixed",
        num_queries: int | None = None,
        num_teachers: int | None = None,
        num_teachers_is_public: bool = True,
        **options: Any,
    ) -> None:
        change = options.get("vote_change")
        votes = voters(num_classes, num_teachers, neighbours, change, num_teachers_is_public=num_teachers_is_public)
        kept = SessionOptions(state, noise, neighbours, account, hyperparameters)
        spec, settings = _calibrated(mechanism, epsilon, delta, cutoff, num_queries, votes, **options)
        super().__init__(spec, votes, Release, epsilon=epsilon, delta=delta, settings=settings, options=kept)

    def answer(
        self, predictions: object = None, *, counts: object = None, query_ids: Sequence[str | int] | None = None
    ) -> Integers:
        """Return a label for each query, in order.

        Args:
            predictions: shape (num_queries, num_teachers), class indices, -1 where a teacher abstains.
            counts: instead of predictions: votes per class, shape (num_queries, num_classes).
            query_ids: public names, one for each query. A query asked again under its name gets its recorded label; a call names
                each query once.

        Returns:
            shape (num_queries,), int64: a class, `ABSTAIN` (paid for) or `HALTED` (the cutoff was spent; free).

        Raises:
            ArgumentError: bad votes; nothing was spent.
        """
        return self.ask(self.statistic.check(predictions, counts), query_ids)

    @property
    def remaining_cutoff(self) -> int:
        """How many more abstentions, or answers of a noisy maximum, can be paid before the session halts."""
        return self.remaining_units


def label(
    predictions: object = None,
    *,
    counts: object = None,
    num_classes: int,
    epsilon: float,
    delta: float,
    mechanism: str = AUTO,
    cutoff: int | None = None,
    num_teachers: int | None = None,
    population: int | None = None,
    **options: Any,
) -> Release:
    """Release private labels for queries on which disjointly trained teachers voted.

    The guarantee rests on one rule: one record (or user) reaches one teacher. The release then is (epsilon, delta)-differentially
    private with respect to any one of them, whatever the teachers are.

    Args:
        predictions: shape (num_queries, num_teachers), class indices, -1 where a teacher abstains.
        counts: instead of predictions: votes per class, shape (num_queries, num_classes).
        num_classes: size of the public label set.
        epsilon: for all labels together, above 0.
        delta: for all labels together, strictly between 0 and 1.
        mechanism: stability, stability_paper, stability_redraw, stability_laplace, gnmax, confident_gnmax, lnmax, exponential or
            permute_and_flip. auto takes the one that promises most labels for these public sizes, and how many queries it
            answers (`planning.recipe`); `certificate.used["chosen"]` says why. With a cutoff or an option, auto is stability.
        cutoff: paid abstentions before the session halts; None lets the planner choose it from public sizes.
        num_teachers: how many vote, a public number. Must be given: an array cannot tell its columns from its rows. A transposed
            square table is not noticed, so check the order of its axes.
        population: public order of magnitude of the number of records; a delta above 1 / population causes a warning.
        options: `state`, `noise`, `neighbours`, `account` and `hyperparameters` (see `session.SessionOptions`), and further
            options of the calibration, as in `LabelSession`.

    Returns:
        labels, shape (num_queries,), and their certificate.

    Raises:
        ArgumentError: bad input. Nothing was spent: no noise is drawn before all is checked.

    Warns:
        PrivacyWarning: before any noise is drawn, if public numbers show that epsilon or delta protects almost nobody, or that
            labels of a noisy maximum would be mostly noise.

    >>> votes = [[0] * 3990 + [1] * 10, [0] * 2000 + [1] * 2000]
    >>> release = label(votes, num_classes=2, epsilon=1.0, delta=1e-5, num_teachers=4000, mechanism="stability")
    >>> release.labels, release.certificate.epsilon
    (array([ 0, -1]), 1.0)
    """
    classes = positive_integer("num_classes", num_classes)
    if num_teachers is None:
        check_votes(predictions, counts, classes, None)  # refuses, and names the shape
    relation, change = options.get("neighbours", "add_remove"), options.get("vote_change")
    public = options.get("num_teachers_is_public", True)
    votes = voters(classes, num_teachers, relation, change, num_teachers_is_public=public).check(predictions, counts)
    options |= {"num_queries": len(votes), "num_teachers": num_teachers}
    with LabelSession(classes, epsilon, delta, cutoff, mechanism, **options) as session:
        request = _request(session.statistic, len(votes), epsilon, delta, options.get("vote_change", REPLACED))
        warn(weak_guarantee(epsilon, delta, population) + mostly_noise(session.mechanism.parameters, request))
        return session.ask_once(votes)


def _calibrated(
    mechanism: str, epsilon: float, delta: float, cutoff: int | None, num_queries: int | None, votes: Votes, **options: Any
) -> tuple[MechanismSpec, dict[str, Any]]:
    """Return calibrated parameters, and further facts; what is not given the planner chooses, from public sizes alone."""
    others = set(options) - {"vote_change"}
    choice("mechanism", mechanism, (AUTO, *LABELS))
    if mechanism == AUTO and (cutoff is not None or others):
        mechanism = "stability"
    kind = None if mechanism == AUTO else LABELS[mechanism]
    if cutoff is None:
        if num_queries is None:
            unnamed = "cutoff" if kind else "mechanism"
            raise ArgumentError(f"{unnamed} must be given where num_queries is not, got {None if kind else AUTO}")
        request = _request(votes, num_queries, epsilon, delta, options.get("vote_change", REPLACED))
        if kind is None:
            chosen = choose_mechanism(request)
            return chosen.parameters, {"chosen": chosen.reason}
        if not others:
            return choose_parameters(mechanism, request), {}
        cutoff = choose_cutoff(mechanism, request)
    if kind is not None and kind.pays_for == "answers":
        options["num_teachers"] = votes.num_teachers
    return calibrate(mechanism, epsilon=epsilon, delta=delta, cutoff=cutoff, num_queries=num_queries, **options), {}


def _request(votes: Statistic, num_queries: int, epsilon: float, delta: float, vote_change: str) -> Request:
    return Request(
        num_teachers=votes.num_teachers,
        num_queries=num_queries,
        epsilon=epsilon,
        delta=delta,
        num_classes=max(2, votes.num_classes or 0),
        vote_change=vote_change,
    )
