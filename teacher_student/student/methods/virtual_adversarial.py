"""Virtual adversarial training: no small step may change the prediction much (Miyato et al., TPAMI 2019, arXiv:1704.03976).

PATE 2018 trained its students in this way. The worst step is found by power iteration on the second derivative of the divergence.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from teacher_student.arguments import number_at_least_zero, positive_number
from teacher_student.student.augmentations import Views
from teacher_student.student.methods.interface import Learning, Method

PROBE = 1e-2
"""Length of the step at which the divergence is differentiated, in standard deviations; single precision needs it this long."""
ITERATIONS = 1
"""Power iterations; the paper finds that one is enough."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VirtualAdversarial(Method):
    """Smoothness of the prediction within `radius`, and with `entropy_weight` also its certainty (Grandvalet and Bengio 2004).

    Attributes:
        radius: length of a perturbation, as root mean square over the features, each in standard deviations.
        entropy_weight: weight of the predictions' entropy beside the perturbations' effect.
    """

    name = "virtual_adversarial"
    radius: float = 0.2
    entropy_weight: float = 0.0

    def __post_init__(self) -> None:
        positive_number("student.settings.method.radius", self.radius)
        number_at_least_zero("student.settings.method.entropy_weight", self.entropy_weight)

    def unlabeled_loss(self, learning: Learning, unlabeled: Tensor) -> Tensor:
        """Return the divergence between predictions at the points and at the worst points near them."""
        step = self.worst_step(learning.student, unlabeled, learning.views)
        logits = learning.student(unlabeled)
        loss = _divergence(logits.detach(), learning.student(unlabeled + step))
        if self.entropy_weight > 0:
            entropy = -(F.softmax(logits, dim=-1) * F.log_softmax(logits, dim=-1)).sum(dim=-1).mean()
            loss = loss + self.entropy_weight * entropy
        return loss

    def worst_step(self, network: nn.Module, features: Tensor, views: Views) -> Tensor:
        """Return (batch, *shape) steps of length `radius` along which the prediction changes most.

        Args:
            network: maps features to logits.
            features: (batch, *shape) points.
            views: of such points; their `spread` is the unit of each feature.
        """
        spread = views.spread
        with torch.no_grad():
            here = network(features)
        direction = _unit(torch.randn_like(features) * (spread > 0))
        for _ in range(ITERATIONS):
            direction.requires_grad_()
            divergence = _divergence(here, network(features + PROBE * spread * direction))
            direction = _unit(torch.autograd.grad(divergence, direction)[0])
        return self.radius * math.sqrt(max(1, views.varying)) * spread * direction


def _divergence(reference: Tensor, logits: Tensor) -> Tensor:
    """Return the mean Kullback-Leibler divergence of the logits' distributions from the reference's."""
    reference, logits = F.log_softmax(reference, dim=-1), F.log_softmax(logits, dim=-1)
    return F.kl_div(logits, reference, reduction="batchmean", log_target=True)


def _unit(directions: Tensor) -> Tensor:
    """Scale each point's direction to length 1; zeros, where a prediction is flat, stay zeros."""
    flat = directions.detach().flatten(1)
    largest = flat.abs().amax(dim=1, keepdim=True)
    flat = flat / torch.where(largest > 0, largest, 1)  # first, since the squares of tiny gradients would be 0
    return F.normalize(flat, dim=1).reshape(directions.shape)
