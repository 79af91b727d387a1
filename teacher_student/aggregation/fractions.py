"""Noisy fractions of the votes: `label_fractions` in one call, `FractionSession` online."""

from __future__ import annotations

import os
from collections.abc import Sequence

from teacher_student.aggregation.label_session import check_batch, check_votes
from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.session import Keeping
from teacher_student.aggregation.sum_release import FractionRelease, fractions_of
from teacher_student.aggregation.sum_session import SumSession
from teacher_student.aggregation.votes import check_few_votes
from teacher_student.arguments import Floats, Integers, positive_integer
from teacher_student.mechanisms.noise import Noise
from teacher_student.privacy import NoisyFraction, calibrate


class FractionSession(SumSession):
    """Noisy vote counts for queries that arrive online, in batches, over days and restarts.

    Args:
        num_classes: size of the public label set.
        epsilon: for all answers of the session together.
        delta: likewise.
        max_answers: queries that are answered at most; every one is paid for, however clear the vote.
        num_teachers: how many vote: public, what fractions are fractions of.
        votes_per_teacher: queries of the session on which one teacher votes at most, for much less noise; None for all. That it
            is so, over all calls, is the caller's to see to (`votes.keep_allowed`), as that each record has one teacher.
        state: an SQLite file that keeps the session across restarts and processes, or None for memory.
        noise: None for the operating system's entropy; anything else is for studies and is certified as not private.
        neighbours: add_remove, replace_one or label_only.
        account: the private data's account in a ledger (`Ledger.account`); refused before any noise is drawn if it is exceeded.
        hyperparameters: how they were chosen: fixed, or on a public_surrogate; the certificate says so.

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
        num_teachers: int,
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
        keeping = Keeping(state, noise, neighbours, account, hyperparameters)
        super().__init__("fractions", parameters, epsilon=epsilon, delta=delta, num_teachers=num_teachers, keeping=keeping)

    def answer(
        self, predictions: object = None, *, counts: object = None, query_ids: Sequence[str | int] | None = None
    ) -> Floats:
        """Return noisy fractions for each query, in order, shape (num_queries, num_classes); NaN where the session had halted.

        Args:
            predictions: shape (num_queries, num_teachers), class indices, -1 where a teacher abstains.
            counts: instead of predictions: votes per class, shape (num_queries, num_classes).
            query_ids: public names, one for each query. A query asked again under its name gets the answer that it got.

        Raises:
            ArgumentError: bad votes; nothing was spent.
        """
        codes = self.answer_codes(predictions, counts=counts, query_ids=query_ids)
        return fractions_of(codes, self._parameters, self._num_teachers)

    def answer_codes(
        self, predictions: object = None, *, counts: object = None, query_ids: Sequence[str | int] | None = None
    ) -> Integers:
        """Do what `answer` does, and return integer codes of the noisy counts, `HALTED` where there are none."""
        votes = check_votes(predictions, counts, self._num_classes, self._num_teachers)
        check_few_votes(predictions, self._parameters.votes_per_teacher)
        return self.ask_sums(votes, query_ids)

    def release(self) -> FractionRelease:  # type: ignore[override]
        """Return all noisy counts so far, in the order of the queries, with their certificate."""
        return FractionRelease(*self._sums_so_far())


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
    state: str | os.PathLike[str] | None = None,
    noise: Noise | None = None,
    neighbours: str = "add_remove",
    account: Account | None = None,
) -> FractionRelease:
    """Release noisy vote fractions for queries on which disjointly trained teachers voted. No torch is needed.

    Args:
        predictions: shape (num_queries, num_teachers), class indices, -1 where a teacher abstains.
        counts: instead of predictions: votes per class, shape (num_queries, num_classes); then with num_teachers.
        num_classes: size of the public label set.
        epsilon: for all answers together, above 0.
        delta: likewise, strictly between 0 and 1.
        max_answers: queries that are answered at most, the first ones; None for all.
        num_teachers: how many vote, for the form with counts.
        votes_per_teacher: queries on which one teacher votes at most, for much less noise; None for all. Checked for predictions;
            for counts it is the caller's to see to.
        state: a file that keeps the session; None for memory.
        noise: None for the operating system's entropy; anything else is for studies and is certified as not private.
        neighbours: add_remove, replace_one or label_only.
        account: the private data's account in a ledger; refused before any noise is drawn if it is exceeded.

    Raises:
        ArgumentError: bad input. Nothing was spent: no noise is drawn before all is checked.
    """
    classes = positive_integer("num_classes", num_classes)
    votes, num_teachers = check_batch(predictions, counts, classes, num_teachers)
    check_few_votes(predictions, votes_per_teacher)
    session = FractionSession(
        classes,
        epsilon,
        delta,
        len(votes) if max_answers is None else positive_integer("max_answers", max_answers, maximum=len(votes)),
        num_teachers=positive_integer("num_teachers", num_teachers),
        votes_per_teacher=votes_per_teacher,
        state=state,
        noise=noise,
        neighbours=neighbours,
        account=account,
    )
    session.answer_codes(counts=votes, query_ids=None if state is None else range(len(votes)))
    return session.release()
