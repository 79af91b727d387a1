"""Views: records seen through public components, a frozen network, or without public points; each by itself, bit by bit."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from teacher_student.arguments import ArgumentError
from teacher_student.data import (
    Encoder,
    LabelsOnly,
    Projection,
    View,
    encode,
    from_torch,
    gaussian_blobs,
    load,
    load_digits,
    load_label_private,
    project,
)
from teacher_student.data.digit_network import DigitNetwork
from teacher_student.data.encodings import described_encoding, description_of


class Watchful(nn.Module):
    """Says how many records stand together, and fails on one of them."""

    def forward(self, images):
        if images.max() > 2:
            raise RuntimeError("what a private record provokes")
        return torch.stack([images.mean((1, 2, 3)), torch.full((len(images),), float(len(images)))], 1)


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, images):
        self.seen += 1
        return images.flatten(1) + self.seen


class Tosses(nn.Module):
    def forward(self, images):
        return functional.dropout(images.flatten(1))


@pytest.fixture(scope="module")
def digits():
    data = load_digits(num_private=40, num_public=20)
    judged = data.evaluation_features[:10], data.evaluation_labels[:10]
    return without_student(data, evaluation_features=judged[0], evaluation_labels=judged[1])


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return DigitNetwork()


@pytest.fixture(scope="module")
def encoded(digits, network):
    return encode(digits, network)


def with_records(digits, rows):
    private = {name: getattr(digits, name)[rows] for name in ("private_features", "private_ids", "private_labels")}
    return without_student(digits, **private)


def without_student(digits, **changed):
    own = {f"student_{part}_features": None for part in ("private", "public", "evaluation")}
    return dataclasses.replace(digits, **changed, **own)


def test_every_part_is_seen_through_the_network(digits, encoded, network):
    for part in ("private", "public", "evaluation"):
        features = getattr(encoded, f"{part}_features")
        assert features.shape == (len(getattr(digits, f"{part}_features")), 64)
        assert np.array_equal(features, getattr(encoded, f"student_{part}_features"))
    assert encoded.feature_names[63] == "feature 64"
    with torch.inference_mode():
        together = network.eval()(torch.as_tensor(digits.public_features)).numpy()
    assert encoded.public_features == pytest.approx(together, abs=1e-5)
    assert encoded.public_features.std(axis=0).max() > 1e-3


def test_a_record_more_or_less_moves_no_bit_of_another(digits, encoded, network):
    kept = np.flatnonzero(np.arange(40) % 7 != 3)
    fewer = encode(with_records(digits, kept), network)
    assert np.array_equal(fewer.private_features, encoded.private_features[kept])
    assert np.array_equal(fewer.public_features, encoded.public_features)
    turned = encode(with_records(digits, np.arange(40)[::-1]), network)
    assert np.array_equal(turned.private_features, encoded.private_features[::-1])


def test_no_record_passes_beside_another(digits):
    """The twin that passes all records at once says how many there are."""
    together = Watchful()(torch.as_tensor(digits.private_features))[:, 1]
    assert set(together.tolist()) == {40.0}
    assert set(encode(digits, Watchful()).private_features[:, 1].tolist()) == {1.0}


@pytest.mark.parametrize("value", [np.nan, np.inf, 3.0])
def test_a_record_that_provokes_something_is_alone_with_it(digits, value):
    """Not finite, or one on which the network fails: no features, no message, and nothing changes for others."""
    features = digits.private_features.copy()
    features[7, 0, 2, 2] = value
    changed = encode(without_student(digits, private_features=features), Watchful())
    assert np.isnan(changed.private_features[7]).all()
    others = np.arange(40) != 7
    assert np.array_equal(changed.private_features[others], encode(digits, Watchful()).private_features[others])
    assert np.isnan(project(changed, 1).private_features[7]).all()


def test_nothing_outside_shows_how_many_records_passed(digits, network):
    torch.manual_seed(5)
    before, threads, training = torch.get_rng_state(), torch.get_num_threads(), network.train().training
    encode(digits, network)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    assert network.training == training


def test_a_layer_by_its_name(digits):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10))
    seen = encode(digits, lambda: network, layer="1")
    assert seen.public_features.shape == (20, 3)
    with torch.inference_mode():
        wanted = network[:2](torch.as_tensor(digits.public_features)).flatten(1).numpy()
    assert seen.public_features == pytest.approx(wanted, abs=1e-6)
    assert encode(digits, None) is digits


WRONG = {
    "a layer that is no name": (DigitNetwork, {"layer": ["body"]}, "layer must name a submodule of the encoder such as body"),
    "no network": (lambda: 3, {}, "must be a torch module"),
    "no such layer": (DigitNetwork, {"layer": "head"}, "layer must name a submodule of the encoder such as body"),
    "another shape": (lambda: nn.Linear(5, 2), {}, r"must take features of shape \(1, 1, 8, 8\), but"),
    "one that remembers": (Remembers, {}, "must say the same of a record each time"),
    "one that tosses a coin": (Tosses, {}, "must say the same of a record each time"),
}


@pytest.mark.parametrize("case", WRONG)
def test_networks_that_are_refused(digits, case):
    network, options, says = WRONG[case]
    with pytest.raises(ArgumentError, match=says):
        encode(digits, network, **options)


@pytest.mark.parametrize("source", ["digits", "mnist5000"])
@pytest.mark.parametrize("private", ["digits", "mnist5000", "mnist", "fashion_mnist"])
def test_private_records_are_not_trained_on(digits, source, private):
    """mnist5000 is a part of MNIST."""
    network, dataset = nn.Flatten(), without_student(digits, name=private)
    network.trained_on = source
    if source != private and (source, private) != ("mnist5000", "mnist"):
        encode(dataset, network)
        return
    with pytest.raises(ArgumentError, match=f"must be trained on other records than the private ones, {private}, got {source}"):
        encode(dataset, network)


def test_what_is_published_says_the_same(digits, encoded):
    for dataset in (encoded, project(encoded, 8)):
        own = dataset.student_encoding
        arrays = {name: np.ascontiguousarray(array) for name, array in own.arrays().items()}
        again = described_encoding(description_of(own), arrays)
        assert np.array_equal(again.project(digits.evaluation_features[:5]), dataset.student_evaluation_features[:5])
        assert again.row_shape == (1, 8, 8)


def test_a_file_names_no_other_network(digits):
    torch.manual_seed(0)
    own = encode(digits, nn.Sequential(nn.Flatten(), nn.Linear(64, 2))).student_encoding
    with pytest.raises(ArgumentError, match="encoder must be given to load_student, a Sequential"):
        described_encoding(description_of(own), own.arrays())
    given = described_encoding(description_of(own), own.arrays(), nn.Sequential(nn.Flatten(), nn.Linear(64, 2)))
    assert np.array_equal(given.project(digits.public_features), own.project(digits.public_features))


@pytest.fixture(scope="module")
def images():
    return load_digits(num_private=300, num_public=200)


def test_components_of_images(images):
    found = project(images, 12)
    assert [getattr(found, f"{part}_features").shape for part in ("private", "public", "evaluation")] == [
        (300, 12),
        (200, 12),
        (1297, 12),
    ]
    assert found.student_points.shape == (200, 12)
    assert found.feature_names is not None
    assert found.feature_names[11] == "component 12"
    assert found.public_features.var(axis=0) == pytest.approx(1, abs=1e-4)
    natural = project(images, 12, whiten=0.0).public_features.var(axis=0)
    assert natural[0] > 2 * natural[11]
    assert np.array_equal(
        load_digits(num_private=300, num_public=200, view=Projection(components=12)).private_features, found.private_features
    )


def test_no_private_record_has_a_say(images):
    features = images.private_features.copy()
    features[7] = np.nan
    changed = project(dataclasses.replace(images, private_features=features), 12)
    kept = np.arange(300) != 7
    assert np.array_equal(changed.private_features[kept], project(images, 12).private_features[kept])
    assert np.isnan(changed.private_features[7]).all()
    assert np.array_equal(changed.public_features, project(images, 12).public_features)


def test_the_student_may_keep_the_images(images):
    found = project(images, 12, student_columns=True)
    assert found.private_features.shape == (300, 12)
    assert np.array_equal(found.student_points, images.public_features)
    assert found.student_private_features is not None
    assert found.student_private_features.shape == (300, 1, 8, 8)
    assert found.student_feature_names is None


def test_without_components_the_data_stays_as_it_is(images):
    assert project(images, None) is images


@pytest.mark.parametrize("options", [{"components": 0}, {"components": 200}, {"components": 5, "whiten": 2.0}])
def test_bad_projections(images, options):
    with pytest.raises(ArgumentError):
        project(images, **options)


def same(one, other):
    """Whether two data sets agree in every bit."""
    fields = [(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one)]
    return all(np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else True for mine, theirs in fields)


def test_images_are_scaled_by_constants_and_columns_are_not(images):
    scaled = View(mean=0.5, std=0.25, flatten=True).of(images)
    assert scaled.private_features == pytest.approx((images.private_features.reshape(300, 64) - 0.5) * 4)
    assert scaled.student_points.shape == (200, 64)
    assert View().of(images) is images
    blobs = gaussian_blobs(20, 10, 10)
    for view in (View(mean=0.5), View(flatten=True)):
        with pytest.raises(ArgumentError, match="mean, std and flatten must be left alone for columns with names"):
            view.of(blobs)
    for view in (View(std=0), View(mean="x"), View(flatten=1)):
        with pytest.raises(ArgumentError):
            view.of(images)


def test_no_private_number_shows_in_a_warning_when_images_are_scaled():
    private = [(np.full((1, 2, 2), value, np.float32), 0) for value in (3e38, np.nan, np.inf, 0.5)]
    data = from_torch(private, [np.zeros((1, 2, 2))], class_names=["no", "yes"], ids=[1, 2, 3, 4])
    scaled = View(mean=0.5, std=0.1).of(data)
    assert scaled.private_features[3, 0, 0, 0] == 0
    assert not np.isfinite(scaled.private_features[:3]).any()


def test_an_encoder_sees_scaled_images_and_components_see_the_encoder(digits, network):
    view = Encoder(mean=0.2, std=0.5, encoder=network, components=3, whiten=0.5)
    by_hand = project(encode(View(mean=0.2, std=0.5).of(digits), network), 3, whiten=0.5)
    assert same(view.of(digits), by_hand)


def test_labels_only_asks_training_records_as_they_are_seen(images):
    view = LabelsOnly(number=30, seed=2, view=Projection(components=5, student_columns=True))
    data = view.load(lambda: images)
    whole = project(images, 5, student_columns=True)
    assert data.neighbours == "label_only"
    assert np.array_equal(data.private_features, whole.private_features)
    assert data.public_features.shape == (30, 5)
    assert data.student_points.shape == (30, 1, 8, 8)
    for number in (0, 300):
        with pytest.raises(ArgumentError, match=r"^number must be an integer from 1 to 299"):
            LabelsOnly(number=number).load(lambda: images)


@pytest.mark.parametrize("view", [3, "projection", Projection])
def test_what_is_no_view_is_refused(view):
    with pytest.raises(ArgumentError, match=r"^view must be a view such as"):
        load("digits", view=view)
    with pytest.raises(ArgumentError, match=r"^view must be one of records"):
        LabelsOnly(number=3, view=view)


OLD = {
    "components": (functools.partial(load_digits, 300, 200, components=9, whiten=0.0), Projection(components=9, whiten=0.0)),
    "pixels": (
        functools.partial(load_digits, 300, 200, mean=0.5, std=0.25, flatten=True),
        View(mean=0.5, std=0.25, flatten=True),
    ),
    "by name": (
        functools.partial(load, "digits", num_private=300, num_public=200, label_private=9, label_private_seed=4, components=2),
        LabelsOnly(number=9, seed=4, view=Projection(components=2)),
    ),
    "label_private": (lambda: load_label_private(lambda: load_digits(300, 200), 9, 4), LabelsOnly(number=9, seed=4)),
}


@pytest.mark.parametrize("case", OLD)
def test_what_loaders_took_before_there_were_views_is_taken_with_a_notice(images, case):
    call, view = OLD[case]
    with pytest.warns(FutureWarning, match="in this version only"):
        data = call()
    assert same(data, view.load(lambda: images))


def test_names_of_data_sets_that_changed_are_taken_with_a_notice():
    with (
        pytest.warns(FutureWarning, match="csv is now table"),
        pytest.raises(ArgumentError, match="data options must be those of"),
    ):
        load("csv")
