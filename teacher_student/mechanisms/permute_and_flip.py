"""Permute-and-flip: a random one of the classes whose coin falls heads; at one epsilon it errs less than `exponential`.

McKenna, Sheldon 2020 (arXiv:2010.12603), algorithm 1, on counts n_j with scale = 2 / epsilon:

    1  for each class j in random order: output j with probability exp((n_j - max n) / scale), else continue

At epsilon 1 and delta 1e-5 it errs less for up to five answers; many answers of the exponential mechanism compose better.

Cost. It is the argmax of n_j + E_j with exponential noise E_j of this scale (Ding, Kifer, Steinke, Wang, Xiao, Zhang 2021,
arXiv:2105.07260). Fix the noise of all classes but j: j wins iff E_j is above some m. A record moves two counts by 1 at most, one
up and one down, so m by 2 at most, and P(E_j > m) = exp(-max(m, 0) / scale) changes by a factor of exp(2 / scale) at most. Two
classes with a gap of 2 that closes attain it: the loser has probability exp(-gap / scale) / 2. There the winner's loss has the
other sign, so the range of the loss is more than 2 / scale: answers compose as pure ones, not as those of bounded range.

Exact draws. A geometric G, P(G >= i) = exp(-i / scale), is at least max n - n_j with the probability of line 1. The first heads
in a random order is a uniform choice among all heads: the largest of fresh draws, repeated until one draw is largest.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import Floats, Integers
from teacher_student.mechanisms.interface import samples
from teacher_student.mechanisms.noise import Noise, fold
from teacher_student.mechanisms.noisy_max import until_one
from teacher_student.privacy.noisy_max import OneScaleMax
from teacher_student.privacy.paid_answers import PureCost
from teacher_student.privacy.parameters import Draw
from teacher_student.privacy.registry import register


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class PermuteAndFlip(PureCost, OneScaleMax):
    """At most `max_answers` answers, each (moved counts / scale)-DP."""

    mechanism: ClassVar[str] = "permute_and_flip"
    vote_noise: ClassVar[str | None] = "exponential"
    FINEST: ClassVar[Fraction] = Fraction(1, 4)

    @property
    def pure_parts(self) -> tuple[float, int]:
        """Loss and number of the answers."""
        return self.moved_counts / float(self.scale), self.max_answers

    @property
    def draws(self) -> tuple[Draw, ...]:
        """A coin for each class, then draws that choose among the heads, repeated until one is largest."""
        return (Draw("discrete_laplace", self.scale, "count", decides=False),)

    def law(self, counts: Integers) -> Floats:
        """Return the law; that of exponential noise is exact here."""
        return np.asarray(self.wins(np.asarray(counts, dtype=np.float64)[np.newaxis])[0])


@samples(PermuteAndFlip)
def permute_and_flip(counts: Integers, spec: PermuteAndFlip, noise: Noise) -> Integers:
    """Return a class for each row of counts (m, C), shape (m,)."""
    coins = fold(noise.discrete_laplace(spec.scale, counts.size)).reshape(counts.shape)
    heads = coins >= counts.max(axis=1, keepdims=True) - counts

    def largest(rows: Integers) -> npt.NDArray[np.bool_]:
        lots = fold(noise.discrete_laplace(spec.scale, heads[rows].size)).reshape(len(rows), -1)
        lots = np.where(heads[rows], lots, -1)
        return np.asarray(lots == lots.max(axis=1, keepdims=True))

    return until_one(largest, len(counts))
