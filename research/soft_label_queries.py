"""A_SL-Quer and A_LPriv in one piece, from shards to scores, and the law of the loop as printed and as corrected.

Bassily, Thakkar, Thakurta 2018 (arXiv:1803.05101v2), section 5. The boxes, their names here and the deviations from the paper
are in `teacher_student.mechanisms.soft_label`. The pipeline does the same at scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from teacher_student.arguments import Floats
from teacher_student.auditing.exact import ThresholdLaw
from teacher_student.mechanisms.noise import Noise
from teacher_student.mechanisms.soft_histogram import check_bins, histograms
from teacher_student.mechanisms.soft_label import SoftLabelRelease, scores_of
from teacher_student.privacy import ThresholdParameters
from teacher_student.privacy.parameters import round_up

Shard = TypeVar("Shard")
Query = TypeVar("Query")


def private_learner(shards: Sequence[Shard], learner: Callable[[Shard], Callable[[Query], float]]) -> Callable[[Query], Floats]:
    """A_LPriv up to the mechanism: train one model per shard, return the map from a query to the k scores S."""
    models = [learner(shard) for shard in shards]  # A_LPriv, lines 1 and 2
    return lambda query: np.array([model(query) for model in models], dtype=np.float64)  # line 3; h_priv, line 1


def soft_label_queries(
    shards: Sequence[Shard],
    learner: Callable[[Shard], Callable[[Query], float]],
    queries: Iterable[Query],
    *,
    bins: int,
    parameters: ThresholdParameters,
    noise: Noise,
) -> Iterator[float]:
    """A_SL-Quer from data to scores, query by query: for small studies; at scale teachers predict in bulk.

    Args:
        shards: disjoint parts of the private data.
        learner: from a shard to a model, a function from a query to a score.
        queries: taken lazily; the next may depend on the scores so far.
        bins: number of bins, for all queries.
        parameters: of a threshold mechanism; `cutoff` is the unit budget.
        noise: the source of fresh noise.

    Yields:
        one score per query, NaN where not answered.
    """
    release, width = SoftLabelRelease(parameters), check_bins(bins, 1)
    scores = private_learner(shards, learner)  # A_SL-Quer, line 2
    state = release.start(noise)  # line 1
    for query in queries:  # line 3
        counts = histograms(scores(query)[np.newaxis], width)
        codes, state = release.answer_literally(counts, state, noise)  # lines 4 and 5
        yield float(scores_of(codes)[0][0])  # line 6


def soft_label_law(
    *, epsilon: float, delta: float, cutoff: int, num_queries: int, sub_answers: int, factor: int = 2
) -> ThresholdLaw:
    """Return the law of the soft-label loop when every sub-answer is paid (docs/privacy.md, "Calibration paper").

    lambda = sqrt(64 T ln(2 / delta)) / epsilon and w = factor * lambda * ln(4 m / delta), rounded up. The corrected calibration
    has factor 2 and 2 T sub-answers; the printed one has factor 1, and its `c <= T` with two payments per query gives T + 2.

    Args:
        epsilon: the claim.
        delta: the claim.
        cutoff: T, unstable queries.
        num_queries: m.
        sub_answers: sub-answers that may go unanswered before the loop stops.
        factor: 2, or the printed 1.
    """
    scale = round_up(math.sqrt(64 * cutoff * math.log(2 / delta)) / epsilon)
    threshold = math.ceil(factor * float(scale) * math.log(4 * num_queries / delta))
    return ThresholdLaw(
        "discrete_laplace", "discrete_laplace", float(scale), 2 * float(scale), threshold, sub_answers, redraw=True
    )
