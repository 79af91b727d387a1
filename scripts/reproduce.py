"""Reproduce the tables of docs/results.md: mechanisms on the same teachers, over public splits with fresh shards and noise.

uv run scripts/reproduce.py                                  # UCI Adult: all methods, five budgets, eight splits
uv run scripts/reproduce.py --table digits                   # scikit-learn's digits, ten classes; or mnist5000
uv run scripts/reproduce.py --table digits_frozen            # the same through a frozen network; or mnist5000_frozen
uv run scripts/reproduce.py --splits 10 --only stability corrected --epsilons 1 2
uv run scripts/reproduce.py --table owners                   # Adult, whole owners of several records protected
uv run scripts/reproduce.py --table boosting                 # Adult, gradient-boosted trees as teachers
uv run scripts/reproduce.py --table mnist --splits 5         # 55,000 private images; TEACHER_STUDENT_DATA names their folder
uv run scripts/reproduce.py --table pate2018_votes           # labels from the published vote counts (scripts/mechanism_table.py)

Prints Markdown (mean over splits ± standard error of the student's accuracy) and writes JSON and a plot beside it (--out).
Every guarantee is data-independent, delta 1e-5. A split has its own public pool, shard key, teachers and noise; the mechanisms of
one split share teachers where their settings are the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from joblib import Memory, Parallel, delayed

from research.benchmarks.peers import fit_dp_sgd
from teacher_student import ArgumentError
from teacher_student.app import compose, settings_from_config
from teacher_student.data import PrivateDataset
from teacher_student.data.encodings import NetworkEncoding
from teacher_student.monitoring.console import Display
from teacher_student.pipeline.diagnostics import Asked, baselines, evaluate
from teacher_student.pipeline.folder import open_run
from teacher_student.pipeline.modes import mode_for
from teacher_student.pipeline.processes import ALONE
from teacher_student.pipeline.rounds import silent
from teacher_student.pipeline.runner import ask_teachers
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import Run
from teacher_student.teachers.trainer import silence_lightning

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
SMALL_EPSILONS = (0.1, 0.25, 0.5, 1.0)
"""Of the table mnist."""
COMMON = ("privacy.delta=1e-5", "baselines=false", "logger=none", "budget.ledger=null")


@dataclasses.dataclass(frozen=True)
class Method:
    """A row of a table.

    Attributes:
        name: name of the row.
        teachers: overrides for the teachers; rows with the same overrides share teachers.
        labels: overrides for the release and the student.
        budgets: for each epsilon, its own overrides (a cutoff, a number of queries); all of them public.
        crowds: for an epsilon that needs other teachers, the overrides for these.
        owned: records of one owner; owners are then protected as a whole, and each has one teacher.
    """

    name: str
    teachers: tuple[str, ...]
    labels: tuple[str, ...] = ()
    budgets: dict[float, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    crowds: dict[float, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    owned: int = 1

    def teachers_at(self, epsilon: float) -> tuple[str, ...]:
        """Return the overrides for the teachers at an epsilon."""
        return (*self.teachers, *self.crowds.get(epsilon, ()))


def asking(*numbers: int) -> dict[float, tuple[str, ...]]:
    """Return the override for the number of queries at each epsilon."""
    return {epsilon: (f"queries.total={number}",) for epsilon, number in zip(EPSILONS, numbers, strict=True)}


def halting(*cutoffs: int) -> dict[float, tuple[str, ...]]:
    """Return the override for the cutoff at each epsilon."""
    return {epsilon: (f"privacy.cutoff={cutoff}",) for epsilon, cutoff in zip(EPSILONS, cutoffs, strict=True)}


ADULT = ("experiment=adult",)
CORRECTED = ("experiment=adult_fractions",)
CROWDS = {
    0.25: ("teachers.number=4000",),
    0.5: ("teachers.number=4000",),
    4.0: ("teachers.number=1000", "data.view.components=60", "boosting.rounds=8"),
}
"""At small epsilon more teachers outweigh the noise; at epsilon 4 fewer teachers see more records and columns each."""
SCORES = ("experiment=adult_scores",)
SCORERS: dict[float, tuple[str, ...]] = {
    0.25: ("teachers.number=8000", "data.view.components=60"),
    0.5: ("teachers.number=16000", "mechanism.norm=1.0"),
}
BOOSTED = (*CORRECTED, "learner=boosting", "teachers.number=500", "learner.num_workers=1")
"""The best at epsilon 1 on one split, of 500 to 2,000 teachers with 5 or 20 trees each, on components or plain columns."""


def _fewer(teachers: int) -> dict[float, tuple[str, ...]]:
    """Return, for every epsilon, as many teachers as the owners can fill."""
    return dict.fromkeys(EPSILONS, (f"teachers.number={teachers}",))


FEWER = ("data.view.components=null", "teachers.number=100", "teachers.training.steps=200", "teachers.training.batch_size=16")
"""For hard labels of images: fewer teachers, with ten or more images each, that see all pixels."""
SPARSE = (
    "queries.order=random",
    "student.settings.propagation=0",
    "student/method=virtual_adversarial",
    "student.settings.method.entropy_weight=0.3",
    "+student.settings.prior_precision=5.0",
)
"""For a student of a few hard labels."""
NEIGHBOUR = (
    "learner=sklearn",
    "learner.estimator._target_=sklearn.neighbors.KNeighborsClassifier",
    "~learner.estimator.max_depth",
    "+learner.estimator.n_neighbors=1",
    "learner.num_workers=1",
)
"""Teachers without a gradient: the nearest neighbour."""


VOTES = {epsilon: (f"learner.votes={votes}",) for epsilon, votes in zip(EPSILONS, (24, 24, 12, 6, 6), strict=True)}
"""Votes of a record: many where noise is strong, since neighbouring points share it."""
SURE = dict.fromkeys((2.0, 4.0), ("student.settings.propagation=3", "student.settings.epochs=300"))
"""For a student of counts with little noise."""


SURROGATE = 5000
"""First training images of MNIST, on which settings were chosen. They count as public, and the table leaves them out."""


LOCAL = {0.1: (100, 6), 0.25: (250, 6), 0.5: (500, 12), 1.0: (500, 12)}
"""Points asked and votes of a record on MNIST."""
VOTERS = {epsilon: (f"queries.total={total}", f"learner.votes={votes}") for epsilon, (total, votes) in LOCAL.items()}
CUTOFFS = {epsilon: (f"privacy.cutoff={cutoff}",) for epsilon, cutoff in zip(LOCAL, (3, 6, 10, 10), strict=True)}


def images(experiment: str) -> tuple[Method, ...]:
    """Return the rows of a small image set."""
    few = (f"experiment={experiment}",)
    hard, asked = (*few, "mechanism=exponential", *FEWER), asking(20, 30, 50, 80, 100)
    return (
        Method("few_votes", few),
        Method("local votes", (*few, "learner=nearest", "mechanism=noisy_fraction"), (), SURE, VOTES),
        Method("few_votes, nearest neighbour", (*few, *NEIGHBOUR)),
        Method("noisy_fraction", (*few, "mechanism=noisy_fraction", "teachers.number=200")),
        Method("exponential", hard, SPARSE, asked),
        Method("gnmax", hard, ("mechanism=gnmax", *SPARSE), asked),
        Method("confident_gnmax", hard, ("mechanism=confident_gnmax", *SPARSE), asked),
        Method("lnmax", hard, ("mechanism=lnmax", *SPARSE), asked),
        Method("stability", hard, ("mechanism=stability", *SPARSE), halting(3, 3, 3, 5, 10)),
    )


TABLES = {
    "adult": (
        Method("stability", ADULT, (), halting(50, 50, 100, 300, 600)),
        Method("gnmax", ADULT, ("mechanism=gnmax",), asking(100, 200, 500, 1500, 4000)),
        Method("confident_gnmax", ADULT, ("mechanism=confident_gnmax",), asking(100, 200, 500, 1500, 4000)),
        Method("lnmax", ADULT, ("mechanism=lnmax",), asking(100, 200, 500, 1500, 4000)),
        Method("noisy_fraction", CORRECTED, ("boosting.rounds=0",)),
        Method("corrected", CORRECTED, (), {}, CROWDS),
        Method("scores", SCORES, (), {}, SCORERS),
        Method("gradients", ("experiment=adult_gradients",)),
    ),
    "owners": tuple(
        Method(f"scores, owners of {owned} records", SCORES, (), {}, _fewer(teachers), owned)
        for owned, teachers in ((4, 4000), (16, 2000), (64, 500))
    ),
    "boosting": (
        Method("corrected, boosted trees", BOOSTED),
        Method("exponential, boosted trees", ("experiment=adult_boosting",), (), asking(100, 200, 500, 1500, 4000)),
    ),
    "digits": (*images("digits"), Method("gradients", ("experiment=digits_gradients",))),
    "mnist5000": images("mnist5000"),
    "mnist": (
        Method("stability", ("experiment=mnist_local",), (), CUTOFFS, VOTERS),
        Method("noisy_fraction", ("experiment=mnist_local",), ("mechanism=noisy_fraction", "~mechanism.accountant"), {}, VOTERS),
        Method("gradients", ("experiment=mnist_gradients",)),
    ),
    **{name: (Method("few_votes", (f"experiment={name}",)),) for name in ("digits_frozen", "mnist5000_frozen")},
}


PEERS: dict[str, dict[str, dict[str, Any]]] = {
    "adult": {
        "DP-SGD (Opacus)": {},
        "DP-SGD (Opacus), four steps": {"learning_rate": 8.0, "clip": 3.0, "epochs": 4, "batch": None},
    },
    "owners": {"DP-SGD (Opacus)": {"learning_rate": 1.0, "clip": 0.3}},
    "boosting": {},
    "mnist": {},
    **{
        name: {"DP-SGD (Opacus)": {"learning_rate": 4.0, "clip": 0.3, "epochs": 80}}
        for name in ("digits", "mnist5000", "digits_frozen", "mnist5000_frozen")
    },
}
"""Settings of DP-SGD, each the best of those tried. For owners: rates from 0.5 to 4, clips 0.1, 0.3 and 1, at epsilon 0.25 to 1.
On digits: rates from 2 to 8, clips 0.3 and 1, 20 to 80 epochs, at epsilon 2. In four steps: rates 2, 4 and 8, clips 0.3, 1 and 3,
at epsilon 1. Boosted trees on Adult are to be compared with the table adult."""


def settings_of(method: Method, epsilon: float, split: int) -> RunSettings:
    """Return the settings of one cell of the table."""
    budget = method.budgets.get(epsilon, ())
    overrides = [*method.teachers_at(epsilon), *method.labels, *budget, *COMMON, f"privacy.epsilon={epsilon}", f"seed={split}"]
    if full_mnist := method.teachers[0].startswith("experiment=mnist_"):
        overrides.append(f"+data.split_seed={split}")
    settings = settings_from_config(compose("run", overrides))
    if full_mnist:
        return dataclasses.replace(settings, data=lambda: without_surrogate(settings.data()))
    if method.owned == 1:
        return settings
    return dataclasses.replace(settings, data=lambda: with_owners(settings.data(), method.owned, split))


def without_surrogate(dataset: PrivateDataset) -> PrivateDataset:
    """Return MNIST without the first training images."""
    parts = ("private_features", "private_labels", "private_ids", "student_private_features")
    found = {name: getattr(dataset, name) for name in parts}
    return dataclasses.replace(dataset, **{name: rows[SURROGATE:] for name, rows in found.items() if rows is not None})


def with_owners(dataset: PrivateDataset, owned: int, seed: int) -> PrivateDataset:
    """Return the data set with a random owner for each record; each owner has `owned` records."""
    owners = np.random.default_rng(seed).permutation(len(dataset.private_labels)) // owned
    return dataclasses.replace(dataset, private_users=owners)


def student_accuracy(asked: Asked, settings: RunSettings, folder: Path) -> float:
    """Release labels of votes that are there, teach a student, and return its accuracy; NaN where nothing was answered."""
    run = Run(settings, asked.run.dataset, open_run(folder, settings.config))
    if settings.each_record is None:  # correcting teachers need the shards
        shutil.copy(asked.run.folder.private / "shards.json", run.folder.private / "shards.json")
    mode = mode_for(settings, run.dataset.public_sizes)
    release = mode.release_labels(run, asked.votes, silent, None)
    if not release.answered.any():
        return float("nan")
    student = mode.teach(run, release, silent)
    return evaluate(student.publishable, asked.run.dataset).metrics["accuracy"]


def one_split(
    table: str, methods: tuple[Method, ...], epsilons: tuple[float, ...], split: int, kept: Path
) -> list[dict[str, Any]]:
    """Return the cells of one split: {method, epsilon, split, accuracy}. Features of images are kept in the folder `kept`."""
    compute = Memory(kept, verbose=0).cache(features_of_images, ignore=["encoding"])
    with mock.patch.object(NetworkEncoding, "project", lambda self, images: compute(str(self.describe()), images, self)):
        return [{"split": split, **cell} for cell in _cells(table, methods, epsilons, split)]


PROJECT = NetworkEncoding.project


def features_of_images(_network: str, images: np.ndarray, encoding: NetworkEncoding) -> np.ndarray:
    """Return what a network sees of images; its description and the images are the key by which it is kept."""
    return PROJECT(encoding, images)


def _cells(table: str, methods: tuple[Method, ...], epsilons: tuple[float, ...], split: int) -> Iterator[dict[str, Any]]:
    asked: dict[tuple[int | str, ...], Asked] = {}
    with silence_lightning(), tempfile.TemporaryDirectory() as place:
        for method, epsilon in itertools.product(methods, epsilons):
            settings, teachers = settings_of(method, epsilon, split), (method.owned, *method.teachers_at(epsilon))
            if teachers not in asked:
                found = ask_teachers(settings, Path(place) / f"teachers{len(asked)}", Display("quiet"), ALONE)
                assert found is not None
                asked[teachers] = found
            accuracy = student_accuracy(asked[teachers], settings, Path(place) / f"{method.name}{epsilon}")
            print(f"split {split}: {method.name}, epsilon {epsilon:g}: {accuracy:.4f}", file=sys.stderr, flush=True)
            yield {"method": method.name, "epsilon": epsilon, "accuracy": accuracy}
        if methods[0] is TABLES[table][0] and table not in ("owners", "boosting", "mnist"):
            yield from _peers(asked[(1, *methods[0].teachers)], settings_of(methods[0], 1.0, split))
    for owned in dict.fromkeys(method.owned for method in methods) if PEERS[table] else ():
        yield from _dp_sgd(table, owned, epsilons, split)


def _peers(asked: Asked, settings: RunSettings) -> Iterator[dict[str, Any]]:
    """What the students are measured against: without noise, and without teachers."""
    run = dataclasses.replace(asked.run, settings=settings)
    mode = mode_for(settings, run.dataset.public_sizes)
    models = baselines(run, mode.noiseless_targets(mode.count_votes(asked.votes)))
    for name in ("student of noiseless labels", "non-private model"):
        yield {"method": name, "epsilon": None, "accuracy": models[name]()["accuracy"]}


def _dp_sgd(table: str, owned: int, epsilons: tuple[float, ...], split: int) -> Iterator[dict[str, Any]]:
    """Yield the cells of DP-SGD on its best columns: all whitened components on Adult, else those of the table's first row."""
    chosen = TABLES[table][-1 if table == "adult" else 0]
    dataset = settings_of(dataclasses.replace(chosen, owned=owned), 1.0, split).data()
    for (name, tuned), epsilon in itertools.product(PEERS[table].items(), epsilons):
        model = fit_dp_sgd(dataset, epsilon, 1e-5, seed=split, **tuned)
        method = name if owned == 1 else f"{name}, owners of {owned} records"
        yield {"method": method, "epsilon": epsilon, "accuracy": evaluate(model, dataset).metrics["accuracy"]}


