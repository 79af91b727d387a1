"""A certificate round-trips exactly, recomputes from its parameters alone, and fails closed."""

import dataclasses
import json
import math

import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.privacy import MECHANISMS, Certificate, Composition, calibrate, calibrate_soft
from teacher_student.privacy.certificate import NEIGHBOURS

STABILITY = ["stability", "stability_laplace", "stability_redraw", "stability_paper"]
WANTED = {"epsilon": 1.0, "delta": 1e-5, "cutoff": 50, "num_queries": 1000}


def certificate(mechanism="stability", **changes):
    parameters = changes.pop("parameters", None) or calibrate(mechanism, **WANTED)
    fields = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "mechanism": parameters.mechanism,
        "parameters": parameters,
        "private": True,
        "neighbours": "add_remove",
        "used": {"num_queries": 900, "paid": 17},
        "not_covered": ("hyper-parameters",),
        "versions": {"opendp": "0.14.1"},
    }
    return Certificate(**(fields | changes))


def tampered(change, mechanism="stability"):
    fields = json.loads(certificate(mechanism).to_json())
    change(fields)
    return json.dumps(fields)


@pytest.mark.parametrize("mechanism", STABILITY)
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_round_trip_is_exact_and_verifies(mechanism, neighbours):
    made = certificate(mechanism, neighbours=neighbours)
    again = Certificate.from_json(made.to_json())
    assert again == made
    assert again.to_json() == made.to_json()
    assert again.verify() == made.parameters.epsilon(1e-5) <= 1.0


def test_soft_labels_have_the_same_certificate_with_units_for_a_cutoff():
    for mechanism in STABILITY:
        made = certificate(parameters=calibrate_soft(mechanism, **WANTED))
        again = Certificate.from_json(made.to_json())
        assert again.parameters.cutoff == 100
        assert again.verify() <= 1.0


def test_injected_noise_is_never_verified():
    with pytest.raises(ArgumentError, match="private: false"):
        certificate(private=False).verify()
    text = certificate(private=False).to_json()
    assert Certificate.from_json(text).private is False


def halve(name):
    def change(fields):
        fields["parameters"][name] /= 2

    return change


def put(**values):
    return lambda fields: fields.update(values)


def put_parameter(**values):
    return lambda fields: fields["parameters"].update(values)


@pytest.mark.parametrize(
    "change",
    [
        *(halve("threshold_scale"), halve("query_scale"), put_parameter(threshold=20), put_parameter(cutoff=100)),
        *(put(epsilon=0.9), put(delta=5e-6), put(epsilon=1e-9), put(delta=1e-30), put(private=False)),
        *(put(used={"paid": 51}), put(used={"paid": "17"}), put(used={"paid": -1})),
        *(
            put(used={"paid": True}),
            put(used={"num_queries": True}),
            put(used={"num_classes": True}),
            put(used={"answered": 1.5}),
        ),
    ],
)
def test_numbers_that_the_parameters_do_not_support_are_refused(change):
    """Half the noise, a lower threshold, more refusals, a smaller claim: all can be read, none is verified."""
    with pytest.raises(ArgumentError) as refused:
        Certificate.from_json(tampered(change)).verify()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("mechanism", STABILITY)
@pytest.mark.parametrize("field", ["threshold_scale", "query_scale"])
def test_an_eighth_of_the_noise_is_refused_whatever_the_calibration(mechanism, field):
    """An eighth, since the printed constants have twice the noise that they need."""

    def change(fields):
        scale = fields["parameters"][field] / 8
        fields["parameters"][field] = math.floor(256 * scale) / 256

    with pytest.raises(ArgumentError, match="must be at least"):
        Certificate.from_json(tampered(change, mechanism)).verify()


@pytest.mark.parametrize("number", [True, 1.0, "1", 2, None])
def test_the_format_is_a_number(number):
    with pytest.raises(ArgumentError, match="format 1"):
        Certificate.from_json(tampered(put(format=number)))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("change", ["epsilon", "tiny scales", "huge counts"])
def test_numbers_whose_cost_cannot_be_computed_are_refused_in_one_line(mechanism, change):
    """Whatever the numbers, only ArgumentError is raised; a huge epsilon is a true claim."""
    parameters = calibrate(mechanism, **WANTED, **({"threshold": 9} if mechanism == "confident_gnmax" else {}))
    fields = json.loads(certificate(parameters=parameters).to_json())
    if change == "epsilon":
        fields["epsilon"] = 1e308
        assert Certificate.from_json(json.dumps(fields)).verify() <= 1.0
        return
    for name, value in fields["parameters"].items():
        if name.endswith("scale") and change == "tiny scales":
            fields["parameters"][name] = 1 / 256
        if isinstance(value, int) and change == "huge counts":
            fields["parameters"][name] = 10**400
    with pytest.raises(ArgumentError) as refused:
        Certificate.from_json(json.dumps(fields)).verify()
    assert "\n" not in str(refused.value)


