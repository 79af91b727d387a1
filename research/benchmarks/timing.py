"""Interleaved samples: the contenders take turns, so a busy machine slows all of them, and ratios are medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def interleaved(contenders: Mapping[str, Callable[[], float]], samples: int, clock: str) -> dict[str, list[float]]:
    """Return seconds per unit of work, `samples` times for each contender, in turns.

    Args:
        contenders: name -> a function that does some work and returns its amount.
        samples: number of turns, after a first one for warming up.
        clock: "wall" or "cpu" (of this process).
    """
    now = CLOCKS[clock]
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(samples + 1):
        for name, work in contenders.items():
            start = now()
            amount = work()
            if turn:
                seconds[name].append((now() - start) / amount)
    return seconds


def ratio(slower: list[float], faster: list[float]) -> float:
    """Median over turns of slower / faster."""
    return statistics.median(one / other for one, other in zip(slower, faster, strict=True))


def product(device: str = "cpu") -> Callable[[], float]:
    """Return work whose amount is floating-point operations: one large float32 matrix product."""
    one, other = torch.randn(1536, 1536, device=device), torch.randn(1536, 1536, device=device)

    def multiply() -> float:
        for _ in range(4):
            one @ other
        if device != "cpu":
            torch.cuda.synchronize()
        return 4 * 2.0 * 1536**3

    return multiply
