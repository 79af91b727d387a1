"""Teachers: many networks, each trained on its own shard alone, stacked and trained together by one LightningModule.

`train_teachers` takes private records and their shards and returns a `TeacherEnsemble`; `predict_votes` yields its votes on
public points, (points, num_teachers) int16 a block at a time, -1 where a teacher abstains.
"""

from teacher_student.teachers.module import TeacherEnsemble
from teacher_student.teachers.networks import MLP, LogisticRegression
from teacher_student.teachers.settings import TrainingSettings
from teacher_student.teachers.training import load_teachers, predict_votes, train_teachers

__all__ = [
    "MLP",
    "LogisticRegression",
    "TeacherEnsemble",
    "TrainingSettings",
    "load_teachers",
    "predict_votes",
    "train_teachers",
]
