"""Noisy fractions of the votes: `label_fractions` in one call, `FractionSession` online."""

from __future__ import annotations

import os
from collections.abc import Sequence

from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import FractionRelease, fractions_of
from teacher_student.aggregation.session import Session, SessionOptions
from teacher_student.aggregation.statistic import check_num_teachers
from teacher_student.aggregation.votes import Votes, check_table
from teacher_student.arguments import Floats, Integers, positive_integer
from teacher_student.mechanisms.noise import Noise
from teacher_student.privacy import NoisyFraction, calibrate


class FractionSession(Session[FractionRelease]):
    """Noisy vote counts for queries that arrive online, in batches, over days and restarts.

    Args:
        num_classes: size of the public label set.
        epsilon: for all answers of the session together.
        delta: for all answers of the session together.
        max_answers: queries that are answered at most; every one is paid for, however clear the vote.
        num_teachers: how many vote, a public number: what fractions are fractions of. It holds for all calls and restarts.
        votes_per_teacher: queries of the session on which one teacher votes at most, for much less noise; None for all. See
            below for who holds it.
        state, noise, neighbours, account, hyperparameters: see `session.SessionOptions`.

    `votes_per_teacher` = B is held over all calls and restarts, and one session takes votes in one form:

    - Predictions: of each teacher the first B votes count, in the order of the queries, and all others are abstentions. How many
      votes a teacher has used is kept with the state. A teacher's votes that count follow from its own shard and from what was
      released, so one record still moves one teacher. They are dropped and not refused, since a refusal would tell something
      about one teacher for nothing. Choose which votes count by making the others -1 (`votes.keep_allowed`).
    - Counts: no count shows whose it is, so the caller holds B before votes are summed (`votes.keep_allowed`). Counts that add up
      to more than num_teachers * B over the session prove that it was not held, and are refused. Where it is held no data reach
      that sum, so whether a call is refused tells nothing about them.

    The cost is that of B votes before and B after, however the calls were chosen. Take two neighbours and give an analyst, who
    knows both, only those noisy counts that differ between them: at most 2 B over the session, each moved by one. The analyst
    makes all other noisy counts, which have one law on both sides, and so the whole transcript. This is an adaptive composition
    of at most 2 B discrete Gaussians, whose mu is that of `privacy.noisy_fraction` (Dong, Roth, Su 2019, section 3).

    >>> session = FractionSession(num_classes=2, epsilon=1.0, delta=1e-5, max_answers=10, num_teachers=10**7)
    >>> session.answer(counts=[[8_000_000, 2_000_000]]).round(3)
    array([[0.8, 0.2]])
    >>> session.remaining_cutoff, session.halted
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
        votes_per_teacher: int | None = None,
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
        )
        assert isinstance(parameters, NoisyFraction)
        self._parameters = parameters
        votes = Votes(num_classes, check_num_teachers(num_teachers), votes_per_teacher)
        kept = SessionOptions(state, noise, neighbours, account, hyperparameters)
        super().__init__(parameters, votes, FractionRelease, epsilon=epsilon, delta=delta, options=kept)

    def answer(
        self, predictions: object = None, *, counts: object = None, query_ids: Sequence[str | int] | None = None
    ) -> Floats:
        """Return noisy fractions for each query, in order, shape (num_queries, num_classes); NaN where the session had halted.

        Args:
            predictions: shape (num_queries, num_teachers), class indices, -1 where a teacher abstains.
            counts: instead of predictions: votes per class, shape (num_queries, num_classes).
            query_ids: public names, one for each query. A query asked again under its name gets the answer that it got, and its
                votes are not used again; a call names each query once.

        Raises:
            ArgumentError: bad votes; nothing was spent.
        """
        codes = self.answer_codes(predictions, counts=counts, query_ids=query_ids)
        return fractions_of(codes, self._parameters, self.statistic.num_teachers)

    def answer_codes(
        self, predictions: object = None, *, counts: object = None, query_ids: Sequence[str | int] | None = None
    ) -> Integers:
        """Do what `answer` does, and return integer codes of the noisy counts, `HALTED` where there are none."""
        form = "counts" if predictions is None else "predictions"
        return self.ask(self.statistic.check(predictions, counts), query_ids, form)


def label_fractions(  # noqa: D417 - what every session takes is documented once
    predictions: object = None,
    *,
    counts: object = None,
    num_classes: int,
    epsilon: float,
    delta: float,
    max_answers: int | None = None,
    num_teachers: int | None = None,
    votes_per_teacher: int | None = None,
    state: str | os.PathLike[str] | None = None,
    noise: Noise | None = None,
    neighbours: str = "add_remove",
    account: Account | None = None,
    hyperparameters: str = "fixed",
) -> FractionRelease:
    """Release noisy vote fractions for queries on which disjointly trained teachers voted. No torch is needed.

    Args:
        predictions: shape (num_queries, num_teachers), class indices, -1 where a teacher abstains.
        counts: instead of predictions: votes per class, shape (num_queries, num_classes);
        num_classes: size of the public label set.
        epsilon: for all answers together, above 0.
        delta: for all answers together, strictly between 0 and 1.
        max_answers: queries that are answered at most, the first ones; None for all.
        num_teachers: how many vote, a public number. Must be given, as in `label`.
        votes_per_teacher: queries on which one teacher votes at most, for much less noise; None for all. Of predictions the first
            votes of each teacher count; of counts it is the caller's to hold. See `FractionSession`.
        state, noise, neighbours, account, hyperparameters: see `session.SessionOptions`.

    Raises:
        ArgumentError: bad input. Nothing was spent: no noise is drawn before all is checked.
    """
    classes = positive_integer("num_classes", num_classes)
    asked = len(check_table(predictions, counts, classes, num_teachers))
    cap = asked if max_answers is None else positive_integer("max_answers", max_answers, maximum=asked)
    few = {"num_teachers": num_teachers, "votes_per_teacher": votes_per_teacher}
    kept = {**vars(SessionOptions(state, noise, neighbours, account, hyperparameters)), **few}
    with FractionSession(classes, epsilon, delta, cap, **kept) as session:
        session.answer_codes(predictions, counts=counts, query_ids=None if state is None else range(asked))
        return session.release()