def test_more_answers_than_can_be_counted_are_refused():
    """scipy's binomial tail is NaN there, which was once taken for a delta of 0."""
    fields = json.loads(certificate(parameters=calibrate("lnmax", epsilon=1.0, delta=1e-5, num_queries=100)).to_json())
    fields["parameters"]["max_answers"] = 2**31
    with pytest.raises(ArgumentError, match="max_answers must be an integer from 1 to 10000000"):
        Certificate.from_json(json.dumps(fields)).verify()


def test_answers_beyond_the_cap_are_refused():
    made = certificate(parameters=calibrate("gnmax", epsilon=1.0, delta=1e-5, num_queries=100))
    assert dataclasses.replace(made, used={"paid": 100}).verify() <= 1.0
    with pytest.raises(ArgumentError, match="paid must be a whole number of at most the max_answers 100, got 101"):
        dataclasses.replace(made, used={"paid": 101}).verify()


def drop(name):
    return lambda fields: fields.pop(name)


@pytest.mark.parametrize(
    "change",
    [drop(name) for name in ("epsilon", "delta", "mechanism", "parameters", "private", "neighbours", "used", "composition")]
    + [put(format=2), put(comment="no such field"), put(mechanism="stability_redraw"), put(mechanism="magic")]
    + [put(epsilon=0), put(epsilon=-1), put(epsilon="1"), put(epsilon=None), put(epsilon=True), put(delta=0), put(delta=1)]
    + [put(private="yes"), put(private=1), put(neighbours="none"), put(used=[]), put(composition={}), put(parameters=[])]
    + [put_parameter(mechanism="magic"), put_parameter(comment=1), lambda fields: fields["parameters"].pop("cutoff")]
    + [put_parameter(threshold_scale=1e300), put_parameter(cutoff=10**400), put_parameter(threshold=-1), put_parameter(cutoff=0)]
    + [put_parameter(threshold_scale=0.1), put_parameter(threshold=30.5), put_parameter(query_scale="58")],
)
def test_what_is_not_a_certificate_is_refused(change):
    with pytest.raises(ArgumentError) as refused:
        Certificate.from_json(tampered(change))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("place", ['"epsilon": 1.0', '"delta": 1e-05', '"threshold": 30', '"paid": 17'])
def test_values_that_are_not_numbers_are_refused(number, place):
    text = certificate().to_json()
    assert place in text
    with pytest.raises(ArgumentError):
        Certificate.from_json(text.replace(place, place.split(":")[0] + ": " + number)).verify()


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "3", "null", '{"epsilon": 1}', "[" * 100_000])
def test_text_that_is_not_a_certificate_is_refused(text):
    with pytest.raises(ArgumentError, match="certificate must"):
        Certificate.from_json(text)


def test_a_claim_need_not_be_the_best_one():
    assert certificate(epsilon=3.0, delta=1e-3).verify() < 1.0


def test_a_scale_whose_cost_cannot_be_summed_is_refused():
    text = tampered(put_parameter(threshold_scale=float(1 << 30)))
    with pytest.raises(ArgumentError, match="threshold_scale must be at most"):
        Certificate.from_json(text).verify()


def earlier(**changes):
    parameters = calibrate("stability_redraw", epsilon=0.5, delta=1e-6, cutoff=9)
    entry = {"session": "a", "neighbours": "add_remove", "epsilon": 0.5, "delta": 1e-6, "parameters": parameters.to_dict()}
    return entry | changes


def test_earlier_releases_are_recomputed_too_and_add_up():
    made = certificate(composition=(earlier(), earlier()))
    again = Certificate.from_json(made.to_json())
    assert again == made
    assert again.verify() <= 1.0
    before = calibrate("stability_redraw", epsilon=0.5, delta=1e-6, cutoff=9)
    assert again.total(1.2e-5) == 2.0  # sums hold whatever the earlier releases made of the later ones' parameters
    assert again.total(1.19e-5) == math.inf
    fixed = Composition(((made.parameters, 1), (before, 1), (before, 1)))
    assert fixed.epsilon(1.2e-5) < 2.0


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.2},
        {"delta": 1e-9},
        {"neighbours": "replace_one"},
        {"parameters": {}},
        {"parameters": {"mechanism": "magic"}},
        {"epsilon": None},
    ],
)
def test_earlier_releases_that_do_not_recompute_are_refused(changes):
    with pytest.raises(ArgumentError):
        Certificate.from_json(certificate(composition=(earlier(**changes),)).to_json()).verify()


def test_the_parameters_must_be_those_of_a_mechanism():
    with pytest.raises(ArgumentError, match="parameters must be those of a mechanism"):
        dataclasses.replace(certificate(), parameters={"mechanism": "stability"})
