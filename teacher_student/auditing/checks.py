"""The checks of an audit, one function each: a mechanism under test in, a row of the table out.

| check | of | false alarm | rejects |
|---|---|---|---|
| exact divergence | all | none | too little noise, too large a sensitivity: a sum over all outcomes on the worst pair |
| cap | all | none | one payment too many, a state that is lost between calls |
| draws | all | none | a wrong law or scale, missing draws |
| sampled epsilon | all but soft labels | as stated | an epsilon far above the claim: Clopper-Pearson on a worst pair |
| sampled law | all | as stated | sessions that do not follow the exact law, cell by cell |
| exact release, sampled release | thresholds | none, as stated | a threshold too low for its noise: queries that are all split |
| sensitivity | thresholds | none | a distance that one voter moves by more than 1, over all small tables of votes |
| threshold kept | thresholds | none | a redraw that is not paid for |
| threshold noise | thresholds | as stated | a wrong law or scale of the threshold |
| neighbours | sums | none | one teacher who moves released sums by more than is paid for |
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from teacher_student.auditing.pairs import exact_epsilon as by_epsilon
from teacher_student.auditing.pairs import sampled_epsilon as by_sampled_epsilon
from teacher_student.auditing.sampled import lower_bound
from teacher_student.auditing.under_test import CLAIMED, AuditConfig, Check, CheckResult, MechanismUnderTest
from teacher_student.auditing.wrapped_noise import ListeningNoise
from teacher_student.labels import HALTED

BOUND_SESSIONS = 2
"""Sessions per side for the bound on epsilon, in units of the trials: half choose the event, half judge it."""


def exact_divergence(test: MechanismUnderTest, config: AuditConfig) -> CheckResult:
    """Divergence at the claimed epsilon on the worst neighbours of the mechanism that is run."""
    worst = test.worst(by_epsilon(config.delta))
    bracket = worst.outcomes.worst_divergence(config.epsilon)
    passed = bracket.lower <= config.delta and (test.name != CLAIMED or bracket.upper <= config.delta)
    measured = f"epsilon >= {worst.score:.3f}, delta {bracket} ({worst.name})"
    return CheckResult(test.name, "exact divergence", f"({config.epsilon:g}, {config.delta:g})", measured, passed)


def cap(test: MechanismUnderTest, config: AuditConfig) -> CheckResult:
    """Payments stay within the limit, in one call and with one query per call, and nothing is answered after the last."""
    limit, counts, seen = test.spec.limit, test.pressing(), []
    passed, queries = True, len(counts) // test.rows_per_query
    for calls in (1, queries):
        source = test.tamper(config.noise())
        state, parts = test.mechanism.start(source), []
        for part in np.split(counts, calls):
            labels, state = test.mechanism.answer(part, state, source)
            parts.append(labels)
        labels = np.concatenate(parts)
        paid, asked = test.paid(labels), int((labels != HALTED).sum()) // test.rows_per_query
        silent = bool((labels[asked * test.rows_per_query :] == HALTED).all())
        ended = paid < limit.most or test.paid(labels[: (asked - 1) * test.rows_per_query]) < limit.most
        passed &= paid <= limit.most and paid == state.paid and asked <= test.spec.max_asked and silent and ended
        seen.append(f"{paid} in {calls} call{'s' * (calls > 1)} (state {state.paid})")
    return CheckResult(test.name, "cap", f"at most {limit.most} {limit.unit}s", ", ".join(seen), bool(passed))


def draws(test: MechanismUnderTest, config: AuditConfig) -> CheckResult:
    """Every draw is from an accounted law at an accounted scale, and there are neither too few draws nor too many."""
    heard = ListeningNoise(config.noise())
    needed = test.needed(*test.session(test.drawing(), heard))
    stated: dict[tuple[str, Fraction], tuple[float, float]] = {}
    for draw in test.spec.draws:
        low, high = stated.get((draw.law, draw.scale), (0, 0))
        least, most = needed[draw.per]
        stated[draw.law, draw.scale] = low + least, high + most
    scales = " and ".join(f"{float(scale):g}" for _, scale in stated)
    strange = [request for request in heard.requests if (request.law, request.scale) not in stated]
    if strange:
        seen = f"drew {strange[0].law} at scale {float(strange[0].scale):g}, which is not accounted for"
        return CheckResult(test.name, "draws", f"scales {scales}", seen, False)
    tally = {key: sum(request.size for request in heard.requests if (request.law, request.scale) == key) for key in stated}
    passed = all(low <= tally[key] <= high for key, (low, high) in stated.items())
    wanted = (f"{low} to {high}" if high < math.inf else f"at least {low}" for low, high in stated.values())
    seen = ", ".join(f"{number} draws for {most}" for number, most in zip(tally.values(), wanted, strict=True))
    return CheckResult(test.name, "draws", f"scales {scales}", seen, passed)


def sampled_epsilon(test: MechanismUnderTest, config: AuditConfig) -> CheckResult:
    """Lower confidence bound on epsilon from sessions on the most promising pair for this number of sessions."""
    trials = BOUND_SESSIONS * config.trials
    pair = test.worst(by_sampled_epsilon(config.delta, trials // 2), brief=True)
    bound = lower_bound(*test.samples(pair, trials, config), config.delta, error=config.false_alarm)
    seen = f"epsilon >= {bound.epsilon:.3f} (event {bound.hits} : {bound.other_hits} of {bound.trials})"
    return CheckResult(test.name, "sampled epsilon", f"epsilon {config.epsilon:g}", seen, bound.epsilon <= config.epsilon)


def sampled_law(test: MechanismUnderTest, config: AuditConfig) -> CheckResult:
    """Sessions against the exact law of the claimed parameters; the comparisons share the false alarm."""
    comparisons = list(test.comparisons(config))
    share = config.false_alarm / len(comparisons)
    worst = min((compare(share) for compare in comparisons), key=lambda result: result.p_value)
    return CheckResult(test.name, "sampled law", f"p > {share:.1e}", f"p {worst.p_value:.1e} ({worst.cell})", worst.accepted)


ALL: tuple[Check, ...] = (exact_divergence, cap, draws)
SAMPLED: tuple[Check, ...] = (sampled_epsilon, sampled_law)
