"""The checks of an audit, one function each: a subject in, a row of the table out.

| check | kind | false alarm | rejects |
|---|---|---|---|
| exact, distances | divergence by summation on the worst flips found | none | too little noise, too large a sensitivity |
| exact, release | divergence by summation with every query split | none | a threshold too low for its noise |
| cutoff | functional | none | one payment more |
| draws | functional, listens to the noise | none | wrong law, wrong scale, missing draws |
| threshold kept | functional | none | a redraw that nobody pays for |
| batches | functional | none | a state that does not survive between calls |
| sampled release | sessions over split queries | as stated | a threshold far too low for its noise |
| sampled epsilon | Clopper-Pearson on a worst pair | as stated | gross excess of the claimed epsilon |
| threshold noise | thresholds of many sessions against their law | as stated | a wrong law or scale of the threshold |
| sampled law | sessions against the claimed exact law, by cells | as stated | what shows at this many sessions |
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from teacher_student.arguments import Integers
from teacher_student.auditing import agreement, functional
from teacher_student.auditing.exact import ThresholdLaw, outcomes
from teacher_student.auditing.pairs import NeighbourVotes, all_split, flipping
from teacher_student.auditing.sampled import audit_pair, sessions
from teacher_student.auditing.search import exact_epsilon, sampled_epsilon, worst_flips
from teacher_student.auditing.twins import CLAIMED, Subject
from teacher_student.mechanisms.noise import Noise


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    subject: str
    check: str
    claimed: str
    measured: str
    passed: bool


@dataclasses.dataclass(frozen=True)
class Setting:
    """What an audit's checks share.

    Attributes:
        epsilon, delta: the claim.
        trials: sessions per side and check.
        false_alarm: error of each sampling check.
        noise: makes a source of noise for each check.
        progress: called with the number of sessions run.
    """

    epsilon: float
    delta: float
    trials: int
    false_alarm: float
    noise: Callable[[], Noise]
    progress: Callable[[int], None] | None = None


SHARES = (0.25, 0.5, 0.75)
"""Shares of the cutoff that the long sessions of `sampled_law` are expected to spend."""

BOUND_SESSIONS = 2
"""Sessions behind the bound on epsilon, in units of the trials: half choose the event, half judge it."""

Check = Callable[[Subject, Setting], Row]


def exact_distances(subject: Subject, setting: Setting) -> Row:
    """Divergence at the claimed epsilon on the worst flips found for what the subject does."""
    found = worst_flips(_law(subject), exact_epsilon(setting.delta), statistic=subject.statistic)
    bracket = found.outcomes.worst_divergence(setting.epsilon)
    guilty = bracket.lower > setting.delta
    measured = f"epsilon >= {found.score:.3f}, delta {bracket} ({found.votes.name})"
    passed = not guilty and (subject.name != CLAIMED or bracket.upper <= setting.delta)
    return Row(subject.name, "exact, distances", f"({setting.epsilon:g}, {setting.delta:g})", measured, passed)


def exact_release(subject: Subject, setting: Setting) -> Row:
    """Divergence with every query split, against the release part that the parameters state."""
    law, stated = _law(subject), float(subject.claimed.release_delta)
    exact = outcomes(law, all_split(law.cutoff).seen(subject.statistic)).worst_divergence(setting.epsilon)
    passed = exact.upper <= stated * (1 + 1e-6) + 1e-12
    return Row(subject.name, "exact, release", f"delta {stated:.3e}", f"delta {exact.lower:.3e}", passed)


def cutoff(subject: Subject, setting: Setting) -> Row:
    """At most `cutoff` queries go unanswered."""
    return _functional(subject, "cutoff", f"at most {subject.claimed.cutoff}", functional.cutoff_holds(subject, setting.noise()))


def draws(subject: Subject, setting: Setting) -> Row:
    """The noise that is drawn is the noise that is accounted for."""
    parameters = subject.claimed
    stated = f"{float(parameters.threshold_scale):g} and {float(parameters.query_scale):g}"
    return _functional(subject, "draws", f"scales {stated}", functional.draws_as_accounted(subject, setting.noise()))


def threshold_kept(subject: Subject, setting: Setting) -> Row:
    """The threshold is drawn once per session where the cost is that of one draw."""
    return _functional(subject, "threshold kept", "one", functional.threshold_is_kept(subject, setting.noise()))


def batches(subject: Subject, setting: Setting) -> Row:
    """One query per call costs what one call for all costs."""
    verdict = functional.batches_do_not_matter(subject, setting.noise())
    return _functional(subject, "batches", f"at most {subject.claimed.cutoff}", verdict)


def sampled_bound(subject: Subject, setting: Setting) -> Row:
    """Lower confidence bound on epsilon from sessions on the pair that promises most at this number of sessions."""
    law, trials = _law(subject), BOUND_SESSIONS * setting.trials
    best = worst_flips(
        law,
        sampled_epsilon(setting.delta, trials // 2),
        ups=(0, 5),
        downs=(law.cutoff,),
        statistic=subject.statistic,
    )
    return bound_row(subject, setting, best.votes, trials)


def bound_row(subject: Subject, setting: Setting, votes: NeighbourVotes, trials: int) -> Row:
    """Return the row of a lower bound on epsilon from so many sessions on a pair of votes."""
    bound = audit_pair(
        subject,
        votes,
        setting.noise(),
        delta=setting.delta,
        trials=trials,
        error=setting.false_alarm,
        progress=setting.progress,
    )
    seen = f"epsilon >= {bound.epsilon:.3f} (event {bound.hits} : {bound.other_hits} of {bound.trials})"
    return Row(subject.name, "sampled epsilon", f"epsilon {setting.epsilon:g}", seen, bound.epsilon <= setting.epsilon)


def sampled_release(subject: Subject, setting: Setting) -> Row:
    """How many sessions over split queries release a label, against the stated release part: one-sided binomial."""
    stated = float(subject.claimed.release_delta)
    labels = _labels(subject, all_split(subject.claimed.cutoff), setting)
    leaked = int((labels >= 0).any(axis=1).sum())
    p_value = float(stats.binom.sf(leaked - 1, setting.trials, stated))
    measured = f"{leaked} of {setting.trials} sessions, p {p_value:.1e}"
    return Row(subject.name, "sampled release", f"delta {stated:.3e}", measured, p_value > setting.false_alarm)


def sampled_law(subject: Subject, setting: Setting) -> Row:
    """Sessions against the exact law of the claimed parameters: short transcripts, then counts over long sessions."""
    law = ThresholdLaw.of(subject.claimed)
    share = setting.false_alarm / (1 + len(SHARES))
    near = distance_for(law, 6, 0.5)
    short = flipping([(near, 0)] * 6)
    expected = agreement.transcript_law(law, [(0, near)] * 6)
    found = [agreement.compare_transcripts(_labels(subject, short, setting), expected, share)]
    for part in SHARES:
        length = 12 * law.cutoff
        distance = distance_for(law, length, part)
        labels = _labels(subject, flipping([(distance, 0)] * length), setting)
        found.append(agreement.compare_unanswered(labels, agreement.unanswered_law(law, distance, length), share))
    worst = min(found, key=lambda result: result.p_value)
    return Row(subject.name, "sampled law", f"p > {share:.1e}", f"p {worst.p_value:.1e} ({worst.cell})", worst.accepted)


def threshold_noise(subject: Subject, setting: Setting) -> Row:
    """The noisy thresholds that sessions start with, against the claimed law."""
    parameters, source = subject.claimed, subject.tamper(setting.noise())
    drawn = [subject.mechanism.start(source).noisy_threshold for _ in range(4 * setting.trials)]
    noise = np.array(drawn, dtype=np.int64) - parameters.threshold
    scale = float(parameters.threshold_scale)
    law = parameters.threshold_noise
    result = agreement.compare_noise(noise, law, scale, setting.false_alarm)
    stated = agreement.stated_power(law, scale, len(noise), setting.false_alarm)
    if setting.progress is not None:
        setting.progress(setting.trials)
    return Row(subject.name, "threshold noise", stated, f"p {result.p_value:.1e} ({result.cell})", result.accepted)


def distance_for(law: ThresholdLaw, num_queries: int, share: float) -> int:
    """Return the smallest distance at which `num_queries` queries are expected to spend at most `share` of what they could."""
    most = min(law.cutoff, num_queries)

    def spent(distance: int) -> float:
        chances = agreement.unanswered_law(law, distance, num_queries)
        return float(chances @ np.arange(len(chances))) / most

    low, high = 0, law.threshold + math.ceil(60 * (law.threshold_scale + law.query_scale))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if spent(middle) <= share else (middle + 1, high)
    return low


def _labels(subject: Subject, votes: NeighbourVotes, setting: Setting) -> Integers:
    return sessions(subject, votes.counts, setting.trials, setting.noise(), setting.progress)


def _law(subject: Subject) -> ThresholdLaw:
    assert isinstance(subject.law, ThresholdLaw)
    return subject.law


def _functional(subject: Subject, check: str, claimed: str, verdict: functional.Verdict) -> Row:
    return Row(subject.name, check, claimed, verdict.seen, verdict.passed)


EXACT: tuple[Check, ...] = (exact_distances, exact_release)
FUNCTIONAL: tuple[Check, ...] = (cutoff, draws, threshold_kept, batches)
SAMPLED: tuple[Check, ...] = (threshold_noise, sampled_release, sampled_bound, sampled_law)
THRESHOLD_CHECKS: tuple[Check, ...] = (*EXACT, *FUNCTIONAL, *SAMPLED)
THRESHOLD_SESSIONS = 1 + 1 + 2 * BOUND_SESSIONS + 1 + len(SHARES)
"""Sessions that these checks run, in units of the trials."""
