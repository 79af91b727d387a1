"""H_priv and A_SL-Quer: literal and fast form agree, no budget is overrun, and every broken twin is caught."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teacher_student import ABSTAIN, HALTED, ArgumentError
from teacher_student.mechanisms import GeneratorNoise, RecordedNoise
from teacher_student.mechanisms.interface import State
from teacher_student.mechanisms.soft_histogram import check_bins, histograms, split
from teacher_student.mechanisms.soft_label import SoftLabelRelease, scores_of
from teacher_student.mechanisms.stability import plurality
from teacher_student.privacy import Stability, StabilityRedraw, calibrate, calibrate_soft

SCALE, QUERY_SCALE = Fraction(2), Fraction(3)


def parameters(cutoff=3, *, redraw=False, threshold=6):
    kind = StabilityRedraw if redraw else Stability
    return kind(threshold_scale=SCALE, query_scale=QUERY_SCALE, threshold=threshold, cutoff=cutoff)


def counts_of(scores, bins=4):
    scores = np.asarray(scores, dtype=float)
    return histograms(scores, check_bins(bins, len(scores)))


def recorded(thresholds, queries):
    """Return noise with separate streams for threshold and queries."""
    return RecordedNoise({SCALE: thresholds, QUERY_SCALE: queries})


@pytest.mark.parametrize("redraw", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_fast_form_gives_the_same_answers_on_the_same_noise(redraw, seed):
    generator = np.random.default_rng(seed)
    votes = generator.beta(0.6, 0.6, size=(300, 1)) + generator.normal(scale=0.08, size=(300, 40))
    counts = counts_of(votes, 6)
    release = SoftLabelRelease(parameters(int(generator.integers(1, 60)), redraw=redraw, threshold=8))
    thresholds, queries = generator.integers(-5, 6, size=400).tolist(), generator.integers(0, 12, size=900).tolist()
    results = []
    for form in ("answer_literally", "answer"):
        noise = recorded(thresholds, queries)
        results.append(getattr(release, form)(counts, release.start(noise), noise))
    (literal, state), (fast, fast_state) = results
    np.testing.assert_array_equal(literal, fast)
    assert state == fast_state
    assert {ABSTAIN} < set(literal.tolist())


def test_query_in_the_middle_of_two_bins_is_answered_by_the_shifted_test():
    scores = [[0.49] * 20 + [0.51] * 20, [0.1] * 40]
    noise = recorded([0], [0] * 9)
    release = SoftLabelRelease(parameters())
    codes, state = release.answer(counts_of(scores), release.start(noise), noise)
    values, shifted = scores_of(codes)
    assert values.tolist() == [0.5, 0.125]
    assert shifted.tolist() == [True, False]
    assert (state.paid, state.answered, state.asked) == (1, 2, 2)  # the shifted answer costs one unit


def test_doubly_unstable_query_costs_two_units_and_the_last_unit_may_go_to_a_first_test():
    spread = [list(np.linspace(0, 1, 40))] * 3
    release, noise = SoftLabelRelease(parameters(cutoff=3)), recorded([0], [0] * 6)
    codes, state = release.answer(counts_of(spread), release.start(noise), noise)
    assert codes.tolist() == [ABSTAIN, ABSTAIN, HALTED]  # 2 units, 1 unit, none
    assert state.paid == 3
    assert release.halted(state)
    codes, after = release.answer(counts_of(spread), state, recorded([], []))
    assert codes.tolist() == [HALTED] * 3
    assert after == state


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.lists(st.integers(0, 30), min_size=60, max_size=60), st.booleans(), st.integers(0, 2**31))
def test_no_noise_overruns_the_budget(cutoff, noise_values, redraw, seed):
    generator = np.random.default_rng(seed)
    counts = counts_of(generator.random((20, 15)) ** generator.integers(1, 6, size=(20, 1)))
    release = SoftLabelRelease(parameters(cutoff, redraw=redraw))
    noise = recorded(generator.integers(-3, 4, size=30).tolist(), noise_values)
    codes, state = release.answer(counts, release.start(noise), noise)
    units = sum(2 if code == ABSTAIN else scores_of(np.array(code))[1] for code in codes.tolist() if code != HALTED)
    assert state.paid <= cutoff
    assert state.paid in (units, units - 1)  # one less where the last unit went to a first test
    assert (HALTED in codes.tolist()) <= (state.paid == cutoff)


def test_resumed_session_continues_where_it_was():
    generator = np.random.default_rng(3)
    counts = counts_of(generator.random((60, 1)) + generator.normal(scale=0.05, size=(60, 30)))
    release = SoftLabelRelease(parameters(12))
    noise = recorded([1], generator.integers(0, 9, size=200).tolist())
    whole, _ = release.answer_literally(counts, release.start(noise), noise)
    generator = np.random.default_rng(3)
    counts = counts_of(generator.random((60, 1)) + generator.normal(scale=0.05, size=(60, 30)))
    noise = recorded([1], generator.integers(0, 9, size=200).tolist())
    state, parts = release.start(noise), []
    for start in range(0, 60, 7):
        codes, state = release.answer_literally(counts[start : start + 7], state, noise)
        state = type(state).from_dict(state.to_dict())
        parts.append(codes)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


class CountingNoise(GeneratorNoise):
    """Counts the draws of threshold noise."""

    thresholds = 0

    def discrete_gaussian(self, scale, size):
        self.thresholds += size
        return super().discrete_gaussian(scale, size)

    def discrete_laplace(self, scale, size):
        self.thresholds += size * (scale == SCALE)
        return super().discrete_laplace(scale, size)


class RedrawsUnpaid(SoftLabelRelease):
    """Broken: reads h_priv's line 7 as a fresh threshold for the shifted test, which the accounting does not cover."""

    def _test(self, counts, state, noise):
        answer, state = super()._test(counts, state, noise)
        if answer == ABSTAIN:
            state = dataclasses.replace(state, noisy_threshold=self.start(noise).noisy_threshold)
        return answer, state


