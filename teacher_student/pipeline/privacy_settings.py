"""Settings of a run that need no torch, so that a mistake in them is refused at once: the guarantee, and rounds of boosting."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from teacher_student.arguments import ArgumentError, choice, finite_number, positive_integer, positive_number, probability
from teacher_student.data import NEIGHBOURS
from teacher_student.privacy import HYPERPARAMETERS

MOST_TEACHERS = 10**7
"""Bound on `teachers.number`. It is a constant: the number of records is private, so it bounds nothing that anybody sees."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """What is promised, and by which mechanism.

    Attributes:
        epsilon: of the whole release.
        delta: of the whole release.
        mechanism: name of the mechanism.
        options: further options of its calibration.
        cutoff: paid non-answers before the session halts; None lets the planner choose from public sizes.
        neighbours: the neighbouring relation; None is the data's own.
        hyperparameters: how they were chosen, for the certificate: fixed, or on a public_surrogate.
        population: public order of magnitude of the number of records, for warnings and plans; None if none is public.
        bins: for soft labels, bins of the histogram; None for hard labels. Soft labels need a cutoff.
    """

    epsilon: float
    delta: float
    mechanism: str = "stability"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cutoff: int | None = 50
    neighbours: str | None = None
    bins: int | None = None
    hyperparameters: str = "fixed"
    population: int | None = None

    def __post_init__(self) -> None:
        positive_number("privacy.epsilon", self.epsilon)
        probability("privacy.delta", self.delta)
        if not isinstance(self.options, Mapping):
            raise ArgumentError(f"mechanism must be a mapping of options, got {self.options!r}")
        if self.cutoff is not None:
            positive_integer("privacy.cutoff", self.cutoff)
        if self.neighbours is not None:
            choice("privacy.neighbours", self.neighbours, NEIGHBOURS)
        choice("privacy.hyperparameters", self.hyperparameters, HYPERPARAMETERS)
        if self.population is not None:
            positive_integer("privacy.population", self.population)
        if self.bins is not None:
            positive_integer("privacy.bins", self.bins, minimum=3)
            positive_integer("privacy.cutoff", self.cutoff)  # the planner chooses for hard labels only


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoostingSettings:
    """How often teachers correct the student (see `pipeline.boosting`), and how far.

    Attributes:
        rounds: rounds of teachers after the first.
        step: of votes, how far the logits of a point move apart where all teachers agree; of scores, what a score of 1 says is
            missing in probability.
        shrinkage: of scores: what a move costs where the student is sure.
    """

    rounds: int = 0
    step: float = 2.0
    shrinkage: float = 0.06

    def __post_init__(self) -> None:
        positive_integer("boosting.rounds", self.rounds, minimum=0)
        positive_number("boosting.step", self.step)
        if finite_number("boosting.shrinkage", self.shrinkage) < 0:
            raise ArgumentError(f"boosting.shrinkage must be at least 0, got {self.shrinkage}")
