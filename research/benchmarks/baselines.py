"""Teachers trained one at a time, in four common ways. All take the same steps on the same shard."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from teacher_student.teachers import TrainingSettings


def optimizer_of(module: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Return PyTorch's own optimiser."""
    if settings.optimizer == "sgd":
        return torch.optim.SGD(module.parameters(), lr=settings.learning_rate, momentum=settings.momentum)
    return torch.optim.Adam(module.parameters(), lr=settings.learning_rate)


def plain_loop(network: Callable[[], nn.Module], features: Tensor, labels: Tensor, settings: TrainingSettings) -> None:
    """(a) A loop over preloaded tensors."""
    module, size = network().to(features.device), settings.batch_size
    optimizer = optimizer_of(module, settings)
    step = 0
    while step < settings.steps:
        order = torch.randperm(len(labels), device=labels.device)
        for first in range(0, max(1, len(labels) - size + 1), size):
            batch = order[first : first + size]
            optimizer.zero_grad()
            functional.cross_entropy(module(features[batch]), labels[batch]).backward()
            optimizer.step()
            step += 1
            if step == settings.steps:
                return


def loader_of(features: Tensor, labels: Tensor, settings: TrainingSettings) -> DataLoader[Any]:
    """Return a DataLoader that works in this process."""
    drop_last = len(labels) >= settings.batch_size
    return DataLoader(TensorDataset(features, labels), settings.batch_size, shuffle=True, drop_last=drop_last)


def loader_loop(network: Callable[[], nn.Module], features: Tensor, labels: Tensor, settings: TrainingSettings) -> None:
    """(b) A DataLoader and a loop."""
    module, loader = network().to(features.device), loader_of(features, labels, settings)
    optimizer = optimizer_of(module, settings)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for values, targets in itertools.islice(batches, settings.steps):
        optimizer.zero_grad()
        functional.cross_entropy(module(values), targets).backward()
        optimizer.step()


class One(lightning.LightningModule):
    """A LightningModule of one teacher, as it is usually written."""

    def __init__(self, network: nn.Module, settings: TrainingSettings) -> None:
        super().__init__()
        self.network, self.settings = network, settings

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:  # noqa: ARG002
        """Return the loss."""
        loss = functional.cross_entropy(self.network(batch[0]), batch[1])
        if self.trainer.logger is not None:
            self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimiser."""
        return optimizer_of(self, self.settings)


def _fit(network: Callable[[], nn.Module], features: Tensor, labels: Tensor, settings: TrainingSettings, **options: Any) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        options |= {"accelerator": "cpu" if features.device.type == "cpu" else "gpu", "devices": 1}
        trainer = lightning.Trainer(max_steps=settings.steps, max_epochs=-1, **options)
        trainer.fit(One(network(), settings), loader_of(features, labels, settings))


def lean_lightning(network: Callable[[], nn.Module], features: Tensor, labels: Tensor, settings: TrainingSettings) -> None:
    """(c) A Lightning fit with everything switched off."""
    off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    _fit(network, features, labels, settings, barebones=False, **off)


def default_lightning(network: Callable[[], nn.Module], features: Tensor, labels: Tensor, settings: TrainingSettings) -> None:
    """(d) A Lightning fit with its defaults: progress bar, logger, checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        _fit(network, features, labels, settings, default_root_dir=folder)


BASELINES = {"plain": plain_loop, "loader": loader_loop, "lean": lean_lightning, "default": default_lightning}
