"""`label`: what a user sees, what is refused, and that a refusal spends nothing."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import teacher_student as ts
from teacher_student.mechanisms import GeneratorNoise, Noise, RecordedNoise
from teacher_student.privacy import calibrate

GOOD = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "num_teachers": 4000}
MANY = GOOD | {"num_teachers": 10**6}
CLEAR = [[4000, 0], [0, 4000]]
THRESHOLD_MECHANISMS = ["stability", "stability_paper", "stability_redraw", "stability_laplace"]


class Untouched(Noise):
    """Noise that must not be drawn."""

    def _refuse(self, scale, size):
        raise AssertionError("noise was drawn")

    discrete_laplace = discrete_gaussian = two_geometrics = _refuse


def test_predictions_and_counts_are_the_same_question() -> None:
    predictions = np.repeat([[0], [1], [-1]], 4000, axis=1)
    release = ts.label(predictions, cutoff=50, **GOOD)
    assert release.labels.tolist()[:2] == [0, 1]
    assert release.labels.tolist()[2] == ts.ABSTAIN
    assert release.labels.dtype == np.int64
    assert release.answered.tolist() == [True, True, False]
    assert release.certificate.used["num_teachers"] == 4000
    assert ts.label(counts=[[4000, 0], [0, 4000], [0, 0]], cutoff=50, **GOOD).labels.tolist() == [0, 1, ts.ABSTAIN]


@pytest.mark.parametrize("mechanism", THRESHOLD_MECHANISMS)
def test_the_certificate_recomputes(mechanism: str) -> None:
    certificate = ts.label(counts=[[10**6, 0]] * 40, mechanism=mechanism, **MANY).certificate
    assert (certificate.mechanism, certificate.epsilon, certificate.delta) == (mechanism, 1.0, 1e-5)
    assert certificate.private
    assert certificate.verify() <= 1.0
    assert ts.Certificate.from_json(certificate.to_json()) == certificate


def test_options_reach_the_calibration() -> None:
    scale = ts.label(counts=CLEAR, cutoff=50, threshold_ratio=2.7, **GOOD).certificate.parameters.threshold_scale
    assert scale > ts.label(counts=CLEAR, cutoff=50, **GOOD).certificate.parameters.threshold_scale


@pytest.mark.parametrize("noise", [RecordedNoise([0] * 9), GeneratorNoise(np.random.default_rng(0))])
def test_injected_noise_is_certified_as_not_private(noise: Noise) -> None:
    certificate = ts.label(counts=CLEAR, noise=noise, **GOOD).certificate
    assert not certificate.private
    with pytest.raises(ts.ArgumentError, match="private"):
        certificate.verify()


def test_a_seed_does_not_repeat_a_release() -> None:
    """100 queries that are answered every second time: two runs after one seed agree with p < 1e-20."""
    chosen = calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=100)
    edge = [2 * (chosen.threshold + round(1.68 * chosen.query_scale) + 1), 0]
    seen = []
    for _ in range(2):
        np.random.seed(1)  # noqa: NPY002 - the global seed is what is tested
        seen.append(ts.label(counts=[edge] * 100, cutoff=100, **GOOD).labels.tolist())
    assert seen[0] != seen[1]


BAD = {
    "epsilon": [0, -1, 10**400, float("nan"), float("inf"), "1", None, True],
    "delta": [0, 1, -1e-5, 2, float("nan"), "1e-5", None],
    "cutoff": [0, -3, 2.5, "50", True],
    "num_classes": [0, -2, 2.5, None, "2"],
    "mechanism": ["laplace", "", None, 3],
    "neighbours": ["swap", None],
    "noise": ["os", 7],
    "num_teachers": [0, -1, 1.5, 3999],
    "counts": [
        [],
        [[]],
        [1, 2],
        [[1, -1]],
        [[1.5, 0]],
        [[float("nan"), 0]],
        [[float("inf"), 0]],
        [[1, 2], [3]],
        [[1, 2, 3]],
        [["a", "b"]],
        [[None, 1]],
        [[1j, 2]],
        7,
    ],
    "frobnicate": [1],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_input_gets_one_line_that_names_it_and_draws_no_noise(name: str, value: object) -> None:
    given = {"counts": CLEAR, "noise": Untouched(), **GOOD, name: value}
    with pytest.raises(ts.ArgumentError, match=r"^[^\n]+$") as caught:
        ts.label(**given)
    assert ("counts" if name == "num_teachers" and value == 3999 else name) in str(caught.value)


@pytest.mark.parametrize(
    "predictions", [[], [[]], [[0, 2]], [[-2]], [[0.5]], [[float("nan")]], [[0], [0, 1]], [[True, False]], "votes"]
)
def test_bad_predictions_draw_no_noise(predictions: object) -> None:
    with pytest.raises(ts.ArgumentError, match=r"^predictions must [^\n]+$"):
        ts.label(predictions, noise=Untouched(), **GOOD)


def test_predictions_and_counts_together_or_neither_are_refused() -> None:
    for votes in ({}, {"predictions": [[0]], "counts": [[1, 0]]}):
        with pytest.raises(ts.ArgumentError, match=r"^predictions or counts must be given"):
            ts.label(noise=Untouched(), **votes, **GOOD)


def test_a_transposed_table_is_refused() -> None:
    """Such releases were once certified for 8,000 teachers, and for 300 queries."""
    votes = np.zeros((8000, 300), dtype=np.int8)
    given = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "noise": Untouched()}
    with pytest.raises(ts.ArgumentError) as caught:
        ts.label(votes, **given)
    assert str(caught.value) == "num_teachers must be given: predictions has shape (8000, 300); is 300 the number of teachers?"
    with pytest.raises(ts.ArgumentError, match="num_teachers = 300, got 8000 columns"):
        ts.label(votes.T, num_teachers=300, **given)
    with pytest.raises(ts.ArgumentError, match="num_teachers = 300, got 8000 columns"):
        ts.label_fractions(votes.T, num_teachers=300, **given)
    del given["num_classes"]
    with pytest.raises(ts.ArgumentError, match="num_teachers = 300, got 8000 columns"):
        ts.label_soft(votes.T, num_teachers=300, **given)
    scores = np.zeros((8000, 300, 2), dtype=np.float32)
    with pytest.raises(ts.ArgumentError, match=r"got 8000 columns .*\(num_queries, num_teachers, num_classes\)"):
        ts.average_scores(scores.swapaxes(0, 1), norm=1.0, num_teachers=300, **given)


@pytest.mark.parametrize("ask", [ts.label, ts.label_fractions])
def test_counts_do_not_say_how_many_voted(ask) -> None:
    with pytest.raises(ts.ArgumentError, match=r"^num_teachers must be given"):
        ask(counts=CLEAR, num_classes=2, epsilon=1.0, delta=1e-5, noise=Untouched())


def test_predictions_of_other_teachers_than_said_are_refused() -> None:
    with pytest.raises(ts.ArgumentError, match="num_teachers = 5, got 2"):
        ts.label([[0, 1]], noise=Untouched(), **GOOD | {"num_teachers": 5})


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 60),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from([1.0, 1e-5, 2, 50, "stability", "add_remove", "", (), [], {}]),
)
tables = st.one_of(
    anything,
    st.lists(st.lists(st.one_of(st.integers(-2, 4), st.floats(), st.none()), max_size=4), max_size=4),
    arrays.arrays(
        st.sampled_from([np.int8, np.uint8, np.int64, np.uint64, np.float32, np.complex64, np.bool_, "U1", "M8[s]"]),
        arrays.array_shapes(min_dims=0, max_dims=3, max_side=4),
    ),
)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(
    given=st.fixed_dictionaries(
        {"num_classes": st.one_of(st.integers(1, 4), anything)},
        optional={
            "predictions": tables,
            "counts": tables,
            "cutoff": st.one_of(st.integers(1, 60), anything.filter(lambda value: value is not None)),
            "num_teachers": anything,
            "neighbours": st.one_of(st.sampled_from(["add_remove", "replace_one"]), anything),
            "noise": anything,
            "query_ids": anything,
        },
    ),
    numbers=st.one_of(st.just({"epsilon": 1.0, "delta": 1e-5}), st.fixed_dictionaries({"epsilon": anything, "delta": anything})),
)
def test_whatever_is_given_the_answer_is_a_release_or_the_documented_error(given: dict, numbers: dict) -> None:
    try:
        release = ts.label(**given, **numbers)
    except ts.ArgumentError as error:
        assert "\n" not in str(error)  # noqa: PT017 - that it may succeed is the point
    else:
        assert (release.labels >= ts.HALTED).all()


def test_the_planner_chooses_a_cutoff_from_public_sizes() -> None:
    chosen = ts.label(counts=[[1000, 0]] * 50, mechanism="stability", **GOOD).certificate
    assert 1 <= chosen.parameters.cutoff <= 50
    assert chosen.verify() <= 1.0
    with pytest.raises(ts.ArgumentError, match=r"^cutoff must be given where num_queries is not"):
        ts.LabelSession(cutoff=None, noise=Untouched(), **GOOD)
    with pytest.raises(ts.ArgumentError, match=r"^mechanism must be given where num_queries is not, got auto"):
        ts.LabelSession(cutoff=None, mechanism="auto", noise=Untouched(), **GOOD)


def test_what_is_not_given_is_chosen_from_public_sizes_alone_and_the_certificate_says_so() -> None:
    sizes = GOOD | {"num_teachers": 250}
    votes = [np.tile(row, (400, 1)) for row in ([250, 0], [0, 250], [126, 124], [3, 4])]
    first, *others = [ts.label(counts=counts, **sizes).certificate for counts in votes]
    assert all(other.parameters == first.parameters and other.used["chosen"] == first.used["chosen"] for other in others)
    assert first.used["chosen"].startswith(f"{first.mechanism}, ends after")
    assert first.verify() <= 1.0
    assert ts.Certificate.from_json(first.to_json()) == first
    asked = ts.label(counts=votes[0], mechanism="gnmax", **sizes).certificate
    assert (asked.mechanism, "chosen" in asked.used) == ("gnmax", False)  # what is named wins
    assert asked.parameters.max_answers < 400  # nothing is spent on labels that would be noise
    assert ts.label(counts=votes[0], cutoff=7, **sizes).certificate.parameters.cutoff == 7
    assert ts.label(counts=votes[0], threshold_ratio=2.7, **sizes).certificate.mechanism == "stability"


def test_a_session_of_a_chosen_mechanism_opens_again(tmp_path: Path) -> None:
    given = {"state": tmp_path / "s.sqlite", "mechanism": "auto", "cutoff": None, "num_queries": 300, **GOOD}
    with ts.LabelSession(**given) as session:
        first = session.answer(counts=CLEAR, query_ids=["a", "b"])
    with ts.LabelSession(**given) as session:
        assert session.answer(counts=CLEAR[::-1], query_ids=["a", "b"]).tolist() == first.tolist()


@pytest.mark.parametrize("mechanism", ["gnmax", "confident_gnmax", "lnmax", "exponential"])
def test_the_mechanisms_of_the_field_answer_under_the_same_call(mechanism: str) -> None:
    release = ts.label(counts=[[10**6, 0], [0, 10**6]], mechanism=mechanism, **MANY)
    assert release.labels.tolist() == [0, 1]
    assert release.certificate.used["paid"] == 2
    assert release.certificate.verify() <= 1.0


@pytest.mark.parametrize("number", [np.zeros((3, 0)), [2], "2"])
def test_odd_numbers_of_teachers_beside_predictions_are_refused(number):
    with pytest.raises(ts.ArgumentError, match="num_teachers must be"):
        ts.label([[0, 1]], noise=Untouched(), **GOOD | {"num_teachers": number})


def test_the_exponential_mechanism_answers_at_an_epsilon_without_meaning():
    """Its exact draws once took exp(1 / scale) rounds, unbounded at such an epsilon."""
    found = ts.label(
        counts=[[900, 0], [0, 900]], num_classes=2, epsilon=1e6, delta=1e-6, num_teachers=900, mechanism="exponential"
    )
    assert found.labels.tolist() == [0, 1]
    assert found.certificate.parameters.scale == Fraction(1, 4)
    with pytest.raises(ts.ArgumentError, match="scale must be at least 1/4"):
        dataclasses.replace(found.certificate.parameters, scale=Fraction(63, 256))


@pytest.mark.parametrize("how", ["fixed", "public_surrogate"])
def test_every_door_takes_how_hyperparameters_were_chosen(how):
    """This once worked in `label` by accident and was a TypeError in `label_fractions`."""
    given = {"epsilon": 1.0, "delta": 1e-5, "num_teachers": 100, "hyperparameters": how}
    votes = np.zeros((3, 100), dtype=np.int8)
    made = [
        ts.label(votes, num_classes=2, **given),
        ts.label_fractions(votes, num_classes=2, **given),
        ts.label_soft(votes / 1.0, **given),
        ts.average_scores(np.zeros((3, 100, 2)), norm=1.0, **given),
    ]
    assert {release.certificate.used["hyperparameters"] for release in made} == {how}
