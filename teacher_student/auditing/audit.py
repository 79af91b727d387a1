"""The audit of a mechanism: every check on the mechanism itself and on its mutants, in one table.

That the mechanism passes says little. That every mutant is caught at the same settings shows that the checks can fail. The
verdict needs both.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from teacher_student.arguments import choice, positive_integer, positive_number, probability
from teacher_student.auditing.noisy_max import NoisyMaxUnderTest
from teacher_student.auditing.sampled import FALSE_ALARM, compare_law, noise_law, stated_power
from teacher_student.auditing.soft_labels import SoftLabelsUnderTest
from teacher_student.auditing.sums import SumsUnderTest
from teacher_student.auditing.thresholds import ThresholdUnderTest
from teacher_student.auditing.under_test import CLAIMED, AuditConfig, CheckResult, MechanismUnderTest, change_of
from teacher_student.auditing.wrapped_noise import DrawnAhead
from teacher_student.mechanisms.noise import GeneratorNoise, Noise, SystemNoise
from teacher_student.mechanisms.soft_histogram import SMALLEST_NUMBER_OF_BINS
from teacher_student.privacy import calibrate, calibrate_soft
from teacher_student.privacy.parameters import REPLACED
from teacher_student.privacy.registry import ANSWERING, SOFT_LABELS

Progress = Callable[[int, int, str], None]
"""Called with sessions done, sessions in all, and what is being run."""


@dataclasses.dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Attributes:
        mechanism: name.
        parameters: the calibrated parameters that were audited.
        epsilon, delta: the claim.
        trials: sessions per side and sampling check.
        false_alarm: probability with which each sampling check may reject a true mechanism.
        rows: every check on the mechanism and its mutants.
    """

    mechanism: str
    parameters: Any
    epsilon: float
    delta: float
    trials: int
    false_alarm: float
    rows: tuple[CheckResult, ...]

    @property
    def sound(self) -> bool:
        """Whether the mechanism itself passed every check."""
        return all(row.passed for row in self.rows if row.subject == CLAIMED)

    @property
    def caught(self) -> dict[str, tuple[str, ...]]:
        """The checks that rejected each mutant."""
        mutants = dict.fromkeys(row.subject for row in self.rows if row.subject != CLAIMED)
        return {name: tuple(row.check for row in self.rows if row.subject == name and not row.passed) for name in mutants}

    @property
    def powerful(self) -> bool:
        """Whether every mutant was rejected by at least one check."""
        return all(self.caught.values())

    @property
    def passed(self) -> bool:
        """Whether the mechanism passed and the audit showed that it can fail."""
        return self.sound and self.powerful

    def __str__(self) -> str:
        """Return the table: the mechanism check by check, then each mutant with the checks that caught it."""
        change = change_of(self.parameters)
        words = "" if change == REPLACED else f", votes {change}"
        title = (
            f"{self.mechanism}{words} at epsilon {self.epsilon:g}, delta {self.delta:g}: "
            f"{self.trials} sessions a side, false alarm {self.false_alarm:g} for each sampling check"
        )
        own = [row for row in self.rows if row.subject == CLAIMED]
        lines = [(row.check, row.claimed, row.measured, "ok" if row.passed else "REJECTED") for row in own]
        caught = [(name, ", ".join(by) or "nothing", "caught" if by else "MISSED") for name, by in self.caught.items()]
        table = _aligned([("check", "claimed", "measured", "verdict"), *lines])
        power = _aligned([("mutant", "rejected by", "verdict"), *caught]) if caught else []
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
    mutants: bool = True,
    noise: Noise | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> AuditReport:
    """Audit a calibrated mechanism and, with its mutants, the audit itself.

    Sessions draw their noise from a NumPy generator (`GeneratorNoise`: the same laws, an order of magnitude faster). The exact
    samplers that a release uses (`SystemNoise`) are compared with their laws in separate rows.

    Args:
        mechanism: a name from `teacher_student.privacy.MECHANISMS`.
        epsilon: the claim.
        delta: the claim.
        cutoff: paid abstentions, or the answers of a noisy maximum; small, so that sums and samples cover whole sessions.
        bins: bins of the soft-label loop, at two units for each unit of the cutoff; None for hard labels.
        num_queries: for calibrations that need it; by default 20 cutoffs, or the number of answers for a noisy maximum.
        trials: sessions per side for each sampling check.
        false_alarm: error of each sampling check.
        mutants: whether to audit the mutants as well.
        noise: noise of the sessions instead of a generator's, such as `SystemNoise()` (several times slower).
        seed: of the generator; by default from the operating system.
        progress: called as sessions are run.
        options: passed to `calibrate`; vote_change="withdrawn" audits the claim for voters that are themselves protected.

    Raises:
        ArgumentError: a value out of range, or a claim that cannot be calibrated.
    """
    if "twins" in options:
        warnings.warn("twins is now mutants; the old name is accepted in this version only", FutureWarning, stacklevel=2)
        mutants = options.pop("twins")
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
        options.pop("norm", None)  # a unit of scores, on which the guarantee does not depend
    sizes = kind.audit_options(cutoff, num_queries, **options)
    if bins is not None:
        positive_integer("bins", bins, minimum=SMALLEST_NUMBER_OF_BINS)
    spec = (calibrate if bins is None else calibrate_soft)(mechanism, epsilon=epsilon, delta=delta, cutoff=cutoff, **sizes)
    true = under_test(spec, epsilon, delta, bins=bins)
    subjects = [true, *(true.mutants() if mutants else [])]
    counter = _Counter(progress, len(subjects) * true.SESSIONS * trials)
    ahead = DrawnAhead(GeneratorNoise(np.random.default_rng(seed)) if noise is None else noise)
    config = AuditConfig(epsilon, delta, trials, false_alarm, lambda: ahead, counter.add)
    rows = list(sampler_rows(spec, 4 * trials, false_alarm))
    for subject in subjects:
        counter.name = subject.name
        rows.extend(check(subject, config) for check in subject.CHECKS)
    return AuditReport(mechanism, spec, epsilon, delta, trials, false_alarm, tuple(rows))


def under_test(spec: Any, epsilon: float, delta: float, *, bins: int | None = None) -> MechanismUnderTest:
    """Return the mechanism that `spec` describes as its family sees it; `bins` is None except for soft labels."""
    if bins is not None:
        return SoftLabelsUnderTest.of(spec, bins=bins)
    if spec.releases != "labels":
        return SumsUnderTest.claiming(spec, epsilon, delta)
    return (NoisyMaxUnderTest if spec.pays_for == "answers" else ThresholdUnderTest).of(spec)


def sampler_rows(parameters: Any, draws: int, false_alarm: float) -> list[CheckResult]:
    """Compare the exact samplers with their laws at the scales in use."""
    noise = SystemNoise()
    rows = []
    for law, scale in dict.fromkeys((draw.law, draw.scale) for draw in parameters.draws):
        result = compare_law(noise.draw(law, scale, draws), noise_law(law, float(scale)), false_alarm)
        measured = f"p {result.p_value:.1e} ({result.cell})"
        stated = stated_power(law, float(scale), draws, false_alarm)
        rows.append(CheckResult(CLAIMED, f"sampler, {law}", stated, measured, result.accepted))
    return rows


class _Counter:
    """Counts sessions for the caller's progress bar."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self.name = ""

    def add(self, sessions: int) -> None:
        self._done += sessions
        if self._progress is not None:
            self._progress(self._done, self._total, self.name)
