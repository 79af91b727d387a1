"""What a GPU must do for one step, counted without one, and so how many teachers a second it can train at most.

A step of stacked teachers runs on torch's meta device, which computes shapes alone. Every operation that is not a view counts as
one launch that reads its inputs from memory and writes its results there; what stays in a cache would cost less. The fused
optimiser is one launch that reads and writes parameters and moments once. Starts are drawn on the CPU and come on top.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from research.benchmarks import teachers
from teacher_student.teachers.chunk import ChunkTrainer, untrained
from teacher_student.teachers.engines import build_engine, initial_stack
from teacher_student.teachers.records import ChunkRecords

DEVICES = {"H200": (4.8e12, 67e12), "T4": (0.32e12, 8.1e12)}
"""Bytes and single-precision operations a second, outside tensor cores, from NVIDIA's data sheets."""
LAUNCH = 5e-6
"""Seconds that the host takes to launch an operation; assumed."""
STACKED = 100


class _Traffic(TorchDispatchMode):
    """Counts launches, and bytes read and written."""

    launches = moved = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view and func.name() not in ("aten::detach", "aten::_unsafe_view", "aten::empty.memory_format"):
            self.launches += 1
            self.moved += sum(leaf.nbytes for leaf in tree_leaves((args, kwargs, out)) if isinstance(leaf, Tensor))
        return out


def _start(case: teachers.Case, count: int = 10) -> float:
    """Return the milliseconds of processor time that one teacher's start takes."""
    began = time.process_time()
    initial_stack(case.network, case.settings, 0, range(count))
    return (time.process_time() - began) / count * 1e3


def expected(name: str, numbers: tuple[int, ...] = (250, 10_000)) -> dict[str, Any]:
    """Return launches of a step, MB and MFLOP of each teacher in it, and the most teachers a second on each device."""
    case = teachers.CASES[name]
    settings = dataclasses.replace(case.settings, engine="batched" if len(case.shape) == 1 else "vmap")
    engine = build_engine(case.network, settings, torch.zeros(2, *case.shape), torch.device("cuda"))
    meta, nobody = torch.device("meta"), (0,) * STACKED
    features, labels = torch.zeros(2, *case.shape), torch.zeros(2, dtype=torch.int64)
    records = ChunkRecords(features, labels, nobody, nobody, tuple(range(STACKED)), torch.ones(STACKED)).to(meta)
    trainer = ChunkTrainer(engine, records, 0, [0.0] * STACKED, settings)
    packed = engine.pack({key: value.to(meta) for key, value in untrained(engine, STACKED).items()})
    rows = torch.zeros(STACKED, settings.batch_size, dtype=torch.int64, device=meta)
    engine.network.to(meta)
    with _Traffic() as traffic:
        trainer._gradients(packed, rows, trainer._keys)
    touched = 5 if settings.optimizer == "sgd" else 7  # parameters, gradients and moments that are read, and those written
    moved = (traffic.moved + touched * sum(tensor.nbytes for tensor in packed)) / STACKED
    operations, launches = case.operations() / settings.steps, traffic.launches + 1
    row = {"network": name, "launches": launches, "MB": moved / 1e6, "MFLOP": operations / 1e6, "start, ms": _start(case)}
    for device, (bandwidth, rate) in DEVICES.items():
        for number in numbers:
            step = max(launches * LAUNCH, number * max(moved / bandwidth, operations / rate))
            row[f"{device}, k = {number:,}"] = number / (settings.steps * step)
    return row
