"""PrivateClassifier as it comes, beside the majority class and logistic regression without privacy, on tables at hand.

    uv run scripts/estimator_tables.py [--epsilon 1] [--splits 3] [--tables breast_cancer wine digits adult]

Half of each table is private, a quarter is public, and a quarter measures; Adult has its own split.

    uv run scripts/estimator_tables.py --votes VOTES.csv.gz [--epsilons 0.5 1 2 4]

What `ts.label` chooses for files of votes per class, beside the best that a hand could choose which knows these votes: at most a
tenth of the labels may be expected to differ from the plurality.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import teacher_student as ts
from teacher_student.data import load
from teacher_student.planning.recipe import CANDIDATES, WRONG, choose_mechanism
from teacher_student.planning.report import limit_in_words
from teacher_student.planning.request import Request
from teacher_student.planning.search import PublicGoal, PublicVotes

TABLES = ("breast_cancer", "wine", "digits", "adult")


def split(name: str, seed: int) -> tuple[np.ndarray, ...]:
    """Return private rows and labels, public rows, rows to measure on and their labels."""
    if name == "adult":
        data = load("adult", split_seed=seed, curves="steps")
        measured = data.evaluation_features, data.evaluation_labels
        return data.private_features, data.private_labels, data.public_features, *measured
    rows, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    private, public, rest = np.split(order, [len(order) // 2, 3 * len(order) // 4])
    return rows[private], labels[private], rows[public], rows[rest], labels[rest]


def compare_choices(file: str, epsilons: Sequence[float]) -> None:
    """Print a line for each epsilon: what is chosen from the sizes of a file of votes, and what a hand would choose."""
    counts = np.loadtxt(file, delimiter=",").astype(np.int64)
    votes, (queries, classes) = PublicVotes(counts), counts.shape
    print(f"| {Path(file).name}, epsilon | chosen | labels | wrong | by hand | labels | by hand, wrong as chosen |")
    print("|---:|---|---:|---:|---|---:|---:|")
    for epsilon in epsilons:
        sizes = {"num_teachers": votes.num_teachers, "num_queries": queries, "num_classes": classes}
        chosen = choose_mechanism(Request(epsilon=epsilon, delta=1e-5, **sizes)).parameters
        found = votes.expected(chosen, queries)
        wrong = 1 - found.agreeing / found.answers
        hands = []
        for share in (WRONG, wrong):
            goal = PublicGoal(votes, queries, epsilon, 1e-5, share)
            options = [option for name in (*CANDIDATES, "lnmax", "permute_and_flip") if (option := goal.best(name))]
            hands.append(max(options, key=lambda option: option.worth))
        best, same = hands
        print(
            f"| {epsilon:g} | {chosen.mechanism}, {limit_in_words(chosen)} | {found.agreeing:,.0f} | {wrong:.1%} | "
            f"{best.parameters.mechanism}, {limit_in_words(best.parameters)} | {best.worth:,.0f} | {same.worth:,.0f} |",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--votes", nargs="+", default=[])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 2.0, 4.0])
    given = parser.parse_args(arguments)
    for file in given.votes:
        compare_choices(file, given.epsilons)
    if given.votes:
        return
    warnings.simplefilter("ignore")
    print(
        f"| table | private records | majority | PrivateClassifier, epsilon {given.epsilon:g} | logistic regression | seconds |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for name in given.tables:
        majority, ours, plain, seconds = [], [], [], []
        for seed in range(given.splits):
            private, labels, points, rows, truth = split(name, seed)
            start = time.perf_counter()
            public = {"classes": np.unique(truth).tolist(), "population": len(labels)}
            model = ts.PrivateClassifier(given.epsilon, **public, random_state=seed)
            model.fit(private, labels, points, ids=np.arange(len(labels)))
            seconds.append(time.perf_counter() - start)
            ours.append(100 * model.score(rows, truth))
            majority.append(100 * np.bincount(truth).max() / len(truth))
            reference = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(private, labels)
            plain.append(100 * reference.score(rows, truth))
        error = np.std(ours, ddof=1) / len(ours) ** 0.5 if len(ours) > 1 else float("nan")
        print(
            f"| {name} | {len(labels):,} | {np.mean(majority):.1f} | {np.mean(ours):.1f} ± {error:.1f} | {np.mean(plain):.1f} | "
            f"{np.mean(seconds):.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
