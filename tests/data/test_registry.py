"""Data sets by name, through any view."""

from __future__ import annotations

import re

import numpy as np
import pytest

from teacher_student.app import compose, settings_from_config
from teacher_student.arguments import ArgumentError
from teacher_student.data import LabelsOnly, Projection, load


def test_datasets_by_name():
    assert load("halfspaces", num_private=30, dimension=3).private_features.shape == (30, 3)
    assert load("adult", split_seed=1, view=Projection(components=3)).private_features.shape == (32_561, 3)
    labels_only = load("digits", view=LabelsOnly(number=100))
    assert labels_only.neighbours == "label_only"
    assert len(labels_only.public_features) == 100
    rows = {row.tobytes() for row in labels_only.private_features}
    assert all(row.tobytes() in rows for row in labels_only.public_features)
    with pytest.raises(ArgumentError, match="data must be one of adult, cifar10, digits"):
        load("imagenet")
    with pytest.raises(ArgumentError, match="data options must be those of adult, got colour"):
        load("adult", colour="red")
    with pytest.raises(ArgumentError, match="data options must be those of table, got none"):
        load("table")


def made(*overrides):
    return settings_from_config(compose("run", ["baselines=false", "logger=none", *overrides])).data()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["experiment=digits", "data.components=9"], ["experiment=digits", "data.view.components=9"]),
        (["experiment=digits", "data.components=null"], ["data=digits"]),
        (
            ["data=digits", "data.components=9"],
            ["data=digits", "data/view=projection", "data.view.components=9", "data.view.whiten=1"],
        ),
        (["data=digits", "+data.flatten=true"], ["data=digits", "data.view.flatten=true"]),
        (
            ["data=blobs", "data.label_private=50", "seed=3"],
            ["data=blobs", "data/view=labels_only", "data.view.number=50", "seed=3"],
        ),
    ],
    ids=str,
)
def test_settings_of_before_there_were_views_are_taken_with_a_notice(old, new):
    with pytest.warns(FutureWarning, match="in the view of the data, as in data/view=projection"):
        before = made(*old)
    after = made(*new)
    assert before.neighbours == after.neighbours
    for name in ("private_features", "public_features", "student_public_features", "evaluation_features"):
        assert np.array_equal(getattr(before, name), getattr(after, name))


def test_the_settings_of_an_encoder_are_found_in_their_old_place():
    config = compose("run", ["experiment=digits_frozen", "data.encoder.steps=2"])
    assert config.data.view.encoder.steps == 2
    with pytest.warns(FutureWarning, match="data=csv is now data=table"):
        assert compose("run", ["data=csv"]).data["_target_"] == "teacher_student.data.load_table"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["data.view=projection"], "data.view must be a section of settings that data/view=NAME chooses, got 'projection'"),
        (["data/view=projection", "data.view.components=999"], "data.view.components must be an integer from 1 to 64, got 999"),
        (["data/view=encoder"], "data.view.encoder must be given"),
        (
            ["data/view=pixels"],
            "data/view must be one of adult, encoder, labels_only, none, projection, scattering; got 'pixels'",
        ),
        (
            ["data/view=projection", "data.view.component=9"],
            "data.view.component is not a setting, got 'data.view.component=9'; did",
        ),
        (["+data.view.components=9"], "unexpected keyword argument 'components'"),
    ],
    ids=str,
)
def test_slips_in_a_view_get_one_line(words, says):
    with pytest.raises(ArgumentError, match=re.escape(says)):
        made("data=digits", *words)
