"""The student as a Lightning module: weighted soft-label cross-entropy on public points, pseudo-labels on the others."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import lightning as L
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

from teacher_student.arguments import choice, finite_number, fraction_of_one, positive_integer, positive_number
from teacher_student.student.semi_supervised import pseudo_label_loss
from teacher_student.student.targets import UNANSWERED, Targets

Report = Callable[[int, float], None]

SMALL_STEP = 5_000_000
"""Weights times batch size below which one thread trains faster than several."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudentSettings:
    """How the student learns. All are public constants.

    Attributes:
        unanswered: what a paid non-answer becomes, one of `targets.UNANSWERED`.
        epochs: passes over the points that it learns from.
        batch_size: points per step.
        learning_rate: peak rate of AdamW, under a short warm-up and a cosine decay.
        weight_decay: decoupled weight decay.
        prior_precision: precision of a Gaussian prior on the weights (not the biases): the loss gains this times half the
            squared weights, divided by the number of targets. The right strength then does not depend on how many were answered.
        label_smoothing: probability mass that is spread over all classes.
        average_decay: decay of the running average of the weights that is kept in the end; 0 keeps the last weights.
        pseudo_weight: weight of the pseudo-label loss on unlabeled points; 0 learns from labeled points only.
        pseudo_confidence: a pseudo-label counts where the student's own probability is at least this.
    """

    unanswered: str = "uniform"
    epochs: int = 30
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    prior_precision: float = 0.0
    label_smoothing: float = 0.0
    average_decay: float = 0.0
    pseudo_weight: float = 0.0
    pseudo_confidence: float = 0.95

    def __post_init__(self) -> None:
        choice("student.unanswered", self.unanswered, UNANSWERED)
        positive_integer("student.epochs", self.epochs)
        positive_integer("student.batch_size", self.batch_size)
        positive_number("student.learning_rate", self.learning_rate)
        for name in ("weight_decay", "prior_precision", "pseudo_weight"):
            if finite_number(f"student.{name}", getattr(self, name)) < 0:
                positive_number(f"student.{name}", getattr(self, name))
        for name in ("label_smoothing", "average_decay", "pseudo_confidence"):
            fraction_of_one(f"student.{name}", getattr(self, name))


class Student(L.LightningModule):
    """A network that learns from soft targets.

    Args:
        network: maps (batch, *features) to (batch, num_classes) logits.
        settings: how it learns.
        total_steps: optimiser steps of the whole fit, for the schedule.
        num_targets: points with a target, for the prior.
    """

    def __init__(self, network: nn.Module, settings: StudentSettings, total_steps: int, num_targets: int) -> None:
        super().__init__()
        self.network = network
        self.settings = settings
        self.total_steps = total_steps
        self.num_targets = num_targets
        self.losses: list[float] = []
        self.report: Report | None = None
        keep = settings.average_decay > 0
        self.average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(settings.average_decay)) if keep else None

    def forward(self, features: Tensor) -> Tensor:
        """Return (batch, num_classes) logits of the averaged network if there is one."""
        return self.average(features) if self.average is not None and not self.training else self.network(features)

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
        """One step on (features, probabilities, weights, unlabeled) of a batch."""
        features, probabilities, weights, unlabeled = batch
        logits = self.network(features)
        losses = F.cross_entropy(logits, probabilities, reduction="none", label_smoothing=self.settings.label_smoothing)
        loss = (losses * weights).sum() / weights.sum().clamp_min(1)
        if self.settings.pseudo_weight > 0:
            confidence = self.settings.pseudo_confidence
            loss = loss + self.settings.pseudo_weight * pseudo_label_loss(logits, unlabeled, confidence)
        if self.settings.prior_precision > 0:
            loss = loss + self.settings.prior_precision / (2 * self.num_targets) * self._squared_weights()
        self.log("student/loss", loss, on_step=False, on_epoch=True, batch_size=len(features))
        return loss

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


def fit_student(
    network: Callable[[], nn.Module],
    features: npt.NDArray[np.float32],
    targets: Targets,
    settings: StudentSettings,
    *,
    seed: int = 0,
    trainer_options: Mapping[str, Any] | None = None,
    report: Report | None = None,
) -> Student:
    """Train a student on public points.

    Args:
        network: makes the untrained network; called after seeding, so that equal seeds give equal students.
        features: (num_queries, *shape) public features.
        targets: what was released about them.
        settings: how to learn.
        seed: of initial weights and batch order; not secret.
        trainer_options: passed to `lightning.Trainer`.
        report: called with (epochs done, loss) after every epoch.
    """
    used = (targets.weights > 0) | (targets.unlabeled & (settings.pseudo_weight > 0))
    arrays = (features[used], targets.probabilities[used], targets.weights[used], targets.unlabeled[used])
    dataset = TensorDataset(*(torch.as_tensor(array) for array in arrays))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sampler = BatchSampler(RandomSampler(dataset), settings.batch_size, drop_last=False)
        loader = DataLoader(dataset, sampler=sampler, batch_size=None)
        num_targets = int((targets.weights > 0).sum())
        student = Student(network(), settings, total_steps=settings.epochs * len(sampler), num_targets=num_targets)
        student.report = report
        trainer = L.Trainer(max_epochs=settings.epochs, **_quiet(trainer_options))
        with _one_thread_if_small(student, settings.batch_size):
            trainer.fit(student, loader)
    return student.eval()


def predict_probabilities(network: nn.Module, features: npt.NDArray[np.float32], *, block: int = 4096) -> npt.NDArray[np.float32]:
    """Return (num_points, num_classes) class probabilities, computed block by block on the network's device."""
    device = next(network.parameters()).device
    dataset = TensorDataset(torch.as_tensor(features))
    loader = DataLoader(dataset, sampler=BatchSampler(SequentialSampler(dataset), block, drop_last=False), batch_size=None)
    network.eval()
    with torch.inference_mode():
        return np.concatenate([F.softmax(network(batch.to(device)), dim=-1).float().cpu().numpy() for (batch,) in loader])


@contextlib.contextmanager
def _one_thread_if_small(student: nn.Module, batch_size: int) -> Iterator[None]:
    """Where a step is a few microseconds of arithmetic, waking a second thread costs more, on a busy machine ten times more."""
    before = torch.get_num_threads()
    if batch_size * sum(weight.numel() for weight in student.parameters()) < SMALL_STEP:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _quiet(options: Mapping[str, Any] | None) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
    }
    return defaults | dict(options or {})
