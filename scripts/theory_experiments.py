"""Compare the theorems with measurements: sample sizes, PAC sweeps, stability of descent, the paper's example.

python scripts/theory_experiments.py sizes --vc-dimension 10 --alpha 0.05 --beta 0.05 --epsilon 1 --delta 1e-6
python scripts/theory_experiments.py pac --out DIR          tables, slopes and log-log plots; minutes (--quick: seconds)
python scripts/theory_experiments.py stability --out DIR    one-pass descent against its bounds
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from research.theory import loglog_slope, on_average_stability, one_pass_stability, sample_sizes, sweep, threshold_error
from research.theory.example import sgd_learner
from research.theory.experiments import Release, Task, halfspaces, thresholds
from research.theory.gradient_descent import decaying_steps, score_stability
from research.theory.pac import threshold_excess_error
from research.theory.sweeps import Row
from teacher_student import ArgumentError
from teacher_student.arguments import Floats, Integers
from teacher_student.mechanisms import SystemNoise, build_mechanism
from teacher_student.privacy import calibrate

DELTA = 1e-5
DIMENSION = 4


def private_release(epsilon: float, delta: float = DELTA) -> Release:
    """Return the default mechanism, calibrated for the cutoff that it is called with, on the noise of the operating system."""

    def release(counts: Integers, cutoff: int) -> Integers:
        mechanism, noise = build_mechanism(calibrate("stability", epsilon=epsilon, delta=delta, cutoff=cutoff)), SystemNoise()
        return mechanism.answer(counts, mechanism.start(noise), noise)[0]

    return release


@dataclasses.dataclass(frozen=True)
class Series:
    """One sweep: the size that grows, the task, and the exponent that the paper states."""

    name: str
    axis: str
    task: Task
    sizes: Sequence[tuple[int, int]]
    exponent: float
    error: Callable[[int, float], float]
    epsilon: float


def all_series(quick: bool) -> list[Series]:
    """Return the sweeps, at sizes where the mechanism answers. For halfspaces the teachers' error is assumed, then checked."""
    doubled = [2**power for power in range(3 if quick else 5)]
    flat, noisy, space, rough = thresholds(), thresholds(0.1), halfspaces(DIMENSION), halfspaces(DIMENSION, 0.1)

    def along_n(first: int, queries: int) -> list[tuple[int, int]]:
        return [(first * factor, queries) for factor in doubled]

    by_m = [(32_000_000, 20_000 * factor) for factor in doubled]
    return [
        Series("thresholds, realizable", "n", flat, along_n(4_000_000, 20_000), -2, threshold_error, 2.0),
        Series("thresholds, realizable", "m", flat, by_m, 1, threshold_error, 2.0),
        Series("thresholds, agnostic", "n", noisy, along_n(32_000_000, 5_000)[:3], -2 / 3, threshold_excess_error, 8.0),
        Series("halfspaces, realizable", "n", space, along_n(250_000, 5_000), -2, _assumed_realizable, 8.0),
        Series("halfspaces, agnostic", "n", rough, along_n(500_000, 5_000), -2 / 3, _assumed_agnostic, 8.0),
    ]


def _assumed_realizable(size: int, failure: float) -> float:
    del failure
    return 2 * DIMENSION / size


def _assumed_agnostic(size: int, failure: float) -> float:
    del failure
    return 0.9 * math.sqrt(DIMENSION / size)


def run_series(series: Series, repetitions: int) -> list[Row]:
    """Run one sweep."""
    return sweep(
        series.task,
        series.sizes,
        error=series.error,
        release=private_release(series.epsilon),
        epsilon=series.epsilon,
        delta=DELTA,
        repetitions=repetitions,
        generator=np.random.default_rng(7),
    )


def slopes(series: Series, rows: Sequence[Row]) -> dict[str, float]:
    """Return the fitted exponents of bound and measurement; excess over the label noise in the agnostic case."""
    along = [row.num_examples if series.axis == "n" else row.num_queries for row in rows]
    found = {}
    for name in ("bound", "labels_error", "student_error"):
        values = [getattr(row, name) - (3 * series.task.noise if name == "bound" else 0) for row in rows]
        kept = [(x, y) for x, y in zip(along, values, strict=True) if y > 0]
        found[name] = loglog_slope(*zip(*kept, strict=True)).slope if len(kept) > 1 else float("nan")
    return found


def plot(series: Series, rows: Sequence[Row], path: Path) -> None:
    """Write the log-log plot of bound, labels and student, with the slopes in the legend."""
    along = [row.num_examples if series.axis == "n" else row.num_queries for row in rows]
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    fitted = slopes(series, rows)
    for name, marker in (("bound", "s"), ("labels_error", "o"), ("student_error", "^")):
        values = [getattr(row, name) for row in rows]
        axes.loglog(along, values, marker=marker, label=f"{name.replace('_', ' ')}, slope {fitted[name]:.2f}")
    axes.set(xlabel=series.axis, ylabel="share of errors", title=f"{series.name}; stated exponent {series.exponent:.2f}")
    axes.legend()
    figure.savefig(path)
    plt.close(figure)


