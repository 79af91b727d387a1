"""The noisy maxima under audit: their broken twins, and the checks that must tell them apart.

| twin | mistake |
|---|---|
| one_answer_more | a cap on the answers that is one too high |
| noise_halved | every scale halved |
| scale_0.7, scale_1.3 | every scale wrong |
| test_noise_0.7 | Confident-GNMax tests with too little noise |
| noise_reused | one draw for all counts, which then decides nothing (not where the sampler would draw for ever) |

The checks are those of `checks`, for sessions that pay for answers: exact divergence on contested votes, the cap, the draws, and
sampled transcripts against their law.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

from teacher_student.auditing import agreement
from teacher_student.auditing.checks import BOUND_SESSIONS, Check, Row, Setting, bound_row
from teacher_student.auditing.functional import ListeningNoise
from teacher_student.auditing.noisy import NoisyMaxLaw, session_law, session_outcomes
from teacher_student.auditing.outcomes import Outcomes
from teacher_student.auditing.pairs import NeighbourVotes, contested
from teacher_student.auditing.sampled import sessions
from teacher_student.auditing.search import Score, exact_epsilon, sampled_epsilon
from teacher_student.auditing.twins import CLAIMED, ReusedNoise, Subject, mutants
from teacher_student.labels import HALTED
from teacher_student.mechanisms.interface import build_mechanism
from teacher_student.privacy.parameters import Draw

GAPS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Gaps that are tried, in standard deviations of the difference of two noisy counts."""


def noisy_twins(parameters: Any) -> list[Subject]:
    """Return the broken twins of the noisy maximum with these parameters, each claiming their guarantee."""
    true = noisy_claimed(parameters)
    return [
        *mutants(true, NoisyMaxLaw.of),
        *(_reusing(true, draw) for draw in parameters.draws if draw.per == "count" and draw.decides),
    ]


def noisy_claimed(parameters: Any) -> Subject:
    """Return the noisy maximum as it is."""
    return Subject(CLAIMED, build_mechanism(parameters), parameters, NoisyMaxLaw.of(parameters))


def _reusing(true: Subject, draw: Draw) -> Subject:
    reused = dataclasses.replace(_law(true), reuse=True)
    return dataclasses.replace(
        true, name="noise_reused", law=reused, tamper=lambda noise: ReusedNoise(noise, draw.law, draw.scale)
    )


def _law(subject: Subject) -> NoisyMaxLaw:
    assert isinstance(subject.law, NoisyMaxLaw)
    return subject.law


def votes_of_gap(law: NoisyMaxLaw, gap: int, num_queries: int, *, clear: float = 0.0) -> NeighbourVotes:
    """Return contested votes of this gap; where there is a test, the top count is `clear` of its scales above the threshold."""
    votes = contested(gap, num_queries)
    if law.test_threshold is None or law.test_scale is None:
        return votes
    lift = law.test_threshold + round(clear * law.test_scale) - votes.counts.max()
    return NeighbourVotes(votes.name, np.maximum(votes.counts + lift, 0), np.maximum(votes.other_counts + lift, 0))


def worst_gap(law: NoisyMaxLaw, score: Score, num_queries: int) -> tuple[NeighbourVotes, Outcomes, float]:
    """Return the contested votes of largest score, what a session can emit on them, and the score."""
    best: tuple[NeighbourVotes, Outcomes, float] | None = None
    gaps = sorted({1 + round(step * 2**0.5 * law.scale) for step in GAPS})
    for gap, clear in itertools.product(gaps, (0.0,) if law.test_scale is None else (-1.0, 0.0, 1.0, 3.0)):
        votes = votes_of_gap(law, gap, num_queries, clear=clear)
        exact = session_outcomes(law, votes.counts, votes.other_counts, width=1e-4, largest=20_000)
        value = score(exact, best[2] if best else 0.0)
        if best is None or value > best[2]:
            best = (votes, exact, value)
    assert best is not None
    return best


