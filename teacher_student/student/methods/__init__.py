"""Ways to learn from points with and without a label, behind one interface: `interface.Method`."""

from teacher_student.student.methods.fixmatch import FixMatch
from teacher_student.student.methods.interface import Labeled, Method, Networks
from teacher_student.student.methods.mean_teacher import MeanTeacher
from teacher_student.student.methods.mixmatch import MixMatch
from teacher_student.student.methods.pseudo_label import PseudoLabel
from teacher_student.student.methods.self_training import SelfTraining
from teacher_student.student.methods.supervised import Supervised
from teacher_student.student.methods.virtual_adversarial import VirtualAdversarial

METHODS: dict[str, type[Method]] = {
    "supervised": Supervised,
    "pseudo_label": PseudoLabel,
    "self_training": SelfTraining,
    "fixmatch": FixMatch,
    "mixmatch": MixMatch,
    "virtual_adversarial": VirtualAdversarial,
    "mean_teacher": MeanTeacher,
}
"""By the name that `StudentSettings.method` takes."""

__all__ = ["METHODS", "Labeled", "Method", "Networks"]
