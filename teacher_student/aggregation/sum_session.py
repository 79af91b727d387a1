"""A session of noisy sums: what those of votes and those of scores share."""

from __future__ import annotations

from collections.abc import Sequence

from teacher_student.aggregation.session import Keeping, Session, names_of_classes
from teacher_student.aggregation.votes import Table
from teacher_student.arguments import Integers, positive_integer
from teacher_student.mechanisms.interface import build_mechanism
from teacher_student.privacy import Certificate, NoisyFraction, NoisyScores


class SumSession(Session):
    """Every class of a query is a row of its own, and all rows of a query are one answer.

    Args:
        answers: what is released, for the certificate.
        parameters: what they cost.
        epsilon: for all answers of the session together.
        delta: likewise.
        num_teachers: how many are summed over: public.
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
        num_teachers: int,
        keeping: Keeping,
        **settings: float,
    ) -> None:
        self._num_classes = self._answers_counted = parameters.num_classes
        self._num_teachers = positive_integer("num_teachers", num_teachers)
        super().__init__(
            build_mechanism(parameters),
            epsilon=epsilon,
            delta=delta,
            settings={"answers": answers, "num_classes": self._num_classes, "num_teachers": self._num_teachers, **settings},
            keeping=keeping,
        )

    def ask_sums(self, sums: Table, query_ids: Sequence[str | int] | None) -> Integers:
        """Return codes of noisy sums, shape (num_queries, num_classes), `HALTED` where there are none."""
        names = names_of_classes(query_ids, len(sums), self._num_classes)
        return self.ask(sums.reshape(-1, 1), names).reshape(sums.shape)

    def _sums_so_far(self) -> tuple[Integers, Certificate, tuple[str, ...] | None]:
        codes, certificate, queries = self._so_far(self._num_classes)
        return codes.reshape(-1, self._num_classes), certificate, queries
