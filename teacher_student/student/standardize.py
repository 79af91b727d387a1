"""Input scaling that belongs to the student: computed from public points, published with the weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

FLOOR = 0.01
"""Added to each variance, so that a rare category does not become a huge number."""


class Standardized(nn.Module):
    """A network behind fixed input scaling: (features - center) / spread.

    Args:
        network: what is scaled for.
        shape: of one input.
    """

    center: Tensor
    spread: Tensor

    def __init__(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("center", torch.zeros(shape))
        self.register_buffer("spread", torch.ones(shape))

    def fit(self, public_features: npt.NDArray[np.float32]) -> Standardized:
        """Take the scaling from public points of shape (num_queries, *shape); returns itself."""
        features = public_features.astype(np.float64)
        self.center.copy_(torch.as_tensor(features.mean(0)))
        self.spread.copy_(torch.as_tensor(np.sqrt(features.var(0) + FLOOR)))
        return self

    def forward(self, features: Tensor) -> Tensor:
        """Return the network's logits for raw features."""
        return self.network((features - self.center) / self.spread)
