"""A student's figures on the evaluation set, where there is one."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from torch import nn

from teacher_student.data import PrivateDataset
from teacher_student.student import predict_probabilities
from teacher_student.student.evaluation import confusion_matrix
from teacher_student.student.evaluation import evaluate as metrics_of


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Figures of one student on the evaluation set.

    Attributes:
        metrics: by name; empty without an evaluation set.
        majority: share of the evaluation set's largest class, or None without a set.
        confusion: (num_classes, num_classes) counts, or None without a set.
        public: whether the evaluation set, and so all of this, may be published.
    """

    metrics: dict[str, float]
    majority: float | None
    confusion: npt.NDArray[np.int64] | None
    public: bool

    def published(self) -> Evaluation:
        """Return what of it may be published."""
        return self if self.public else NO_EVALUATION


NO_EVALUATION = Evaluation({}, None, None, public=True)
"""Of a student that was not evaluated."""


def evaluate(network: nn.Module, dataset: PrivateDataset) -> Evaluation:
    """Evaluate a network, from the student's features to logits, on the dataset's evaluation set."""
    features, labels = dataset.student_evaluation_features, dataset.evaluation_labels
    if features is None or labels is None:
        return Evaluation({}, None, None, dataset.evaluation_public)
    probabilities = predict_probabilities(network, features)
    return Evaluation(
        metrics=metrics_of(probabilities, labels),
        majority=float(np.bincount(labels).max() / len(labels)),
        confusion=confusion_matrix(probabilities, labels),
        public=dataset.evaluation_public,
    )
