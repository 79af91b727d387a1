"""Public components of any data set: they come from the public points alone, and each record is projected by itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.data import load_digits, project


@pytest.fixture(scope="module")
def digits():
    return load_digits(num_private=300, num_public=200)


def test_components_of_images(digits):
    found = project(digits, 12)
    assert [getattr(found, f"{part}_features").shape for part in ("private", "public", "evaluation")] == [
        (300, 12),
        (200, 12),
        (1297, 12),
    ]
    assert found.student_points.shape == (200, 12)
    assert found.feature_names is not None
    assert found.feature_names[11] == "component 12"
    assert found.public_features.var(axis=0) == pytest.approx(1, abs=1e-4)
    natural = project(digits, 12, whiten=0.0).public_features.var(axis=0)
    assert natural[0] > 2 * natural[11]
    assert np.array_equal(load_digits(num_private=300, num_public=200, components=12).private_features, found.private_features)


def test_no_private_record_has_a_say(digits):
    features = digits.private_features.copy()
    features[7] = np.nan
    changed = project(dataclasses.replace(digits, private_features=features), 12)
    kept = np.arange(300) != 7
    assert np.array_equal(changed.private_features[kept], project(digits, 12).private_features[kept])
    assert np.isnan(changed.private_features[7]).all()
    assert np.array_equal(changed.public_features, project(digits, 12).public_features)


def test_the_student_may_keep_the_images(digits):
    found = project(digits, 12, student_columns=True)
    assert found.private_features.shape == (300, 12)
    assert np.array_equal(found.student_points, digits.public_features)
    assert found.student_private_features is not None
    assert found.student_private_features.shape == (300, 1, 8, 8)
    assert found.student_feature_names is None


def test_without_components_the_data_stays_as_it_is(digits):
    assert project(digits, None) is digits


@pytest.mark.parametrize("options", [{"components": 0}, {"components": 200}, {"components": 5, "whiten": 2.0}])
def test_bad_projections(digits, options):
    with pytest.raises(ArgumentError):
        project(digits, **options)