def markdown(cells: list[dict[str, Any]], epsilons: tuple[float, ...]) -> str:
    """Return the table: a row for each method, mean ± standard error in percent."""
    rows = ["| epsilon | " + " | ".join(f"{epsilon:g}" for epsilon in epsilons) + " |", "|---|" + "---:|" * len(epsilons)]
    for method in dict.fromkeys(cell["method"] for cell in cells):
        own = [cell for cell in cells if cell["method"] == method]
        columns = [summary([cell["accuracy"] for cell in own if cell["epsilon"] in (epsilon, None)]) for epsilon in epsilons]
        rows.append(f"| {method} | " + " | ".join(columns) + " |")
    return "\n".join(rows)


def summary(values: list[float]) -> str:
    """Return mean ± standard error over the splits that answered, in percent; how many answered where some did not."""
    found = np.array([value for value in values if np.isfinite(value)]) * 100
    if not len(found):
        return "–"
    error = found.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else float("nan")
    note = "" if len(found) == len(values) else f" ({len(found)} of {len(values)})"
    return f"{found.mean():.2f} ± {error:.2f}{note}"


def plot(cells: list[dict[str, Any]], path: Path) -> None:
    """Draw accuracy against epsilon, a line for each method."""
    import matplotlib.pyplot as plt

    from teacher_student.monitoring.plots import STYLE

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.4, 4.0))
        flat = itertools.cycle((":", "--"))
        for method in dict.fromkeys(cell["method"] for cell in cells):
            own = [cell for cell in cells if cell["method"] == method and np.isfinite(cell["accuracy"])]
            if own and own[0]["epsilon"] is None:
                height = 100 * np.mean([cell["accuracy"] for cell in own])
                axes.axhline(height, color="0.4", linestyle=next(flat), linewidth=1, label=method)
                continue
            epsilons = sorted({cell["epsilon"] for cell in own})
            groups = [[100 * cell["accuracy"] for cell in own if cell["epsilon"] == epsilon] for epsilon in epsilons]
            errors = [np.std(group, ddof=1) / np.sqrt(len(group)) if len(group) > 1 else 0.0 for group in groups]
            axes.errorbar(epsilons, [np.mean(group) for group in groups], yerr=errors, marker="o", markersize=3, label=method)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("epsilon (delta = 1e-5)")
        axes.set_ylabel("accuracy of the student, %")
        axes.legend(fontsize=7)
        figure.savefig(path, dpi=150, bbox_inches="tight")
        plt.close(figure)


