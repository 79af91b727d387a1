"""The plan of local votes: its assumptions beside votes on MNIST, its choices, and the command that it advises."""

from __future__ import annotations

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.app import compose, dispatch, settings_from_config
from teacher_student.arguments import ArgumentError
from teacher_student.planning.local_votes import AGREEMENT, expected_votes, plan_records
from teacher_student.planning.search import PublicVotes
from teacher_student.privacy import GNMax, calibrate
from teacher_student.privacy.parameters import REPLACED, WITHDRAWN

SIZES = {"records": 60_000, "num_points": 9_000, "num_classes": 10, "epsilon": 0.25, "delta": 1e-5}
QUICK = ["noisy_fraction", "gnmax"]

MNIST_LEADS = [
    *(2, 174, 255, 348, 427, 457, 510, 547, 614, 661, 693, 721, 762),
    *(809, 837, 876, 935, 982, 1061, 1104, 1182, 1259, 1447, 1583, 2382),
]
"""Every tenth of the 250 leads, in order, with which 60,000 images of MNIST vote on 6 of 250 representatives each, in 60
principal components of the pixels of 9,000 public images: 1,440 votes on an average point."""


def on_mnist() -> PublicVotes:
    lead = np.array(MNIST_LEADS)
    votes = np.maximum(lead, 1440)
    return PublicVotes(np.stack([(votes + lead) // 2, (votes - lead) // 2, *np.zeros((8, 25), dtype=np.int64)], axis=1))


def test_the_assumed_leads_resemble_those_of_mnist():
    """Noisy counts within a tenth, stability within a factor of two: it rests on the few votes around its threshold."""
    assumed = PublicVotes(expected_votes(1440, 10, AGREEMENT))
    for epsilon in (0.1, 0.25, 1.0):
        counts = plan_records(**{**SIZES, "epsilon": epsilon}, queries=250, mechanisms=["noisy_fraction"]).ranked[0]
        assert (counts.asked, counts.votes, counts.voters) == (250, 6, 1440)
        true = on_mnist().expected(GNMax(scale=counts.parameters.scale, max_answers=250), 250)
        assert counts.outlook.agreeing == pytest.approx(true.agreeing, rel=0.1)
        spec = calibrate("stability", epsilon=epsilon, delta=1e-5, cutoff=32, vote_change=WITHDRAWN)
        ratio = assumed.expected(spec, 250).agreeing / on_mnist().expected(spec, 250).agreeing
        assert 0.5 < ratio < 2


@pytest.mark.parametrize("neighbours", ["add_remove", "zero_out", "replace_one", "label_only"])
def test_the_parameters_are_those_of_a_run_under_the_relation(neighbours):
    found = plan_records(**SIZES, neighbours=neighbours, mechanisms=QUICK)
    change = WITHDRAWN if neighbours in ("add_remove", "zero_out") else REPLACED
    assert {option.parameters.mechanism for option in found.ranked} == set(QUICK)
    for option in found.ranked:
        assert option.parameters.vote_change == change
        assert option.parameters.epsilon(1e-5) <= 0.25
        assert option.outlook.agreeing <= option.outlook.answers == pytest.approx(option.asked)
        assert option.parameters.max_answers == option.asked


def test_votes_that_may_be_replaced_get_fewer_labels():
    withdrawn, replaced = (
        plan_records(**SIZES, neighbours=name, queries=1000, mechanisms=["noisy_fraction"]).ranked[0]
        for name in ("add_remove", "label_only")
    )
    assert replaced.parameters.squared_sensitivity == 2 * withdrawn.parameters.squared_sensitivity == 2 * 25
    assert replaced.outlook.agreeing < withdrawn.outlook.agreeing


def test_queries_and_votes_that_are_given_are_kept():
    (option,) = plan_records(**SIZES, queries=300, votes=9, mechanisms=["noisy_fraction"]).ranked
    assert (option.asked, option.votes, option.voters) == (300, 9, 1800)
    assert option.parameters.votes_per_teacher == 9
    (option,) = plan_records(**SIZES, votes=200, mechanisms=["noisy_fraction"]).ranked
    assert option.votes == 200 <= option.asked


def test_a_larger_budget_asks_more_points_and_labels_more():
    small, large = (
        plan_records(1_000, 500, 10, epsilon, 1e-5, mechanisms=["noisy_fraction"]).ranked[0] for epsilon in (0.5, 8.0)
    )
    assert small.asked < large.asked
    assert small.outlook.agreeing < large.outlook.agreeing


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"records": 0}, "records must be an integer from 1 to 1000000000, got 0"),
        ({"queries": 9_001}, "queries must be an integer from 1 to 9000, got 9001"),
        ({"queries": 10, "votes": 11}, "votes must be an integer from 1 to 10, got 11"),
        ({"agreement": 0}, "agreement must be above 0, got 0"),
        ({"num_classes": 1}, "num_classes must be an integer from 2 to 10000, got 1"),
        ({"neighbours": "swap"}, "neighbours must be one of"),
        ({"mechanisms": ["noisy_scores"]}, "mechanism must be one of"),
    ],
)
def test_bad_arguments_get_one_clear_line(change, says):
    with pytest.raises(ArgumentError, match=says):
        ts.plan_records(**{**SIZES, **change})


def advised(text: str) -> list[str]:
    return text.splitlines()[-1].removeprefix("Take ").partition(":")[0].split()


@pytest.mark.parametrize("mechanism", QUICK)
def test_the_command_that_is_advised_is_one(mechanism):
    words = advised(str(plan_records(**SIZES, mechanisms=[mechanism])))
    chosen = settings_from_config(compose("run", ["data=mnist", *words]))
    assert chosen.privacy.mechanism == mechanism
    assert chosen.num_teachers == 60_000
    assert chosen.record_voters is not None
    assert chosen.queries.order == ("file" if mechanism == "noisy_fraction" else "representative")


def test_the_command_line_plans(capsys):
    words = ["records=1000", "num_queries=60", "num_classes=10", "privacy.epsilon=2", "queries.total=50", "learner.votes=5"]
    assert dispatch(["plan", *words]) == 0
    printed = capsys.readouterr().out
    assert "1,000 records, each of which votes on the points nearest to it" in printed
    assert "learner.votes=5 teachers.number=1000" in printed
    assert dispatch(["plan", *words[:-1], "learner.votes=51"]) == 2
    assert "votes must be an integer from 1 to 50, got 51" in capsys.readouterr().err


@pytest.mark.slow
def test_a_whole_plan_names_every_mechanism():
    found = plan_records(**SIZES)
    assert found.ranked[0].parameters.mechanism == "noisy_fraction"
    stability = next(option for option in found.ranked if option.parameters.mechanism == "stability")
    assert f"{stability.parameters.cutoff:,} abstentions" in str(found)
