"""The outcomes of a mechanism on two neighbours, and the divergence between them.

For the probabilities P(t), P'(t) of every transcript t the hockey-stick divergence is

    H(epsilon) = sum over t of max(0, P(t) - e^epsilon P'(t)),

and the mechanism is (epsilon, delta)-DP on this pair iff H(epsilon) <= delta in both directions. Transcripts of the same ratio
P/P' may be summed without loss. Summing transcripts whose ratios differ is post-processing, which can only lower H; in that case
the width of the bins is kept and H is bracketed from both sides.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from teacher_student.arguments import Floats

ROUNDING = 1e-13
"""Allowance for double-precision sums, added to every upper bound."""


@dataclasses.dataclass(frozen=True)
class Bracket:
    """Two numbers between which the true one lies."""

    lower: float
    upper: float

    def __str__(self) -> str:
        """Return the lower end, or an upper bound if that is below the rounding of double precision."""
        return f"{self.lower:.2e}" if self.lower > 0 else f"< {max(1e-12, self.upper):.0e}"


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """Atoms (n,) of the two output laws.

    Attributes:
        probability: (n,) mass of each atom under D.
        other: (n,) mass of each atom under D'.
        missing: bound on the mass of transcripts left out, under either.
        width: largest difference of log-ratios inside an atom.
    """

    probability: Floats
    other: Floats
    missing: float = 0.0
    width: float = 0.0

    def reversed(self) -> Outcomes:
        """Return the same pair seen from D'."""
        return Outcomes(self.other, self.probability, self.missing, self.width)

    def divergence(self, epsilon: float) -> Bracket:
        """Return the hockey-stick divergence of D from D' at `epsilon`.

        The log-ratios inside an atom differ by at most the width h, so H(epsilon) lies between the value of the atoms at epsilon
        and their value at epsilon - h.
        """
        upper = self._excess(epsilon - self.width) + self.missing + ROUNDING
        return Bracket(max(0.0, self._excess(epsilon) - ROUNDING), upper)

    def worst_divergence(self, epsilon: float) -> Bracket:
        """Return the larger of the two directions."""
        one, two = self.divergence(epsilon), self.reversed().divergence(epsilon)
        return Bracket(max(one.lower, two.lower), max(one.upper, two.upper))

    def epsilon(self, delta: float) -> float:
        """Return a lower bound on the true epsilon at `delta`, in both directions; `math.inf` if it is above 60."""
        if self.worst_divergence(60.0).lower > delta:
            return math.inf
        low, high = 0.0, 60.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.worst_divergence(middle).lower > delta else (low, middle)
        return low

    def renyi(self, order: float) -> float:
        """Return the Renyi divergence of D from D' at `order` > 1, a lower bound where transcripts were merged or left out."""
        present = self.probability > 0
        if (self.other[present] <= 0).any():
            return math.inf
        loss = np.log(self.probability[present]) - np.log(self.other[present])
        exponents = np.log(self.probability[present]) + (order - 1) * loss
        peak = float(exponents.max())
        return (peak + math.log(float(np.exp(exponents - peak).sum()))) / (order - 1)

    def _excess(self, epsilon: float) -> float:
        return float(np.maximum(self.probability - math.exp(epsilon) * self.other, 0.0).sum())

    def merged(self, width: float) -> Outcomes:
        """Return the outcomes with the atoms of each log-ratio bin of `width` summed; infinite losses keep their own atoms."""
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.log(self.probability) - np.log(self.other)
        index = np.where(np.isfinite(loss), np.floor(np.nan_to_num(loss, posinf=0, neginf=0) / width), 0)
        index = np.where(np.isposinf(loss), np.inf, np.where(np.isneginf(loss), -np.inf, index))
        kept = ~np.isnan(loss)
        _, place = np.unique(index[kept], return_inverse=True)
        sums = [np.bincount(place, weights=mass[kept]).astype(np.float64) for mass in (self.probability, self.other)]
        return Outcomes(sums[0], sums[1], self.missing, self.width + width)


def product(first: Outcomes, second: Outcomes) -> Outcomes:
    """Return the outcomes of two independent runs, one after the other."""
    probability = np.outer(first.probability, second.probability).ravel()
    other = np.outer(first.other, second.other).ravel()
    return Outcomes(probability, other, first.missing + second.missing, first.width + second.width)


def joined(parts: Sequence[Outcomes], *, width: float = 0.0, largest: int = 200_000) -> Outcomes:
    """Return the outcomes of disjoint cases together, merged by `width` (0: never) if there are more than `largest` atoms."""
    probability, other = (np.concatenate([getattr(part, name) for part in parts]) for name in ("probability", "other"))
    present = (probability > 0) | (other > 0)
    missing, bins = (max(getattr(part, name) for part in parts) for name in ("missing", "width"))
    whole = Outcomes(probability[present], other[present], missing, bins)
    return whole.merged(width) if width and len(whole.probability) > largest else whole
