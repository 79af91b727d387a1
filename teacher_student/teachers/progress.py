"""Progress by teachers done, not by epochs, since an epoch is a chunk of teachers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import lightning
from tqdm.auto import tqdm  # type: ignore[import-untyped]

Report = Callable[[int, int, float], None]


class TeacherProgress(lightning.Callback):
    """Reports teachers done and the time left after every chunk.

    Args:
        report: called with (teachers done, teachers in all, seconds left) on every rank; None shows a bar on a terminal.
    """

    def __init__(self, report: Report | None = None) -> None:
        self._report: Report | None = report
        self._bar: Any = None
        self._started, self._before = 0.0, 0

    def on_train_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        """Count what an earlier training has finished, and start the clock."""
        self._started, self._before = time.monotonic(), self._done(pl_module)
        if self._report is None and trainer.is_global_zero:
            self._bar = tqdm(total=pl_module.num_teachers, initial=self._before, desc="teachers", disable=None, leave=False)

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        """Report after a chunk. With several ranks and no shared folder the first rank's share is scaled up."""
        done, total = self._done(pl_module), pl_module.num_teachers
        mine = sum(len(pl_module.shards_of(n)) for n in pl_module.chunks_of_rank(trainer.global_rank, trainer.world_size))
        left = (time.monotonic() - self._started) * max(0, mine - done) / max(1, done - self._before)
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
        if self._report is not None:
            self._report(done, total, left)

    def on_train_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:  # noqa: ARG002
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()

    @staticmethod
    def _done(pl_module: Any) -> int:
        return sum(len(pl_module.shards_of(number)) for number in pl_module.store.finished())
