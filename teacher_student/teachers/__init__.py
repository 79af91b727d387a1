"""Teachers: many networks, each trained on its own shard alone, stacked and trained together by one LightningModule.

`train_teachers` takes private records and their shards and returns a `TeacherEnsemble`; `train_learners` does the same with any
object that has `fit` and `predict`. `predict_votes` yields the teachers' votes on public points, a block at a time, -1 where a
teacher abstains; `predict_scores` their probabilities, for soft labels; `predict_class_scores` their scores of every class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teacher_student.lazy import exported

if TYPE_CHECKING:
    from teacher_student.teachers.learners import LearnerEnsemble, check_learner, train_learners
    from teacher_student.teachers.module import TeacherEnsemble
    from teacher_student.teachers.networks import CNN, MLP, LogisticRegression, ResNet, group_normalized
    from teacher_student.teachers.prediction import predict_class_scores, predict_scores, predict_votes
    from teacher_student.teachers.randomness import ShiftAndFlip
    from teacher_student.teachers.settings import TrainingSettings
    from teacher_student.teachers.training import check_training, load_teachers, train_teachers

# Loaded when first used: worker processes of `train_learners` then start without torch.
_HOMES = {
    "CNN": "networks",
    "LearnerEnsemble": "learners",
    "LogisticRegression": "networks",
    "MLP": "networks",
    "ResNet": "networks",
    "ShiftAndFlip": "randomness",
    "TeacherEnsemble": "module",
    "TrainingSettings": "settings",
    "check_learner": "learners",
    "check_training": "training",
    "group_normalized": "networks",
    "load_teachers": "training",
    "predict_class_scores": "prediction",
    "predict_scores": "prediction",
    "predict_votes": "prediction",
    "train_learners": "learners",
    "train_teachers": "training",
}

__all__ = [
    "CNN",
    "MLP",
    "LearnerEnsemble",
    "LogisticRegression",
    "ResNet",
    "ShiftAndFlip",
    "TeacherEnsemble",
    "TrainingSettings",
    "check_learner",
    "check_training",
    "group_normalized",
    "load_teachers",
    "predict_class_scores",
    "predict_scores",
    "predict_votes",
    "train_learners",
    "train_teachers",
]

__getattr__, __dir__ = exported(__name__, _HOMES, __all__)
