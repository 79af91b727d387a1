"""Label propagation: public points that lie close together share what was released about them.

Zhou, Bousquet, Lal, Weston and Schoelkopf, "Learning with Local and Global Consistency", NeurIPS 2003, with one weight for each
target. Every class's scores f over the points minimise

    sum_i weight_i (f_i - target_i)^2 + strength f^T L f,          L the normalised Laplacian of the nearest neighbours' graph.

f is linear in the targets, so noise that is zero on average stays so, and it shrinks with the number of neighbours that share it:
noisy shares of votes turn into labels that are mostly right, and points that were not asked get one too. All of it is public.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.student.targets import Targets

_FLOOR = 1e-6
"""Weight of a point without a target, lest a part of the graph in which no point has one leave the system singular."""


def propagate(features: npt.NDArray[np.float32], targets: Targets, strength: float, neighbours: int) -> Targets:
    """Return one-hot targets for all points that had one or were unlabeled: the class with the largest propagated score.

    Args:
        features: (num_points, *shape) public.
        targets: of the points; any numbers that sum to 1 in a row.
        strength: above 0; how much neighbours count beside a point's own target.
        neighbours: of each point in the graph; fewer where there are not as many points.
    """
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import splu

    used = np.flatnonzero((targets.weights > 0) | targets.unlabeled)
    weights = targets.weights[used].astype(np.float64) + _FLOOR
    centred = targets.probabilities[used] - 1 / targets.probabilities.shape[1]
    system = diags_array(weights) + strength * _laplacian(features[used], neighbours)
    wanted = np.where(targets.weights[used] > 0, weights, 0.0)[:, np.newaxis] * centred
    scores: npt.NDArray[np.float64] = splu(system.tocsc()).solve(wanted)
    probabilities = targets.probabilities.copy()
    probabilities[used] = np.eye(scores.shape[1], dtype=np.float32)[scores.argmax(axis=1)]
    learnt = np.zeros(len(features), dtype=np.float32)
    learnt[used] = 1.0
    return Targets(probabilities, learnt, np.zeros(len(features), dtype=bool))


def _laplacian(points: npt.NDArray[np.float32], neighbours: int) -> Any:
    """Return the sparse normalised Laplacian; edges weigh exp(-(distance / the median distance)^2)."""
    from scipy.sparse import diags_array
    from sklearn.neighbors import kneighbors_graph

    if len(points) == 1:
        return diags_array([0.0])
    graph = kneighbors_graph(points.reshape(len(points), -1), min(neighbours, len(points) - 1), mode="distance")
    middle = np.median(graph.data)
    graph.data = np.exp(-((graph.data / middle) ** 2)) if middle > 0 else np.ones_like(graph.data)
    graph = graph.maximum(graph.T)
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    root = diags_array(1 / np.sqrt(np.maximum(degrees, np.finfo(float).tiny)))
    return diags_array(np.ones(len(points))) - root @ graph @ root
