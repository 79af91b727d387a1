"""MixMatch: guesses averaged over weak views and sharpened, then every point mixed with another.

Berthelot et al., NeurIPS 2019, arXiv:1905.02249, algorithm 1. Guesses are of clean classes, so label noise is put on them before
they are mixed with labels.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional as F

from teacher_student.arguments import positive_number
from teacher_student.student.methods.interface import Labeled, Learning, Method

VIEWS = 2
"""Weak views of each unlabeled point."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixMatch(Method):
    """Linear behaviour between points, towards sharpened guesses.

    Attributes:
        temperature: guesses are raised to the power 1 / temperature; below 1 sharpens them.
        mixing: both parameters of the Beta distribution from which mixing shares are drawn.
    """

    name = "mixmatch"
    temperature: float = 0.5
    mixing: float = 0.75

    def __post_init__(self) -> None:
        positive_number("student.settings.method.temperature", self.temperature)
        positive_number("student.settings.method.mixing", self.mixing)

    def losses(self, learning: Learning, labeled: Labeled, unlabeled: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy of mixed labeled points and the squared distance from the targets of mixed unlabeled ones."""
        views = torch.cat([learning.views.weak(unlabeled) for _ in range(VIEWS)])
        guesses = learning.noise.released(self.guesses(learning, views)).repeat(VIEWS, 1)
        features = torch.cat([learning.views.weak(labeled.features), views])
        targets = torch.cat([labeled.probabilities, guesses])
        features, targets = self._mixed(features, targets)
        logits, count = learning.student(features), len(labeled.features)
        got = F.softmax(learning.noise(logits[count:]), dim=-1)
        mixed = Labeled(features[:count], targets[:count], labeled.weights)
        return learning.cross_entropy(logits[:count], mixed), (got - targets[count:]).square().sum(dim=-1).mean()

    @torch.no_grad()
    def guesses(self, learning: Learning, views: Tensor) -> Tensor:
        """Return (batch, num_classes) sharpened mean predictions of (VIEWS * batch, *shape) views."""
        mean = F.softmax(learning.student(views), dim=-1).unflatten(0, (VIEWS, -1)).mean(dim=0)
        return F.softmax(mean.clamp_min(torch.finfo(mean.dtype).tiny).log() / self.temperature, dim=-1)

    def _mixed(self, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Move every point some of the way, at most half, towards another one."""
        mixing = torch.full((len(features),), self.mixing, device=features.device)
        share = torch.distributions.Beta(mixing, mixing, validate_args=False).sample()  # a check would wait for the device
        share = torch.maximum(share, 1 - share)
        others = torch.randperm(len(features), device=features.device)
        shares = share.reshape(-1, *[1] * (features.ndim - 1))
        return (
            shares * features + (1 - shares) * features[others],
            share[:, None] * targets + (1 - share[:, None]) * targets[others],
        )
