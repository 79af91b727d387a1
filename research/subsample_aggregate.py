"""A_subSamp: answer arbitrary queries by asking disjoint shards and releasing stable pluralities.

Bassily, Thakkar, Thakurta 2018 (arXiv:1803.05101v2), algorithm 4 (sample and aggregate).

The box, in our words:

    require  dataset D, queries chosen online, their finite ranges, cutoff T, (epsilon, delta), failure probability beta
    1  k <- number of teachers
    2  split D into k disjoint shards
    3  for each query
    4      ask it of every shard; count how often each class is the answer
    5      winner <- class of most votes; distance <- its distance to instability
    6  end
    7  output A_OQR(winners, distances, T, epsilon, delta)

| paper | here |
|---|---|
| k, m, T, beta | num_teachers, num_queries, cutoff, failure |
| D_1 .. D_k | shards |
| f_i | query: a function from a shard to a class, or `ABSTAIN` |
| ct(r) | counts |
| A_OQR | `online_release.OnlineRelease` |

Deviations from the paper:
- Line 1: the printed constant does not imply its theorem; `num_teachers_for` has one that does.
- Line 2: "arbitrarily" is not enough. One record may touch one shard only, on both of two neighbouring datasets; under add/remove
  only a keyed assignment by record id ensures this (`teacher_student.data.assign_shards`). Shards are then uneven, some empty.
- Line 4: a shard on which the query fails, or whose answer is outside the range, abstains, because a failure depends on that
  shard alone and must not show. Line 5: the distance is halved (see `stability`).
- Queries may be chosen one after another, depending on earlier answers: here lines 3 to 7 run query by query.

The pipeline does the same at scale: teachers are trained once, predict in bulk, and a session takes their vote counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from teacher_student.arguments import ArgumentError, Integers, positive_integer, probability
from teacher_student.labels import ABSTAIN
from teacher_student.mechanisms.noise import Noise
from teacher_student.mechanisms.online_release import OnlineRelease
from teacher_student.privacy import ThresholdParameters

Shard = TypeVar("Shard")


def sub_sample_and_aggregate(
    shards: Sequence[Shard],
    queries: Iterable[Callable[[Shard], int]],
    *,
    num_classes: int,
    parameters: ThresholdParameters,
    noise: Noise,
) -> Iterator[int]:
    """Answer each query by the plurality of its answers on the shards, if the plurality is stable.

    Args:
        shards: disjoint parts of the private data (lines 1 and 2 are done).
        queries: functions from a shard to a class in range(num_classes), or `ABSTAIN`. Taken lazily: the next query may depend on
            the labels yielded so far.
        num_classes: size of the queries' range, public.
        parameters: of one of the threshold mechanisms; their guarantee covers everything yielded.
        noise: the source of fresh noise.

    Yields:
        one label per query: a class, `ABSTAIN` or `HALTED`.
    """
    positive_integer("num_classes", num_classes)
    release = OnlineRelease(parameters)
    state = release.start(noise)
    for query in queries:  # line 3
        counts = _count([_ask(query, shard) for shard in shards], num_classes)  # line 4
        label, state = release.answer(counts[np.newaxis], state, noise)  # lines 5 and 7
        yield int(label[0])


def num_teachers_for(parameters: ThresholdParameters, *, num_queries: int, failure: float) -> int:
    """Return how many teachers let every query but `cutoff` unstable ones be answered, with probability 1 - failure (line 1).

    k = ceil(max(6 (w + 4 lambda ln(4 m T / beta) + 1), 72 ln(2 m / beta))), lambda the threshold scale: a query on which each
    teacher is right with probability 3/4 has a gap of at least k / 3 with probability 1 - beta / (2 m) (Hoeffding), so a halved
    distance of at least k / 6 - 1, which must clear threshold and noise. Holds for two-sided Laplace noise at scales lambda and
    2 lambda, as under `stability_paper`.

    >>> from teacher_student.privacy import calibrate
    >>> parameters = calibrate("stability_paper", epsilon=1, delta=1e-5, cutoff=50, num_queries=1000)
    >>> round(num_teachers_for(parameters, num_queries=1000, failure=0.05), -3)
    83000
    """
    queries, failure = positive_integer("num_queries", num_queries), probability("failure", failure)
    if parameters.query_noise != "discrete_laplace" or parameters.query_scale > 2 * parameters.threshold_scale:
        raise ArgumentError(f"parameters must be those of stability_paper, got {parameters.mechanism}")
    noise = 4 * float(parameters.threshold_scale) * math.log(4 * queries * parameters.cutoff / failure)
    return math.ceil(max(6 * (parameters.threshold + noise + 1), 72 * math.log(2 * queries / failure)))


def _ask(query: Callable[[Shard], int], shard: Shard) -> int:
    try:
        return int(query(shard))
    except Exception:  # noqa: BLE001 - any failure depends on this shard alone and becomes an abstention
        return ABSTAIN


def _count(answers: Sequence[int], num_classes: int) -> Integers:
    votes = np.array([answer for answer in answers if 0 <= answer < num_classes], dtype=np.int64)
    return np.bincount(votes, minlength=num_classes)
