"""Estimators of what the soft-label theorems assume about a learner: on-average stability, quality, consistent randomization.

All are Monte Carlo estimates over fresh datasets from a distribution that can be sampled, with confidence intervals. One call of
a stacked learner trains many datasets (see `learners`). The paper's labels: Definitions unif-stab, wquality, squality, cons-rand.
The estimates describe a learner on a *public or simulated* distribution; on private data they would be sensitive.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy import stats

from research.theory.learners import StackedLearner
from teacher_student.arguments import Floats, Integers, finite_number, numbers_array, positive_integer, probability

Draw = Callable[[int, int, np.random.Generator], tuple[Floats, Integers]]
"""(number of datasets r, records n, generator) -> features (r, n, d), labels (r, n): r independent i.i.d. datasets."""

BATCH = 256
"""Datasets trained at once."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A Monte Carlo estimate at each query, with an interval that holds the true value at the requested confidence (per query).

    Attributes:
        value: shape (q,).
        lower: shape (q,).
        upper: shape (q,).
    """

    value: Floats
    lower: Floats
    upper: Floats

    @property
    def worst(self) -> float:
        """The largest value over the queries: the definition asks for every point."""
        return float(self.value.max())


def on_average_stability(
    learner: StackedLearner,
    draw: Draw,
    queries: Floats,
    *,
    num_examples: int,
    num_pairs: int,
    generator: np.random.Generator,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate alpha of Definition unif-stab at each query: root mean square change of the score when one record is replaced.

    Each pair draws a dataset, a uniform position and a fresh record there (which estimates the average over all positions
    without bias), and trains both with the same coins. The interval is Student's for the mean square, then its root.

    Args:
        learner: trains many datasets at once.
        draw: the distribution.
        queries: shape (q, d).
        num_examples: n', records per dataset.
        num_pairs: pairs of neighbouring datasets.
        generator: source of datasets, positions and coins.
        confidence: of the interval, per query.
    """
    size = positive_integer("num_examples", num_examples)
    squares = []
    for pairs in _batches(positive_integer("num_pairs", num_pairs, minimum=2)):
        features, labels = draw(pairs, size, generator)
        other_features, other_labels = draw(pairs, 1, generator)
        position, rows, coins = generator.integers(size, size=pairs), np.arange(pairs), _coins(pairs, generator)
        before = learner(features, labels, coins)(queries)
        features, labels = features.copy(), labels.copy()
        features[rows, position], labels[rows, position] = other_features[:, 0], other_labels[:, 0]
        squares.append((learner(features, labels, coins)(queries) - before) ** 2)
    mean = _mean(np.concatenate(squares), confidence)
    return Estimate(*(np.sqrt(np.maximum(part, 0)) for part in (mean.value, mean.lower, mean.upper)))


def mean_score(
    learner: StackedLearner,
    draw: Draw,
    queries: Floats,
    *,
    num_examples: int,
    num_datasets: int,
    generator: np.random.Generator,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the learner's mean score at each query, over datasets and coins."""
    return _mean(_scores(learner, draw, queries, num_examples, num_datasets, generator), confidence)


def weak_quality(mean: Estimate) -> Estimate:
    """Return the weak quality at each query, Definition wquality: the distance of the mean score from the nearer of 0 and 1.

    >>> weak_quality(Estimate(np.array([0.97]), np.array([0.96]), np.array([0.98]))).value.round(2)
    array([0.03])
    """
    value = np.minimum(mean.value, 1 - mean.value)
    ends = np.stack([np.minimum(mean.lower, 1 - mean.lower), np.minimum(mean.upper, 1 - mean.upper)])
    crosses = (mean.lower < 0.5) & (mean.upper > 0.5)
    return Estimate(value, np.maximum(ends.min(axis=0), 0.0), np.where(crosses, 0.5, ends.max(axis=0)))


def strong_quality(
    learner: StackedLearner,
    draw: Draw,
    queries: Floats,
    *,
    quality: float,
    num_examples: int,
    num_datasets: int,
    generator: np.random.Generator,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate at each query the probability 1 - beta that the score is at most nu or at least 1 - nu: Definition squality.

    Equality counts (the print asks for more, which the paper's own private classifier does not give). Clopper-Pearson interval.
    """
    scores = _scores(learner, draw, queries, num_examples, num_datasets, generator)
    return share_beyond(scores, quality, confidence)


def share_beyond(scores: Floats, quality: float, confidence: float = 0.95) -> Estimate:
    """Return the share of the scores (r, q) at most `quality` or at least 1 - `quality`, with its interval; NaN is neither."""
    tail = (1 - probability("confidence", confidence)) / 2
    scores, quality = numbers_array("scores", scores, dimensions=2), finite_number("quality", quality)
    hits, trials = ((scores <= quality) | (scores >= 1 - quality)).sum(axis=0), len(scores)
    lower = np.where(hits > 0, stats.beta.ppf(tail, np.maximum(hits, 1), trials - hits + 1), 0.0)
    upper = np.where(hits < trials, stats.beta.ppf(1 - tail, hits + 1, np.maximum(trials - hits, 1)), 1.0)
    return Estimate(hits / trials, lower, upper)


@dataclasses.dataclass(frozen=True)
class Consistency:
    """Whether the mean over datasets depends on the coins, Definition cons-rand.

    Attributes:
        means: mean score for each realization of the coins, shape (num_coins, q).
        spread: largest minus smallest of them, shape (q,).
        p_value: of the F test that they are all equal, shape (q,); 1 where nothing varies.
    """

    means: Floats
    spread: Floats
    p_value: Floats


def consistency_of_randomization(
    learner: StackedLearner,
    draw: Draw,
    queries: Floats,
    *,
    num_examples: int,
    num_coins: int,
    num_datasets: int,
    generator: np.random.Generator,
) -> Consistency:
    """Compare the mean scores of several fixed realizations of the learner's coins, each over fresh datasets."""
    coins = _coins(positive_integer("num_coins", num_coins, minimum=2), generator)
    groups = [
        np.concatenate(
            [learner(*draw(part, num_examples, generator), np.full(part, coin))(queries) for part in _batches(num_datasets)]
        )
        for coin in coins
    ]
    means = np.stack([group.mean(axis=0) for group in groups])
    varies = np.ptp(np.concatenate(groups), axis=0) > 1e-12
    p_value = np.ones(means.shape[1])
    if varies.any():
        p_value[varies] = stats.f_oneway(*(group[:, varies] for group in groups), axis=0).pvalue
    return Consistency(means, np.ptp(means, axis=0), p_value)


def _scores(
    learner: StackedLearner, draw: Draw, queries: Floats, num_examples: int, num_datasets: int, generator: np.random.Generator
) -> Floats:
    size, total = positive_integer("num_examples", num_examples), positive_integer("num_datasets", num_datasets, minimum=2)
    return np.concatenate([learner(*draw(part, size, generator), _coins(part, generator))(queries) for part in _batches(total)])


def _mean(values: Floats, confidence: float) -> Estimate:
    trials = len(values)
    quantile = stats.t.ppf((1 + probability("confidence", confidence)) / 2, trials - 1)
    reach = quantile * values.std(axis=0, ddof=1) / np.sqrt(trials)
    value = values.mean(axis=0)
    return Estimate(value, value - reach, value + reach)


def _coins(size: int, generator: np.random.Generator) -> Integers:
    return generator.integers(1 << 62, size=size)


def _batches(total: int) -> list[int]:
    return [min(BATCH, total - start) for start in range(0, total, BATCH)]
