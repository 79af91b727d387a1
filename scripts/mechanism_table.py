"""Print, as Markdown, how many labels each mechanism releases and how many are the plurality's, on published and simulated votes.

python scripts/mechanism_table.py                              the tables of docs/mechanisms.md
python scripts/mechanism_table.py --runs 1 --teachers 4000     faster, with another simulated size
python scripts/mechanism_table.py --failure 0.001              noisy maxima as sure of a clear vote as the stability mechanism

Every mechanism's parameters are chosen by the planner from public sizes (teachers, queries, classes, epsilon, delta), and its
guarantee is data-independent. Figures are means over `--runs` sessions with repeatable noise: a study, not a private release.
The published votes (Papernot et al. 2018: 250 teachers, one row of counts per query) are read from --votes if they are there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from teacher_student import ArgumentError
from teacher_student.arguments import Integers, fraction_of_one, positive_integer
from teacher_student.mechanisms import GeneratorNoise, build_mechanism, distance_to_instability
from teacher_student.planning.request import Request, choose_parameters
from teacher_student.privacy import MECHANISMS

BUDGETS = ((1.0, 1e-5), (2.0, 1e-6))
PUBLISHED = {"MNIST": "mnist_250_teachers.votes.csv.gz", "Adult": "adult_250_teachers.votes.csv.gz"}
VOTES = Path(__file__).parents[2] / "shared" / "data" / "pate2018_votes"


class Profile(NamedTuple):
    """A stream of queries: name, counts (num_queries, num_classes), number of teachers, and whether the order is random."""

    name: str
    counts: Integers
    num_teachers: int
    shuffled: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one table for each budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--votes", type=Path, default=VOTES, help="folder of the published votes")
    parser.add_argument("--teachers", type=int, nargs="+", default=[1000, 2000], help="sizes of the simulated ensembles")
    parser.add_argument("--stable", type=float, nargs="+", default=[0.9, 0.99], help="shares of clear queries to simulate")
    parser.add_argument("--agreement", type=float, default=0.99, help="share of the teachers behind a clear simulated query")
    parser.add_argument("--queries", type=int, default=10_000, help="queries of a simulated stream")
    parser.add_argument("--failure", type=float, default=0.05, help="share of clear votes that the plan lets fail")
    parser.add_argument(
        "--clear-share", type=float, default=0.9, help="lead of a clear vote that the plan assumes, of all teachers"
    )
    parser.add_argument("--runs", type=int, default=10, help="sessions that each figure is a mean of")
    parser.add_argument("--seed", type=int, default=0, help="of the simulated votes and the noise")
    options = parser.parse_args(arguments)
    try:
        positive_integer("runs", options.runs)
        profiles = [*published(options.votes), *simulated(options)]
        for epsilon, delta in BUDGETS:
            print(table(profiles, epsilon, delta, options))
    except ArgumentError as error:
        print(f"mechanism_table: {error}", file=sys.stderr)
        return 2
    return 0


def published(folder: Path) -> list[Profile]:
    """Return the published votes that are in `folder`; say which are missing."""
    found = []
    for name, file in PUBLISHED.items():
        if not (folder / file).exists():
            print(f"{name}: skipped, no {file} in {folder} (--votes names the folder)", file=sys.stderr)
            continue
        found.append(Profile(name, np.loadtxt(folder / file, delimiter=",", dtype=np.int64), 250))
    return found


def simulated(options: argparse.Namespace) -> list[Profile]:
    """Return two-class streams of clear queries, and of unstable queries on which every teacher tosses a coin."""
    generator, queries = np.random.default_rng(options.seed), positive_integer("queries", options.queries)
    agreement = fraction_of_one("agreement", options.agreement)
    found = []
    for teachers in options.teachers:
        positive_integer("teachers", teachers)
        for stable in options.stable:
            clear = np.arange(queries) < round(fraction_of_one("stable", stable) * queries)
            votes = generator.binomial(teachers, np.where(clear, agreement, 0.5))
            counts = np.stack([votes, teachers - votes], axis=1)
            found.append(Profile(f"{teachers:,} teachers, {stable:.0%} clear", counts, teachers, shuffled=True))
    return found


def table(profiles: Sequence[Profile], epsilon: float, delta: float, options: argparse.Namespace) -> str:
    """Return the Markdown table of one budget."""
    head = ["mechanism", *(f"{profile.name} (of {len(profile.counts):,})" for profile in profiles)]
    rows = [[name, *(cell(name, profile, epsilon, delta, options) for profile in profiles)] for name in MECHANISMS]
    lines = [head, ["---", *["---:"] * len(profiles)], *rows]
    title = f"\nLabels released, and how many are the plurality's, at epsilon {epsilon:g}, delta {delta:g}\n\n"
    return title + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(mechanism: str, profile: Profile, epsilon: float, delta: float, options: argparse.Namespace) -> str:
    """Return the mean numbers of labels and of agreeing labels of one mechanism on one stream."""
    request = Request(
        num_teachers=profile.num_teachers,
        num_queries=len(profile.counts),
        num_classes=profile.counts.shape[1],
        epsilon=epsilon,
        delta=delta,
        failure=options.failure,
        clear_share=options.clear_share,
    )
    chosen = build_mechanism(choose_parameters(mechanism, request))
    generator = np.random.default_rng(options.seed + 1)
    noise, found = GeneratorNoise(generator), []
    for _ in range(options.runs):
        counts = generator.permutation(profile.counts) if profile.shuffled else profile.counts
        labels, _ = chosen.answer(counts, chosen.start(noise), noise)
        found.append([(labels >= 0).sum(), (labels == distance_to_instability(counts)[0]).sum()])
    answers, agreeing = np.mean(found, axis=0)
    return f"{answers:,.0f} / {agreeing:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
