from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacher_student.arguments import ArgumentError
from teacher_student.data.splits import PublicProjection, public_split


@given(st.integers(2, 500), st.data(), st.one_of(st.none(), st.integers(0, 2**40)))
def test_both_parts_together_are_everything(total, data, seed):
    first = data.draw(st.integers(1, total - 1))
    left, right = public_split(total, first, seed)
    assert (len(left), len(right)) == (first, total - first)
    assert sorted([*left, *right]) == list(range(total))
    if seed is None:
        assert left.tolist() == list(range(first))


def test_the_stream_never_changes():
    """Frozen: published figures name their split by the seed."""
    assert public_split(12, 4, 0)[0].tolist() == [1, 2, 3, 11]


def bits_move(project, rows=5000, columns=104, components=25) -> bool:
    """Does a record's projection depend on the records beside it?"""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(rows, columns)).astype(np.float32)
    whole = project(features)
    for start, stop in ((1, rows), (0, 1), (1, 2), (7, 300), (rows - 3, rows), (2, 2050)):
        if not np.array_equal(project(features[start:stop]), whole[start:stop]):
            return True
    return False


@pytest.fixture(scope="module")
def projection():
    rng = np.random.default_rng(1)
    return PublicProjection(rng.normal(size=104), rng.normal(size=(104, 25)))


def test_a_projection_treats_every_record_by_itself(projection):
    assert not bits_move(projection.apply)


def test_a_matrix_product_is_caught(projection):
    def twin(features):
        return (features - projection.mean.astype(np.float32)) @ projection.directions.astype(np.float32)

    assert bits_move(twin)


def test_a_projection_centred_on_its_input_is_caught(projection):
    assert bits_move(lambda features: projection.apply(features - features.mean(axis=0)))


def test_the_projection_is_the_affine_map(projection):
    features = np.random.default_rng(2).normal(size=(50, 104)).astype(np.float32)
    assert np.allclose(projection.apply(features), (features - projection.mean) @ projection.directions, atol=1e-5)


def test_not_a_number_stays_in_its_record(projection):
    features = np.ones((5, 104), dtype=np.float32)
    clean = projection.apply(features)
    features[2, 3], features[3, 4] = np.nan, np.inf
    dirty = projection.apply(features)
    assert np.isnan(dirty[2]).all()
    assert (dirty[[0, 1, 4]] == clean[[0, 1, 4]]).all()


def test_directions_have_fixed_signs_and_scale():
    points = np.random.default_rng(5).normal(size=(400, 6)).astype(np.float32) * np.arange(1, 7, dtype=np.float32)
    plain = PublicProjection.fit(points, 3, whiten=0)
    lengths = plain.directions.T @ plain.directions
    assert np.allclose(lengths, np.eye(3) * lengths[0, 0])
    assert plain.apply(points).var(axis=0).mean() == pytest.approx(1, abs=1e-4)
    assert (plain.directions[np.abs(plain.directions).argmax(axis=0), range(3)] > 0).all()
    assert np.abs(plain.directions).argmax(axis=0).tolist() == [5, 4, 3]
    assert np.allclose(PublicProjection.fit(points, 3).apply(points).std(axis=0), 1, atol=1e-5)
    assert np.allclose(PublicProjection.fit(points, 6, scale=1e-3).apply(points).std(axis=0), 1, atol=1e-5)


def test_whitening_in_between():
    points = np.random.default_rng(5).normal(size=(400, 6)).astype(np.float32) * np.arange(1, 7, dtype=np.float32)
    spreads = [PublicProjection.fit(points, 6, whiten=power).apply(points).std(axis=0) for power in (0, 0.5, 1)]
    assert [round(spread[0] / spread[-1], 2) for spread in spreads] == [
        pytest.approx(ratio, rel=0.02) for ratio in (spreads[0][0] / spreads[0][-1], np.sqrt(spreads[0][0] / spreads[0][-1]), 1)
    ]
    for whiten, scale, message in ((1.5, None, "whiten must lie between 0 and 1"), (1, 0.0, "scale must be a number above 0")):
        with pytest.raises(ArgumentError, match=message):
            PublicProjection.fit(points, 3, whiten=whiten, scale=scale)


def test_components_beyond_the_rank_are_refused():
    points = np.repeat(np.random.default_rng(5).normal(size=(40, 2)), 2, axis=1).astype(np.float32)
    assert PublicProjection.fit(points, 2).directions.shape == (4, 2)
    with pytest.raises(ArgumentError, match="components must be at most the rank of the public points, got 3"):
        PublicProjection.fit(points, 3)
