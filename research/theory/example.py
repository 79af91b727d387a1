"""The paper's own example of weak quality: features in R without (-c, c), label = sign(x + z), z normal with variance c^2/8.

The paper bounds min max p(y | x) below by 1 - e^-4, about 0.98, from the Gaussian tail bound e^(-t^2/2). Exactly it is
Phi(sqrt(8)) = 0.9977: weak quality alpha + 0.0023 instead of the printed alpha + 0.02. The law of x is not given; here |x| - c is
exponential with mean c, and both signs are equally likely.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import norm

from research.theory.bound import Bound
from research.theory.learners import StackedLearner, fit_logistic, fit_logistic_sgd, logistic_predictor
from teacher_student.arguments import Floats, Integers, positive_number

NOISE_OVER_GAP = 1 / math.sqrt(8)


def label_probability(features: Floats, gap: float = 1.0) -> Floats:
    """Probability of label 1 at x: Phi(sqrt(8) x / c)."""
    return np.asarray(norm.cdf(np.asarray(features) / (NOISE_OVER_GAP * positive_number("gap", gap))))


def label_noise() -> Bound:
    """Largest probability of the less likely label over all x: Phi(-sqrt(8)), printed e^-4.

    >>> print(label_noise())
    0.00233887 (Section 5, instantiation for weak quality, printed 0.0183156)
    """
    statement = "Section 5, instantiation for weak quality"
    return Bound(float(norm.cdf(-math.sqrt(8))), math.exp(-4), statement, "the exact Gaussian tail")


def draw_example(
    num_datasets: int, num_examples: int, generator: np.random.Generator, gap: float = 1.0
) -> tuple[Floats, Integers]:
    """Return i.i.d. datasets: features (1, x), shape (r, n, 2), the constant for the intercept; labels 0 or 1, shape (r, n)."""
    shape = (num_datasets, num_examples)
    x = gap * (1 + generator.exponential(size=shape)) * generator.choice([-1.0, 1.0], size=shape)
    labels = (x + gap * NOISE_OVER_GAP * generator.standard_normal(shape) > 0).astype(np.int64)
    return with_constant(x), labels


def with_constant(x: Floats) -> Floats:
    """Return (1, x) along a new last axis."""
    return np.stack([np.ones_like(x, dtype=float), np.asarray(x, dtype=float)], axis=-1)


def logistic_learner(ridge: float = 1e-3) -> StackedLearner:
    """Return the paper's learner for its example, logistic regression with an intercept; deterministic: it ignores its coins."""
    return lambda features, labels, _: logistic_predictor(fit_logistic(features, labels, ridge=ridge))


def sgd_learner(step_sizes: Floats, ridge: float = 0.0) -> StackedLearner:
    """Return one-pass stochastic gradient descent on the logistic loss, records in the given order: deterministic."""
    return lambda features, labels, _: logistic_predictor(fit_logistic_sgd(features, labels, step_sizes, ridge=ridge))


def permuted_sgd_learner(step_sizes: Floats, ridge: float = 0.0) -> StackedLearner:
    """Return the same learner after a random permutation of each dataset, drawn from its seed: consistent randomization."""

    def learner(features: Floats, labels: Integers, seeds: Integers) -> object:
        order = np.stack([np.random.default_rng(int(seed)).permutation(labels.shape[1]) for seed in seeds])
        rows = np.arange(len(order))[:, None]
        return logistic_predictor(fit_logistic_sgd(features[rows, order], labels[rows, order], step_sizes, ridge=ridge))

    return learner  # type: ignore[return-value]


def lucky_learner(learner: StackedLearner) -> StackedLearner:
    """Return a learner *without* consistent randomization, for contrast: its coins scale all scores up or down."""

    def tilted(features: Floats, labels: Integers, seeds: Integers) -> object:
        predict, tilt = learner(features, labels, seeds), np.where(seeds % 2 == 0, 0.9, 1.0)[:, None]
        return lambda queries: tilt * predict(queries)

    return tilted  # type: ignore[return-value]
