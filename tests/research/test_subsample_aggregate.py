"""The last box: queries to shards in, labels out; queries may depend on earlier labels; failures abstain."""

from __future__ import annotations

import numpy as np
import pytest

from research.subsample_aggregate import num_teachers_for, sub_sample_and_aggregate
from teacher_student.arguments import ArgumentError
from teacher_student.labels import ABSTAIN, HALTED
from teacher_student.mechanisms import GeneratorNoise, RecordedNoise
from teacher_student.mechanisms.online_release import OnlineRelease
from teacher_student.privacy import Stability, calibrate

QUIET = Stability(threshold_scale=1, query_scale=1, threshold=5, cutoff=2)


def run(shards, queries, noise_values: int = 100) -> list[int]:
    noise = RecordedNoise([0] * noise_values)
    return list(sub_sample_and_aggregate(shards, queries, num_classes=3, parameters=QUIET, noise=noise))


def test_the_plurality_of_the_shards_is_answered_where_it_is_stable() -> None:
    shards = [2] * 14 + [1] + [0]  # gap 13, distance 6 > 5
    assert run(shards, [lambda shard: shard]) == [2]
    assert run([*shards, 0, 0], [lambda shard: shard]) == [ABSTAIN]  # gap 11, distance 5


def test_it_halts() -> None:
    assert run([0, 1], [lambda shard: shard] * 4) == [ABSTAIN, ABSTAIN, HALTED, HALTED]


def test_queries_are_chosen_online() -> None:
    answers: list[int] = []

    def choose():
        yield lambda shard: 1
        yield lambda shard: answers[-1] + 1

    noise = RecordedNoise([0] * 10)
    for label in sub_sample_and_aggregate(range(20), choose(), num_classes=3, parameters=QUIET, noise=noise):
        answers.append(label)  # noqa: PERF402 - the next query reads it
    assert answers == [1, 2]


@pytest.mark.parametrize("bad", [ValueError, ZeroDivisionError, None, 7, -5, "x"])
def test_a_shard_that_fails_abstains_and_the_others_go_on(bad) -> None:
    def query(shard: int):
        if shard:
            return 1
        if isinstance(bad, type):
            raise bad
        return bad

    assert run([0] + [1] * 13, [query]) == [1]  # 13 votes, distance 6
    assert run([0] + [1] * 12, [query]) == [ABSTAIN]  # 12 votes, distance 5: the failed shard voted for nobody


def test_teachers_that_the_utility_theorem_asks_for_do_answer() -> None:
    chosen = calibrate("stability_paper", epsilon=1.0, delta=1e-5, cutoff=50, num_queries=1000)
    teachers = num_teachers_for(chosen, num_queries=1000, failure=0.05)
    assert teachers == pytest.approx(83_047, rel=0.002)
    right = np.random.default_rng(0).binomial(teachers, 0.75, 1000)
    counts = np.stack([right, teachers - right], axis=1)
    release, noise = OnlineRelease(chosen), GeneratorNoise(np.random.default_rng(1))
    labels, state = release.answer(counts, release.start(noise), noise)
    assert state.paid == 0
    assert not labels.any()


def test_teachers_for_another_calibration_are_refused() -> None:
    with pytest.raises(ArgumentError, match="must be those of stability_paper"):
        num_teachers_for(QUIET, num_queries=10, failure=0.1)
