"""The stability mechanisms under test.

| mutant | mistake | where it comes from |
|---|---|---|
| sensitivity_two | distance = max(0, gap - 1), which a vote that turns into another moves by 2 | printed in A_subSamp, line 5 |
| votes_replaced | the same under the claim that votes are only added or withdrawn | teachers of several records; replace_one |
| voter_counted_twice | two votes of one voter on a query, under the same claim | a person with two records |
| one_payment_more | the loop goes on while c <= T: T + 1 payments | printed in A_sparseVec and A_OQR, line 2 |
| threshold_redrawn | the threshold redrawn after a payment; the accountant pays for one draw | two calibrations confused |
| noise_halved | both scales halved | factor 2 lost |
| query_noise_reused | one query noise for the whole session | a constant seed, a cached draw |
| threshold_scale_0.7, _1.3 | the threshold's noise drawn at a wrong scale | s for s^2, another sensitivity |
| query_scale_0.7, _1.3 | the queries' noise drawn at a wrong scale | as above |
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np
from scipy import stats

from teacher_student.arguments import Integers
from teacher_student.auditing import checks, sampled
from teacher_student.auditing.exact import ThresholdLaw, outcomes
from teacher_student.auditing.pairs import (
    MOVES,
    REPLACEMENT,
    STATISTICS,
    Score,
    Statistic,
    WorstPair,
    all_split,
    flipping,
    halved_distance,
    printed_distance,
    random_votes,
    worst_flips,
)
from teacher_student.auditing.sampled import Agreement
from teacher_student.auditing.under_test import AuditConfig, Check, CheckResult, MechanismUnderTest, change_of
from teacher_student.auditing.wrapped_noise import ReusedNoise
from teacher_student.labels import ABSTAIN
from teacher_student.mechanisms.interface import Mechanism, State
from teacher_student.mechanisms.noise import Noise

SMALL = 6
"""Votes for a class from 0 to this, less one, in the tables of three classes that `sensitivity` goes through."""

SHARES = (0.25, 0.5, 0.75)
"""Shares of the cutoff that the long sessions of `comparisons` are expected to spend."""


@dataclasses.dataclass(frozen=True)
class _SensitivityTwo:
    """Doubled counts: ceil(2 gap / 2) - 1 is the printed gap - 1."""

    inner: Mechanism

    @property
    def parameters(self) -> Any:
        return self.inner.parameters

    def start(self, noise: Noise) -> State:
        return self.inner.start(noise)

    def answer(self, counts: Integers, state: State, noise: Noise) -> tuple[Integers, State]:
        return self.inner.answer(2 * np.asarray(counts, dtype=np.int64), state, noise)

    def halted(self, state: State) -> bool:
        return self.inner.halted(state)


def sensitivity(test: ThresholdUnderTest, config: AuditConfig) -> CheckResult:
    """One voter moves the distance by at most 1, and it is 0 on both sides where the winner changes: all small votes, exactly."""
    del config
    seen = {counts: test.statistic(np.array(counts)) for counts in itertools.product(range(SMALL + 2), repeat=3)}
    moved, split, own = 0, 0, list(itertools.permutations((test.move.gained, -test.move.lost, 0)))
    for counts in itertools.product(range(SMALL), repeat=3):
        (winner, distance), others = seen[counts], [tuple(np.add(counts, change).tolist()) for change in own]
        for other_winner, other_distance in (seen[other] for other in others if min(other) >= 0):
            moved = max(moved, abs(distance - other_distance))
            split = max(split, distance, other_distance) if winner != other_winner else split
    measured = f"{moved}, and {split} where the winner changes"
    return CheckResult(test.name, "sensitivity", "1, and 0 where the winner changes", measured, moved <= 1 and split == 0)


def exact_release(test: ThresholdUnderTest, config: AuditConfig) -> CheckResult:
    """Divergence with every query split, against the stated probability of the failure event."""
    stated = float(test.spec.release_delta)
    split = all_split(test.law.cutoff, move=test.move).seen(test.statistic)
    exact = outcomes(test.law, split).worst_divergence(config.epsilon)
    passed = exact.upper <= stated * (1 + 1e-6) + 1e-12
    return CheckResult(test.name, "exact release", f"delta {stated:.3e}", f"delta {exact.lower:.3e}", passed)


def threshold_kept(test: ThresholdUnderTest, config: AuditConfig) -> CheckResult:
    """The threshold is drawn once per session where the cost is that of one draw."""
    if test.spec.redraw:
        return CheckResult(test.name, "threshold kept", "any", "redrawn after every payment, as accounted", True)
    source, most = test.tamper(config.noise()), 1
    for _ in range(5):
        state = test.mechanism.start(source)
        seen = {state.noisy_threshold}
        for row in np.split(test.pressing(), len(test.pressing())):
            _, state = test.mechanism.answer(row, state, source)
            seen.add(state.noisy_threshold)
        most = max(most, len(seen))
    return CheckResult(test.name, "threshold kept", "one", f"{most} thresholds in one session", most == 1)


def threshold_noise(test: ThresholdUnderTest, config: AuditConfig) -> CheckResult:
    """The noisy thresholds that sessions start with, against the claimed law."""
    spec, source = test.spec, test.tamper(config.noise())
    drawn = [test.mechanism.start(source).noisy_threshold for _ in range(4 * config.trials)]
    noise, law = np.array(drawn, dtype=np.int64) - spec.threshold, (spec.threshold_noise, float(spec.threshold_scale))
    result = sampled.compare_law(noise, sampled.noise_law(*law), config.false_alarm)
    stated = sampled.stated_power(*law, len(noise), config.false_alarm)
    config.ran(config.trials)
    return CheckResult(test.name, "threshold noise", stated, f"p {result.p_value:.1e} ({result.cell})", result.accepted)


def sampled_release(test: ThresholdUnderTest, config: AuditConfig) -> CheckResult:
    """Number of sessions over split queries that release a label, against the stated probability: one-sided binomial."""
    stated = float(test.spec.release_delta)
    labels = test.sessions(all_split(test.spec.cutoff, move=test.move).counts, config.trials, config)
    leaked = int((labels >= 0).any(axis=1).sum())
    p_value = float(stats.binom.sf(leaked - 1, config.trials, stated))
    measured = f"{leaked} of {config.trials} sessions, p {p_value:.1e}"
    return CheckResult(test.name, "sampled release", f"delta {stated:.3e}", measured, p_value > config.false_alarm)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThresholdUnderTest(MechanismUnderTest):
    """A sparse vector of distances under test; `statistic` gives the distance of one query's counts."""

    SESSIONS = 1 + 1 + 2 * checks.BOUND_SESSIONS + 1 + len(SHARES)
    CHECKS: ClassVar[tuple[Check, ...]] = (
        checks.exact_divergence,
        sensitivity,
        exact_release,
        checks.cap,
        checks.draws,
        threshold_kept,
        threshold_noise,
        sampled_release,
        *checks.SAMPLED,
    )

    statistic: Statistic = halved_distance

    @classmethod
    def of(cls, spec: Any, **fields: Any) -> Self:
        """Return the mechanism itself as a subject, with the distance that it uses."""
        return super().of(spec, **{"statistic": STATISTICS[change_of(spec)], **fields})

    @classmethod
    def law_of(cls, spec: Any) -> ThresholdLaw:
        """Return the law that `spec` promises."""
        return ThresholdLaw.of(spec)

    def redrawing(self) -> Self:
        """Return the mutant with the same numbers that redraws its threshold after every payment."""
        kind = type("Redrawing", (type(self.spec),), {"redraw": True})
        fields = {field.name: getattr(self.spec, field.name) for field in dataclasses.fields(self.spec)}
        return self.running("threshold_redrawn", kind(**fields))

    def mutants(self) -> list[Self]:
        """Add a distance of sensitivity 2, and noise that is kept or redrawn where it must not be."""
        found = super().mutants()
        if self.move == REPLACEMENT:  # `votes_replaced` is this mistake where the whole gap is right
            doubled = _SensitivityTwo(self.mechanism)
            found.insert(0, dataclasses.replace(self, name="sensitivity_two", mechanism=doubled, statistic=printed_distance))
        if self.spec.redraw:
            return found
        law = dataclasses.replace(self.law, reuse=True)
        reused = self.tampered("query_noise_reused", law, ReusedNoise, self.spec.query_noise, self.spec.query_scale)
        return [*found, reused, self.redrawing()]

    def worst(self, score: Score, *, brief: bool = False) -> WorstPair:
        """Return the worst flips; fewer are tried if `brief`."""
        limits: dict[str, Any] = {"ups": (0, 5), "downs": (self.law.cutoff,)} if brief else {}
        return worst_flips(self.law, score, statistic=self.statistic, move=self.move, **limits)

    def pressing(self) -> Integers:
        """Return split queries, which are hardly ever answered."""
        return all_split(4 * self.spec.cutoff + 8, move=self.move).counts

    def drawing(self) -> Integers:
        """Return random votes, some of them clear."""
        return random_votes(np.random.default_rng(0), 40, 2 * self.spec.threshold + 9, 3).counts

    def paid(self, labels: Integers) -> int:
        """Return the abstentions."""
        return int((labels == ABSTAIN).sum())

    def needed(self, labels: Integers, state: State) -> dict[str, tuple[float, float]]:
        """Require one threshold draw per session (one more per payment if it is redrawn) and at least one draw per query."""
        redraws = self.paid(labels) if self.spec.redraw else 0
        return {"session": (1, 1 + redraws), "query": (state.asked, math.inf)}

    def comparisons(self, config: AuditConfig) -> Iterator[Callable[[float], Agreement]]:
        """Yield the transcripts of short sessions, then counts over long ones."""
        law, claimed = ThresholdLaw.of(self.spec), MOVES[change_of(self.spec)]
        near = distance_for(law, 6, 0.5)

        def sessions(distance: int, length: int) -> Integers:
            return self.sessions(flipping([(distance, 0)] * length, move=claimed).counts, config.trials, config)

        def long_sessions(share: float, false_alarm: float) -> Agreement:
            length = 12 * law.cutoff
            distance = distance_for(law, length, share)
            expected = sampled.unanswered_law(law, distance, length)
            return sampled.compare_unanswered(sessions(distance, length), expected, false_alarm)

        expected = sampled.transcript_law(law, [(0, near)] * 6)
        yield lambda false_alarm: sampled.compare_transcripts(sessions(near, 6), expected, false_alarm)
        for share in SHARES:
            yield lambda false_alarm, share=share: long_sessions(share, false_alarm)  # type: ignore[misc]


def distance_for(law: ThresholdLaw, num_queries: int, share: float) -> int:
    """Return the smallest distance at which `num_queries` queries are expected to spend at most `share` of what they can."""
    most = min(law.cutoff, num_queries)

    def spent(distance: int) -> float:
        chances = sampled.unanswered_law(law, distance, num_queries)
        return float(chances @ np.arange(len(chances))) / most

    low, high = 0, law.threshold + math.ceil(60 * (law.threshold_scale + law.query_scale))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if spent(middle) <= share else (middle + 1, high)
    return low
