"""The student as a Lightning module: soft-label cross-entropy on public points, and what its method does with the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from teacher_student.student.augmentations import Views
from teacher_student.student.label_noise import KnownNoise
from teacher_student.student.methods import Labeled, Learning
from teacher_student.student.settings import StudentSettings

Report = Callable[[int, float], None]


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
        self,
        network: nn.Module,
        settings: StudentSettings,
        noise: KnownNoise,
        views: Views,
        total_steps: int,
        num_targets: int,
    ) -> None:
        super().__init__()
        self.network = network
        self.settings = settings
        self.noise = noise
        self.views = views
        self.total_steps = total_steps
        self.num_targets = num_targets
        self.losses: list[float] = []
        self.report: Report | None = None
        keep = settings.average_decay > 0
        self.average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(settings.average_decay)) if keep else None

    def forward(self, features: Tensor) -> Tensor:
        """Return (batch, num_classes) logits of the averaged network if there is one."""
        return self.average(features) if self.average is not None and not self.training else self.network(features)

    def training_step(self, batch: Mapping[str, Any]) -> Tensor:
        """One step on a `Labeled` batch, and where the method wants one on features of unlabeled points."""
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
        """A linear rise over the first `ramp_up` of the steps."""
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
        """AdamW under a warm-up and a cosine; the norms of one network only, so nothing private can couple here."""
        optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=self.settings.learning_rate, weight_decay=self.settings.weight_decay
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self._share_of_rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _share_of_rate(self, step: int) -> float:
        """A linear rise over the first tenth of the steps under a cosine that falls to 0."""
        rise = max(1, self.total_steps // 10)
        return min(1.0, (step + 1) / rise) * (1 + math.cos(math.pi * min(1.0, step / self.total_steps))) / 2

    @property
    def publishable(self) -> nn.Module:
        """The network to publish: the averaged one where an average is kept."""
        return self.average.module if self.average is not None else self.network
