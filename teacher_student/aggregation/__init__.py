"""From predictions to a release: votes are counted, a session asks the mechanism, and only a `Release` leaves the room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teacher_student.lazy import exported

if TYPE_CHECKING:
    from teacher_student.aggregation.fractions import FractionSession, label_fractions
    from teacher_student.aggregation.labels import LabelSession, label
    from teacher_student.aggregation.ledger import Ledger
    from teacher_student.aggregation.load import load_release
    from teacher_student.aggregation.private_selection import select_privately
    from teacher_student.aggregation.release import FractionRelease, Release, ScoreRelease, SoftRelease
    from teacher_student.aggregation.scores import ScoreSession, add_scores, average_scores, empty_sums
    from teacher_student.aggregation.soft_label import SoftLabelSession, label_soft
    from teacher_student.aggregation.votes import add_votes, count_votes, empty_counts

_HOMES = {
    "Account": "ledger",
    "FractionRelease": "release",
    "FractionSession": "fractions",
    "LabelSession": "labels",
    "Ledger": "ledger",
    "Release": "release",
    "ScoreRelease": "release",
    "ScoreSession": "scores",
    "SoftLabelSession": "soft_label",
    "SoftRelease": "release",
    "add_scores": "scores",
    "add_votes": "votes",
    "average_scores": "scores",
    "count_votes": "votes",
    "empty_counts": "votes",
    "empty_sums": "scores",
    "label": "labels",
    "select_privately": "private_selection",
    "label_fractions": "fractions",
    "label_soft": "soft_label",
    "load_release": "load",
}

__all__ = [
    "Account",
    "FractionRelease",
    "FractionSession",
    "LabelSession",
    "Ledger",
    "Release",
    "ScoreRelease",
    "ScoreSession",
    "SoftLabelSession",
    "SoftRelease",
    "add_scores",
    "add_votes",
    "average_scores",
    "count_votes",
    "empty_counts",
    "empty_sums",
    "label",
    "label_fractions",
    "label_soft",
    "load_release",
    "select_privately",
]

__getattr__, __dir__ = exported(__name__, _HOMES, __all__)
