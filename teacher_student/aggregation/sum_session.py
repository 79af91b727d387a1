"""A session of noisy sums: what those of votes and those of scores share."""

from __future__ import annotations

from teacher_student.aggregation.session import Keeping, Session
from teacher_student.aggregation.votes import check_num_teachers
from teacher_student.mechanisms.interface import build_mechanism
from teacher_student.privacy import NoisyFraction, NoisyScores


class SumSession(Session):
    """Every class of a query is a row of its own, and all rows of a query are one answer.

    Args:
        answers: what is released, for the certificate.
        parameters: what they cost.
        epsilon: for all answers of the session together.
        delta: for all answers of the session together.
        num_teachers: how many are summed over, in every call: public.
        keeping: where it is kept, under which relation, and who pays.
        settings: further public facts.
    """

    def __init__(
        self,
        answers: str,
        parameters: NoisyFraction | NoisyScores,
        *,
        epsilon: float,
        delta: float,
        num_teachers: object,
        keeping: Keeping,
        **settings: float,
    ) -> None:
        self._classes = self._num_classes = self._answers_counted = parameters.num_classes
        self._num_teachers = check_num_teachers(num_teachers)
        super().__init__(
            build_mechanism(parameters),
            epsilon=epsilon,
            delta=delta,
            settings={"answers": answers, "num_classes": self._num_classes, "num_teachers": self._num_teachers, **settings},
            keeping=keeping,
        )
