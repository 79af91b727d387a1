"""Curves that may be published: TensorBoard events that say nothing of when, how fast or on which machine they were made.

TensorBoard's own writer puts the host, the process and the time into the file's name, and the time into every event. How long
the stages before took may depend on private records, so none of it belongs into `release/`: here an event's time is its step,
and equal curves are equal files.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

EVENTS_FILE = "events.out.tfevents.student"
"""TensorBoard reads whatever has `tfevents` in its name."""


class TimelessCurves(Logger):
    """A Lightning logger of scalars into one event file, begun anew by every training.

    Args:
        folder: made if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._stream: BinaryIO | None = None

    @property
    def name(self) -> str:
        """The folder's name."""
        return self._folder.name

    @property
    def version(self) -> str:
        """One version only."""
        return ""

    def log_hyperparams(self, params: argparse.Namespace | dict[str, Any], *_: Any, **__: Any) -> None:
        """Hyper-parameters are in the config."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write one event for each metric; not Lightning's count of epochs, which the HParams tab would show before accuracy."""
        if self._stream is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._stream = (self._folder / EVENTS_FILE).open("wb")
            self._write(Event(file_version="brain.Event:2"))
        for tag, value in ((tag, value) for tag, value in metrics.items() if tag != "epoch"):
            scalar = Summary(value=[Summary.Value(tag=tag, simple_value=float(value))])
            self._write(Event(wall_time=float(step or 0), step=step or 0, summary=scalar))
        self._stream.flush()

    @rank_zero_only
    def finalize(self, status: str) -> None:  # noqa: ARG002
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _write(self, event: Event) -> None:
        RecordWriter(self._stream).write(event.SerializeToString())