def main() -> None:
    """Print a table and write its numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", default="adult", choices=[*TABLES, "pate2018_votes"])
    parser.add_argument("--splits", type=int, default=8, help="number of public splits (default 8)")
    parser.add_argument("--first", type=int, default=0, help="first split, a seed (default 0)")
    parser.add_argument("--epsilons", type=float, nargs="*", help=f"of {EPSILONS}, or of {SMALL_EPSILONS} for mnist")
    parser.add_argument(
        "--only", nargs="*", help="names of methods; students without noise are measured with the first method of the table"
    )
    parser.add_argument("--workers", type=int, default=1, help="number of processes; each runs whole splits")
    parser.add_argument("--out", type=Path, default=Path("runs") / "tables", help="folder for JSON and plot")
    options = parser.parse_args()
    if options.table == "pate2018_votes":
        sys.exit(subprocess.call([sys.executable, Path(__file__).with_name("mechanism_table.py")]))
    methods = tuple(method for method in TABLES[options.table] if not options.only or method.name in options.only)
    budgets = SMALL_EPSILONS if options.table == "mnist" else EPSILONS
    epsilons = tuple(options.epsilons or budgets)
    if not methods or not set(epsilons) <= set(budgets) or options.splits < 1:
        raise SystemExit(
            f"--only, --epsilons and --splits must name methods of the table, budgets of {budgets} and a number of splits"
        )
    splits = range(options.first, options.first + options.splits)
    try:
        jobs = (delayed(one_split)(options.table, methods, epsilons, split, options.out / "features") for split in splits)
        options.out.mkdir(parents=True, exist_ok=True)
        cells: list[dict[str, Any]] = []
        for found in Parallel(n_jobs=options.workers, return_as="generator_unordered")(jobs):
            cells += found
            (options.out / f"{options.table}.json").write_text(json.dumps(cells, indent=1) + "\n")
            print(f"split {found[0]['split']} done", file=sys.stderr, flush=True)
    except ArgumentError as error:
        raise SystemExit(str(error)) from error
    plot(cells, options.out / f"{options.table}.png")
    print(markdown(cells, epsilons))


if __name__ == "__main__":
    main()
