"""Labels that won a noisy vote: how likely each was, given the shares of the votes.

A noisy maximum over k teachers releases argmax_j (k p_j + noise_j), where p are the shares of the votes and the law of the noise
is public: it stands in the certificate. So the probability of every label is a known function of the shares. A student whose
softmax is read as the shares, and whose loss is minus the log probability of what was released, is fitted by maximum likelihood:
it learns the shares themselves, where the plain cross-entropy learns how often each label wins.

| law | P(label j), where x = k p / scale | mechanism |
|---|---|---|
| gaussian | integral of phi(t - x_j) times the product over i != j of Phi(t - x_i) | gnmax; an answer of confident_gnmax |
| laplace | the same with the density and the distribution function of Laplace | lnmax |
| gumbel | exp(x_j) / sum_i exp(x_i), exactly | exponential |
| exponential | exp(x_j) times the integral over u in (0, 1) of the product over i != j of 1 - u exp(x_i) | permute_and_flip |

The integral runs over t, the count that wins, from below the largest x to above it, on one grid for all classes, in logs. The
Gaussian is smooth, so that plain sums of it are exact to single precision. The density of Laplace has a kink at every x, so that
its cells end there and two points of Gauss-Legendre in each leave relative errors of about 1e-6. Labels less probable than 1e-15
(Laplace: 1e-6) are won below the grid as well: theirs is not quite the right value, but finite, and it grows with their share.
Noise is integer in the mechanisms and ties go to the lowest label; taken as continuous, a probability is off by at most the
chance of a tie, about 0.3 / sigma votes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor
from torch.nn import functional as F

from teacher_student.arguments import ArgumentError, choice, positive_number

EXTREME = 1e12
"""Largest scale, and one over the smallest: squares of counts still fit into single precision."""

ROWS = 1024
"""Points whose integrals are computed at a time where no gradient is wanted."""


Points = tuple[Tensor, Tensor]
"""Points of an integral, (batch or 1, points), and their weights, up to a constant."""


@dataclasses.dataclass(frozen=True)
class _Law:
    """The noise of a count in units of its scale.

    Attributes:
        log_density: up to a constant.
        log_below: log distribution function.
        points: those of the integral for (batch, num_classes) counts of which the largest is 0.
    """

    log_density: Callable[[Tensor], Tensor]
    log_below: Callable[[Tensor], Tensor]
    points: Callable[[Tensor], Points]

    def log_wins(self, counts: Tensor) -> Tensor:
        """Return (batch, num_classes) log probabilities, up to a constant, that each of `counts`, the largest at 0, wins."""
        winning, weights = self.points(counts)
        noise = winning[:, None] - counts[:, :, None]
        below = self.log_below(noise)
        logs = self.log_density(noise) + below.sum(dim=1, keepdim=True) - below
        most = logs.detach().amax(dim=2, keepdim=True)
        sums = (weights[:, None] * torch.exp(logs - most)).sum(dim=2)  # weights may be 0, and have no log
        return sums.clamp_min(torch.finfo(sums.dtype).tiny).log() + most.squeeze(2)


def _even_points(counts: Tensor) -> Points:
    """Return points from 10 below to 8 above the largest count, all of one weight."""
    points = torch.linspace(-10, 8, 49, dtype=counts.dtype, device=counts.device)[None]
    return points, torch.ones_like(points)


def _kinked_points(counts: Tensor) -> Points:
    """Return two points in each cell; cells go from 16 below to 20 above the largest count and end at each count."""
    even = torch.linspace(-16, 20, 145, dtype=counts.dtype, device=counts.device)
    ends = torch.cat([even.expand(len(counts), -1), counts], dim=1).sort(dim=1).values
    middle, width = (ends[:, 1:] + ends[:, :-1]) / 2, ends.diff(dim=1)
    away = width / math.sqrt(12)
    return torch.cat([middle - away, middle + away], dim=1), torch.cat([width, width], dim=1)


def _upper_points(counts: Tensor) -> Points:
    """Return points t = -ln u above the largest count, u those of Gauss-Legendre on (0, 1): exact up to 48 classes."""
    nodes, weights = (torch.as_tensor(values, dtype=counts.dtype, device=counts.device) for values in leggauss(24))
    u = (nodes + 1) / 2
    return -u.log()[None], (weights / u)[None]


def _laplace_below(noise: Tensor) -> Tensor:
    left = noise.clamp_max(0) - math.log(2)
    return torch.where(noise < 0, left, torch.log1p(-torch.exp(-noise.clamp_min(0)) / 2))


_LAWS = {
    "gaussian": _Law(lambda noise: -noise.square() / 2, torch.special.log_ndtr, _even_points),
    "laplace": _Law(lambda noise: -noise.abs(), _laplace_below, _kinked_points),
    "gumbel": None,
    "exponential": _Law(lambda noise: -noise, lambda noise: torch.log(-torch.expm1(-noise)), _upper_points),
}
LAWS = tuple(_LAWS)
"""Of the noise on a count. The argmax of counts with Gumbel noise is the exponential mechanism."""


@dataclasses.dataclass(frozen=True)
class NoisyMaximum:
    """What released labels are to be expected where the shares of the votes are known; takes the place of `LabelNoise`.

    >>> noise = NoisyMaximum("gumbel", scale=0.5)
    >>> noise.released(torch.tensor([[0.75, 0.25]])).round(decimals=4).tolist() == torch.tensor([[0.7311, 0.2689]]).tolist()
    True

    Attributes:
        law: of the noise on the votes for each class, one of `LAWS`.
        scale: of that noise (sigma for the Gaussian) divided by the number of teachers, whether all of them vote or not; public.

    Raises:
        ArgumentError: another law, or a scale that is no number above 0 or beyond 1e12 or 1e-12.
    """

    law: str
    scale: float

    def __post_init__(self) -> None:
        choice("law", self.law, LAWS)
        object.__setattr__(self, "scale", positive_number("scale", self.scale))
        if not 1 / EXTREME <= self.scale <= EXTREME:
            raise ArgumentError(f"scale must be from {1 / EXTREME:g} to {EXTREME:g}, got {self.scale:g}")

    def __call__(self, logits: Tensor) -> Tensor:
        """Return (batch, num_classes) logits of the released label, given logits of the shares of the votes."""
        return self._wins(F.softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32)))

    def released(self, probabilities: Tensor) -> Tensor:
        """Return (batch, num_classes) probabilities of the released label, given shares of the votes."""
        return torch.cat([F.softmax(self._wins(part), dim=-1) for part in probabilities.split(ROWS)])

    def _wins(self, shares: Tensor) -> Tensor:
        counts = (shares - shares.amax(dim=-1, keepdim=True)) / self.scale
        law = _LAWS[self.law]
        return counts if law is None else law.log_wins(counts)
