"""Gradient descent of a linear model whose gradients were released with noise: a function of public values, so it costs nothing.

The released mean gradients g_1, g_2, ... of a softmax regression on features of length 1 are followed with momentum (Polyak
1964), and with a public preconditioner: the second moments S of the public points' features, which bound the curvature of the
cross-entropy (Böhning 1992). In directions in which the points hardly vary, S^-1 would blow up the noise. A multiple of the
noise's standard deviation is added to S, so that no direction is followed further than its gradient is known:

    v_t = momentum v_(t-1) + learning_rate (S + ridge I)^-1 g_t,      W_t = W_(t-1) + v_t
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, Floats, fraction_of_one, positive_number

RIDGE = 60.0
"""Ridge for each standard deviation of the noise on an entry of the mean of all gradients of a session. Chosen of 15, 30, 60 and
100, with the defaults of the learner, on splits 100 to 107 of scikit-learn's digits and on the first 5,000 training images of
MNIST."""


@dataclasses.dataclass(frozen=True, eq=False)
class Descent:
    """Where noisy gradients lead.

    Attributes:
        points: (num_points, D) public features, rows of length about 1.
        learning_rate: the step along a gradient.
        momentum: share of the last move that is made again.
    """

    points: Floats
    learning_rate: float
    momentum: float

    def __post_init__(self) -> None:
        positive_number("learner.learning_rate", self.learning_rate)
        fraction_of_one("learner.momentum", self.momentum)

    @functools.cached_property
    def _axes(self) -> tuple[Floats, Floats]:
        """Second moments along the axes of the points' features, and these axes."""
        moments, axes = np.linalg.eigh(self.points.T @ self.points / len(self.points))
        return np.maximum(moments, 0.0), axes

    def weights(self, gradients: Floats, noise: float) -> Floats:
        """Return (D, C) weights after some released steps.

        Args:
            gradients: (steps so far, D, C) mean gradients.
            noise: standard deviation of the noise on an entry of the mean of all gradients of the session.

        Raises:
            ArgumentError: gradients of other features.
        """
        if gradients.ndim != 3 or gradients.shape[1] != self.points.shape[1]:
            raise ArgumentError(f"gradients must have the shape (steps, {self.points.shape[1]}, C), got {gradients.shape}")
        moments, axes = self._axes
        shrinking = self.learning_rate / (moments + RIDGE * positive_number("noise", noise))
        weights, move = np.zeros(gradients.shape[1:]), np.zeros(gradients.shape[1:])
        for gradient in gradients:
            move = self.momentum * move + axes @ (shrinking[:, None] * (axes.T @ gradient))
            weights = weights + move
        return weights

    def probabilities(self, weights: Floats) -> npt.NDArray[np.float32]:
        """Return (num_points, C) what the model says about the points."""
        logits = self.points @ weights
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        found: npt.NDArray[np.float32] = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
        return found
