"""The student: learns from released labels on public points alone, so that it may be published.

Everything here is post-processing of a release (Algorithm A_Priv, "Model-Agnostic Private Learning via Stability", section 5.2);
nothing in this room sees a record, a vote or a gap.
"""

from teacher_student.lazy import exported
from teacher_student.student.augmentations import Augmentation
from teacher_student.student.boosting import BoostingStep, NewtonStep, VoteStep, boost_student
from teacher_student.student.fitting import fit_student, predict_probabilities
from teacher_student.student.label_noise import NoisyArgmaxLikelihood, TransitionMatrix
from teacher_student.student.methods import METHODS
from teacher_student.student.module import Standardized, Student
from teacher_student.student.queries import ORDERS, QuerySettings, next_points, representatives, resample
from teacher_student.student.settings import StudentSettings
from teacher_student.student.targets import UNANSWERED, Targets, targets_from_labels, targets_from_scores

__all__ = [
    "METHODS",
    "ORDERS",
    "UNANSWERED",
    "Augmentation",
    "BoostingStep",
    "NewtonStep",
    "NoisyArgmaxLikelihood",
    "QuerySettings",
    "Standardized",
    "Student",
    "StudentSettings",
    "Targets",
    "TransitionMatrix",
    "VoteStep",
    "boost_student",
    "fit_student",
    "next_points",
    "predict_probabilities",
    "representatives",
    "resample",
    "targets_from_labels",
    "targets_from_scores",
]

_HOMES = {
    "NewtonStep": "boosting",
    "NoisyArgmaxLikelihood": "label_noise",
    "TransitionMatrix": "label_noise",
    "VoteStep": "boosting",
    "boost_student": "boosting",
}
_RENAMED = {
    "ByScores": "NewtonStep",
    "ByVotes": "VoteStep",
    "LabelNoise": "TransitionMatrix",
    "NoisyMaximum": "NoisyArgmaxLikelihood",
    "correct_student": "boost_student",
}
__getattr__, __dir__ = exported(__name__, _HOMES, __all__, _RENAMED)
