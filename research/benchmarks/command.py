"""Compare teachers, votes and mechanisms with common implementations, in one run, and print ratios.

teacher-student benchmark --only teachers --networks mlp-784-128 --teachers 250
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

PARTS = ("teachers", "profile", "lightning", "votes", "counting", "nearest", "growth", "mechanisms", "model")
HEADERS = {
    "network": "teacher",
    "num_teachers": "k",
    "teachers_per_second": "teachers/s",
    "times_plain": "(a) plain loop",
    "times_loader": "(b) DataLoader",
    "times_lean": "(c) lean Lightning",
    "times_default": "(d) default Lightning",
    "product_share": "of product rate",
}


def read(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="teacher-student benchmark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="default: all")
    parser.add_argument("--networks", nargs="+", help="default: all")
    parser.add_argument("--teachers", nargs="+", type=int, default=[10, 250, 1000], help="numbers of teachers k")
    parser.add_argument("--samples", type=int, default=5, help="samples of each contender")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: time of this process, for a busy machine")
    parser.add_argument("--accelerator", choices=("cpu", "gpu"), default="cpu", help="for the part teachers, all contenders")
    parser.add_argument("--threads", type=int, help="threads of torch")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    return parser.parse_args(arguments)


def labelling(samples: int, clock: str) -> dict[str, Any]:
    """Measure the mechanism; this needs no torch."""
    from research.benchmarks import mechanisms

    return mechanisms.labelling(samples, clock)


def shown(value: Any) -> str:
    """Format a cell."""
    if value is None:
        return "-"
    return (
        f"{value:,.3g}"
        if isinstance(value, float) and value < 1000
        else f"{value:,.0f}"
        if isinstance(value, float)
        else str(value)
    )


def print_table(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows that share their keys."""
    table = Table(title=title)
    for key in rows[0]:
        table.add_column(HEADERS.get(key, key), justify="left" if key == "network" else "right")
    for row in rows:
        table.add_row(*[shown(value) for value in row.values()])
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that were requested."""
    options = read(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    from research.benchmarks import model, profile, teachers

    only, console = options.only or PARTS, Console(width=150)
    turns, results = (options.samples, options.clock), {}
    machine = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "clock": options.clock,
        "accelerator": options.accelerator,
    }
    if "teachers" in only:
        names = options.networks or list(teachers.CASES)
        results["teachers"] = [teachers.compare(name, k, *turns, options.accelerator) for name in names for k in options.teachers]
        print_table(console, "Times faster than teachers one by one (baselines measured on one teacher)", results["teachers"])
    if "profile" in only:
        results["profile"] = [profile.shares(name, *turns) for name in options.networks or list(teachers.CASES)]
        print_table(
            console,
            "Percent of a chunk's time; bound: the share of the product rate, were all but products free",
            results["profile"],
        )
    if "lightning" in only:
        results["lightning"] = [teachers.lightning(name, *turns) for name in options.networks or list(teachers.CASES)]
        print_table(console, "What Lightning costs over the bare engine", results["lightning"])
    if "model" in only:
        results["model"] = [model.expected(name) for name in options.networks or list(teachers.CASES)]
        print_table(console, "One step of one teacher on a GPU, counted; the most teachers a second", results["model"])
    measures: dict[str, Callable[[int, str], Any]]
    measures = {"votes": teachers.votes, "counting": teachers.counting}
    measures |= {"nearest": teachers.nearest, "growth": teachers.growth, "mechanisms": labelling}
    for name, measure in measures.items():
        if name in only:
            rows = measure(*turns)
            results[name] = rows if isinstance(rows, list) else [rows]
            print_table(console, name, results[name])
    console.print(machine)
    if options.out:
        options.out.write_text(json.dumps({"machine": machine, **results}, indent=1))
    return 0
