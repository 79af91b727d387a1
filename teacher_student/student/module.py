"""The student as a Lightning module, which learns by its method; and input scaling that is published with the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import lightning as L
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from teacher_student.student.augmentations import Views
from teacher_student.student.label_noise import KnownNoise
from teacher_student.student.methods import Labeled, Learning
from teacher_student.student.settings import StudentSettings

Report = Callable[[int, float], None]
"""Called with (epochs done, loss) after every epoch."""

VARIANCE_FLOOR = 0.01
"""Added to each variance, so that a rare category does not become a huge number."""


class Student(L.LightningModule):
    """A network that learns from soft targets.

    Args:
        network: maps (batch, *features) to (batch, num_classes) logits.
        settings: how it learns.
        noise: of the released labels.
        views: of the public points.
        total_steps: optimiser steps of the whole fit, for the schedule.
        num_targets: points with a target, for the prior.
    """

    def __init__(
        self, network: nn.Module, settings: StudentSettings, noise: KnownNoise, views: Views, total_steps: int, num_targets: int
    ) -> None:
        super().__init__()
        self.network, self.settings, self.noise, self.views = network, settings, noise, views
        self.total_steps, self.num_targets = total_steps, num_targets
        self.losses: list[float] = []
        self.report: Report | None = None
        keep = settings.average_decay > 0
        self.average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(settings.average_decay)) if keep else None

    def forward(self, features: Tensor) -> Tensor:
        """Return (batch, num_classes) logits of the averaged network if there is one."""
        return self.average(features) if self.average is not None and not self.training else self.network(features)

    def training_step(self, batch: Mapping[str, Any]) -> Tensor:
        """Return the loss of a `Labeled` batch, and of a batch of unlabeled points if the method takes one."""
        method, labeled = self.settings.learning_method, Labeled(*batch["labeled"])
        learning = Learning(self.network, self.average, self.noise, self.views, self.settings.label_smoothing)
        if method.uses_unlabeled:
            loss, beside = method.losses(learning, labeled, *batch["unlabeled"])
            self.log("student/unlabeled loss", beside, on_step=False, on_epoch=True, batch_size=len(labeled.features))
            loss = loss + self.settings.unlabeled_weight * self._ramp() * beside
        else:
            loss = method.labeled_loss(learning, labeled)
        if self.settings.prior_precision > 0:
            loss = loss + self.settings.prior_precision / (2 * self.num_targets) * self._squared_weights()
        self.log("student/loss", loss, on_step=False, on_epoch=True, batch_size=len(labeled.features))
        return loss

    def _ramp(self) -> float:
        """Rise linearly over the first `ramp_up` of the steps."""
        rise = self.settings.ramp_up * self.total_steps
        return min(1.0, self.global_step / rise) if rise > 0 else 1.0

    def _squared_weights(self) -> Tensor:
        return torch.stack([weight.square().sum() for weight in self.network.parameters() if weight.ndim > 1]).sum()

    def on_train_epoch_end(self) -> None:
        """Remember the epoch's loss for the report."""
        self.losses.append(float(self.trainer.callback_metrics["student/loss"]))
        if self.report is not None:
            self.report(len(self.losses), self.losses[-1])

    def on_train_batch_end(self, *_: Any) -> None:
        """Take the new weights into the running average."""
        if self.average is not None:
            self.average.update_parameters(self.network)

    def configure_optimizers(self) -> Any:
        """Return AdamW under a warm-up and a cosine."""
        rate, decay = self.settings.learning_rate, self.settings.weight_decay
        optimizer = torch.optim.AdamW(self.network.parameters(), lr=rate, weight_decay=decay)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self._share_of_rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _share_of_rate(self, step: int) -> float:
        """Rise linearly over the first tenth of the steps, under a cosine that falls to 0."""
        rise = max(1, self.total_steps // 10)
        return min(1.0, (step + 1) / rise) * (1 + math.cos(math.pi * min(1.0, step / self.total_steps))) / 2

    @property
    def publishable(self) -> nn.Module:
        """The network to publish: the averaged one where an average is kept."""
        return self.average.module if self.average is not None else self.network


class Standardized(nn.Module):
    """A network behind fixed input scaling: (features - center) / spread.

    Args:
        network: takes the scaled input.
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
        """Take the scaling from public points (num_queries, *shape), and return the module."""
        features = public_features.astype(np.float64)
        self.center.copy_(torch.as_tensor(features.mean(0)))
        self.spread.copy_(torch.as_tensor(np.sqrt(features.var(0) + VARIANCE_FLOOR)))
        return self

    def forward(self, features: Tensor) -> Tensor:
        """Return the network's logits for raw features."""
        return self.network((features - self.center) / self.spread)
