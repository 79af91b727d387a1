"""Teachers: many networks, each trained on its own shard alone, stacked and trained together by one LightningModule.

`train_teachers` takes private records and their shards and returns a `TeacherEnsemble`; `predict_votes` yields its votes on
public points, (points, num_teachers) int16 a block at a time, -1 where a teacher abstains. `predict_scores` yields their
probabilities instead, for soft labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teacher_student.lazy import exported

if TYPE_CHECKING:
    from teacher_student.teachers.augment import ShiftAndFlip
    from teacher_student.teachers.class_scores import predict_class_scores
    from teacher_student.teachers.learners import LearnerEnsemble, check_learner, train_learners
    from teacher_student.teachers.module import TeacherEnsemble
    from teacher_student.teachers.networks import MLP, LogisticRegression
    from teacher_student.teachers.scores import predict_scores
    from teacher_student.teachers.settings import TrainingSettings
    from teacher_student.teachers.training import check_training, load_teachers, predict_votes, train_teachers
    from teacher_student.teachers.vision import CNN, ResNet, group_normalized

# Loaded when first used: worker processes of `train_learners` then start without torch.
_HOMES = {
    "CNN": "vision",
    "LearnerEnsemble": "learners",
    "LogisticRegression": "networks",
    "MLP": "networks",
    "ResNet": "vision",
    "ShiftAndFlip": "augment",
    "TeacherEnsemble": "module",
    "TrainingSettings": "settings",
    "check_learner": "learners",
    "check_training": "training",
    "group_normalized": "vision",
    "load_teachers": "training",
    "predict_class_scores": "class_scores",
    "predict_scores": "scores",
    "predict_votes": "training",
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
