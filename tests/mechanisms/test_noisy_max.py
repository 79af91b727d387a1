"""The noisy maxima: the literal loop and the fast one, caps, ties, and the law of each from given or drawn noise."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from teacher_student.arguments import ArgumentError
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms import GeneratorNoise, RecordedNoise, State, SystemNoise, build_mechanism
from teacher_student.mechanisms.interface import Mechanism
from teacher_student.mechanisms.noise import fold
from teacher_student.mechanisms.noisy_max import NoisyMax, exponential_choice, noisy_argmax
from teacher_student.privacy import ConfidentGNMax, Exponential, GNMax, LNMax, NoisyMaxParameters

FALSE_ALARM = 1e-9
"""Probability with which a sampled test rejects the true law."""

PARAMETERS: list[NoisyMaxParameters] = [
    GNMax(scale=Fraction(4), max_answers=25),
    LNMax(scale=Fraction(4), max_answers=25),
    ConfidentGNMax(threshold=12, threshold_scale=Fraction(3), query_scale=Fraction(4), num_queries=60, max_answers=25),
]


def votes(num_queries: int, num_classes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 20, (num_queries, num_classes))


def recorded(parameters: NoisyMaxParameters, size: int = 4000) -> RecordedNoise:
    draw = GeneratorNoise(np.random.default_rng(1))
    scales = {Fraction(3): draw.discrete_gaussian(Fraction(3), size), Fraction(4): draw.discrete_laplace(Fraction(4), size)}
    return RecordedNoise({scale: values.tolist() for scale, values in scales.items()})


@pytest.mark.parametrize("parameters", PARAMETERS, ids=lambda p: p.mechanism)
@pytest.mark.parametrize("num_classes", [1, 2, 5])
def test_fast_form_answers_as_the_literal_one(parameters: NoisyMaxParameters, num_classes: int) -> None:
    mechanism = NoisyMax(parameters)
    counts = votes(70, num_classes)
    fast = mechanism.answer(counts, State(), recorded(parameters))
    literal = mechanism.answer_literally(counts, State(), recorded(parameters))
    assert np.array_equal(fast[0], literal[0])
    assert fast[1] == literal[1]
    assert (fast[0] == HALTED).any()


@pytest.mark.parametrize("block", [1, 7, 64])
def test_blocks_do_not_show(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism, counts = NoisyMax(PARAMETERS[0]), votes(70, 3)
    whole, _ = mechanism.answer(counts, State(), recorded(PARAMETERS[0]))
    monkeypatch.setattr("teacher_student.mechanisms.noisy_max._BLOCK", block)
    assert np.array_equal(mechanism.answer(counts, State(), recorded(PARAMETERS[0]))[0], whole)


@pytest.mark.parametrize("parameters", [*PARAMETERS, Exponential(scale=Fraction(4), max_answers=25)], ids=lambda p: p.mechanism)
def test_caps_hold_over_batches_and_nothing_is_drawn_after_them(parameters: NoisyMaxParameters) -> None:
    mechanism, noise = build_mechanism(parameters), GeneratorNoise(np.random.default_rng(2))
    assert isinstance(mechanism, Mechanism)
    state, labels = mechanism.start(noise), []
    for start in range(0, 90, 9):
        some, state = mechanism.answer(votes(90, 4)[start : start + 9], state, noise)
        labels.append(some)
    found = np.concatenate(labels)
    assert mechanism.halted(state)
    assert state.answered == state.paid == (found >= 0).sum() <= parameters.max_answers
    assert state.asked == (found != HALTED).sum() <= parameters.max_asked
    assert (found[np.argmax(found == HALTED) :] == HALTED).all()
    after, same = mechanism.answer(votes(5, 4), state, RecordedNoise([]))  # a draw would find nothing recorded
    assert (after == HALTED).all()
    assert same == state


def test_confident_gnmax_asks_first_and_abstains_below_its_threshold() -> None:
    parameters = ConfidentGNMax(threshold=10, threshold_scale=Fraction(2), query_scale=Fraction(3), num_queries=9, max_answers=9)
    noise = RecordedNoise({Fraction(2): [0, 0, 1, -1], Fraction(3): [0, 0, 5, 0]})
    labels, state = NoisyMax(parameters).answer(np.array([[10, 3], [9, 3], [9, 3], [10, 3]]), State(), noise)
    assert labels.tolist() == [0, ABSTAIN, 0, ABSTAIN]
    assert (state.asked, state.answered, state.paid) == (4, 2, 2)


def test_ties_go_to_the_lowest_label_after_the_noise() -> None:
    counts = np.array([[3, 3, 2], [3, 4, 4], [0, 0, 0]])
    assert noisy_argmax(counts, Fraction(1), RecordedNoise([0] * 6 + [1] + [0] * 2).discrete_gaussian).tolist() == [0, 1, 0]


# The law of the exponential mechanism, by running it on every noise there is.


@pytest.mark.parametrize("counts", [(5, 5), (6, 4), (0, 3), (2, 1)])
def test_the_exponential_mechanism_has_its_law_exactly(counts: tuple[int, int]) -> None:
    """One round on every pair of draws: the deciding ones give class j with odds exp(count_j / scale)."""
    scale, reach = Fraction(3, 2), 30
    draws = range(-reach, reach + 1)
    weight = {z: math.exp(-abs(z) / float(scale)) for z in draws}
    found = np.zeros(2)
    for pair in itertools.product(draws, repeat=2):
        try:
            label = int(exponential_choice(np.array([counts]), scale, RecordedNoise(pair))[0])
        except ArgumentError:  # undecided: it asked for more noise than was recorded
            continue
        found[label] += weight[pair[0]] * weight[pair[1]]
    wanted = np.exp(np.array(counts) / float(scale))
    assert found / found.sum() == pytest.approx(wanted / wanted.sum(), rel=1e-7)


def test_a_plain_bernoulli_in_its_place_would_be_another_law() -> None:
    """The broken twin: success if G reaches the offset gap at all (probability w, odds w / (1 - w))."""
    scale, gap = 1.5, 2
    geometric = fold(np.arange(-60, 61))
    weight = np.exp(-np.abs(np.arange(-60, 61)) / scale)
    odds = [weight[success].sum() / weight[~success].sum() for success in ((geometric // gap) % 2 == 1, geometric >= gap)]
    assert odds[0] == pytest.approx(math.exp(-gap / scale), rel=1e-9)
    assert odds[1] > 1.3 * odds[0]


# Sampled laws.


def exact_law(parameters: NoisyMaxParameters, counts: np.ndarray) -> np.ndarray:
    if isinstance(parameters, Exponential):
        weights = np.exp(counts / float(parameters.scale))
        return weights / weights.sum()
    assert isinstance(parameters, GNMax | LNMax)
    scale = float(parameters.scale)
    support = np.arange(-math.ceil(40 * scale), math.ceil(40 * scale) + 1)
    power = np.abs(support) / scale if isinstance(parameters, LNMax) else (support / scale) ** 2 / 2
    mass = np.exp(-power) / np.exp(-power).sum()
    strictly_below = np.cumsum(mass) - mass
    found = []
    for label, own in enumerate(counts):
        product = mass.copy()
        for other, theirs in enumerate(counts):
            if other != label:
                place = np.clip(np.arange(len(support)) + own - theirs + (other > label), 0, len(support) - 1)
                product = product * strictly_below[place]
        found.append(product.sum())
    return np.array(found)


def p_value(kind: type, scale: Fraction, law: np.ndarray, counts: np.ndarray, samples: int = 60_000) -> float:
    mechanism = NoisyMax(kind(scale=scale, max_answers=samples))
    noise = GeneratorNoise(np.random.default_rng(3))
    labels, _ = mechanism.answer(np.broadcast_to(counts, (samples, len(counts))), State(), noise)
    return float(stats.chisquare(np.bincount(labels, minlength=len(counts)), law * samples).pvalue)


@pytest.mark.parametrize("kind", [GNMax, LNMax, Exponential])
def test_sampled_law_is_accepted_and_a_scale_off_by_three_tenths_is_not(kind: type) -> None:
    """False alarm 1e-9. At 60,000 samples a scale of 0.7 or 1.3 times moves a class by at least 0.03, fifteen standard errors."""
    scale, counts = Fraction(10), np.array([14, 9, 0])
    law = exact_law(kind(scale=scale, max_answers=1), counts)
    assert p_value(kind, scale, law, counts) > FALSE_ALARM
    assert p_value(kind, Fraction(7), law, counts) < FALSE_ALARM
    assert p_value(kind, Fraction(13), law, counts) < FALSE_ALARM


@pytest.mark.parametrize("parameters", [*PARAMETERS, Exponential(scale=Fraction(4), max_answers=25)], ids=lambda p: p.mechanism)
def test_with_the_noise_that_protects(parameters: NoisyMaxParameters) -> None:
    mechanism, noise = NoisyMax(parameters), SystemNoise()
    labels, state = mechanism.answer(np.array([[500, 0, 0, 2]] * 30, dtype=np.uint16), mechanism.start(noise), noise)
    assert labels.tolist() == [0] * 25 + [HALTED] * 5
    assert State.from_dict(state.to_dict()) == state


def test_many_classes_with_hardly_any_votes_end_soon() -> None:
    labels, _ = NoisyMax(Exponential(scale=Fraction(200), max_answers=50)).answer(
        np.zeros((50, 300), dtype=int), State(), GeneratorNoise(np.random.default_rng(4))
    )
    assert len(np.unique(labels)) > 25


def test_bad_counts_are_refused() -> None:
    mechanism = NoisyMax(PARAMETERS[0])
    for counts in ([[1, -2]], [[0.5, 1.0]], np.zeros((0, 2), dtype=int), [[1, 2], [3]]):
        with pytest.raises(ArgumentError, match="counts must"):
            mechanism.answer(counts, State(), SystemNoise())  # type: ignore[arg-type]