def exact_answers(subject: Subject, setting: Setting) -> Row:
    """Divergence at the claimed epsilon on the worst contested votes found for what the subject does."""
    law = _law(subject)
    votes, exact, epsilon = worst_gap(law, exact_epsilon(setting.delta), _most(law))
    bracket = exact.worst_divergence(setting.epsilon)
    guilty = bracket.lower > setting.delta
    passed = not guilty and (subject.name != CLAIMED or bracket.upper <= setting.delta)
    measured = f"epsilon >= {epsilon:.3f}, delta {bracket} ({votes.name})"
    return Row(subject.name, "exact, answers", f"({setting.epsilon:g}, {setting.delta:g})", measured, passed)


def cap(subject: Subject, setting: Setting) -> Row:
    """At most `max_answers` labels, at most `max_asked` queries, and after that nothing is said."""
    parameters = subject.claimed
    votes = votes_of_gap(_law(subject), 9, 2 * parameters.max_asked + 3, clear=9.0)
    labels, _ = subject.session(votes.counts, setting.noise())
    answered, asked = int((labels >= 0).sum()), int((labels != HALTED).sum())
    passed = answered <= parameters.max_answers and asked <= parameters.max_asked and (labels[asked:] == HALTED).all()
    stated = f"at most {parameters.max_answers} of {parameters.max_asked}"
    return Row(subject.name, "cap", stated, f"{answered} answers to {asked} queries", bool(passed))


def noisy_draws(subject: Subject, setting: Setting) -> Row:
    """Every draw is from an accounted law at an accounted scale, and there is one for every count of every answer."""
    parameters, heard = subject.claimed, ListeningNoise(setting.noise())
    votes = votes_of_gap(_law(subject), 9, parameters.max_asked, clear=9.0)
    source = subject.tamper(heard)
    labels, _ = subject.mechanism.answer(votes.counts, subject.mechanism.start(source), source)
    stated = {(draw.law, draw.scale) for draw in parameters.draws}
    strange = [draw for draw in heard.draws if (draw.law, draw.scale) not in stated]
    drawn, needed = sum(len(draw.values) for draw in heard.draws), votes.counts.shape[1] * int((labels >= 0).sum())
    seen = f"{drawn} draws for {needed} noisy counts"
    if strange:
        seen = f"drew {strange[0].law} at scale {float(strange[0].scale):g}, which is not accounted for"
    scales = " and ".join(f"{float(scale):g}" for _, scale in sorted(stated, key=lambda pair: pair[1]))
    return Row(subject.name, "draws", f"scales {scales}", seen, not strange and drawn >= needed)


def sampled_answers(subject: Subject, setting: Setting) -> Row:
    """Sessions on contested votes against the exact law of the claimed parameters."""
    law = NoisyMaxLaw.of(subject.claimed)
    share, found = setting.false_alarm / len(SAMPLED_GAPS), []
    for step in SAMPLED_GAPS:
        votes = votes_of_gap(law, 1 + round(step * 2**0.5 * law.scale), min(_most(law), 4))
        labels = sessions(subject, votes.counts, setting.trials, setting.noise(), setting.progress)
        found.append(agreement.compare_transcripts(labels, session_law(law, votes.counts), share))
    worst = min(found, key=lambda result: result.p_value)
    return Row(subject.name, "sampled law", f"p > {share:.1e}", f"p {worst.p_value:.1e} ({worst.cell})", worst.accepted)


SAMPLED_GAPS = (0.5, 1.0)


def sampled_answers_bound(subject: Subject, setting: Setting) -> Row:
    """Lower confidence bound on epsilon from sessions on the gap that promises most at this number of sessions."""
    law, trials = _law(subject), BOUND_SESSIONS * setting.trials
    votes, _, _ = worst_gap(law, sampled_epsilon(setting.delta, trials // 2), _most(law))
    return bound_row(subject, setting, votes, trials)


def _most(law: NoisyMaxLaw) -> int:
    return law.max_asked or law.max_answers


NOISY_CHECKS: tuple[Check, ...] = (exact_answers, cap, noisy_draws, sampled_answers_bound, sampled_answers)
NOISY_SESSIONS = len(SAMPLED_GAPS) + 2 * BOUND_SESSIONS
"""Sessions that these checks run, in units of the trials."""
