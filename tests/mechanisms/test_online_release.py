"""The loop: literal and bulk forms agree on the same noise, the cutoff holds, and broken twins are told apart."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms import GeneratorNoise, Mechanism, Noise, RecordedNoise, State, SystemNoise, build_mechanism
from teacher_student.mechanisms import sparse_vector as loop
from teacher_student.mechanisms.online_release import OnlineRelease
from teacher_student.privacy import Stability, StabilityLaplace, StabilityPaper, StabilityRedraw, ThresholdParameters, calibrate

THRESHOLD_SCALE, QUERY_SCALE = Fraction(2), Fraction(4)
KINDS = [Stability, StabilityLaplace, StabilityRedraw, StabilityPaper]


def parameters(kind: type[ThresholdParameters], *, cutoff: int = 3, threshold: int = 5, num_queries: int = 10**6):
    more = {"num_queries": num_queries} if kind is StabilityPaper else {}
    return kind(threshold_scale=THRESHOLD_SCALE, query_scale=QUERY_SCALE, threshold=threshold, cutoff=cutoff, **more)


def recorded(seed: int, size: int) -> RecordedNoise:
    """Noise with a stream of its own for each scale, so that a form that draws ahead sees the same values."""
    generator = np.random.default_rng(seed)
    return RecordedNoise({s: generator.integers(-6, 7, size).tolist() for s in (THRESHOLD_SCALE, QUERY_SCALE)})


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    gaps=st.lists(st.integers(0, 40), min_size=1, max_size=80),
    cutoff=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    batch=st.integers(1, 80),
)
def test_literal_and_bulk_forms_give_the_same_answers_on_the_same_noise(kind, gaps, cutoff, seed, batch) -> None:
    release = OnlineRelease(parameters(kind, cutoff=cutoff, num_queries=60))
    counts = np.array([(gap, 0) if gap % 2 else (0, gap) for gap in gaps])
    literal_noise, bulk_noise, split_noise = (recorded(seed, 400) for _ in range(3))
    expected, end = release.answer_literally(counts, release.start(literal_noise), literal_noise)
    got, bulk_end = release.answer(counts, release.start(bulk_noise), bulk_noise)
    assert got.tolist() == expected.tolist()
    assert bulk_end == end
    state = release.start(split_noise)  # one query of noise is used per query asked, so batches leave the stream in step
    parts = []
    for start in range(0, len(counts), batch):
        labels, state = release.answer_literally(counts[start : start + batch], state, split_noise)
        parts.append(labels)
    assert np.concatenate(parts).tolist() == expected.tolist()
    assert state == end


@pytest.mark.parametrize("kind", KINDS)
def test_the_two_forms_agree_over_many_blocks(kind) -> None:
    """Longer than the largest block, with abstentions on both sides of each seam."""
    release = OnlineRelease(parameters(kind, cutoff=3000, threshold=-0))
    gap = np.random.default_rng(3).choice([2, 14, 60, 60, 60], 150_000)
    counts = np.stack([gap, np.zeros_like(gap)], axis=1).astype(np.uint8)
    literal_noise, bulk_noise = recorded(5, 400_000), recorded(5, 400_000)
    expected, end = release.answer_literally(counts, release.start(literal_noise), literal_noise)
    got, bulk_end = release.answer(counts, release.start(bulk_noise), bulk_noise)
    assert np.array_equal(got, expected)
    assert bulk_end == end
    assert end.paid == 3000


@settings(deadline=None, max_examples=30)
@given(kind=st.sampled_from(KINDS), values=st.lists(st.integers(0, 20), min_size=1, max_size=50), seed=st.integers(0, 10**6))
def test_sparse_vector_is_the_same_in_both_forms(kind, values, seed) -> None:
    chosen, one, two = parameters(kind, cutoff=4), recorded(seed, 200), recorded(seed, 200)
    literal = loop.sparse_vector(np.array(values), chosen, loop.start(chosen, one), one)
    bulk = loop.sparse_vector_in_bulk(np.array(values), chosen, loop.start(chosen, two), two)
    assert literal[0].tolist() == bulk[0].tolist()
    assert literal[1] == bulk[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cutoff", [1, 2, 7])
def test_exactly_cutoff_abstentions_then_halted(kind, cutoff: int) -> None:
    """The printed `c <= T` would abstain once more."""
    release = OnlineRelease(parameters(kind, cutoff=cutoff, threshold=10**6))
    noise = SystemNoise()
    labels, state = release.answer(np.zeros((20, 2), dtype=int), release.start(noise), noise)
    assert labels.tolist() == [ABSTAIN] * cutoff + [HALTED] * (20 - cutoff)
    assert (state.paid, state.asked, state.answered) == (cutoff, cutoff, 0)
    assert release.halted(state)


class NoNoise(Noise):
    """Noise that must not be drawn."""

    def _refuse(self, scale: Fraction, size: int):
        raise AssertionError("noise was drawn")

    discrete_laplace = discrete_gaussian = two_geometrics = _refuse


@pytest.mark.parametrize("kind", KINDS)
def test_a_halted_session_draws_nothing(kind) -> None:
    release, state = OnlineRelease(parameters(kind)), State(noisy_threshold=5, paid=3, asked=9, answered=6)
    labels, after = release.answer(np.full((4, 2), 9), state, NoNoise())
    assert labels.tolist() == [HALTED] * 4
    assert after == state


def test_the_printed_calibration_stops_after_the_queries_that_it_was_made_for() -> None:
    release, noise = OnlineRelease(parameters(StabilityPaper, num_queries=5)), RecordedNoise([0] * 50)
    labels, state = release.answer(np.full((8, 1), 100), release.start(noise), noise)
    assert labels.tolist() == [0] * 5 + [HALTED] * 3
    assert release.halted(state)


@pytest.mark.parametrize("kind", KINDS)
def test_the_threshold_is_redrawn_only_where_the_cost_pays_for_it(kind) -> None:
    """Under `stability` and `stability_laplace` one secret threshold serves the whole session."""
    noise = GeneratorNoise(np.random.default_rng(2))
    wide = dataclasses.replace(parameters(kind, cutoff=40, threshold=1 << 40), threshold_scale=Fraction(1 << 30))
    release = OnlineRelease(wide)
    state, thresholds = release.start(noise), set()
    for _ in range(60):
        _, state = release.answer(np.zeros((1, 2), dtype=int), state, noise)
        thresholds.add(state.noisy_threshold)
    assert (len(thresholds) > 1) == kind.redraw


class Listener(Noise):
    """Passes draws on and records them with their law and scale."""

    def __init__(self) -> None:
        self.inner, self.drawn = SystemNoise(), []

    def draw(self, law: str, scale: Fraction, size: int) -> np.ndarray:
        self.drawn.append((law, scale, self.inner.draw(law, scale, size)))
        return self.drawn[-1][2]

    def discrete_laplace(self, scale: Fraction, size: int) -> np.ndarray:
        return self.draw("discrete_laplace", scale, size)

    def discrete_gaussian(self, scale: Fraction, size: int) -> np.ndarray:
        return self.draw("discrete_gaussian", scale, size)

    def two_geometrics(self, scale: Fraction, size: int) -> np.ndarray:
        return self.draw("two_geometrics", scale, size)


@pytest.mark.parametrize("kind", KINDS)
def test_laws_and_scales_are_those_that_the_parameters_account_for(kind) -> None:
    chosen, noise = parameters(kind, cutoff=5), Listener()
    release = OnlineRelease(chosen)
    release.answer(np.zeros((50, 2), dtype=int), release.start(noise), noise)
    laws = {(law, scale) for law, scale, _ in noise.drawn}
    assert laws == {(kind.threshold_noise, THRESHOLD_SCALE), (kind.query_noise, QUERY_SCALE)}


@pytest.mark.parametrize("kind", [Stability, StabilityLaplace])
def test_answers_follow_from_the_noise_that_was_drawn_one_value_each(kind) -> None:
    """Rejects reused query noise, halved noise, a wrong sign and a weak inequality, all without a false alarm."""
    chosen, noise = parameters(kind, cutoff=200), Listener()
    release = OnlineRelease(chosen)
    gap = np.arange(300) % 40
    counts = np.stack([np.zeros_like(gap), gap], axis=1)
    state = release.start(noise)
    labels = np.concatenate([release.answer(part, state, noise)[0] for part in np.array_split(counts, 7)])
    (_, _, rho), *rest = noise.drawn
    nu = np.concatenate([values for _, _, values in rest])
    nu = -nu if chosen.query_noise == "two_geometrics" else nu
    assert len(nu) == len(counts)
    assert state.noisy_threshold == chosen.threshold + rho[0]
    distance = np.maximum(0, np.ceil(gap / 2).astype(int) - 1)
    assert np.array_equal(labels >= 0, distance + nu > chosen.threshold + rho[0])


def test_fresh_query_noise_moves_repeated_queries_apart() -> None:
    """A twin that draws one value for a whole batch answers equal queries alike; 200 fresh ones are not all alike (p < 1e-9)."""
    release, noise = OnlineRelease(parameters(StabilityLaplace, cutoff=1000, threshold=4)), SystemNoise()
    state = dataclasses.replace(release.start(noise), noisy_threshold=4)
    labels, _ = release.answer(np.full((200, 1), 10), state, noise)  # distance 4 on the threshold: answered with p = 0.44
    assert 0 < np.count_nonzero(labels == ABSTAIN) < 200


@pytest.mark.parametrize("name", ["stability", "stability_paper", "stability_redraw", "stability_laplace"])
def test_calibrated_mechanisms_answer_clear_votes(name: str) -> None:
    mechanism = build_mechanism(calibrate(name, epsilon=1.0, delta=1e-5, cutoff=50, num_queries=1000))
    assert isinstance(mechanism, Mechanism)
    noise = SystemNoise()
    state = mechanism.start(noise)
    labels, state = mechanism.answer(np.array([[0, 10**6], [10**6, 0]]), state, noise)
    assert labels.tolist() == [1, 0]
    assert State.from_dict(state.to_dict()) == state


def test_a_state_does_not_show_its_threshold() -> None:
    assert "12345" not in repr(State(noisy_threshold=12345))
