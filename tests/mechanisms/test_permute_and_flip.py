from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from teacher_student.auditing import audit
from teacher_student.mechanisms.permute_and_flip import PermuteAndFlip


def literal_law(counts, scale):
    """Line 1 of the box: every way the coins may fall, and a uniform choice among the heads."""
    heads = np.exp((np.array(counts) - max(counts)) / scale)
    coins = np.array(list(product([False, True], repeat=len(counts))))[1:]
    chance = np.where(coins, heads, 1 - heads).prod(axis=1)
    return (chance / coins.sum(axis=1)) @ coins


@pytest.mark.parametrize("share", [1.0, 0.9])
def test_one_vote_moves_no_probability_by_more_than_is_paid_and_two_classes_attain_it(share):
    spec, worst = PermuteAndFlip(scale=Fraction(2), max_answers=1), 0.0
    for counts in product(range(1, 7), repeat=3):
        before, after = (literal_law((counts[0] + step, counts[1] - step, counts[2]), 2) for step in (0, 1))
        assert spec.law(np.array(counts)) == pytest.approx(before, rel=1e-12)
        worst = max(worst, float(np.abs(np.log(after / before)).max()))
    assert (worst <= share * spec.epsilon(1e-12) * (1 + 1e-9)) == (share == 1.0)  # the broken twin pays a tenth less


def test_the_audit_passes_and_catches_every_twin():
    """Sampling checks: false alarm 1e-9 each."""
    report = audit("permute_and_flip", trials=300, seed=1)
    assert report.passed, str(report)
