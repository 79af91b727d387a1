from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.data import PrivateDataset, shard_dataset


def fields(**changes):
    valid = {
        "name": "small",
        "num_classes": 2,
        "class_names": ("no", "yes"),
        "private_features": np.ones((4, 3)),
        "private_labels": [0, 1, 1, 0],
        "private_ids": ["a", "b", "c", "d"],
        "public_features": np.ones((2, 3)),
        "evaluation_features": np.ones((2, 3)),
        "evaluation_labels": [1, 0],
        "feature_names": ["x", "y", "z"],
    }
    return valid | changes


def test_fields_come_in_their_canonical_types():
    data = PrivateDataset(**fields(class_names=["no", "yes"], private_labels=np.array([0, 1, 1, 0], dtype=np.int8)))
    assert data.private_features.dtype == data.public_features.dtype == data.evaluation_features.dtype == np.float32
    assert data.private_labels.dtype == data.evaluation_labels.dtype == np.int64
    assert data.class_names == ("no", "yes")
    assert data.private_ids.tolist() == ["a", "b", "c", "d"]
    assert (data.neighbours, data.unit) == ("add_remove", "record")
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"


STUDENT = {"student_public_features": np.ones((2, 9)), "student_evaluation_features": np.ones((2, 9))}


def test_student_features_default_to_the_public_ones():
    data = PrivateDataset(**fields())
    assert data.student_public_features is data.public_features
    assert data.student_evaluation_features is data.evaluation_features
    own = PrivateDataset(**fields(**STUDENT))
    assert own.student_public_features.shape == own.student_evaluation_features.shape == (2, 9)
    stripped = own.label_private(np.array([0, 1, 2]))
    assert stripped.student_public_features is stripped.public_features
    assert stripped.student_evaluation_features is stripped.evaluation_features
    richer = np.arange(36.0).reshape(4, 9)
    kept = PrivateDataset(**fields(**STUDENT, student_private_features=richer)).label_private(np.array([3, 1]))
    assert np.array_equal(kept.student_public_features, richer[[3, 1]])
    assert np.array_equal(kept.student_evaluation_features, own.student_evaluation_features)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 0}, "num_classes must be a positive integer, got 0"),
        ({**STUDENT, "student_private_features": np.ones((3, 9))}, "student_private_features must have one entry per record"),
        ({**STUDENT, "student_private_features": np.ones((4, 8))}, r"student_private_features must have rows of shape \(9,\)"),
        ({"class_names": ("no",)}, "class_names must have 2 entries, got 1"),
        ({"class_names": ("no", "no")}, "class_names must be distinct"),
        ({"private_features": np.ones(4)}, "private_features must have at least two dimensions"),
        ({"private_features": np.ones((4, 0))}, r"private_features must have at least two dimensions.*got shape \(n, 0\)"),
        ({"private_features": [[1], [1, 2]]}, "private_features must be a table whose rows have one shape"),
        ({"private_features": [["a", "b", "c"]] * 4}, "private_features must hold numbers"),
        ({"private_labels": [0, 1, 1]}, "private_labels must have one entry per record, got another number of them"),
        ({"private_labels": [[0, 1, 1, 0]]}, "private_labels must have one dimension, got 2"),
        ({"private_labels": [0.0, 1.0, 1.0, 0.0]}, "private_labels must hold class indices"),
        ({"private_ids": [1, 2, 3]}, "private_ids must have one entry per record, got another number of them"),
        ({"private_ids": np.ones(4, dtype=complex)}, "private_ids must hold integers or strings, got values of type complex128"),
        ({"private_users": [1, 2, 3]}, "private_users must have one entry per record"),
        ({"public_features": np.ones((2, 4))}, "public_features must have rows of shape"),
        ({"public_features": np.ones((0, 3))}, "public_features must have at least two dimensions and one row"),
        ({"public_features": [[0, 0, 0], [0, np.nan, 0]]}, "public_features must be finite, got NaN or infinity in row 1"),
        ({"evaluation_features": np.full((2, 3), np.inf)}, "evaluation_features must be finite"),
        ({"evaluation_labels": None}, "evaluation_features and evaluation_labels must be given together"),
        ({"evaluation_features": None}, "evaluation_features and evaluation_labels must be given together"),
        ({"evaluation_labels": [0, 2]}, "evaluation_labels must lie between 0 and 1, got 2"),
        ({"student_public_features": np.ones((2, 9))}, "student_public_features and student_evaluation_features must be given"),
        (
            {"student_evaluation_features": np.ones((2, 9))},
            "student_public_features and student_evaluation_features must be given",
        ),
        (
            STUDENT | {"student_public_features": np.ones((3, 9))},
            r"student_public_features must have one entry per point \(2\), got 3",
        ),
        (STUDENT | {"student_public_features": np.ones((2, 8))}, r"student_evaluation_features must have rows of shape \(8,\)"),
        (STUDENT | {"student_public_features": np.full((2, 9), np.nan)}, "student_public_features must be finite"),
        ({"feature_names": ["x"]}, "feature_names must have 3 entries, got 1"),
        ({"neighbours": np.empty((0, 3))}, r"neighbours must be one of add_remove, label_only, replace_one; got array\("),
        ({"evaluation_public": np.ones(2)}, "evaluation_public must be true or false"),
        ({"neighbours": "swap"}, "neighbours must be one of add_remove, label_only, replace_one; got 'swap'"),
        ({"private_ids": None, "neighbours": "add_remove"}, "neighbours must be replace_one for records without ids"),
        ({"ids_name_labels": True, "neighbours": "label_only"}, "neighbours must be add_remove for ids that contain the label"),
    ],
)
def test_bad_fields_get_one_clear_line(changes, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        PrivateDataset(**fields(**changes))
    assert "\n" not in str(caught.value)


ODD = {
    "a label that is no class": {"private_labels": 2},
    "a negative label": {"private_labels": -7},
    "a label beyond 64 signed bits": {"private_labels": 2**63},
    "an id that another record has": {"private_ids": "b"},
    "an id that another record has, and the label of a third": {"private_ids": "a", "private_labels": 9},
    "no id": {"private_ids": None},
    "an id that is NaN": {"private_ids": float("nan")},
    "an id of 5,000 digits": {"private_ids": 10**5000},
    "an id that is a list": {"private_ids": [1, 2]},
    "a number beyond float32": {"private_features": 1e300},
}


@pytest.mark.parametrize("odd", ODD)
def test_no_entry_of_one_private_record_refuses_the_arrays_or_moves_another_record(odd):
    """Record 2 is odd, then absent: nothing is said either way, and all others keep features, label and place."""
    unsigned = ODD[odd].get("private_labels", 0) > 2**62
    columns = {"private_features": np.ones((4, 3)), "private_labels": np.array([0, 1, 1, 0], np.uint64 if unsigned else np.int64)}
    columns["private_ids"] = np.array(["a", "b", "c", "d"], dtype=object)
    for name, value in ODD[odd].items():
        columns[name][2] = value
    without = PrivateDataset(**fields(**{name: np.delete(value, 2, axis=0) for name, value in columns.items()}))
    data = PrivateDataset(**fields(**columns))
    key = b"0123456789abcdef"
    with_it, without_it = (shard_dataset(each, 1000, key)[0] for each in (data, without))
    kept = np.array([0, 1, 3])
    assert (data.private_features[kept] == without.private_features).all()
    assert (data.private_labels[kept] == without.private_labels).all()
    for shard in range(1000):
        assert [place for place in with_it.of(shard) if place != 2] == [kept[place] for place in without_it.of(shard)]
    assert (2 in with_it.order) == ("private_labels" not in ODD[odd])
    assert data.usable.tolist() == [True, True, "private_labels" not in ODD[odd], True]


def test_there_may_be_no_private_record():
    data = PrivateDataset(**fields(private_features=np.empty((0, 3)), private_labels=[], private_ids=[]))
    assert len(data.private_labels) == 0
    assert shard_dataset(data, 5)[0].offsets.tolist() == [0] * 6


def test_a_private_evaluation_set_loses_what_cannot_be_used():
    held_out = {"evaluation_features": [[1, 2, 3], [1, np.nan, 3], [4, 5, 6]], "evaluation_labels": [0, 1, 5]}
    for name, change in held_out.items():
        with pytest.raises(ArgumentError, match=f"{name} must"):
            PrivateDataset(**fields(**{"evaluation_features": np.ones((3, 3)), "evaluation_labels": [0, 1, 1], name: change}))
    data = PrivateDataset(**fields(**held_out, evaluation_public=False))
    assert data.evaluation_features.tolist() == data.student_evaluation_features.tolist() == [[1, 2, 3]]
    assert data.evaluation_labels.tolist() == [0]
    none = PrivateDataset(**fields(**held_out | {"evaluation_labels": [7, 7, 7]}, evaluation_public=False))
    assert none.evaluation_features is none.evaluation_labels is none.student_evaluation_features is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_no_private_number_stops_the_run_or_shows_in_a_warning(value):
    """Warnings are errors in this suite, so a cast that complains about one record would fail here."""
    features = np.ones((4, 3))
    features[2, 1] = value
    data = PrivateDataset(**fields(private_features=features))
    assert not np.isfinite(data.private_features[2, 1])
    assert np.isfinite(data.private_features).sum() == 11


def test_ids_keep_what_numpy_text_would_drop():
    data = PrivateDataset(**fields(private_ids=["a", "a\0", 1, "1"]))
    assert data.private_ids.tolist() == ["a", "a\0", 1, "1"]
    assert PrivateDataset(**fields(private_ids=[1, 2, 3, 2**80])).private_ids.tolist()[3] == 2**80


def test_without_ids_a_table_is_replace_one():
    data = PrivateDataset(**fields(private_ids=None))
    assert data.neighbours == "replace_one"
    assert data.sharding_ids.tolist() == [0, 1, 2, 3]


def test_users_shard_before_records():
    data = PrivateDataset(**fields(private_users=[5, 5, 6, 6]))
    assert data.sharding_ids.tolist() == [5, 5, 6, 6]
    assert (data.neighbours, data.unit) == ("add_remove", "user")
    assert PrivateDataset(**fields(private_ids=None, private_users=[5, 5, 6, 6])).neighbours == "add_remove"


def test_images_need_no_names_and_refuse_them():
    images = {"private_features": np.ones((4, 1, 2, 2)), "public_features": np.ones((2, 1, 2, 2)), "evaluation_features": None}
    data = PrivateDataset(**fields(**images, evaluation_labels=None, feature_names=None))
    assert data.private_features.shape == (4, 1, 2, 2)
    with pytest.raises(ArgumentError, match="feature_names must be None"):
        PrivateDataset(**fields(**images, evaluation_labels=None))


def test_label_private_queries_are_training_features():
    features = np.arange(12).reshape(4, 3)
    data = PrivateDataset(**fields(private_features=features)).label_private(np.array([2, 0]))
    assert data.public_features.tolist() == [[6, 7, 8], [0, 1, 2]]
    assert data.neighbours == "label_only"
    assert len(data.private_features) == 4
    for rows in ([4], [-1], [], [0.5], [[1]]):
        with pytest.raises(ArgumentError, match="public_rows must"):
            data.label_private(np.array(rows))
    with pytest.raises(ArgumentError, match="label"):
        PrivateDataset(**fields(ids_name_labels=True)).label_private(np.array([0]))


def test_the_room_imports_no_torch():
    heavy = "{'torch', 'torchvision', 'sklearn', 'PIL', 'scipy'}"
    code = f"import sys, teacher_student.data; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