@pytest.mark.parametrize("redraw", [False, True])
def test_thresholds_are_drawn_as_accounted_and_the_redrawing_twin_is_caught(redraw):
    counts = counts_of(np.random.default_rng(0).random((30, 25)))
    for twin, honest in ((SoftLabelRelease, True), (RedrawsUnpaid, False)):
        release, noise = twin(parameters(8, redraw=redraw)), CountingNoise(np.random.default_rng(1))
        _, state = release.answer_literally(counts, release.start(noise), noise)
        assert state.paid == 8
        assert (noise.thresholds == (1 + state.paid if redraw else 1)) is honest


# Exact privacy of the default calibration: given the threshold's noise, all tests are independent.


def transcripts(counts, release):
    """Law of the codes: {tuple of codes: probability}, summed over the threshold's noise."""
    numbers = release.parameters
    budget = numbers.cutoff
    (bins, distance), (shifted_bins, shifted_distance) = (plurality(part) for part in split(counts)[1:])
    grid = np.arange(-40, 41)
    weight = np.exp(-(grid.astype(float) ** 2) / (2 * float(numbers.threshold_scale) ** 2))
    weight /= weight.sum()

    def fails(value):
        above = np.maximum(value - numbers.threshold - grid, 0)
        return (1 - above * math.expm1(-1 / float(numbers.query_scale))) * np.exp(-above / float(numbers.query_scale))

    law, live = defaultdict(float), {((), 0): weight}
    for query in range(len(counts)):
        after = defaultdict(lambda: np.zeros(len(grid)))
        for (codes, paid), mass in live.items():
            if paid >= budget:
                after[(*codes, HALTED), paid] += mass
                continue
            first = fails(distance[query])
            after[(*codes, 16 + 2 * int(bins[query])), paid] += mass * (1 - first)
            if paid + 1 >= budget:
                after[(*codes, ABSTAIN), paid + 1] += mass * first
                continue
            second = fails(shifted_distance[query])
            after[(*codes, 16 + 2 * int(shifted_bins[query]) + 1), paid + 1] += mass * first * (1 - second)
            after[(*codes, ABSTAIN), paid + 2] += mass * first * second
        live = after
    for (codes, _), mass in live.items():
        law[codes] += float(mass.sum())
    return law


def divergence(law, other, epsilon):
    """Hockey-stick divergence, the larger of both directions."""
    pairs = ((law, other), (other, law))
    return max(sum(max(0.0, p - math.exp(epsilon) * right.get(codes, 0.0)) for codes, p in left.items()) for left, right in pairs)


