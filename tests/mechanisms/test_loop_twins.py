"""Checks of the default loop, and the broken twins that each of them must reject.

Sampled checks have a false-alarm rate of 1e-9 (Dvoretzky-Kiefer-Wolfowitz for the threshold, Hoeffding for the share of answers:
both allow a deviation of t = sqrt(ln(2 / 1e-9) / (2 n))) and miss a deviation of more than 2 t with the same probability.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms import GeneratorNoise, Mechanism, Noise
from teacher_student.mechanisms.online_release import OnlineRelease
from teacher_student.privacy import Stability

SAMPLES, THRESHOLDS = 20_000, 12_000


def margin(samples: int) -> float:
    return math.sqrt(math.log(2 / 1e-9) / (2 * samples))


CLAIMED = Stability(threshold_scale=Fraction(8), query_scale=Fraction(32), threshold=30, cutoff=10**6)

Make = Callable[[Stability], Mechanism]


def noise() -> Noise:
    """Fast noise of the right laws (test_noise); each check has the same, so that no run can fail by chance."""
    return GeneratorNoise(np.random.default_rng(11))


def cutoff_holds(make: Make) -> bool:
    release, source = make(dataclasses.replace(CLAIMED, cutoff=4)), noise()
    labels, _ = release.answer(np.zeros((9, 2), dtype=int), release.start(source), source)
    return labels.tolist() == [ABSTAIN] * 4 + [HALTED] * 5


def threshold_stays(make: Make) -> bool:
    release, source = make(CLAIMED), noise()
    first = state = release.start(source)
    for _ in range(20):
        _, state = release.answer(np.zeros((1, 2), dtype=int), state, source)
    return state.noisy_threshold == first.noisy_threshold


def threshold_has_the_claimed_law(make: Make) -> bool:
    release, source = make(CLAIMED), noise()
    drawn = np.array([release.start(source).noisy_threshold for _ in range(THRESHOLDS)]) - CLAIMED.threshold
    grid = np.arange(-200, 201)
    weights = np.exp(-(grid**2) / (2 * float(CLAIMED.threshold_scale) ** 2))
    empirical = np.searchsorted(np.sort(drawn), grid, side="right") / THRESHOLDS
    return bool(np.abs(empirical - np.cumsum(weights / weights.sum())).max() <= margin(THRESHOLDS))


def answers_come_at_the_claimed_rate(make: Make) -> bool:
    """The share of abstentions at y = distance - threshold - rho is (1 + y (1 - theta)) theta^y, at several y."""
    release, source = make(CLAIMED), noise()
    state = dataclasses.replace(release.start(source), noisy_threshold=CLAIMED.threshold)
    for y in (20, 54, 100):
        counts = np.full((SAMPLES, 1), 2 * (CLAIMED.threshold + y + 1))
        labels, _ = release.answer(counts, state, source)
        theta = math.exp(-1 / CLAIMED.query_scale)
        if abs(np.mean(labels == ABSTAIN) - (1 + y * (1 - theta)) * theta**y) > margin(SAMPLES):
            return False
    return True


def noise_is_fresh(make: Make) -> bool:
    """200 equal queries in one batch, each answered with probability 1/2, are not all answered alike (p < 1e-50)."""
    release, source = make(CLAIMED), noise()
    state = dataclasses.replace(release.start(source), noisy_threshold=CLAIMED.threshold)
    labels, _ = release.answer(np.full((200, 1), 2 * (CLAIMED.threshold + 54 + 1)), state, source)
    return len(set(labels.tolist())) == 2


CHECKS = [cutoff_holds, threshold_stays, threshold_has_the_claimed_law, answers_come_at_the_claimed_rate, noise_is_fresh]


@dataclasses.dataclass(frozen=True)
class Redrawing(OnlineRelease):
    """Redraws the threshold after every abstention, which the cost of `stability` does not pay for."""

    def answer(self, counts, state, noise):
        labels, after = super().answer(counts, state, noise)
        return labels, dataclasses.replace(after, noisy_threshold=self.start(noise).noisy_threshold)


class Once(Noise):
    """One draw, handed out for all that were asked for."""

    def __init__(self, inner: Noise) -> None:
        self.inner = inner

    def draw(self, law, scale, size):
        return np.repeat(self.inner.draw(law, scale, 1), size)

    def discrete_laplace(self, scale, size):
        return self.draw("discrete_laplace", scale, size)

    def discrete_gaussian(self, scale, size):
        return self.draw("discrete_gaussian", scale, size)

    def two_geometrics(self, scale, size):
        return self.draw("two_geometrics", scale, size)


@dataclasses.dataclass(frozen=True)
class Reusing(OnlineRelease):
    """Uses one value of query noise for the whole batch."""

    def answer(self, counts, state, noise):
        return super().answer(counts, state, Once(noise))


def changed(**factors: Fraction) -> Make:
    """A twin whose sampler uses other numbers than its cost claims."""
    return lambda claimed: OnlineRelease(
        dataclasses.replace(claimed, **{name: getattr(claimed, name) * factor for name, factor in factors.items()})
    )


TWINS: list[tuple[Make, Callable[[Make], bool]]] = [
    (lambda claimed: OnlineRelease(dataclasses.replace(claimed, cutoff=claimed.cutoff + 1)), cutoff_holds),  # c <= T
    (Redrawing, threshold_stays),
    (changed(threshold_scale=Fraction(179, 256)), threshold_has_the_claimed_law),  # 0.7
    (changed(threshold_scale=Fraction(333, 256)), threshold_has_the_claimed_law),  # 1.3
    (changed(query_scale=Fraction(179, 256)), answers_come_at_the_claimed_rate),
    (changed(query_scale=Fraction(333, 256)), answers_come_at_the_claimed_rate),
    (changed(query_scale=Fraction(1, 2)), answers_come_at_the_claimed_rate),  # noise halved
    (Reusing, noise_is_fresh),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_loop_passes(check: Callable[[Make], bool]) -> None:
    assert check(OnlineRelease)


@pytest.mark.parametrize(("twin", "check"), TWINS)
def test_the_twin_is_rejected(twin: Make, check: Callable[[Make], bool]) -> None:
    assert not check(twin)
