"""Several devices or machines: teachers are split over ranks, and no parameter ever leaves its rank."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, distributed

from teacher_student.arguments import ArgumentError


class TeacherParallel(DDPStrategy):
    """Lightning's distributed data parallel strategy, its launchers and process groups, without the gradient averaging.

    The module is never wrapped, so no gradient, parameter or buffer is averaged or broadcast. The ranks meet to begin, to end
    and to put their teachers' votes side by side.
    """

    def configure_ddp(self) -> None:
        """Leave the module as it is."""


def chosen_strategy(options: Mapping[str, Any]) -> Any:
    """Return the strategy for a Trainer's options.

    Raises:
        ArgumentError: a strategy that would average or share parameters.
    """
    strategy = options.get("strategy", "auto")
    if isinstance(strategy, TeacherParallel | SingleDeviceStrategy):
        return strategy
    if strategy is not None and not (isinstance(strategy, str) and strategy in ("auto", "ddp")):
        raise ArgumentError(f"trainer.strategy must be auto or ddp, got {strategy!r}: others would share teachers' parameters")
    one = isinstance(devices := options.get("devices", 1), int | str | list) and devices in (1, "1", [0])
    nodes = options.get("num_nodes", 1)
    several = not one or not isinstance(nodes, int) or nodes != 1
    return TeacherParallel() if several or strategy == "ddp" else "auto"


def gathered_votes(votes: Tensor, device: torch.device) -> Tensor:
    """Put the ranks' votes side by side: every vote was cast on one rank, the others hold -1 there.

    Args:
        votes: (points, num_teachers), of any signed type up to 32 bits.
        device: where the process group communicates.
    """
    if not _met():
        return votes
    counted = votes.to(device, torch.int32) + 1
    distributed.all_reduce(counted)
    return (counted - 1).to("cpu", votes.dtype)


def _met() -> bool:
    return distributed.is_available() and distributed.is_initialized()


@contextlib.contextmanager
def first_rank_first() -> Iterator[None]:
    """Let the first rank go through the block before the others, where ranks have met already."""
    if _met() and distributed.get_rank():
        distributed.barrier()
    yield
    if _met() and not distributed.get_rank():
        distributed.barrier()
