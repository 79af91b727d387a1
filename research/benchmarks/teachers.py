"""Teachers per second, votes per second, and growth in the number of teachers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from research.benchmarks.baselines import BASELINES
from research.benchmarks.timing import interleaved, product, ratio
from teacher_student.aggregation.votes import count_votes
from teacher_student.mechanisms import distance_to_instability
from teacher_student.teachers import (
    CNN,
    MLP,
    LogisticRegression,
    ResNet,
    TeacherEnsemble,
    TrainingSettings,
    predict_votes,
    train_teachers,
)
from teacher_student.teachers.chunk import ChunkTrainer, train_chunk
from teacher_student.teachers.engines import initial_stack
from teacher_student.teachers.record_voters import IntegerGrid, vote_of_records
from teacher_student.teachers.records import ShardedRecords

RECORDS = 60_000


@dataclass(frozen=True)
class Case:
    """One kind of teacher."""

    network: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    settings: TrainingSettings

    def operations(self) -> float:
        """Floating-point operations of one teacher's products, in all its steps: forward and backward, no input gradients."""
        network, size = self.network(), self.settings.batch_size
        with FlopCounterMode(display=False) as counter:
            functional.cross_entropy(network(torch.zeros(size, *self.shape)), torch.zeros(size, dtype=torch.int64)).backward()
        return float(counter.get_total_flops() * self.settings.steps)


SGD = TrainingSettings(learning_rate=0.01, steps=150)
CASES = {
    "logistic-784-sgd": Case(partial(LogisticRegression, 784, 10), (784,), 10, SGD),
    "logistic-105-adam": Case(partial(LogisticRegression, 105, 2), (105,), 2, replace(SGD, optimizer="adam")),
    "mlp-784-128": Case(partial(MLP, 784, 10, (128,)), (784,), 10, SGD),
    "cnn-mnist": Case(partial(CNN, (1, 28, 28), 10), (1, 28, 28), 10, replace(SGD, steps=20)),
    "resnet8-32": Case(partial(ResNet, (3, 32, 32), 10), (3, 32, 32), 10, replace(SGD, steps=20)),
}


def made(case: Case, teachers: int, k: int) -> tuple[Any, Any, Any, Any]:
    """Return records for `teachers` shards, each as large as a shard of `k` teachers on all records."""
    size = RECORDS // k
    generator = np.random.default_rng(0)
    features = generator.standard_normal((teachers * size, *case.shape), dtype=np.float32)
    labels = generator.integers(0, case.classes, len(features))
    return features, labels, generator.permutation(len(labels)), np.arange(teachers + 1) * size


def trained_of(case: Case, k: int, accelerator: str = "cpu") -> int:
    """Return how many of k teachers a turn trains. They bear the work done once for k: engine, rehearsal, Lightning."""
    images = len(case.shape) == 3
    return k if accelerator == "gpu" else min(k, 12 if images else 120)


def trained(case: Case, data: tuple[Any, Any, Any, Any], accelerator: str = "cpu", **changes: Any) -> TeacherEnsemble:
    """Train teachers on `data`, with some settings changed."""
    options = {"accelerator": accelerator, "devices": 1}
    return train_teachers(*data, network=case.network, settings=replace(case.settings, **changes), trainer_options=options)


def contenders(case: Case, k: int, accelerator: str) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield the name of each way of training with a call that returns how many teachers it has trained."""
    data = made(case, trained_of(case, k, accelerator), k)

    def ours() -> float:
        return float(trained(case, data, accelerator).num_teachers)

    yield "ours", ours
    device, size = "cuda" if accelerator == "gpu" else "cpu", RECORDS // k
    features, labels = torch.from_numpy(data[0][:size]).to(device), torch.from_numpy(data[1][:size]).to(device)

    def alone(train: Callable[..., None]) -> float:
        train(case.network, features, labels, case.settings)
        if accelerator == "gpu":
            torch.cuda.synchronize()
        return 1.0

    for name, train in BASELINES.items():
        yield name, partial(alone, train)
    yield "product", product(device)


def compare(name: str, k: int, samples: int, clock: str, accelerator: str = "cpu") -> dict[str, Any]:
    """Return one row: ours against the four baselines."""
    case = CASES[name]
    seconds = interleaved(dict(contenders(case, k, accelerator)), samples, clock)
    row: dict[str, Any] = {"network": name, "num_teachers": k, "trained": trained_of(case, k, accelerator)}
    row["teachers_per_second"] = 1 / statistics.median(seconds["ours"])
    row |= {f"times_{baseline}": ratio(seconds[baseline], seconds["ours"]) for baseline in BASELINES}
    return row | {"product_share": case.operations() * ratio(seconds["product"], seconds["ours"])}


def train_bare(case: Case, ensemble: TeacherEnsemble, records: ShardedRecords, number: int) -> float:
    """Train an ensemble's chunk anew without Lightning, store and progress; return how many teachers it has."""
    shards = ensemble.shards_of(number)
    chunk = records.chunk(shards.start, shards.stop, case.classes)
    trainer = ChunkTrainer(ensemble.engine, chunk, 0, [0.0] * len(shards), case.settings)
    train_chunk(trainer, initial_stack(case.network, case.settings, 0, shards))
    return float(len(shards))


