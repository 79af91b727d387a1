"""Where a teacher's training time goes, and the bound on any engine: the share that its matrix products alone would leave."""

from __future__ import annotations

import functools
from typing import Any

from torch.profiler import ProfilerActivity, profile

from research.benchmarks import teachers
from research.benchmarks.timing import interleaved, product, ratio
from teacher_student.teachers.records import ShardedRecords

KINDS = {
    "products": ("mm", "bmm", "addmm", "baddbmm", "convolution", "mkldnn", "thnn_conv", "slow_conv"),
    "optimiser": ("_fused", "_foreach", "Optimizer"),
    "batches": ("index_select", "index", "copy_"),
    "starts": ("uniform_", "normal_", "stack", "cat"),
}
"""Kinds of work, by the prefixes of the names of PyTorch's operations."""


def shares(name: str, samples: int, clock: str, k: int = 250, few: int = 24) -> dict[str, Any]:
    """Return percent of the time of training one chunk, by kind of work, and the share of the product rate that is possible.

    Args:
        name: of the case.
        samples: turns in which chunk and product are timed.
        clock: "wall" or "cpu".
        k: teachers that the records are divided among.
        few: teachers that are trained, at most.
    """
    case = teachers.CASES[name]
    data = teachers.made(case, min(few, teachers.trained_of(case, k)), k)
    ensemble, records = teachers.trained(case, data, steps=1), ShardedRecords.of(*data)
    chunk = functools.partial(teachers.train_bare, case, ensemble, records, 0)
    seconds = interleaved({"chunk": chunk, "product": product()}, samples, clock)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        chunk()
    spent = dict.fromkeys((*KINDS, "rest"), 0.0)
    for event in found.key_averages():
        spent[_kind(event.key)] += event.self_cpu_time_total
    total = sum(spent.values())
    row: dict[str, Any] = {"network": name, **{kind: 100 * time / total for kind, time in spent.items()}}
    row["product_share"] = case.operations() * ratio(seconds["product"], seconds["chunk"])
    return row | {"bound": row["product_share"] * total / spent["products"] if spent["products"] else float("nan")}


def _kind(operation: str) -> str:
    plain = operation.removeprefix("aten::")
    return next((kind for kind, beginnings in KINDS.items() if plain.startswith(beginnings)), "rest")
