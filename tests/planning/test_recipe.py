"""What is chosen where nothing was named: a function of public sizes, and as good as what is chosen by hand."""

from __future__ import annotations

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.planning.local_votes import expected_votes
from teacher_student.planning.recipe import CANDIDATES, WRONG, choose_mechanism
from teacher_student.planning.request import Request, choose_parameters
from teacher_student.planning.search import PublicGoal, PublicVotes


def request(num_teachers: int, num_queries: int, num_classes: int, epsilon: float = 1.0) -> Request:
    return Request(num_teachers=num_teachers, num_queries=num_queries, num_classes=num_classes, epsilon=epsilon, delta=1e-5)


@pytest.mark.parametrize("sizes", [(250, 9000, 10), (250, 10_000, 2), (100, 500, 3), (4000, 300, 2)])
@pytest.mark.parametrize("agreement", [0.6, 0.9])
def test_no_mechanism_that_is_named_by_hand_gives_a_tenth_more_labels(sizes: tuple[int, int, int], agreement: float) -> None:
    """Also on votes that differ from the assumed ones, every mechanism asking as many queries as have a tenth of wrong labels."""
    teachers, queries, classes = sizes
    chosen = choose_mechanism(request(*sizes)).parameters
    goal = PublicGoal(PublicVotes(expected_votes(teachers, classes, agreement)), queries, 1.0, 1e-5, WRONG)
    found = {name: choose_parameters(name, goal) for name in (*CANDIDATES, "permute_and_flip", "lnmax")}
    worths = {name: goal.worth(parameters) for name, parameters in found.items() if goal.acceptable(parameters)}
    assert goal.worth(choose_parameters(chosen.mechanism, goal)) >= 0.9 * max(worths.values())


def test_a_tenth_of_the_labels_at_most_is_expected_to_be_wrong() -> None:
    for sizes in ((250, 9000, 10), (250, 10_000, 2), (2000, 10_000, 2)):
        parameters = choose_mechanism(request(*sizes)).parameters
        votes = PublicVotes(expected_votes(sizes[0], sizes[2], 1.0 if sizes[2] == 2 else 0.7))
        found = votes.expected(parameters, sizes[1])
        assert found.agreeing >= 0.9 * found.answers - 1e-9


def test_more_teachers_and_a_larger_epsilon_promise_more_labels() -> None:
    def labels(teachers: int, epsilon: float) -> float:
        parameters = choose_mechanism(request(teachers, 5000, 2, epsilon)).parameters
        return request(teachers, 5000, 2, epsilon).expected(parameters, 0.01).agreeing

    assert labels(100, 1.0) < labels(400, 1.0) <= labels(1600, 1.0)
    assert labels(100, 0.5) < labels(100, 1.0) < labels(100, 3.0)


def test_very_few_teachers_get_a_mechanism_that_says_how_little_it_promises() -> None:
    chosen = choose_mechanism(request(3, 20, 10, 0.1))
    assert "expect about 0 labels" in chosen.reason
    assert chosen.parameters.epsilon(1e-5) <= 0.1


def test_sizes_are_checked() -> None:
    with pytest.raises(ArgumentError, match="num_teachers"):
        choose_mechanism(request(0, 20, 2))
    assert np.isfinite(request(1, 1, 2).clear_gap)
