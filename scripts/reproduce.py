"""Reproduce the README's table of student accuracies: mean over public splits, with fresh shards and fresh noise for each.

uv run scripts/reproduce.py                        # UCI Adult, epsilon 1 and 2, ten splits: about two minutes on two cores
uv run scripts/reproduce.py --splits 20 --override student.settings.unanswered=drop
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from teacher_student import pipeline
from teacher_student.app import compose, settings_from_config

BUDGETS = {1.0: 100, 2.0: 300}
"""Epsilon, and the public cutoff that goes with it."""


def accuracies(experiment: str, epsilon: float, cutoff: int, seeds: range, overrides: list[str]) -> tuple[list[float], list[int]]:
    """Run the whole way once for each seed, each with its own split, shard key and noise."""
    found, answered = [], []
    for seed in seeds:
        settings = settings_from_config(
            compose(
                "run",
                [
                    f"experiment={experiment}",
                    f"privacy.epsilon={epsilon}",
                    f"privacy.cutoff={cutoff}",
                    f"seed={seed}",
                    "baselines=false",
                    "logger=none",
                    "budget.ledger=null",  # nothing is kept of these runs
                    *overrides,
                ],
            )
        )
        with tempfile.TemporaryDirectory() as folder:
            result = pipeline.run(settings, Path(folder) / "run")
        found.append(result.metrics["accuracy"])
        answered.append(int(result.release.answered.sum()))
        print(f"  split {seed}: {answered[-1]:,} labels, student {found[-1]:.2%}", flush=True)
    return found, answered


def main() -> None:
    """Print a row for each budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="adult")
    parser.add_argument("--splits", type=int, default=10, help="number of public splits (default 10)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--override", nargs="*", default=[], help="further Hydra overrides")
    options = parser.parse_args()
    rows = []
    for epsilon, cutoff in BUDGETS.items():
        print(f"epsilon {epsilon:g}, cutoff {cutoff}")
        seeds = range(options.first, options.first + options.splits)
        found, answered = accuracies(options.experiment, epsilon, cutoff, seeds, options.override)
        error = np.std(found, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else float("nan")
        rows.append(f"| {epsilon:g} | {cutoff} | {np.mean(answered):,.0f} | {np.mean(found):.2%} ± {error:.2%} |")
    print("\n| epsilon | cutoff | labels released | student accuracy (mean ± standard error) |\n|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
