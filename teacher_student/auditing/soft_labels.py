"""Soft labels under test: two tests per query, and units instead of payments.

| mutant | mistake |
|---|---|
| printed_threshold | half the threshold: the print lacks a factor 2 (docs/privacy.md, "Calibration paper") |
| unstable_pays_once | a query whose second test fails as well pays one unit, not two |
| one_payment_more | the loop continues while c <= U |
| noise_halved, threshold_scale_0.7, _1.3, query_scale_0.7, _1.3 | wrong scales |
| threshold_redrawn | a redraw that is not paid for |

A test is a query of the sparse vector, so the worst pairs of `thresholds` apply to any order of tests. The pairs here add the
order of the soft loop, in which one teacher may move the plain and the shifted histogram at once.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np

from teacher_student.arguments import Floats, Integers
from teacher_student.auditing import checks, sampled
from teacher_student.auditing.exact import QueryPair, ThresholdLaw, outcomes
from teacher_student.auditing.outcomes import Outcomes
from teacher_student.auditing.pairs import Score, WorstPair, worst_of
from teacher_student.auditing.sampled import Agreement
from teacher_student.auditing.thresholds import ThresholdUnderTest, distance_for, exact_release, threshold_noise
from teacher_student.auditing.under_test import AuditConfig, Check, MechanismUnderTest
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms.interface import Counts, State
from teacher_student.mechanisms.noise import Noise
from teacher_student.mechanisms.soft_histogram import check_bins, histograms
from teacher_student.mechanisms.soft_label import SoftLabelRelease, scores_of

TESTED = 6
"""Number of queries of the exact check."""


@dataclasses.dataclass(frozen=True)
class _PaysOnce(SoftLabelRelease):
    """Mutant: a query costs at most one unit."""

    def answer(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        codes = np.full(len(counts), HALTED, dtype=np.int64)
        for query in range(len(codes)):
            if self.halted(state):
                break
            codes[query : query + 1], after = super().answer(counts[query : query + 1], state, noise)
            state = dataclasses.replace(after, paid=min(after.paid, state.paid + 1))
        return codes, state


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftLabelsUnderTest(ThresholdUnderTest):
    """The soft-label loop over histograms of `bins` bins."""

    SESSIONS = 2
    CHECKS: ClassVar[tuple[Check, ...]] = (
        checks.exact_divergence,
        exact_release,
        checks.cap,
        checks.draws,
        threshold_noise,
        checks.sampled_law,
    )

    bins: int

    @classmethod
    def build(cls, spec: Any) -> SoftLabelRelease:
        """Return the loop."""
        return SoftLabelRelease(spec)

    def mutants(self) -> list[Self]:
        """Return the mutants of the spec, the printed threshold, and a loop that pays once for two tests."""
        found = [
            self.running("printed_threshold", dataclasses.replace(self.spec, threshold=self.spec.threshold // 2)),
            dataclasses.replace(self, name="unstable_pays_once", mechanism=_PaysOnce(self.spec)),
            *MechanismUnderTest.mutants(self),
        ]
        return found if self.spec.redraw else [*found, self.redrawing()]

    def worst(self, score: Score, *, brief: bool = False) -> WorstPair:
        """Return the worse of the worst flips and of one teacher who moves both histograms of every query, either way."""
        law, reach = self.law, int(self.law.query_scale)
        turns = [turn for test in range(0, 2 * TESTED, 2) for turn in ((test + 2, test + 1), (test + 2, test + 2))]
        heights = (law.threshold, law.threshold + reach, law.threshold + 2 * reach)

        def moved() -> Iterator[tuple[str, Outcomes, tuple[Integers, ...]]]:
            for moves, high, low in itertools.product(((1, -1), (-1, 1), (-1, -1)), heights, heights):
                queries = [QueryPair(0, high, 0, high + moves[0]), QueryPair(0, low, 0, low + moves[1])] * TESTED
                yield f"both histograms move by {moves}", outcomes(law, queries, turns=turns, width=1e-4), ()

        return worst_of(score, moved(), super().worst(score, brief=brief))

    def pressing(self) -> Integers:
        """Return queries that are tied in both histograms."""
        counts = soft_votes(0, 2 * self.spec.cutoff + 4, self.bins)
        for first in (1, self.bins + 1):
            counts[:, first : first + 2] = counts[:, first : first + 2].max()
        return counts

    def drawing(self) -> Integers:
        """Return queries near the threshold."""
        return soft_votes(self.spec.threshold, 2 * self.spec.cutoff, self.bins)

    def paid(self, labels: Integers) -> int:
        """Return the units: one for an answer of the second test; two for no answer, or one if only one was left."""
        asked = labels[labels != HALTED]
        units = sum(2 if code == ABSTAIN else int(scores_of(np.array([code]))[1][0]) for code in asked)
        return units - (units == self.spec.cutoff + 1 and asked[-1] == ABSTAIN)

    def needed(self, labels: Integers, state: State) -> dict[str, tuple[float, float]]:
        """Require one threshold draw per session (one more per unit if it is redrawn) and at least one draw per test."""
        del labels
        redraws = state.paid if self.spec.redraw else 0
        return {"session": (1, 1 + redraws), "query": (state.paid + state.answered, math.inf)}

    def comparisons(self, config: AuditConfig) -> Iterator[Callable[[float], Agreement]]:
        """Yield sessions of three queries near the threshold."""
        law = ThresholdLaw.of(self.spec)
        near = distance_for(law, 6, 0.5)

        def compare(false_alarm: float) -> Agreement:
            codes = self.sessions(soft_votes(near, 3, self.bins), config.trials, config)
            answers = np.where(codes >= 0, scores_of(codes)[1].astype(np.int64), codes)
            return sampled.compare_transcripts(answers, soft_law(law, near, near, 3), false_alarm)

        yield compare


def soft_votes(distance: int, num_queries: int, bins: int) -> Integers:
    """Return histograms of `num_queries` queries in which both plain bin 0 and shifted bin 0 lead by this distance."""
    scores = np.array([0.75] * (2 * distance + 7) + [1.75] * 5) / bins
    return histograms(np.tile(scores, (num_queries, 1)), check_bins(bins, num_queries))


def soft_law(law: ThresholdLaw, plain: int, shifted: int, num_queries: int) -> dict[tuple[int, ...], float]:
    """Return the probability of each session's answers: 0 from the plain test, 1 from the shifted one, `ABSTAIN` or `HALTED`.

    Args:
        law: of the tests; its cutoff counts units.
        plain: distance in the plain histogram of every query.
        shifted: distance in the shifted histogram.
        num_queries: queries of the session.
    """
    noise = law.noisy_threshold()
    fails, passes = ([np.exp(law.log_unanswered(distance)[way]) for distance in (plain, shifted)] for way in (0, 1))

    def paid_once(weights: Floats) -> Floats:
        return noise.mass * weights.sum() if law.redraw else weights

    def branches(query: int, paid: int, weights: Floats) -> Iterator[tuple[int, int, Floats]]:
        del query
        yield 0, 0, weights * passes[0]
        rest = paid_once(weights * fails[0])
        if paid + 1 == law.cutoff:
            yield ABSTAIN, 1, rest
        else:
            yield 1, 1, rest * passes[1]
            yield ABSTAIN, 2, paid_once(rest * fails[1])

    return sampled.transcripts(noise.mass, branches, num_queries, law.cutoff)
