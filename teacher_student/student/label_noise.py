"""Labels that are wrong at a known rate: the loss is corrected forward.

Patrini et al., "Making Deep Neural Networks Robust to Label Noise: a Loss Correction Approach", CVPR 2017, arXiv:1609.03683,
theorem 2. A noisy maximum releases the plurality most of the time and another class with a probability that depends on the
noise, which is public. Row `y` of the transition matrix T holds the probability of each released label where the clean one is
`y`. A student that predicts p then predicts the released label j with probability (T^T p)_j, and the cross-entropy of *that*
against the released label is smallest, in expectation, where p is right about the clean one. T must rest on public numbers alone.
Where the mechanism's own noise is known, no T is needed: see `noisy_maximum`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from teacher_student.arguments import ArgumentError, finite_number, positive_integer
from teacher_student.student.noisy_maximum import NoisyMaximum
from teacher_student.student.targets import MOST_CLASSES

MECHANISM = "mechanism"
"""Says that the noise is the answering mechanism's, which only a run knows."""

ROUNDING = 1e-4
"""How far the sum of a row may be from 1."""


def symmetric_noise(rate: float, num_classes: int) -> npt.NDArray[np.float32]:
    """Return (num_classes, num_classes) of labels that are wrong with probability `rate`, each other class equally often.

    >>> symmetric_noise(0.2, 3).tolist()[0] == [np.float32(0.8), np.float32(0.1), np.float32(0.1)]
    True

    Raises:
        ArgumentError: a rate at which a label says nothing, or the opposite.
    """
    if not 0 <= rate < 1 - 1 / num_classes:
        most = 1 - 1 / num_classes
        raise ArgumentError(f"student.settings.label_noise must be below {most:.3g} for {num_classes} classes, got {rate}")
    matrix = np.full((num_classes, num_classes), rate / (num_classes - 1), dtype=np.float32)
    np.fill_diagonal(matrix, 1 - rate)
    return matrix


def checked_label_noise(name: str, value: object) -> str | NoisyMaximum | float | tuple[tuple[float, ...], ...]:
    """Return `MECHANISM`, a mechanism's noise, a rate of symmetric noise, or the rows of a transition matrix.

    Raises:
        ArgumentError: what `checked_transition` raises.
    """
    if isinstance(value, NoisyMaximum) or (isinstance(value, str) and value == MECHANISM):
        return value
    return checked_transition(name, value)


def checked_transition(name: str, value: object) -> float | tuple[tuple[float, ...], ...]:
    """Return a rate of symmetric noise, or the rows of a transition matrix.

    Raises:
        ArgumentError: a rate outside [0, 1), or rows that are not probability distributions over as many classes,
            or from which classes cannot be told.
    """
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str):
        rate = finite_number(name, value)
        if not 0 <= rate < 1:
            raise ArgumentError(f"{name} must be at least 0 and below 1, got {value!r}")
        return rate
    try:
        rows = tuple(tuple(finite_number(name, entry) for entry in row) for row in value)
    except TypeError as error:
        raise ArgumentError(f"{name} must be a number or rows of numbers, got {value!r}") from error
    if not rows or any(len(row) != len(rows) or min(row) < 0 or abs(sum(row) - 1) > ROUNDING for row in rows):
        raise ArgumentError(f"{name} must have as many columns as rows, and rows of probabilities that sum to 1, got {value!r}")
    if np.linalg.matrix_rank(np.array(rows)) < len(rows):
        raise ArgumentError(f"{name} must tell classes apart: no row may follow from the others, got {value!r}")
    return rows


class LabelNoise(nn.Module):
    """What released labels are to be expected where the clean class is known.

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
        known = checked_transition("student.settings.label_noise", noise)
        self.register_buffer("transition", _transition(known, num_classes), persistent=False)

    def forward(self, logits: Tensor) -> Tensor:
        """Return (batch, num_classes) logits of the released label, given those of the clean class."""
        if self.transition is None:
            return logits
        floor = torch.finfo(logits.dtype).tiny  # a label that is never released: no infinity, whose gradient would be NaN
        return torch.logsumexp(F.log_softmax(logits, dim=-1)[:, :, None] + self.transition.clamp_min(floor).log(), dim=1)

    def released(self, probabilities: Tensor) -> Tensor:
        """Return (batch, num_classes) probabilities of the released label, given those of the clean class."""
        return probabilities if self.transition is None else probabilities @ self.transition


def _transition(noise: float | tuple[tuple[float, ...], ...], num_classes: int) -> Tensor | None:
    """Return the matrix, or None where labels are right: without noise, no table grows with the square of the classes."""
    if noise == 0:
        return None
    rows = symmetric_noise(noise, num_classes) if isinstance(noise, float) else np.array(noise, dtype=np.float32)
    if rows.shape != (num_classes, num_classes):
        raise ArgumentError(f"student.settings.label_noise must have {num_classes} rows, one for each class, got {len(rows)}")
    return None if np.array_equal(rows, np.eye(num_classes)) else torch.as_tensor(rows)


KnownNoise = LabelNoise | NoisyMaximum


def known_noise(noise: str | NoisyMaximum | float | Sequence[Sequence[float]], num_classes: int) -> KnownNoise:
    """Return what `StudentSettings.label_noise` stands for.

    Raises:
        ArgumentError: noise of other than `num_classes` classes, or `MECHANISM` outside of a run.
    """
    if isinstance(noise, NoisyMaximum):
        return noise
    if isinstance(noise, str):
        raise ArgumentError(
            f"student.settings.label_noise must be a NoisyMaximum outside of a run, got {noise!r}; only a run knows its mechanism"
        )
    return LabelNoise(noise, num_classes)