def neighbours(num_queries, num_teachers):
    """Pairs of score tables in which one teacher's scores differ: the worst kinds, for stable, split and doubly split queries."""
    half = num_teachers // 2
    rows = {
        "plain": [0.1] * num_teachers,
        "edge": [0.49] * half + [0.51] * (num_teachers - half),
        "spread": [0.05] * half + [0.95] * (num_teachers - half),
        "third": [0.1] * (2 * num_teachers // 3) + [0.6] * (num_teachers - 2 * num_teachers // 3),
    }
    for kinds in itertools.product(rows, repeat=2):
        table = np.array([rows[kinds[query % 2]] for query in range(num_queries)])
        for moved in (0.1, 0.6, 0.95, np.nan):
            other = table.copy()
            other[:, -1] = moved
            yield table, other


def worst(release, num_queries, num_teachers, epsilon):
    return max(
        divergence(transcripts(counts_of(one), release), transcripts(counts_of(two), release), epsilon)
        for one, two in neighbours(num_queries, num_teachers)
    )


def test_exact_law_is_the_mechanism():
    scores = np.array([[0.49] * 20 + [0.51] * 20, [0.1] * 30 + [0.9] * 10, [0.1] * 40])
    release = SoftLabelRelease(parameters(2, threshold=8))
    law, seen = transcripts(counts_of(scores), release), defaultdict(int)
    assert sum(law.values()) == pytest.approx(1)
    noise = GeneratorNoise(np.random.default_rng(5))
    counts, runs = counts_of(scores), 2000
    for _ in range(runs):
        codes, _ = release.answer(counts, release.start(noise), noise)
        seen[tuple(codes.tolist())] += 1
    assert set(seen) <= set(law)
    statistic = sum((seen[codes] - runs * p) ** 2 / (runs * p) for codes, p in law.items() if runs * p > 5)
    cells = sum(runs * p > 5 for p in law.values())
    assert statistic < cells + 6 * math.sqrt(2 * cells)


def test_neighbouring_scores_stay_within_the_certified_divergence():
    delta = 1e-2
    calibrated = calibrate("stability", epsilon=2.0, delta=delta, cutoff=4)
    release = SoftLabelRelease(calibrated)
    teachers = 6 * (calibrated.threshold // 3)
    assert worst(release, 4, teachers, calibrated.epsilon(delta)) <= delta


def test_twin_with_a_low_threshold_leaks():
    delta = 1e-2
    calibrated = calibrate("stability", epsilon=2.0, delta=delta, cutoff=4)
    low = dataclasses.replace(calibrated, threshold=calibrated.threshold // 2)  # the printed w: half of what it must be
    assert low.epsilon(delta) > 2.0
    assert worst(SoftLabelRelease(low), 4, 6 * (calibrated.threshold // 3), 2.0) > delta


def test_printed_threshold_leaks_at_the_papers_scale():
    delta, cutoff, queries = 1e-5, 50, 1000
    scale = math.sqrt(64 * cutoff * math.log(2 / delta))
    theta, eta = math.exp(-1 / (2 * scale)), math.exp(-1 / scale)  # query noise has twice the scale of threshold noise
    grid = np.arange(-math.ceil(40 * scale), math.ceil(40 * scale) + 1)
    weight = (1 - eta) / (1 + eta) * np.exp(-np.abs(grid) / scale)

    def leak(threshold):
        above = threshold + grid + 1  # P(nu >= w + 1 + rho)
        tail = np.where(
            above >= 1, theta ** np.maximum(above, 1) / (1 + theta), 1 - theta ** np.maximum(1 - above, 1) / (1 + theta)
        )
        return float(np.sum(weight * tail))

    printed, corrected = math.ceil(scale * math.log(4 * queries / delta)), math.ceil(2 * scale * math.log(4 * queries / delta))
    assert leak(printed) > delta  # a single split query exceeds it
    assert 2 * cutoff * leak(corrected) < delta / 2


class ContinuesAtTheBudget(SoftLabelRelease):
    """Broken: enters a query while c <= U."""

    def halted(self, state):
        return state.paid > self.parameters.cutoff


def test_twin_that_continues_at_the_budget_is_caught():
    spread = counts_of([list(np.linspace(0, 1, 40))] * 6)
    paid = {}
    for twin in (SoftLabelRelease, ContinuesAtTheBudget):
        release, noise = twin(parameters(4)), recorded([0], [0] * 20)
        _, state = release.answer_literally(spread, release.start(noise), noise)
        paid[twin] = state.paid
    assert paid == {SoftLabelRelease: 4, ContinuesAtTheBudget: 5}


def test_printed_calibration_answers_no_more_queries_than_it_was_made_for():
    printed = calibrate_soft("stability_paper", epsilon=8.0, delta=1e-5, cutoff=2, num_queries=3)
    counts, noise = counts_of(np.full((5, 4000), 0.4)), GeneratorNoise(np.random.default_rng(0))
    for form in ("answer", "answer_literally"):
        release = SoftLabelRelease(printed)
        codes, state = getattr(release, form)(counts, release.start(noise), noise)
        assert (codes != HALTED).tolist() == [True] * 3 + [False] * 2
        assert release.halted(state)


def test_large_batches_are_answered_in_blocks():
    generator = np.random.default_rng(0)
    counts = counts_of(generator.beta(0.3, 0.3, size=(5000, 1)) + generator.normal(scale=0.03, size=(5000, 30)))
    release, noise = SoftLabelRelease(parameters(10_000)), GeneratorNoise(generator)
    codes, state = release.answer(counts, release.start(noise), noise)
    _, shifted = scores_of(codes)
    assert state.asked == 5000
    assert state.paid == 2 * (codes == ABSTAIN).sum() + shifted.sum()
    assert state.answered == (codes >= 0).sum()


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (np.zeros((1, 5), dtype=int), "counts must have 2 B columns for B >= 3 bins, got 5"),
        (np.full((1, 6), 2), "counts must begin with a number of bins from 3 to 3, got 2 to 2"),
    ],
)
def test_counts_must_be_two_histograms(counts, message):
    with pytest.raises(ArgumentError, match=message):
        SoftLabelRelease(parameters()).answer(counts, State(noisy_threshold=0), RecordedNoise([]))


def test_every_code_says_its_score():
    for bins in (3, 4, 17, 1000):
        codes = bins**2 + np.arange(2 * bins - 1)
        scores, shifted = scores_of(codes)
        np.testing.assert_allclose(scores, (np.arange(2 * bins - 1) + 1) / (2 * bins))
        np.testing.assert_array_equal(shifted, np.arange(2 * bins - 1) % 2 == 1)
