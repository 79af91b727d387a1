"""From predictions to a release: votes are counted, a session asks the mechanism, and only a `Release` leaves the room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teacher_student.lazy import exported

if TYPE_CHECKING:
    from teacher_student.aggregation.fractions import FractionSession, label_fractions
    from teacher_student.aggregation.labels import LabelSession, label
    from teacher_student.aggregation.ledger import Account, Ledger
    from teacher_student.aggregation.private_selection import select_privately
    from teacher_student.aggregation.release import (
        FractionRelease,
        GradientRelease,
        Release,
        ScoreRelease,
        SoftRelease,
        load_release,
    )
    from teacher_student.aggregation.scores import GradientSession, ScoreSession, add_scores, average_scores, empty_sums
    from teacher_student.aggregation.soft_label import SoftLabelSession, label_soft
    from teacher_student.aggregation.votes import add_votes, count_votes, empty_counts

__all__ = [
    "Account",
    "FractionRelease",
    "FractionSession",
    "GradientRelease",
    "GradientSession",
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

_EXPORTS = {
    "fractions": ("FractionSession", "label_fractions"),
    "labels": ("LabelSession", "label"),
    "ledger": ("Account", "Ledger"),
    "private_selection": ("select_privately",),
    "release": ("FractionRelease", "GradientRelease", "Release", "ScoreRelease", "SoftRelease", "load_release"),
    "scores": ("GradientSession", "ScoreSession", "add_scores", "average_scores", "empty_sums"),
    "soft_label": ("SoftLabelSession", "label_soft"),
    "votes": ("add_votes", "count_votes", "empty_counts"),
}
_HOMES = {name: module for module, names in _EXPORTS.items() for name in names}

__getattr__, __dir__ = exported(__name__, _HOMES, __all__)
