"""Labelling a million queries from counts, compared with drawing the noise alone and with a loop in Python."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from research.benchmarks.timing import interleaved, ratio
from teacher_student.mechanisms import build_mechanism, distance_to_instability
from teacher_student.mechanisms.noise import GeneratorNoise, SystemNoise
from teacher_student.privacy import Stability


def labelling(samples: int, clock: str, queries: int = 1_000_000) -> dict[str, Any]:
    """Return seconds for each part; the loop runs on a fiftieth of the queries and is scaled."""
    generator = np.random.default_rng(0)
    top = generator.integers(9_000, 10_001, queries)  # of 10,000 teachers: clear enough that the session does not halt
    counts = np.stack([top, 10_000 - top], axis=1).astype(np.uint16)
    parameters = Stability.calibrate(epsilon=1.0, delta=1e-5, cutoff=100)
    mechanism = build_mechanism(parameters)

    def label(noise: Any) -> float:
        labels, _ = mechanism.answer(counts, mechanism.start(noise), noise)
        return float((labels >= 0).sum()) / queries

    def draw(noise: Any) -> float:
        noise.two_geometrics(parameters.query_scale, queries)
        return 1.0

    part = counts[: queries // 50]

    def loop() -> float:
        noise = GeneratorNoise(np.random.default_rng(1)).two_geometrics(parameters.query_scale, len(part))
        for row, query_noise in zip(part, noise, strict=True):
            winner, distance = distance_to_instability(row[None])
            _ = int(winner[0]) if int(distance[0]) - int(query_noise) > parameters.threshold else -1
        return len(part) / queries

    generated, system = GeneratorNoise(np.random.default_rng(2)), SystemNoise()
    names = {
        "labelling": lambda: label(generated),
        "noise": lambda: draw(generated),
        "statistic": lambda: float(len(distance_to_instability(counts)[0])) / queries,
        "loop": loop,
    }
    seconds = interleaved(names, samples, clock)
    result: dict[str, Any] = {f"{name}_seconds": statistics.median(values) for name, values in seconds.items()}
    result |= {"times_loop": ratio(seconds["loop"], seconds["labelling"]), "queries": queries}
    few = queries // 10
    exact = interleaved({"noise": lambda: len(system.two_geometrics(parameters.query_scale, few)) / queries}, 1, clock)
    return result | {"exact_noise_seconds": statistics.median(exact["noise"])}
