"""The samplers have the laws and scales that the accounting assumes, and share nothing between processes.

Sampled checks compare the empirical distribution function of n draws with the exact one. By the Dvoretzky-Kiefer-Wolfowitz
inequality (Massart's constant, valid for integers too) it is off by more than t = sqrt(ln(2 / alpha) / (2 n)) with probability at
most alpha = 1e-9: the false-alarm rate. A wrong law whose distribution function is more than 2 t away is therefore rejected with
probability at least 1 - 1e-9; the tests check that 0.7 and 1.3 times the scale are that far away.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import struct
from fractions import Fraction

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.mechanisms import GeneratorNoise, Noise, RecordedNoise, SystemNoise
from teacher_student.mechanisms.noise import LAWS, fold

ALPHA = 1e-9
DRAWS = 20_000
MARGIN = math.sqrt(math.log(2 / ALPHA) / (2 * DRAWS))
SCALE = Fraction(1877, 256)  # 7.33, the threshold scale of the first reference point


def distribution(law: str, scale: Fraction) -> np.ndarray:
    """The exact distribution function on the integers -1000 .. 1000."""
    grid, width = np.arange(-1000, 1001), float(scale)
    if law == "discrete_gaussian":
        weights = np.exp(-(grid**2) / (2 * width**2))
    elif law == "discrete_laplace":
        weights = np.exp(-np.abs(grid) / width)
    else:
        weights = np.where(grid >= 0, (grid + 1) * np.exp(-np.abs(grid) / width), 0)
    return np.cumsum(weights / weights.sum())


def distance(draws: np.ndarray, law: str) -> float:
    """The largest gap between the draws' distribution function and the exact one at `SCALE`."""
    empirical = np.cumsum(np.bincount(np.clip(draws, -1000, 1000) + 1000, minlength=2001)) / len(draws)
    return float(np.abs(empirical - distribution(law, SCALE)).max())


def scaled(factor: float) -> Fraction:
    return Fraction(round(SCALE * 256 * Fraction(factor)), 256)


@pytest.mark.parametrize("noise", [SystemNoise(), GeneratorNoise(np.random.default_rng(1))], ids=["system", "generator"])
@pytest.mark.parametrize("law", LAWS)
def test_true_scale_is_accepted_and_wrong_ones_rejected(law: str, noise: Noise) -> None:
    assert distance(noise.draw(law, SCALE, DRAWS), law) <= MARGIN
    for factor in (0.7, 1.3):
        assert np.abs(distribution(law, scaled(factor)) - distribution(law, SCALE)).max() > 2 * MARGIN  # the power stated above
        assert distance(noise.draw(law, scaled(factor), DRAWS), law) > MARGIN


def test_one_geometric_instead_of_two_is_rejected() -> None:
    assert distance(fold(SystemNoise().discrete_laplace(SCALE, DRAWS)), "two_geometrics") > MARGIN


def test_two_geometrics_add_independent_ones() -> None:
    """A twin that folds one draw and doubles it has only even values."""
    assert (SystemNoise().two_geometrics(SCALE, 200) % 2).any()


@pytest.mark.parametrize("size", [0, 1, 19_999, 20_001])
def test_size_and_type(size: int) -> None:
    for noise in (SystemNoise(), GeneratorNoise(np.random.default_rng(0))):
        drawn = noise.discrete_laplace(Fraction(3), size)
        assert drawn.shape == (size,)
        assert drawn.dtype == np.int64


def test_no_two_draws_are_shared_between_calls_or_threads() -> None:
    """At this scale 20 equal draws cannot occur by chance."""
    wide = Fraction(1 << 40)
    first, second = SystemNoise().discrete_laplace(wide, 20_002), SystemNoise().discrete_laplace(wide, 20_002)  # two threads
    assert len(np.intersect1d(first, second)) < 20
    assert len(np.unique(first)) > 19_950


def draw_into(pipe: int) -> None:
    os.write(pipe, struct.pack("8q", *SystemNoise().discrete_laplace(Fraction(1 << 50), 8).tolist()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_share_no_noise() -> None:
    """The parent has drawn before it forks, so that a sampler with a copied state would repeat itself in each child."""
    SystemNoise().discrete_laplace(Fraction(1 << 50), 8)
    context, (reading, writing) = multiprocessing.get_context("fork"), os.pipe()
    children = [context.Process(target=draw_into, args=(writing,)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    own = SystemNoise().discrete_laplace(Fraction(1 << 50), 8).tolist()
    drawn = [struct.unpack("8q", os.read(reading, 64)) for _ in children]
    os.close(reading)
    os.close(writing)
    assert len({*own, *(value for part in drawn for value in part)}) == 8 * 4


def test_only_system_noise_is_private() -> None:
    assert SystemNoise().private
    assert not GeneratorNoise(np.random.default_rng(0)).private
    assert not RecordedNoise([]).private


def test_a_seed_does_not_reach_system_noise() -> None:
    draws = []
    for _ in range(2):
        np.random.seed(7)  # noqa: NPY002 - the global seed is what is tested
        draws.append(SystemNoise().discrete_gaussian(Fraction(1 << 40), 4).tolist())
    assert draws[0] != draws[1]


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(0), Fraction(-1), Fraction(10**400)])
def test_a_scale_that_is_no_double_is_refused(scale: Fraction) -> None:
    for noise in (SystemNoise(), GeneratorNoise(np.random.default_rng(0))):
        for law in LAWS:
            with pytest.raises(ArgumentError, match=r"^scale must be (a )?positive"):
                noise.draw(law, scale, 1)


def test_recorded_noise_replays_one_stream_or_one_for_each_scale() -> None:
    one = RecordedNoise([1, 2, 3])
    assert one.discrete_laplace(Fraction(5), 2).tolist() == [1, 2]
    assert one.two_geometrics(Fraction(9), 1).tolist() == [3]
    with pytest.raises(ArgumentError, match="1 too few"):
        one.discrete_gaussian(Fraction(5), 1)
    two = RecordedNoise({Fraction(1): [1, 2], Fraction(2): [8, 9]})
    assert two.discrete_laplace(Fraction(2), 2).tolist() == [8, 9]
    assert two.discrete_laplace(Fraction(1), 1).tolist() == [1]


def test_an_unknown_law_is_refused() -> None:
    with pytest.raises(ArgumentError, match="law must be one of"):
        SystemNoise().draw("laplace", SCALE, 1)
