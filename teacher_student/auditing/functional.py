"""Functional checks: what a session must never do, whatever its noise. They raise no false alarm.

Each returns a `Verdict`: passed or not, with what was seen.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np

from teacher_student.arguments import Integers
from teacher_student.auditing.pairs import all_split, random_votes
from teacher_student.auditing.twins import Subject
from teacher_student.auditing.wrapped_noise import WrappedNoise
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms.noise import Noise


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether a check passed, and what it saw."""

    passed: bool
    seen: str


@dataclasses.dataclass(frozen=True)
class Draw:
    """One request for noise, with the values handed out."""

    law: str
    scale: Fraction
    values: Integers


class ListeningNoise(WrappedNoise):
    """Hands out another source's noise and writes down every request."""

    def __init__(self, inner: Noise) -> None:
        super().__init__(inner)
        self.draws: list[Draw] = []

    def draw(self, law: str, scale: Fraction, size: int) -> Integers:
        """Return the inner source's draws."""
        values = self._inner.draw(law, scale, size)
        self.draws.append(Draw(law, Fraction(scale), values))
        return values


def cutoff_holds(subject: Subject, noise: Noise, *, times: int = 5) -> Verdict:
    """Every query split, four times as many as the cutoff: at most `cutoff` go unanswered, and after the last nothing is said."""
    cutoff = subject.claimed.cutoff
    votes = all_split(4 * cutoff + 8)
    for _ in range(times):
        labels, _ = subject.session(votes.counts, noise)
        paid = np.flatnonzero(labels == ABSTAIN)
        if len(paid) > cutoff:
            return Verdict(False, f"{len(paid)} unanswered, the cutoff is {cutoff}")
        if len(paid) == cutoff and (labels[paid[-1] + 1 :] != HALTED).any():
            return Verdict(False, "queries were answered after the cutoff was spent")
    return Verdict(True, f"at most {cutoff} unanswered")


def batches_do_not_matter(subject: Subject, noise: Noise) -> Verdict:
    """One query per call: payments add up over the calls."""
    counts, limit = all_split(2 * subject.claimed.cutoff + 2).counts, subject.claimed.cutoff
    source = subject.tamper(noise)
    state = subject.mechanism.start(source)
    labels = []
    for row in counts:
        label, state = subject.mechanism.answer(row[None, :], state, source)
        labels.append(int(label[0]))
    paid = labels.count(ABSTAIN)
    agrees = paid == state.paid and subject.mechanism.halted(state) == (paid == limit)
    return Verdict(paid <= limit and agrees, f"{paid} payments over {len(counts)} calls, the state says {state.paid}")


def draws_as_accounted(subject: Subject, noise: Noise) -> Verdict:
    """The mechanism asks for exactly the noise that its parameters account for.

    One threshold draw per session (one more per payment where it is redrawn) and at least one query draw per query asked, each
    from the accounted law at the accounted scale; nothing else.
    """
    parameters = subject.claimed
    heard = ListeningNoise(noise)
    counts = random_votes(np.random.default_rng(0), 40, 2 * parameters.threshold + 9, 3).counts
    source = subject.tamper(heard)
    labels, state = subject.mechanism.answer(counts, subject.mechanism.start(source), source)
    threshold = (parameters.threshold_noise, parameters.threshold_scale)
    query = (parameters.query_noise, parameters.query_scale)
    tally = {threshold: 0, query: 0}
    for draw in heard.draws:
        if (draw.law, draw.scale) not in tally:
            return Verdict(False, f"drew {draw.law} at scale {float(draw.scale):g}, which is not accounted for")
        tally[draw.law, draw.scale] += len(draw.values)
    return enough_draws(tally, threshold, query, int((labels == ABSTAIN).sum()) if parameters.redraw else 0, state.asked)


def enough_draws(tally: dict[Any, int], threshold: Any, query: Any, redraws: int, asked: int) -> Verdict:
    """Whether there is one draw for the threshold (and each redraw) and one for each query; the laws may be the same."""
    if threshold == query:
        enough = tally[query] >= asked + 1
        return Verdict(enough, f"{tally[query]} draws for {asked} queries and the threshold")
    if not 1 <= tally[threshold] <= 1 + redraws:
        return Verdict(False, f"{tally[threshold]} threshold draws in a session of {redraws} redraws")
    return Verdict(tally[query] >= asked, f"{tally[query]} query draws for {asked} queries, {tally[threshold]} of the threshold")


def threshold_is_kept(subject: Subject, noise: Noise, *, times: int = 5) -> Verdict:
    """Without redraw the noisy threshold is one and the same from the first query to the last."""
    if subject.claimed.redraw:
        return Verdict(True, "redrawn after every payment, as accounted")
    counts = all_split(subject.claimed.cutoff + 1).counts
    most = 1
    for _ in range(times):
        source = subject.tamper(noise)
        state = subject.mechanism.start(source)
        seen = {state.noisy_threshold}
        for row in counts:
            _, state = subject.mechanism.answer(row[None, :], state, source)
            seen.add(state.noisy_threshold)
        most = max(most, len(seen))
    return Verdict(most == 1, f"{most} thresholds in one session")
