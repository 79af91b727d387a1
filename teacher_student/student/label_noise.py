"""Released labels that are wrong with known probabilities: the student's loss is corrected forward.

Patrini et al., "Making Deep Neural Networks Robust to Label Noise: a Loss Correction Approach", CVPR 2017, arXiv:1609.03683,
theorem 2: cross-entropy of the *released* label's predicted probabilities is smallest, in expectation, where the prediction of
the clean one is right. There are two models of the noise; both must rest on public numbers alone.

`TransitionMatrix`: row `y` of a matrix T holds the probability of each released label where the clean one is `y`. A student that
predicts p for the clean label then predicts the released label j with probability (T^T p)_j.

`NoisyArgmaxLikelihood`: a noisy maximum over k teachers releases argmax_j (k p_j + noise_j), where p are the shares of the votes
and the law of the noise is public: it stands in the certificate. So the probability of every label is a known function of the
shares. A student whose softmax is read as the shares is fitted by maximum likelihood: it learns the shares themselves, where
plain cross-entropy learns how often each label wins.

| law | P(label j), where x = k p / scale | mechanism |
|---|---|---|
| gaussian | integral of phi(t - x_j) times the product over i != j of Phi(t - x_i) | gnmax; an answer of confident_gnmax |
| laplace | the same with the density and the distribution function of Laplace | lnmax |
| gumbel | exp(x_j) / sum_i exp(x_i), exactly | exponential |
| exponential | exp(x_j) times the integral over u in (0, 1) of the product over i != j of 1 - u exp(x_i) | permute_and_flip |

The integral runs over t, the count that wins, from below the largest x to above it, on one grid for all classes, in logs. The
Gaussian is smooth, so plain sums are exact to single precision. The density of Laplace has a kink at every x, so cells end there,
and two points of Gauss-Legendre in each leave relative errors of about 1e-6. Labels less probable than 1e-15 (Laplace: 1e-6) win
partly below the grid: their values are approximate, but finite, and grow with the share. Noise is integer in the mechanisms and
ties go to the lowest label; treated as continuous, a probability is off by at most the chance of a tie, about 0.3 / sigma votes.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor, nn
from torch.nn import functional as F

from teacher_student.arguments import ArgumentError, choice, finite_number, positive_integer, positive_number
from teacher_student.student.targets import MOST_CLASSES

MECHANISM = "mechanism"
"""Stands for the noise of the answering mechanism, which only a run knows."""

ROUNDING = 1e-4
"""How far the sum of a row may be from 1."""

EXTREME = 1e12
"""Largest scale, and one over the smallest: squares of counts still fit into single precision."""

ROWS = 1024
"""Points whose integrals are computed at a time where no gradient is wanted."""

_SETTING = "student.settings.label_noise"


def symmetric_noise(rate: float, num_classes: int) -> npt.NDArray[np.float32]:
    """Return (num_classes, num_classes) of labels that are wrong with probability `rate`, each other class equally often.

    >>> symmetric_noise(0.2, 3).tolist()[0] == [np.float32(0.8), np.float32(0.1), np.float32(0.1)]
    True

    Raises:
        ArgumentError: a rate at which a label carries no information, or misleads.
    """
    most = 1 - 1 / num_classes
    if not 0 <= rate < most:
        raise ArgumentError(f"{_SETTING} must be below {most:.3g} for {num_classes} classes, got {rate}")
    matrix = np.full((num_classes, num_classes), rate / (num_classes - 1), dtype=np.float32)
    np.fill_diagonal(matrix, 1 - rate)
    return matrix


class TransitionMatrix(nn.Module):
    """The probabilities of released labels, given the clean class.

    Args:
        noise: a rate of symmetric noise, or (num_classes, num_classes) probabilities of each released label (column) for each
            clean class (row).
        num_classes: number of classes.

    Raises:
        ArgumentError: noise of other than `num_classes` classes, or so much that labels say nothing.
    """

    transition: Tensor | None

    def __init__(self, noise: float | Sequence[Sequence[float]], num_classes: int) -> None:
        super().__init__()
        positive_integer("num_classes", num_classes, minimum=2, maximum=MOST_CLASSES)
        self.register_buffer("transition", _transition(_checked_transition(noise), num_classes), persistent=False)

    def forward(self, logits: Tensor) -> Tensor:
        """Return (batch, num_classes) logits of the released label, given those of the clean class."""
        if self.transition is None:
            return logits
        floor = torch.finfo(logits.dtype).tiny  # a label that is never released: no infinity, whose gradient would be NaN
        return torch.logsumexp(F.log_softmax(logits, dim=-1)[:, :, None] + self.transition.clamp_min(floor).log(), dim=1)

    def released(self, probabilities: Tensor) -> Tensor:
        """Return (batch, num_classes) probabilities of the released label, given those of the clean class."""
        return probabilities if self.transition is None else probabilities @ self.transition


def _checked_transition(value: object) -> float | tuple[tuple[float, ...], ...]:
    """Return a rate of symmetric noise, or the rows of an invertible transition matrix."""
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str):
        rate = finite_number(_SETTING, value)
        if not 0 <= rate < 1:
            raise ArgumentError(f"{_SETTING} must be at least 0 and below 1, got {value!r}")
        return rate
    try:
        rows = tuple(tuple(finite_number(_SETTING, entry) for entry in row) for row in value)
    except TypeError as error:
        raise ArgumentError(f"{_SETTING} must be a number or rows of numbers, got {value!r}") from error
    if not rows or any(len(row) != len(rows) or min(row) < 0 or abs(sum(row) - 1) > ROUNDING for row in rows):
        raise ArgumentError(f"{_SETTING} must be square, with rows of probabilities that sum to 1, got {value!r}")
    if np.linalg.matrix_rank(np.array(rows)) < len(rows):
        raise ArgumentError(f"{_SETTING} must tell classes apart: no row may follow from the others, got {value!r}")
    return rows


def _transition(noise: float | tuple[tuple[float, ...], ...], num_classes: int) -> Tensor | None:
    """Return the matrix, or None where labels are right: without noise, no table grows with the square of the classes."""
    if noise == 0:
        return None
    rows = symmetric_noise(noise, num_classes) if isinstance(noise, float) else np.array(noise, dtype=np.float32)
    if rows.shape != (num_classes, num_classes):
        raise ArgumentError(f"{_SETTING} must have {num_classes} rows, one for each class, got {len(rows)}")
    return None if np.array_equal(rows, np.eye(num_classes)) else torch.as_tensor(rows)


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
    return _upper_nodes(counts.dtype, counts.device)


@functools.cache  # moved to a device once, not in every step
def _upper_nodes(dtype: torch.dtype, device: torch.device) -> Points:
    with torch.inference_mode(False), torch.no_grad():
        nodes, weights = (torch.as_tensor(values, dtype=dtype, device=device) for values in leggauss(24))
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
"""Laws of the noise on a count. The argmax of counts with Gumbel noise is the exponential mechanism."""


@dataclasses.dataclass(frozen=True)
class NoisyArgmaxLikelihood:
    """The probabilities of released labels, given the shares of the votes.

    >>> noise = NoisyArgmaxLikelihood("gumbel", scale=0.5)
    >>> noise.released(torch.tensor([[0.75, 0.25]])).round(decimals=4).tolist() == torch.tensor([[0.7311, 0.2689]]).tolist()
    True

    Attributes:
        law: of the noise on the votes for each class, one of `LAWS`.
        scale: of that noise (sigma for the Gaussian) divided by the number of teachers, whether all of them vote or not; public.

    Raises:
        ArgumentError: another law, or a scale that is not from 1e-12 to 1e12.
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


KnownNoise = TransitionMatrix | NoisyArgmaxLikelihood


def checked_label_noise(value: object) -> str | NoisyArgmaxLikelihood | float | tuple[tuple[float, ...], ...]:
    """Return `MECHANISM`, a likelihood, a rate of symmetric noise, or the rows of a transition matrix.

    Raises:
        ArgumentError: a rate outside [0, 1), or rows that are not probability distributions over as many classes,
            or from which classes cannot be told.
    """
    if isinstance(value, NoisyArgmaxLikelihood) or (isinstance(value, str) and value == MECHANISM):
        return value
    return _checked_transition(value)


def known_noise(noise: str | NoisyArgmaxLikelihood | float | Sequence[Sequence[float]], num_classes: int) -> KnownNoise:
    """Return the model that `StudentSettings.label_noise` stands for.

    Raises:
        ArgumentError: noise of other than `num_classes` classes, or `MECHANISM` outside of a run.
    """
    if isinstance(noise, str):
        raise ArgumentError(
            f"{_SETTING} must be a NoisyArgmaxLikelihood outside of a run, got {noise!r}; only a run knows its mechanism"
        )
    return noise if isinstance(noise, NoisyArgmaxLikelihood) else TransitionMatrix(noise, num_classes)
