"""Event files for TensorBoard: the student's curves, and the facts of the reports and nothing else.

`release/tensorboard`: beside the student's curves its figures on public evaluation data, answers and their price, pictures, and
the public settings as hyper-parameters, so that the runs of a sweep compare in the HParams tab.
`private/tensorboard`: histograms of gaps, winners' shares and shard sizes, the figures of the comparison models, pictures.

TensorBoard's own writer puts the host, the process and the time into the file's name, and the time into every event. How long
stages took may depend on private records, so none of it belongs into `release/`: there an event's time is its step, and equal
curves are equal files.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from matplotlib.figure import Figure
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard.summary import histogram, hparams, image, scalar

from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.monitoring import plots
from teacher_student.monitoring.report import PrivateFacts, ReleasedFacts

POINTS = 200
"""Most points of a curve over the queries."""

Step = tuple[int, Summary]


class TimelessCurves(Logger):
    """A Lightning logger of scalars that may be published: one event file, replaced by every training.

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
        """There is one version only."""
        return ""

    def log_hyperparams(self, params: argparse.Namespace | dict[str, Any], *_: Any, **__: Any) -> None:
        """Hyper-parameters are in the config."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write one event for each metric; not Lightning's count of epochs, which the HParams tab would show before accuracy."""
        if self._stream is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._stream = (self._folder / "events.out.tfevents.student").open("wb")
            _write_events(self._stream, ())
        steps = ((step or 0, scalar(tag, float(value))) for tag, value in metrics.items() if tag != "epoch")
        _write_events(self._stream, steps, begin=False)
        self._stream.flush()

    @rank_zero_only
    def finalize(self, status: str) -> None:  # noqa: ARG002
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def write_released_events(folder: Path, facts: ReleasedFacts) -> None:
    """Write what may be published to an event file in `folder`; the same facts give the same bytes."""
    _write(folder / "events.out.tfevents.release", None, _released(facts))


def write_private_events(folder: Path, facts: PrivateFacts) -> None:
    """Write the diagnostics that must stay private to an event file of their own in `folder`, after those of the training."""
    now = time.time()
    _write(folder / f"events.out.tfevents.{int(now):010d}.diagnostics", now, _private(facts))


def _write(path: Path, wall_time: float | None, steps: Iterable[Step]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name.replace("tfevents", "partial"))  # TensorBoard reads whatever is called tfevents
    with partial.open("wb") as stream:
        _write_events(stream, steps, wall_time)
    partial.replace(path)


def _write_events(stream: BinaryIO, steps: Iterable[Step], wall_time: float | None = None, *, begin: bool = True) -> None:
    """Append events; without a wall time, the time of each is its step."""
    writer = RecordWriter(stream)
    if begin:
        writer.write(Event(wall_time=wall_time or 0.0, file_version="brain.Event:2").SerializeToString())
    for step, summary in steps:
        time_of_event = float(step) if wall_time is None else wall_time
        writer.write(Event(wall_time=time_of_event, step=step, summary=summary).SerializeToString())


def _released(facts: ReleasedFacts) -> Iterator[Step]:
    figures = {f"evaluation/{name}": value for name, value in facts.metrics.items()}
    figures |= {"release/answered": facts.answered, "release/epsilon": facts.certificate["epsilon"]}
    for summary in hparams(dict(facts.choices), dict(figures))[1:]:  # not its list of columns, which would hold for one run only
        yield 0, summary
    for name, value in figures.items():
        yield 0, scalar(name, float(value))
    if facts.labels is not None:
        yield from _spend(facts.labels)
    if facts.scores is not None:
        yield 0, _histogram("release/scores", facts.finite_scores)
    yield from _images(facts.figures)


def _spend(labels: npt.NDArray[np.int64]) -> Iterator[Step]:
    asked = int((labels != HALTED).sum())
    for query in np.unique(np.linspace(1, asked, POINTS, dtype=np.int64)) if asked else ():
        yield int(query), scalar("spend/answers", float((labels[:query] >= 0).sum()))
        yield int(query), scalar("spend/paid non-answers", float((labels[:query] == ABSTAIN).sum()))


def _private(facts: PrivateFacts) -> Iterator[Step]:
    for model, figures in facts.models.items():
        for name, value in figures.items():
            yield 0, scalar(f"{model}/{name}", float(value))
    values = {
        "votes/gap": facts.gaps,
        "votes/share of the winner": facts.winners_share,
        "shards/records": facts.shard_sizes,
        "teachers/accuracy": facts.teacher_accuracy,
    }
    for tag, found in values.items():
        if found is not None and len(found):
            yield 0, _histogram(tag, found)
    yield from _images(facts.figures)


def _histogram(tag: str, values: npt.NDArray[np.number]) -> Summary:
    low, high = float(values.min()), float(values.max())
    return histogram(tag, values.astype(np.float64), np.linspace(low, max(high, low + 1e-9), 51))


def _images(figures: Mapping[str, Figure]) -> Iterator[Step]:
    for title, figure in figures.items():
        yield 0, image(f"figures/{title}", plots.pixels(figure), dataformats="HWC")
