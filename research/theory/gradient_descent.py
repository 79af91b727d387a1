"""On-average stability of stochastic gradient descent: Theorem sgd, and the bounds of Hardt, Recht and Singer behind it.

Theorem sgd: if a learner behind a random permutation of its data is alpha-uniformly stable, the learner itself, unpermuted, is
alpha-on-average stable. It holds as printed, but its application needs care. The paper measures stability by a *second* moment
(a root mean square), and Hardt et al. (2016, Theorems 3.8 and 3.9) bound a *first* moment. For one pass with a constant step the
second moment is larger: the changed record is near the end with probability about 1/(n eta gamma), and then moves the weights
by up to 2 L eta. So alpha is of order sqrt(eta / n), not 1/n, and alpha sqrt(n') does not vanish for a constant step. With steps
1 / (gamma (t + t0)) every position counts the same, and alpha = 2 L / (gamma (n + t0)) is of the order that the paper uses.
"""

from __future__ import annotations

import math

import numpy as np

from research.theory.bound import Bound
from teacher_student.arguments import (
    ArgumentError,
    Floats,
    number_at_least_zero,
    numbers_array,
    positive_integer,
    positive_number,
)


def decaying_steps(num_examples: int, strong_convexity: float, smoothness: float) -> Floats:
    """Step sizes 1 / (gamma (t + t0)), t = 1..n, with t0 = smoothness / gamma, so that none exceeds 1 / smoothness."""
    offset = positive_number("smoothness", smoothness) / positive_number("strong_convexity", strong_convexity)
    return 1 / (strong_convexity * (np.arange(1, positive_integer("num_examples", num_examples) + 1) + offset))


def one_pass_stability(step_sizes: Floats, lipschitz: float, strong_convexity: float = 0.0) -> Bound:
    """On-average stability of the weights after one pass with the given steps: second moment beside Hardt's first moment.

    A record changed at step t moves the weights by at most 2 L eta_t, and each later step s contracts by 1 - eta_s gamma. The
    position is uniform, hence alpha^2 <= (1/n) sum_t (2 L eta_t prod_{s>t} (1 - eta_s gamma))^2; `printed` is the mean of the
    same terms, which is what Theorems 3.8 and 3.9 of Hardt et al. bound (by 2 L sum eta / n and by 2 L / (gamma n)).

    Args:
        step_sizes: shape (n,), each at most 1 / smoothness of the loss (2 / smoothness if not strongly convex).
        lipschitz: L of the loss without its quadratic term; for the logistic loss the largest norm of the features.
        strong_convexity: gamma, the weight of the quadratic term; 0 for a convex loss.
    """
    steps = numbers_array("step_sizes", step_sizes, dimensions=1)
    strong_convexity = number_at_least_zero("strong_convexity", strong_convexity)
    if not ((steps > 0) & (steps * strong_convexity <= 1) & np.isfinite(steps)).all():
        raise ArgumentError("step_sizes must be positive numbers of at most 1 / strong_convexity, in one dimension")
    with np.errstate(divide="ignore"):
        later = np.log1p(-steps * strong_convexity)
    after = np.concatenate([np.cumsum(later[::-1])[::-1][1:], [0.0]])
    moved = 2 * positive_number("lipschitz", lipschitz) * steps * np.exp(after)
    note = "second moment, as the paper defines stability; the bound of Hardt et al. is on the first"
    return Bound(float(np.sqrt(np.mean(moved**2))), float(np.mean(moved)), "Theorem sgd", note)


def score_stability(weight_stability: float, feature_norm: float) -> float:
    """Stability of a logistic score, from that of its weights: the logistic function has slope at most 1/4."""
    return positive_number("weight_stability", weight_stability) * positive_number("feature_norm", feature_norm) / 4


def strongly_convex_constant_step(num_examples: int, step_size: float, lipschitz: float, strong_convexity: float) -> Bound:
    """Closed forms for a constant step: second moment 2 L sqrt(eta / (n gamma (2 - eta gamma))), first moment 2 L / (n gamma)."""
    examples, step = positive_integer("num_examples", num_examples), positive_number("step_size", step_size)
    gamma, lipschitz = positive_number("strong_convexity", strong_convexity), positive_number("lipschitz", lipschitz)
    if step * gamma >= 2:
        raise ArgumentError(f"step_size must be below 2 / strong_convexity, got {step}")
    value = 2 * lipschitz * math.sqrt(step / (examples * gamma * (2 - step * gamma)))
    return Bound(value, 2 * lipschitz / (examples * gamma), "Hardt et al. 2016, Theorem 3.9", "second moment: order 1/sqrt(n)")
