"""Broken twins: each is one of the mechanisms with one known mistake. A checker that accepts one of them is worth nothing.

| twin | mistake | where it comes from |
|---|---|---|
| sensitivity_two | distance = max(0, gap - 1), which one vote moves by 2 | printed in A_subSamp, line 5 |
| one_payment_more | the loop goes on while c <= T: T + 1 payments | printed in A_sparseVec and A_OQR, line 2 |
| threshold_redrawn | the threshold drawn anew after a payment; the accountant pays for one draw | a slip between calibrations |
| noise_halved | both scales halved | factor 2 lost |
| query_noise_reused | one query noise for the whole session | a constant seed, a cached draw |
| threshold_scale_0.7, _1.3 | the threshold's noise drawn at a wrong scale | s for s^2, another sensitivity |
| query_scale_0.7, _1.3 | the queries' noise drawn at a wrong scale | as above |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from teacher_student.arguments import Integers
from teacher_student.auditing.exact import ThresholdLaw
from teacher_student.auditing.pairs import Statistic, halved_distance, printed_distance
from teacher_student.auditing.wrapped_noise import WrappedNoise
from teacher_student.mechanisms.interface import Mechanism, State, build_mechanism
from teacher_student.mechanisms.noise import Noise
from teacher_student.privacy.parameters import Parameters

CLAIMED = "claimed"
"""Name of the subject that is the mechanism itself."""


def _honest(noise: Noise) -> Noise:
    return noise


@dataclasses.dataclass(frozen=True)
class Subject:
    """What an audit looks at: a mechanism that runs, and the guarantee that it claims.

    Attributes:
        name: for the table; `CLAIMED` for the mechanism itself.
        mechanism: what is run.
        claimed: the parameters whose guarantee is claimed for it.
        law: what it does, as laws alone, for the exact check; None where there is no such description.
        statistic: what it makes of one query's counts.
        tamper: what it does to the noise it is given.
    """

    name: str
    mechanism: Mechanism
    claimed: Any
    law: Any = None
    statistic: Statistic = halved_distance
    tamper: Callable[[Noise], Noise] = _honest

    def session(self, counts: Integers, noise: Noise) -> tuple[Integers, State]:
        """Return the labels (m,) of one whole session over `counts` (m, C), and the state after it."""
        source = self.tamper(noise)
        return self.mechanism.answer(counts, self.mechanism.start(source), source)


def claimed(parameters: Parameters) -> Subject:
    """Return the threshold mechanism as it is."""
    return Subject(CLAIMED, build_mechanism(parameters), parameters, ThresholdLaw.of(parameters))


class ReusedNoise(WrappedNoise):
    """Draws once from one law at one scale and gives that value for ever; other draws stay fresh."""

    def __init__(self, inner: Noise, law: str, scale: Fraction) -> None:
        super().__init__(inner)
        self._reused = (law, scale)
        self._kept: int | None = None

    def draw(self, law: str, scale: Fraction, size: int) -> Integers:
        """Return `size` copies of the first draw of the law that is reused."""
        if (law, scale) != self._reused:
            return self._inner.draw(law, scale, size)
        if self._kept is None:
            self._kept = int(self._inner.draw(law, scale, 1)[0])
        return np.full(size, self._kept, dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class _SensitivityTwo:
    """Doubled counts: ceil(2 gap / 2) - 1 is the printed gap - 1."""

    inner: Mechanism

    @property
    def parameters(self) -> Parameters:
        return self.inner.parameters

    def start(self, noise: Noise) -> State:
        return self.inner.start(noise)

    def answer(self, counts: Integers, state: State, noise: Noise) -> tuple[Integers, State]:
        return self.inner.answer(2 * np.asarray(counts, dtype=np.int64), state, noise)

    def halted(self, state: State) -> bool:
        return self.inner.halted(state)


def _redrawing(parameters: Any) -> Mechanism:
    """Return the mechanism of the same numbers that redraws its threshold after every payment."""
    kind = type("Redrawing", (type(parameters),), {"redraw": True})
    fields = {field.name: getattr(parameters, field.name) for field in dataclasses.fields(parameters)}
    return build_mechanism(kind(**fields))


def mutants(true: Subject, law_of: Callable[[Any], Any]) -> list[Subject]:
    """Return twins whose mechanism runs on other parameters than it claims, as the spec names them."""
    return [
        dataclasses.replace(true, name=name, mechanism=build_mechanism(actual), law=law_of(actual))
        for name, actual in true.claimed.mutants().items()
    ]


def threshold_twins(parameters: Any) -> list[Subject]:
    """Return the broken twins of the threshold mechanism with these parameters, each claiming their guarantee."""
    true = claimed(parameters)
    twins = [
        dataclasses.replace(true, name="sensitivity_two", mechanism=_SensitivityTwo(true.mechanism), statistic=printed_distance),
        *mutants(true, ThresholdLaw.of),
    ]
    if parameters.redraw:
        return twins
    reused = dataclasses.replace(
        true,
        name="query_noise_reused",
        law=dataclasses.replace(ThresholdLaw.of(parameters), reuse=True),
        tamper=lambda noise: ReusedNoise(noise, parameters.query_noise, parameters.query_scale),
    )
    redrawn = dataclasses.replace(
        true,
        name="threshold_redrawn",
        mechanism=_redrawing(parameters),
        law=dataclasses.replace(ThresholdLaw.of(parameters), redraw=True),
    )
    return [*twins, reused, redrawn]
