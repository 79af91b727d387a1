"""Soft labels under audit: two tests a query, units instead of payments; their broken twins, and the checks that tell them apart.

| twin | mistake |
|---|---|
| printed_threshold | half the threshold: the print lacks a factor 2 (docs/privacy.md, "Calibration paper") |
| unstable_pays_once | a query whose second test fails as well pays one unit, not two |
| one_unit_more | the loop goes on while c <= U |
| noise_halved, threshold_scale_0.7, query_scale_0.7, _1.3 | wrong scales |
| threshold_redrawn | a redraw that nobody pays for |

A test is a query of the sparse vector, so the exact checks of `checks` hold for any order of tests; those here add the order of
the soft loop, in which one teacher may move the plain and the shifted histogram at once.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from teacher_student.arguments import Floats, Integers
from teacher_student.auditing import agreement
from teacher_student.auditing.checks import Check, Row, Setting, distance_for, exact_distances, exact_release, threshold_noise
from teacher_student.auditing.exact import QueryPair, ThresholdLaw, outcomes
from teacher_student.auditing.functional import ListeningNoise, enough_draws
from teacher_student.auditing.twins import CLAIMED, Subject
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms.interface import Counts, State
from teacher_student.mechanisms.noise import Noise
from teacher_student.mechanisms.soft_histogram import check_bins, histograms
from teacher_student.mechanisms.soft_label import SoftLabelRelease, scores_of
from teacher_student.privacy.parameters import round_up

TESTED = 6
"""Queries of the exact check."""


def soft_claimed(parameters: Any) -> Subject:
    """Return the soft-label loop as it is."""
    return Subject(CLAIMED, SoftLabelRelease(parameters), parameters, ThresholdLaw.of(parameters))


@dataclasses.dataclass(frozen=True)
class _PaysOnce(SoftLabelRelease):
    """A query costs one unit at most."""

    def answer(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        codes = np.full(len(counts), HALTED, dtype=np.int64)
        for query in range(len(codes)):
            if self.halted(state):
                break
            codes[query : query + 1], after = super().answer(counts[query : query + 1], state, noise)
            state = dataclasses.replace(after, paid=min(after.paid, state.paid + 1))
        return codes, state


def soft_twins(parameters: Any) -> list[Subject]:
    """Return the broken twins of the loop with these parameters, each claiming their guarantee."""
    true = soft_claimed(parameters)

    def altered(name: str, **changed: Any) -> Subject:
        actual = dataclasses.replace(parameters, **changed)
        return dataclasses.replace(true, name=name, mechanism=SoftLabelRelease(actual), law=ThresholdLaw.of(actual))

    def rescaled(name: str, **factors: float) -> Subject:
        return altered(name, **{field: round_up(getattr(parameters, field) * Fraction(by)) for field, by in factors.items()})

    twins = [
        altered("printed_threshold", threshold=parameters.threshold // 2),
        altered("one_unit_more", cutoff=parameters.cutoff + 1),
        dataclasses.replace(true, name="unstable_pays_once", mechanism=_PaysOnce(parameters)),
        rescaled("noise_halved", threshold_scale=0.5, query_scale=0.5),
        rescaled("threshold_scale_0.7", threshold_scale=0.7),
        *(rescaled(f"query_scale_{factor}", query_scale=factor) for factor in (0.7, 1.3)),
    ]
    if parameters.redraw:
        return twins
    kind = type("Redrawing", (type(parameters),), {"redraw": True})
    fields = {field.name: getattr(parameters, field.name) for field in dataclasses.fields(parameters)}
    law = dataclasses.replace(ThresholdLaw.of(parameters), redraw=True)
    return [*twins, dataclasses.replace(true, name="threshold_redrawn", mechanism=SoftLabelRelease(kind(**fields)), law=law)]


def soft_votes(distance: int, num_queries: int, bins: int) -> Integers:
    """Return histograms of `num_queries` queries; plain bin 0 and shifted bin 0 lead by this distance, both at once."""
    scores = np.array([0.75] * (2 * distance + 7) + [1.75] * 5) / bins
    return histograms(np.tile(scores, (num_queries, 1)), check_bins(bins, num_queries))


def soft_law(law: ThresholdLaw, plain: int, shifted: int, num_queries: int) -> dict[tuple[int, ...], float]:
    """Return the probability of each session's answers: 0 from the plain test, 1 from the shifted one, `ABSTAIN` or `HALTED`.

    Args:
        law: of the tests; its cutoff counts units.
        plain: distance in the plain histogram of every query.
        shifted: likewise in the shifted one.
        num_queries: in the session.
    """
    noise = law.noisy_threshold()
    fails, passes = ([np.exp(law.log_unanswered(distance)[way]) for distance in (plain, shifted)] for way in (0, 1))

    def paid_once(weights: Floats) -> Floats:
        return noise.mass * weights.sum() if law.redraw else weights

    alive: dict[tuple[tuple[int, ...], int], Floats] = {((), 0): noise.mass}
    for _ in range(num_queries):
        following: dict[tuple[tuple[int, ...], int], Floats] = {}
        for (codes, paid), weights in alive.items():
            if paid == law.cutoff:
                following[(*codes, HALTED), paid] = weights
                continue
            following[(*codes, 0), paid] = weights * passes[0]
            rest = paid_once(weights * fails[0])
            if paid + 1 == law.cutoff:
                following[(*codes, ABSTAIN), paid + 1] = rest
                continue
            following[(*codes, 1), paid + 1] = rest * passes[1]
            following[(*codes, ABSTAIN), paid + 2] = paid_once(rest * fails[1])
        alive = following
    found: dict[tuple[int, ...], float] = {}
    for (codes, _), weights in alive.items():
        found[codes] = found.get(codes, 0.0) + float(weights.sum())
    return found


def exact_turns(subject: Subject, setting: Setting) -> Row:
    """Divergence at the claimed epsilon when one teacher moves both histograms of every query, either way."""
    law = subject.law
    assert isinstance(law, ThresholdLaw)
    reach, turns = int(law.query_scale), []
    for query in range(TESTED):
        turns += [(2 * query + 2, 2 * query + 1), (2 * query + 2, 2 * query + 2)]
    heights = (law.threshold, law.threshold + reach, law.threshold + 2 * reach)
    brackets = []
    for (plain, shifted), high, low in itertools.product(((1, -1), (-1, 1), (-1, -1)), heights, heights):
        queries = [QueryPair(0, high, 0, high + plain), QueryPair(0, low, 0, low + shifted)] * TESTED
        brackets.append(outcomes(law, queries, turns=turns, width=1e-4).worst_divergence(setting.epsilon))
    worst = max(brackets, key=lambda bracket: bracket.lower)
    passed = (
        max(bracket.upper for bracket in brackets) <= setting.delta if subject.name == CLAIMED else worst.lower <= setting.delta
    )
    return Row(subject.name, "exact, both tests", f"({setting.epsilon:g}, {setting.delta:g})", f"delta {worst}", passed)


def units(subject: Subject, setting: Setting, *, bins: int) -> Row:
    """Every query tied, in one call and one by one: units add up to at most the budget, and after that nothing is said."""
    budget = subject.claimed.cutoff
    counts = soft_votes(0, 2 * budget + 4, bins)
    counts[:, 1:3] = counts[:, 1:3].max()  # plain bins 0 and 1 are tied,
    counts[:, bins + 1 : bins + 3] = counts[:, bins + 1 : bins + 3].max()  # and so are the shifted ones
    most = 0
    for one_by_one in (False, True):
        source = subject.tamper(setting.noise())
        state, codes = subject.mechanism.start(source), []
        for part in np.split(counts, len(counts) if one_by_one else 1):
            answers, state = subject.mechanism.answer(part, state, source)
            codes += answers.tolist()
        asked = [code for code in codes if code != HALTED]
        spent = sum(2 if code == ABSTAIN else int(scores_of(np.array([code]))[1][0]) for code in asked)
        if spent == budget + 1 and asked[-1] == ABSTAIN:
            spent = budget  # the last unit went to a first test
        most = max(most, spent)
    return Row(subject.name, "units", f"at most {budget}", f"{most} units", most <= budget)


def soft_draws(subject: Subject, setting: Setting, *, bins: int) -> Row:
    """One threshold draw for each session (and redraw), one query draw for each test, from the accounted laws and scales."""
    parameters, heard = subject.claimed, ListeningNoise(setting.noise())
    source = subject.tamper(heard)
    counts = soft_votes(parameters.threshold, 2 * parameters.cutoff, bins)
    _, state = subject.mechanism.answer(counts, subject.mechanism.start(source), source)
    threshold = (parameters.threshold_noise, parameters.threshold_scale)
    query = (parameters.query_noise, parameters.query_scale)
    tally: dict[Any, int] = {threshold: 0, query: 0}
    for draw in heard.draws:
        tally[draw.law, draw.scale] = tally.get((draw.law, draw.scale), 0) + len(draw.values)
    stated = f"scales {float(threshold[1]):g} and {float(query[1]):g}"
    if len(tally) > len({threshold, query}):
        return Row(subject.name, "draws", stated, "drew at another scale, which is not accounted for", False)
    redraws = state.paid if parameters.redraw else 0
    verdict = enough_draws(tally, threshold, query, redraws, state.paid + state.answered)
    return Row(subject.name, "draws", stated, verdict.seen, verdict.passed)


def sampled_soft_law(subject: Subject, setting: Setting, *, bins: int) -> Row:
    """Sessions of three queries near the threshold against the exact law of the claimed parameters."""
    law = ThresholdLaw.of(subject.claimed)
    near = distance_for(law, 6, 0.5)
    counts, source = soft_votes(near, 3, bins), subject.tamper(setting.noise())
    codes = np.array(
        [subject.mechanism.answer(counts, subject.mechanism.start(source), source)[0] for _ in range(setting.trials)]
    )
    if setting.progress is not None:
        setting.progress(setting.trials)
    answers = np.where(codes >= 0, scores_of(codes)[1].astype(np.int64), codes)
    result = agreement.compare_transcripts(answers, soft_law(law, near, near, 3), setting.false_alarm)
    return Row(
        subject.name, "sampled law", f"p > {setting.false_alarm:.1e}", f"p {result.p_value:.1e} ({result.cell})", result.accepted
    )


SOFT_SESSIONS = 2
"""Sessions that these checks run, in units of the trials."""


def soft_checks(bins: int) -> tuple[Check, ...]:
    """Return the checks, with sessions over histograms of this many bins."""
    with_bins: tuple[Callable[..., Row], ...] = (units, soft_draws, sampled_soft_law)
    return (
        exact_distances,
        exact_release,
        exact_turns,
        threshold_noise,
        *(functools.partial(check, bins=bins) for check in with_bins),
    )
