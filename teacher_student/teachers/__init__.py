"""Teachers: many networks, each trained on its own shard alone, stacked and trained together by one LightningModule.

`train_teachers` takes private records and their shards and returns a `TeacherEnsemble`; `predict_votes` yields its votes on
public points, (points, num_teachers) int16 a block at a time, -1 where a teacher abstains. `predict_scores` yields their
probabilities instead, for soft labels.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from teacher_student.teachers.augment import ShiftAndFlip
    from teacher_student.teachers.learners import LearnerEnsemble, check_learner, train_learners
    from teacher_student.teachers.module import TeacherEnsemble
    from teacher_student.teachers.networks import MLP, LogisticRegression
    from teacher_student.teachers.scores import predict_scores
    from teacher_student.teachers.settings import TrainingSettings
    from teacher_student.teachers.training import check_training, load_teachers, predict_votes, train_teachers
    from teacher_student.teachers.vision import CNN, ResNet, group_normalized

# Loaded when first used: worker processes of `train_learners` then start without torch.
_HOMES = {
    "CNN": "teacher_student.teachers.vision",
    "LearnerEnsemble": "teacher_student.teachers.learners",
    "LogisticRegression": "teacher_student.teachers.networks",
    "MLP": "teacher_student.teachers.networks",
    "ResNet": "teacher_student.teachers.vision",
    "ShiftAndFlip": "teacher_student.teachers.augment",
    "TeacherEnsemble": "teacher_student.teachers.module",
    "TrainingSettings": "teacher_student.teachers.settings",
    "check_learner": "teacher_student.teachers.learners",
    "check_training": "teacher_student.teachers.training",
    "group_normalized": "teacher_student.teachers.vision",
    "load_teachers": "teacher_student.teachers.training",
    "predict_scores": "teacher_student.teachers.scores",
    "predict_votes": "teacher_student.teachers.training",
    "train_learners": "teacher_student.teachers.learners",
    "train_teachers": "teacher_student.teachers.training",
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
    "predict_scores",
    "predict_votes",
    "train_learners",
    "train_teachers",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
