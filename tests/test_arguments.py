"""Numbers that no double and no 64 bits hold are refused at the door, wherever they are given."""

from __future__ import annotations

import numpy as np
import pytest

from teacher_student import ArgumentError, theory
from teacher_student.aggregation import SoftLabelSession
from teacher_student.app import compose
from teacher_student.arguments import positive_integer, positive_number, probability
from teacher_student.data import PrivateDataset
from teacher_student.privacy import teachers_printed
from teacher_student.teachers.records import ShardedRecords

SIZES = {"epsilon": 1.0, "delta": 1e-2, "cutoff": 27}
HUGE = 10**400


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: positive_integer("n", 2**63), "n must be an integer below 9223372036854775808"),
        (lambda: positive_number("x", 5e-324), "x must be at least 1e-303"),
        (lambda: probability("p", 5e-324), "p must be at least 1e-303"),
        (lambda: theory.num_bins(5e-324), "width must be at least"),
        (lambda: theory.teachers_for_concentration(5e-324), "failure must be at least"),
        (lambda: theory.num_teachers(**SIZES, num_queries=HUGE, failure=0.5), "num_queries must be an integer below"),
        (lambda: teachers_printed(**SIZES, num_queries=HUGE, failure=0.9), "num_queries must be an integer below"),
        (lambda: SoftLabelSession(bins=3, mechanism=np.zeros((2, 2)), **SIZES), "mechanism must be one of"),
        (
            lambda: ShardedRecords.of(np.zeros((2, 1)), np.array([1j, 0]), [0, 1], [0, 2]),
            "labels must be an array of real numbers",
        ),
        (lambda: compose("run", ["student=[1,[2]]", "student=[1,[2]]"]), "overrides must choose from a group by name"),
    ],
)
def test_one_line_says_which_argument(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


def test_ragged_labels_are_refused():
    columns = np.zeros((2, 2), dtype=np.float32)
    with pytest.raises(ArgumentError, match="evaluation_labels must have one entry per record"):
        PrivateDataset(
            name="a",
            num_classes=2,
            class_names=("no", "yes"),
            private_features=columns,
            private_labels=np.array([0, 1]),
            private_ids=np.array(["a", "b"]),
            public_features=columns,
            evaluation_features=columns,
            evaluation_labels=[[1, 2], [3]],
        )