def lightning(name: str, samples: int, clock: str, k: int = 250) -> dict[str, Any]:
    """Return what Lightning, the store and the progress cost over the bare engine on the same chunks, in percent."""
    case = CASES[name]
    few = trained_of(case, k)
    data = made(case, few, k)
    ensemble = trained(case, data, steps=1)
    records = ShardedRecords.of(*data)

    def bare() -> float:
        return sum(train_bare(case, ensemble, records, number) for number in range(ensemble.num_chunks))

    def whole() -> float:
        return float(trained(case, data).num_teachers)

    seconds = interleaved({"bare": bare, "lightning": whole}, samples, clock)
    percent = 100 * (ratio(seconds["lightning"], seconds["bare"]) - 1)
    return {"network": name, "ms_per_teacher": 1e3 * statistics.median(seconds["lightning"]), "percent_over_bare": percent}


def counting(samples: int, clock: str, points: int = 1_000_000, teachers: int = 250) -> dict[str, Any]:
    """Return seconds for the counts and gaps of a million queries; plain torch does a twentieth of them and is scaled."""
    predictions = np.random.default_rng(0).integers(-1, 10, (points, teachers), dtype=np.int16)
    part = torch.from_numpy(predictions[: points // 20])

    def ours() -> float:
        distance_to_instability(count_votes(predictions, 10))
        return 1.0

    def comparisons() -> float:
        torch.stack([(part == label).sum(1) for label in range(10)], 1).topk(2).values.diff()
        return len(part) / points

    def one_hot() -> float:
        functional.one_hot(part.long() + 1, 11).sum(1)[:, 1:].topk(2).values.diff()
        return len(part) / points

    seconds = interleaved({"ours": ours, "comparisons": comparisons, "one_hot": one_hot}, samples, clock)
    row = {f"{name}_seconds": statistics.median(values) for name, values in seconds.items()}
    return {**row, "times_torch": ratio(seconds["comparisons"], seconds["ours"])}


def votes(samples: int, clock: str) -> dict[str, Any]:
    """Votes per second of 250 MLPs on 2,000 points, against each teacher by itself."""
    case = CASES["mlp-784-128"]
    ensemble = trained(case, made(case, 250, 250), steps=1)
    points = np.random.default_rng(1).standard_normal((2_000, 784), dtype=np.float32)
    modules = [ensemble.teacher(j) for j in range(ensemble.num_teachers)]

    def ours() -> float:
        return float(sum(block.size for block in predict_votes(ensemble, points, trainer_options={"accelerator": "cpu"})))

    @torch.no_grad()
    def loop() -> float:
        return float(sum(len(module(torch.from_numpy(points)).argmax(1)) for module in modules))

    seconds = interleaved({"ours": ours, "loop": loop}, samples, clock)
    return {"votes_per_second": 1 / statistics.median(seconds["ours"]), "times_loop": ratio(seconds["loop"], seconds["ours"])}


def nearest(samples: int, clock: str, points: int = 10_000, features: int = 100, number: int = 6) -> dict[str, Any]:
    """Return seconds for the votes of 60,000 records on the 6 points nearest to each; the others do a tenth and are scaled.

    All see the same whole numbers. The shares say how many votes of the tenth are as ours: of points at equal distances, the
    others may take any, and the distances of `cdist` are rounded.
    """
    from sklearn.neighbors import NearestNeighbors

    generator = np.random.default_rng(0)
    records, places = (generator.standard_normal((size, features), dtype=np.float32) for size in (RECORDS, points))
    labels, grid = generator.integers(0, 10, RECORDS), IntegerGrid.fit(places)
    part, seen = grid.apply(records[: RECORDS // 10]), grid.apply(places)

    def ours(rows: int = RECORDS) -> Any:
        return vote_of_records(records[:rows], labels[:rows], places, number, num_classes=10)

    def scikit_learn() -> Any:
        return NearestNeighbors(n_neighbors=number, algorithm="brute").fit(seen).kneighbors(part, return_distance=False)

    def cdist() -> Any:
        blocks = torch.from_numpy(part).split(1_000)
        return torch.cat([torch.cdist(block, torch.from_numpy(seen)).topk(number, largest=False).indices for block in blocks])

    def agreeing(found: Any) -> float:
        counts = np.zeros((points, 10), dtype=np.int64)
        np.add.at(counts, (np.asarray(found).ravel(), np.repeat(labels[: len(part)], number)), 1)
        return 1 - np.abs(counts - ours(len(part))).sum() / (2 * counts.sum())

    def share_of(work: Callable[[], Any], done: float) -> Callable[[], float]:
        return lambda: (work(), done)[1]

    others = {"scikit_learn": scikit_learn, "cdist": cdist}
    contenders = {"ours": share_of(ours, 1.0), **{name: share_of(work, 0.1) for name, work in others.items()}}
    seconds = interleaved(contenders, samples, clock)
    row = {f"{name}_seconds": statistics.median(values) for name, values in seconds.items()}
    row |= {f"times_{name}": ratio(seconds[name], seconds["ours"]) for name in others}
    return row | {f"{name}_agrees": agreeing(work()) for name, work in others.items()}


def growth(samples: int, clock: str) -> list[dict[str, Any]]:
    """Milliseconds per teacher as k grows on the same 60,000 records; linear growth keeps them level."""
    case = CASES["logistic-105-adam"]
    data = {k: made(case, k, k) for k in (100, 1_000, 10_000)}

    def train(k: int) -> float:
        return float(trained(case, data[k], steps=50).num_teachers)

    seconds = interleaved({str(k): partial(train, k) for k in data}, samples, clock)
    return [{"num_teachers": int(k), "ms_per_teacher": 1e3 * statistics.median(values)} for k, values in seconds.items()]