def pac(out: Path, *, quick: bool) -> list[dict[str, object]]:
    """Run all sweeps; write one CSV and one plot each, and the table of exponents."""
    out.mkdir(parents=True, exist_ok=True)
    table: list[dict[str, object]] = []
    for series in all_series(quick):
        rows = run_series(series, 1 if quick else 3)
        name = f"{series.name} {series.axis}".replace(", ", "_").replace(" ", "_")
        if len(rows) < 2:
            print(f"{series.name}: the theorem gives no bound at these sizes")
            continue
        write_csv(out / f"{name}.csv", [dataclasses.asdict(row) for row in rows])
        plot(series, rows, out / f"{name}.png")
        table.append({"task": series.name, "along": series.axis, "stated": series.exponent, **slopes(series, rows)})
        print({key: round(value, 3) if isinstance(value, float) else value for key, value in table[-1].items()}, flush=True)
    write_csv(out / "exponents.csv", table)
    return table


def stability(out: Path, *, quick: bool) -> list[dict[str, object]]:
    """Measure one-pass descent on the logistic loss with decaying and with constant steps; write the table."""
    out.mkdir(parents=True, exist_ok=True)
    ridge, query, generator = 0.2, np.array([[0.7, 0.7]]), np.random.default_rng(11)
    table: list[dict[str, object]] = []
    for size in [50, 100, 200, 400] if quick else [50, 100, 200, 400, 800, 1600, 3200]:
        for kind, steps in (("decaying", decaying_steps(size, ridge, 0.25 + ridge)), ("constant", np.full(size, 0.5))):
            options = {"num_examples": size, "num_pairs": 500 if quick else 5000, "generator": generator}
            measured = on_average_stability(sgd_learner(steps, ridge), draw_in_ball, query, **options)
            bound = score_stability(one_pass_stability(steps, 1.0, ridge).value, 1.0)
            table.append({"n": size, "steps": kind, "measured": measured.worst, "upper": measured.upper[0], "bound": bound})
    write_csv(out / "stability.csv", table)
    for kind in ("decaying", "constant"):
        rows = [row for row in table if row["steps"] == kind]
        print(kind, "exponent", round(loglog_slope([row["n"] for row in rows], [row["measured"] for row in rows]).slope, 3))
    return table


def draw_in_ball(num_datasets: int, num_examples: int, generator: np.random.Generator) -> tuple[Floats, Integers]:
    """Features of norm at most 1 with logistic labels: the logistic loss is then 1-Lipschitz and 1/4-smooth."""
    features = generator.uniform(-1, 1, (num_datasets, num_examples, 2)) / np.sqrt(2)
    return features, (generator.random((num_datasets, num_examples)) < 1 / (1 + np.exp(-4 * features[..., 0]))).astype(np.int64)


def write_csv(path: Path, rows: Sequence[dict[str, object]]) -> None:
    """Write rows that share their keys."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else ["empty"])
        writer.writeheader()
        writer.writerows(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run one of the three verbs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    sizes = verbs.add_parser("sizes", help="V, alpha, beta, epsilon, delta -> n, m, T, k")
    sizes.add_argument("--vc-dimension", type=int, required=True)
    for name, default in (("alpha", 0.05), ("beta", 0.05), ("epsilon", 1.0), ("delta", 1e-6), ("best-error", 0.0)):
        sizes.add_argument(f"--{name}", type=float, default=default)
    sizes.add_argument("--agnostic", action="store_true")
    sizes.add_argument("--calibration", default="tight")
    for name in ("pac", "stability"):
        verb = verbs.add_parser(name)
        verb.add_argument("--out", type=Path, default=Path("theory"))
        verb.add_argument("--quick", action="store_true")
    given = parser.parse_args(arguments)
    if given.verb == "sizes":
        return print_sizes(given)
    (pac if given.verb == "pac" else stability)(given.out, quick=given.quick)
    return 0


def print_sizes(given: argparse.Namespace) -> int:
    """Print the sample sizes, or one line on what is wrong with the input (exit code 2)."""
    try:
        found = sample_sizes(
            given.vc_dimension,
            given.alpha,
            given.beta,
            given.epsilon,
            given.delta,
            not given.agnostic,
            best_error=given.best_error,
            calibration=given.calibration,
        )
    except ArgumentError as error:
        print(error, file=sys.stderr)
        return 2
    for field in dataclasses.fields(found):
        print(f"{field.name:22} {getattr(found, field.name)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
