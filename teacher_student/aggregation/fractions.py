"""Noisy fractions of the votes: `label_fractions` in one call, `FractionSession` online."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import FractionRelease, fractions_of
from teacher_student.aggregation.session import Session, SessionOptions
from teacher_student.aggregation.votes import check_table, voters
from teacher_student.arguments import Floats, Integers, positive_integer
from teacher_student.mechanisms.noise import Noise
from teacher_student.privacy import NoisyFraction, calibrate
from teacher_student.privacy.parameters import REPLACED


class FractionSession(Session[FractionRelease]):
    """Noisy vote counts for queries that arrive online, in batches, over days and restarts.

    Args:
        num_classes: size of the public label set.
        epsilon: for all answers of the session together.
        delta: for all answers of the session together.
        max_answers: queries that are answered at most; each is paid for, however clear the vote.
        num_teachers: how many vote, a public number, by which counts are divided. It holds for all calls and restarts.
        num_teachers_is_public: False if `num_teachers` is only an order of magnitude of the votes on a query; see `LabelSession`.
        votes_per_teacher: queries of the session on which one teacher votes at most, for much less noise (see below); None: all.
        vote_change: "withdrawn" if every teacher is itself protected, one record or one owner; see `privacy.parameters.VoteSpec`.
        state, noise, neighbours, account, hyperparameters: see `session.SessionOptions`.

    `votes_per_teacher` = B holds over all calls and restarts, and one session takes votes in one form:

    - Predictions: each teacher's first B votes count, in the order of the queries; its other votes become abstentions. The number
      of votes used is kept with the state. Which votes count depends on the teacher's own shard and on what was released, so one
      record still moves one teacher. Surplus votes are dropped, not refused: a refusal would reveal something about one teacher
      for free. Choose which votes count by setting the others to -1 (`votes.keep_allowed`).
    - Counts: a count does not show whose votes it holds, so the caller must enforce B before votes are summed
      (`votes.keep_allowed`). Counts that add up to more than num_teachers * B over the session prove that this was not done, and
      are refused. If B is enforced no data reach that sum, so a refusal reveals nothing about them.

    The cost is that of B votes before and B after, however the calls were chosen. Take two neighbours and give an analyst, who
    knows both, only those noisy counts that differ between them: at most 2 B over the session, each moved by one. The analyst
    can simulate all other noisy counts, which have the same law on both sides, and so the whole transcript. This is an adaptive
    composition of at most 2 B discrete Gaussians, whose mu is that of `privacy.noisy_fraction` (Dong, Roth, Su 2019, section 3).

    >>> session = FractionSession(num_classes=2, epsilon=1.0, delta=1e-5, max_answers=10, num_teachers=10**7)
    >>> session.answer(counts=[[8_000_000, 2_000_000]]).round(3)
    array([[0.8, 0.2]])
    >>> session.remaining_units, session.halted
    (9, False)
    """

    def __init__(
        self,
        num_classes: int,
        epsilon: float,
        delta: float,
        max_answers: int,
        *,
        num_teachers: int | None = None,
        num_teachers_is_public: bool = True,
        votes_per_teacher: int | None = None,
        vote_change: str = REPLACED,
        state: str | os.PathLike[str] | None = None,
        noise: Noise | None = None,
        neighbours: str = "add_remove",
        account: Account | None = None,
        hyperparameters: str = "fixed",
    ) -> None:
        parameters = calibrate(
            "noisy_fraction",
            epsilon=epsilon,
            delta=delta,
            num_queries=max_answers,
            num_classes=positive_integer("num_classes", num_classes),
            votes_per_teacher=votes_per_teacher,
            vote_change=vote_change,
        )
        assert isinstance(parameters, NoisyFraction)
        self._parameters = parameters
        public = {"num_teachers_is_public": num_teachers_is_public}
        votes = voters(num_classes, num_teachers, neighbours, vote_change, votes_per_teacher, **public)
        kept = SessionOptions(state, noise, neighbours, account, hyperparameters)
        super().__init__(parameters, votes, FractionRelease, epsilon=epsilon, delta=delta, options=kept)

    def answer(
        self, predictions: object = None, *, counts: object = None, query_ids: Sequence[str | int] | None = None
    ) -> Floats:
        """Return noisy fractions for each query, in order, shape (num_queries, num_classes); NaN where the session had halted.

        Args:
            predictions: shape (num_queries, num_teachers), class indices, -1 where a teacher abstains.
            counts: instead of predictions: votes per class, shape (num_queries, num_classes).
            query_ids: public names, one for each query. A query asked again under its name gets its recorded answer, and uses no
                votes; a call names each query once.

        Raises:
            ArgumentError: bad votes; nothing was spent.
        """
        codes = self.answer_codes(predictions, counts=counts, query_ids=query_ids)
        return fractions_of(codes, self._parameters, self.statistic.num_teachers)

    def answer_codes(
        self, predictions: object = None, *, counts: object = None, query_ids: Sequence[str | int] | None = None
    ) -> Integers:
        """Do what `answer` does, but return integer codes of the noisy counts, `HALTED` where there are none."""
        return self.ask(self.statistic.check(predictions, counts), query_ids, _form(predictions))


def label_fractions(
    predictions: object = None,
    *,
    counts: object = None,
    num_classes: int,
    epsilon: float,
    delta: float,
    max_answers: int | None = None,
    num_teachers: int | None = None,
    votes_per_teacher: int | None = None,
    **options: Any,
) -> FractionRelease:
    """Release noisy vote fractions for queries on which disjointly trained teachers voted. No torch is needed.

    Arguments are those of `FractionSession` and of its `answer`; `max_answers` None answers all queries.

    Raises:
        ArgumentError: bad input. Nothing was spent: no noise is drawn before all is checked.
    """
    classes = positive_integer("num_classes", num_classes)
    if num_teachers is None:
        check_table(predictions, counts, classes, None)  # refuses, and names the shape
    relation, change = options.get("neighbours", "add_remove"), options.get("vote_change", REPLACED)
    public = {"num_teachers_is_public": options.get("num_teachers_is_public", True)}
    asked = len(voters(classes, num_teachers, relation, change, votes_per_teacher, **public).check(predictions, counts))
    cap = asked if max_answers is None else positive_integer("max_answers", max_answers, maximum=asked)
    options |= {"num_teachers": num_teachers, "votes_per_teacher": votes_per_teacher}
    with FractionSession(classes, epsilon, delta, cap, **options) as session:
        return session.ask_once(session.statistic.check(predictions, counts), _form(predictions))


def _form(predictions: object) -> str:
    return "counts" if predictions is None else "predictions"
