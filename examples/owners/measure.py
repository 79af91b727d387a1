"""Measure what a federation of owners reaches on UCI Adult, beside one owner alone and all records in one hand.

    python measure.py                        # the table of README.md, as Markdown
    python measure.py --owners 10 --repeats 2

Everything runs in this process: counts, shares of the noise, sums and student are made by the app's own functions, and Flower
would only carry the messages between them. What is measured is accuracy on 6,281 public people.
"""

from __future__ import annotations

import argparse
import dataclasses
import secrets
import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from owners.answering import Student
from owners.model import fit_linear, fit_to_prior
from owners.rules import Settings
from owners.shares import counts_of, share_of, spec_of
from owners.table import Table, owner_of_records
from sklearn.linear_model import LogisticRegression

import teacher_student as ts
from teacher_student.aggregation.release import fractions_of
from teacher_student.data.adult import load_adult
from teacher_student.mechanisms.noisy_sums import to_codes

HERE = Path(__file__).parent
FITS = {"plain": fit_linear, "prior": fit_to_prior}


def settings_of(owners: int, teachers: int, epsilon: float, ask: int) -> Settings:
    """Return settings of a federation in which a tenth of the owners may be lost and a tenth may collude."""
    config: dict[str, Any] = tomllib.loads((HERE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    lost = owners // 10
    config |= {"owners": owners, "least": owners - lost, "colluding": lost, "teachers": teachers, "epsilon": epsilon, "ask": ask}
    return Settings.from_config(config)


def student_of(sums: NDArray[np.int64], settings: Settings, points: NDArray[np.float32]) -> Student:
    """Return the student of noisy sums, as the server learns it."""
    shares = fractions_of(to_codes(sums), spec_of(settings, len(points)), settings.owners * settings.teachers)
    return Student.learn(points, sums.argmax(axis=1), shares)


def together(tables: list[Table], settings: Settings, points: NDArray[np.float32], fit: Any) -> Student:
    """Return the student of all owners, each of which adds its share of the noise."""
    given = [share_of(counts_of(table, fit, points, settings, secrets.token_bytes(32)), settings) for table in tables]
    return student_of(np.sum(given, axis=0), settings, points)


def voting(tables: list[Table], settings: Settings, points: NDArray[np.float32], fit: Any, unit: str, ask: int) -> Student:
    """Return the student of labels for which every owner has one vote."""
    one = dataclasses.replace(settings, teachers=1, noise="server", secure=True, unit=unit)
    counts = np.sum([counts_of(table, fit, points[:ask], one, bytes(32)) for table in tables], axis=0)
    options: dict[str, Any] = {"neighbours": "zero_out", "vote_change": "withdrawn"} if unit == "owner" else {}
    sizes = {"num_classes": 2, "num_teachers": len(tables), "cutoff": None, "mechanism": "permute_and_flip"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        release = ts.label(counts=counts, epsilon=settings.epsilon, delta=settings.delta, **sizes, **options)
    return Student.learn(points[:ask], release.labels)


def main() -> None:
    """Print one row for each number of owners and each skew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--owners", type=int, nargs="+", default=[10, 50, 250])
    parser.add_argument("--skew", type=float, nargs="+", default=[1.0, 0.1])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--total", type=int, default=500, help="teachers of all owners together")
    parser.add_argument("--ask", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--fit", choices=FITS, default="prior")
    given = parser.parse_args()
    data = load_adult()
    everything = Table(data.private_features, data.private_labels, data.private_ids)
    points, fit = data.public_features[: given.ask], FITS[given.fit]
    best = LogisticRegression(max_iter=500).fit(data.private_features, data.private_labels)
    print(f"without privacy, one hand: {100 * best.score(data.evaluation_features, data.evaluation_labels):.2f}\n")
    print("| epsilon | owners | skew | together | one hand | one owner alone | one vote for each owner: record | owner |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for epsilon in given.epsilon:
        for owners in given.owners:
            for skew in given.skew:
                found: dict[str, list[float]] = {}

                def note(name: str, student: Student, found: dict[str, list[float]] = found) -> None:
                    right = student.predict(data.evaluation_features) == data.evaluation_labels
                    found.setdefault(name, []).append(100 * float(right.mean()))

                for repeat in range(given.repeats):
                    home = owner_of_records(data.private_labels, owners, skew, seed=repeat)
                    tables = [everything.rows(home == owner) for owner in range(owners)]
                    settings = settings_of(owners, given.total // owners, epsilon, given.ask)
                    note("together", together(tables, settings, points, fit))
                    hand = settings_of(1, given.total, epsilon, given.ask)
                    note("one hand", together([everything], hand, points, fit))
                    middle = int(np.argsort([len(table.labels) for table in tables])[owners // 2])
                    alone = settings_of(1, max(1, given.total // owners), epsilon, given.ask)
                    note("alone", together([tables[middle]], alone, points, fit))
                    for unit in ("record", "owner"):
                        note(unit, voting(tables, settings, points, fit, unit, min(given.ask, owners)))
                cells = [
                    f"{np.mean(values):.2f} ± {np.std(values) / max(1, len(values) - 1) ** 0.5:.2f}" for values in found.values()
                ]
                print(f"| {epsilon:g} | {owners} | {skew:g} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
