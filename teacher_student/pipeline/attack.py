"""The attack on the finished thing: whole runs in many small worlds, and membership guessed from what each of them published.

In every world each canary tosses a coin and takes part or not; then fresh shards, teachers, votes, noise, labels and a student.
All worlds' networks are trained in one stack. A canary is a mislabelled outlier, and it is asked about: its own point is among
the public queries. How the guesses bound epsilon is in `auditing.membership`.

| subject | what | its bound must be |
|---|---|---|
| released labels | the label of each canary's own query | at most the claim |
| student | its confidence in each canary's label | at most the claim |
| student, one teacher, no noise | a broken twin: the release that claims the same and protects nothing | above the claim |
| non-private model | for contrast: trained on the records themselves | above the claim |
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np

from teacher_student.aggregation import LabelSession
from teacher_student.arguments import Floats, Integers, positive_integer, positive_number, probability
from teacher_student.auditing.membership import MembershipBound, membership_bound
from teacher_student.pipeline.worlds import CANARIES, QUERIES, Worlds

Progress = Callable[[int, int, str], None]
"""Called with stages done, stages in all, and what was done last."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: what was attacked, and whether it must hold its claim or break it."""

    subject: str
    bound: MembershipBound
    must_hold: bool


@dataclasses.dataclass(frozen=True)
class AttackReport:
    """What the attack found.

    Attributes:
        mechanism: its name.
        epsilon, delta: the claim.
        error: probability with which each bound may exceed a true epsilon.
        answered: labels that a world's private release holds, in the mean.
        rows: what was attacked.
    """

    mechanism: str
    epsilon: float
    delta: float
    error: float
    answered: float
    rows: tuple[Row, ...]

    @property
    def sound(self) -> bool:
        """Whether no bound refutes the claim."""
        return all(row.bound.epsilon <= self.epsilon for row in self.rows if row.must_hold)

    @property
    def powerful(self) -> bool:
        """Whether the attack refutes the claim where it does not hold."""
        return all(row.bound.epsilon > self.epsilon for row in self.rows if not row.must_hold)

    @property
    def passed(self) -> bool:
        """Whether the student held and the attack proved that it can succeed."""
        return self.sound and self.powerful

    def __str__(self) -> str:
        """Return the table."""
        bound = self.rows[0].bound
        title = (
            f"{self.mechanism} at epsilon {self.epsilon:g}, delta {self.delta:g}: {bound.worlds} worlds attacked, "
            f"{bound.references} to learn from, confidence {1 - self.error:g} for each bound;\n"
            f"{self.answered:.1f} of {QUERIES + CANARIES} labels released in a world"
        )
        lines = [f"{'attacked':<32}{'claimed':<11}{'measured':<20}{'guesses right':<18}verdict"]
        lines += [self._line(row) for row in self.rows]
        return "\n".join([title, "", *lines, "", f"audit {'passed' if self.passed else 'NOT PASSED'}"])

    def _line(self, row: Row) -> str:
        refuted = row.bound.epsilon > self.epsilon
        verdict = ("REJECTED" if refuted else "ok") if row.must_hold else ("caught" if refuted else "MISSED: take more worlds")
        claimed = "none" if row.subject == "non-private model" else f"{self.epsilon:g}"
        measured, right = f"epsilon >= {row.bound.epsilon:.3f}", f"{row.bound.correct} of {row.bound.guesses}"
        return f"{row.subject:<32}{claimed:<11}{measured:<20}{right:<18}{verdict}"


def attack_student(
    mechanism: str = "stability",
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    cutoff: int | None = 3,
    worlds: int = 300,
    num_teachers: int = 150,
    error: float = 0.05,
    seed: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> AttackReport:
    """Attack private students of small worlds, and for contrast what protects nothing.

    Args:
        mechanism: a name of `teacher_student.privacy.MECHANISMS`.
        epsilon: the claim.
        delta: the claim.
        cutoff: paid non-answers before a session halts.
        worlds: a third of them to learn from, the others to attack.
        num_teachers: in each world.
        error: probability with which each bound may exceed a true epsilon.
        seed: of the data and of the networks; from the operating system unless given. Coins, shards and noise have none.
        progress: called as stages end.
        options: of the mechanism's calibration.

    Raises:
        ArgumentError: a value out of range, or a claim that cannot be calibrated.
    """
    positive_number("epsilon", epsilon)
    probability("delta", delta)
    probability("error", error)
    positive_integer("worlds", worlds, minimum=60)
    positive_integer("num_teachers", num_teachers, minimum=2)
    if seed is not None:
        positive_integer("seed", seed, minimum=0, maximum=2**32 - 1)
    claim: dict[str, Any] = {"mechanism": mechanism, "epsilon": epsilon, "delta": delta, "cutoff": cutoff, **options}
    LabelSession(2, num_queries=QUERIES + CANARIES, num_teachers=num_teachers, **claim).close()  # refuses what cannot be
    data = Worlds.make(worlds, num_teachers, secrets.randbits(32) if seed is None else seed)
    released = functools.cache(lambda: data.release(data.votes(num_teachers), claim))
    subjects: tuple[tuple[str, bool, Callable[[], Floats]], ...] = (
        ("released labels", True, lambda: _answers(data, released())),
        ("student", True, lambda: data.student_scores(released())),
        ("student, one teacher, no noise", False, lambda: data.student_scores(data.votes(1)[:, :, 0].astype(np.int64))),
        ("non-private model", False, data.model_scores),
    )
    rows = []
    for done, (subject, must_hold, attacked) in enumerate(subjects, start=1):
        bound = membership_bound(attacked(), data.members, references=worlds // 3, delta=delta, error=error)
        rows.append(Row(subject, bound, must_hold))
        if progress is not None:
            progress(done, len(subjects), subject)
    answered = float((released() >= 0).sum(axis=1).mean())
    return AttackReport(mechanism, epsilon, delta, error, answered, tuple(rows))


def _answers(data: Worlds, released: Integers) -> Floats:
    """Return (worlds, CANARIES): 1 where a canary's own query got its label, -1 where another, 0 where none."""
    own, labels = released[:, -CANARIES:], data.labels[-CANARIES:]
    return np.where(own < 0, 0.0, np.where(own == labels, 1.0, -1.0))
