"""Series of experiments: how the error of private labels and student falls with n and grows with m, compared with the bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from research.theory.classification import ErrorCurve, plan_queries
from research.theory.experiments import Release, Task, run_task


@dataclasses.dataclass(frozen=True)
class Row:
    """One size of a sweep. Rates are shares of queries, means over the repetitions; errors are above the best hypothesis.

    Attributes:
        num_examples: n.
        num_queries: m.
        num_teachers: k, from the plan.
        cutoff: T, from the plan.
        alpha: error that every teacher should stay below.
        bound: T/m, the bound on the share of wrong or unanswered queries.
        labels_error: the measured share.
        abstained: share not answered.
        student_error: error of the student.
        worst_teacher: largest teacher error in any repetition.
        halted: share of repetitions that reached their cutoff.
    """

    num_examples: int
    num_queries: int
    num_teachers: int
    cutoff: int
    alpha: float
    bound: float
    labels_error: float
    abstained: float
    student_error: float
    worst_teacher: float
    halted: float


def sweep(
    task: Task,
    sizes: Iterable[tuple[int, int]],
    *,
    error: ErrorCurve,
    release: Release,
    epsilon: float,
    delta: float,
    failure: float = 0.05,
    repetitions: int = 5,
    calibration: str = "tight",
    generator: np.random.Generator,
) -> list[Row]:
    """Plan and run the task at each (n, m); sizes at which the theorem gives no bound are left out.

    Args:
        task: thresholds or halfspaces.
        sizes: pairs (n, m).
        error: bound on the error of a teacher of n' records: a theorem (then the result is one), or an assumption to be checked
            against `worst_teacher`.
        release: the mechanism at (epsilon, delta), as a function of counts and cutoff.
        epsilon: privacy.
        delta: privacy.
        failure: probability that the bound fails, 1/3 each for teachers, queries and noise.
        repetitions: runs per size.
        calibration: "tight" or "paper"; must be the one that `release` uses.
        generator: source of the data. The mechanism's noise is its own.
    """
    rows = []
    for examples, queries in sizes:
        plan = plan_queries(examples, queries, failure, epsilon, delta, error, best_error=task.noise, calibration=calibration)
        if plan is None:
            continue
        outcomes = [
            run_task(
                task,
                examples_per_teacher=examples // plan.num_teachers,
                num_teachers=plan.num_teachers,
                num_queries=queries,
                cutoff=plan.cutoff,
                release=release,
                generator=generator,
            )
            for _ in range(repetitions)
        ]
        means = {
            name: float(np.mean([getattr(outcome, name) for outcome in outcomes]))
            for name in ("labels_error", "abstained", "student_error", "halted")
        }
        worst = max(outcome.worst_teacher for outcome in outcomes)
        rows.append(Row(examples, queries, plan.num_teachers, plan.cutoff, plan.alpha, plan.rate, worst_teacher=worst, **means))
    return rows
