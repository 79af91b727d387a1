"""The audit of a mechanism: every check on the mechanism itself and on its broken twins, in one table.

A table in which the mechanism passes says little; one in which, at the same settings, every twin is caught says that the checks
can fail. Both belong to the verdict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from teacher_student.arguments import choice, positive_integer, positive_number, probability
from teacher_student.auditing.agreement import compare_noise, stated_power
from teacher_student.auditing.checks import THRESHOLD_CHECKS, THRESHOLD_SESSIONS, Check, Row, Setting
from teacher_student.auditing.noisy_checks import NOISY_CHECKS, NOISY_SESSIONS, noisy_claimed, noisy_twins
from teacher_student.auditing.sampled import FALSE_ALARM, DrawnAhead
from teacher_student.auditing.soft_checks import SOFT_SESSIONS, soft_checks, soft_claimed, soft_twins
from teacher_student.auditing.sums import SUM_CHECKS, SUM_SESSIONS, sum_claimed, sum_twins
from teacher_student.auditing.twins import CLAIMED, Subject, claimed, threshold_twins
from teacher_student.mechanisms.noise import GeneratorNoise, Noise, SystemNoise
from teacher_student.mechanisms.soft_histogram import SMALLEST_NUMBER_OF_BINS
from teacher_student.privacy import calibrate, calibrate_soft
from teacher_student.privacy.registry import ANSWERING, SOFT_LABELS

Progress = Callable[[int, int, str], None]
"""Called with sessions done, sessions in all, and what is being run."""


@dataclasses.dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Attributes:
        mechanism: its name.
        parameters: the calibrated parameters that were audited.
        epsilon, delta: the claim.
        trials: sessions per side and sampling check.
        false_alarm: probability with which each sampling check may reject a true mechanism.
        rows: every check on every subject.
    """

    mechanism: str
    parameters: Any
    epsilon: float
    delta: float
    trials: int
    false_alarm: float
    rows: tuple[Row, ...]

    @property
    def sound(self) -> bool:
        """Whether the mechanism itself passed every check."""
        return all(row.passed for row in self.rows if row.subject == CLAIMED)

    @property
    def caught(self) -> dict[str, tuple[str, ...]]:
        """For each broken twin the checks that rejected it."""
        twins = dict.fromkeys(row.subject for row in self.rows if row.subject != CLAIMED)
        return {twin: tuple(row.check for row in self.rows if row.subject == twin and not row.passed) for twin in twins}

    @property
    def powerful(self) -> bool:
        """Whether every broken twin was rejected by at least one check."""
        return all(self.caught.values())

    @property
    def passed(self) -> bool:
        """Whether the mechanism passed and the audit proved that it can fail."""
        return self.sound and self.powerful

    def __str__(self) -> str:
        """Return the table: the mechanism check by check, then each twin with the checks that caught it."""
        title = (
            f"{self.mechanism} at epsilon {self.epsilon:g}, delta {self.delta:g}: "
            f"{self.trials} sessions a side, false alarm {self.false_alarm:g} for each sampling check"
        )
        own = [row for row in self.rows if row.subject == CLAIMED]
        lines = [(row.check, row.claimed, row.measured, "ok" if row.passed else "REJECTED") for row in own]
        twins = [(name, ", ".join(by) or "nothing", "caught" if by else "MISSED") for name, by in self.caught.items()]
        table = _aligned([("check", "claimed", "measured", "verdict"), *lines])
        power = _aligned([("broken twin", "rejected by", "verdict"), *twins]) if twins else []
        verdict = "passed" if self.passed else "NOT PASSED"
        return "\n".join([title, "", *table, "", *power, "", f"audit {verdict}"])


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def audit(
    mechanism: str = "stability",
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    cutoff: int = 3,
    bins: int | None = None,
    num_queries: int | None = None,
    trials: int = 4000,
    false_alarm: float = FALSE_ALARM,
    twins: bool = True,
    noise: Noise | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> AuditReport:
    """Audit a calibrated mechanism and, with it, the audit.

    Sessions draw their noise from a NumPy generator (`GeneratorNoise`: the same laws, an order of magnitude faster); the exact
    samplers that a release uses (`SystemNoise`) are compared with their laws in rows of their own.

    Args:
        mechanism: a name of `teacher_student.privacy.MECHANISMS`.
        epsilon: the claim.
        delta: the claim.
        cutoff: paid non-answers, or the answers of a noisy maximum; small, so that sums and samples see the whole session.
        bins: audit the soft-label loop with this many bins, at two units for each unit of the cutoff; None for hard labels.
        num_queries: for calibrations that need it; 20 cutoffs, and for a noisy maximum as many as the answers, unless given.
        trials: sessions per side for each check that samples.
        false_alarm: error of each check that samples.
        twins: also audit the broken twins.
        noise: the sessions' noise in place of a generator, such as `SystemNoise()` (several times slower).
        seed: for the generator; from the operating system unless given.
        progress: called as sessions are run.
        options: passed to `calibrate`.

    Raises:
        ArgumentError: a value out of range, or a claim that cannot be calibrated.
    """
    positive_number("epsilon", epsilon)
    probability("delta", delta)
    positive_integer("cutoff", cutoff)
    positive_integer("trials", trials, minimum=100)
    probability("false_alarm", false_alarm)
    if seed is not None:
        positive_integer("seed", seed, minimum=0)
    known = ANSWERING if bins is None else SOFT_LABELS
    kind = known[choice("mechanism", mechanism, known)]
    if kind.releases == "scores":
        options.pop("norm", None)  # a unit of scores: the guarantee is the same at any
    sizes = kind.audit_options(cutoff, num_queries, **options)
    if bins is None:
        parameters = calibrate(mechanism, epsilon=epsilon, delta=delta, cutoff=cutoff, **sizes)
        subjects, checks, sessions = _programme(parameters, epsilon, delta, twins)
    else:
        positive_integer("bins", bins, minimum=SMALLEST_NUMBER_OF_BINS)
        parameters = calibrate_soft(mechanism, epsilon=epsilon, delta=delta, cutoff=cutoff, **sizes)
        subjects = [soft_claimed(parameters), *(soft_twins(parameters) if twins else [])]
        checks, sessions = soft_checks(bins), SOFT_SESSIONS
    counter = _Counter(progress, len(subjects) * sessions * trials)
    ahead = DrawnAhead(GeneratorNoise(np.random.default_rng(seed)) if noise is None else noise)
    setting = Setting(epsilon, delta, trials, false_alarm, lambda: ahead, counter.add)
    rows = list(sampler_rows(parameters, 4 * trials, false_alarm))
    for subject in subjects:
        counter.name = subject.name
        rows.extend(check(subject, setting) for check in checks)
    return AuditReport(mechanism, parameters, epsilon, delta, trials, false_alarm, tuple(rows))


def _programme(parameters: Any, epsilon: float, delta: float, twins: bool) -> tuple[list[Subject], tuple[Check, ...], int]:
    """Return who is audited, by which checks, and the sessions for each in units of the trials."""
    if parameters.releases != "labels":
        true = sum_claimed(parameters, epsilon, delta)
        return [true, *(sum_twins(true) if twins else [])], SUM_CHECKS, SUM_SESSIONS
    if parameters.pays_for == "answers":
        broken = noisy_twins(parameters) if twins else []
        return [noisy_claimed(parameters), *broken], NOISY_CHECKS, NOISY_SESSIONS
    broken = threshold_twins(parameters) if twins else []
    return [claimed(parameters), *broken], THRESHOLD_CHECKS, THRESHOLD_SESSIONS


def sampler_rows(parameters: Any, draws: int, false_alarm: float) -> list[Row]:
    """Compare the exact samplers, at the scales in use, with their laws."""
    noise = SystemNoise()
    rows = []
    for law, scale in dict.fromkeys((draw.law, draw.scale) for draw in parameters.draws):
        result = compare_noise(noise.draw(law, scale, draws), law, float(scale), false_alarm)
        measured = f"p {result.p_value:.1e} ({result.cell})"
        stated = stated_power(law, float(scale), draws, false_alarm)
        rows.append(Row(CLAIMED, f"sampler, {law}", stated, measured, result.accepted))
    return rows


class _Counter:
    """Adds up sessions for the caller's progress bar."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self.name = ""

    def add(self, sessions: int) -> None:
        self._done += sessions
        if self._progress is not None:
            self._progress(self._done, self._total, self.name)
