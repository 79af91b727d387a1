"""Voters that are themselves what is protected: no neighbour replaces a vote, so half the noise will do. Exact divergences."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.arguments import ArgumentError
from teacher_student.auditing.exact import QueryPair, ThresholdLaw, outcomes
from teacher_student.labels import HALTED
from teacher_student.mechanisms import build_mechanism, distance_to_instability
from teacher_student.mechanisms.noise import SystemNoise
from teacher_student.mechanisms.soft_label import SoftLabelRelease
from teacher_student.privacy import (
    Certificate,
    PrivateSelection,
    calibrate,
    calibrate_selection,
    calibrate_soft,
    parameters_from_dict,
)
from teacher_student.privacy.parameters import NEIGHBOURS, REPLACED, WITHDRAWING, WITHDRAWN
from teacher_student.privacy.registry import ALL

THRESHOLDS = ("stability", "stability_laplace", "stability_redraw", "stability_paper")
MAXIMA = ("gnmax", "lnmax", "exponential", "permute_and_flip")
SIZES: dict[str, dict[str, Any]] = {
    "confident_gnmax": {"num_queries": 20, "num_teachers": 40},
    **{name: {"num_queries": 20, "num_classes": 3} for name in ("noisy_fraction", "noisy_scores")},
    **{name: {"num_queries": 20} for name in (*MAXIMA, "stability_paper")},
}
KNOWN = (*THRESHOLDS, *MAXIMA, "confident_gnmax", "noisy_fraction", "noisy_scores")
EPSILONS = (0.0, 0.2, 0.5, 1.0, 2.0)


def made(name: str, vote_change: str = WITHDRAWN, **options: Any) -> Any:
    sizes = {"epsilon": 1.0, "delta": 1e-3, "cutoff": 3, **SIZES.get(name, {}), **options}
    return calibrate(name, vote_change=vote_change, **sizes)


# The thresholds: scales and cost are those of the halved distance; the distance is the printed one.


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_threshold_costs_the_same_and_answers_by_the_whole_gap(name: str) -> None:
    halved, whole = made(name, REPLACED), made(name)
    assert dataclasses.replace(whole, vote_change=REPLACED) == halved
    assert [whole.epsilon(1e-3), whole.moved_counts, halved.moved_counts] == [halved.epsilon(1e-3), 1, 2]
    far = 2 * whole.threshold + 40 * math.ceil(whole.query_scale) + 40 * math.ceil(whole.threshold_scale)
    for spec, lead, answered in ((whole, far, True), (halved, 2 * far + 2, True), (whole, 1, False)):
        mechanism, noise = build_mechanism(spec), SystemNoise()
        answers, _ = mechanism.answer(np.array([[lead, 0]]), mechanism.start(noise), noise)
        assert (answers[0] == 0) == answered or spec.query_noise == "discrete_laplace"


def seen(counts: tuple[int, ...], other: tuple[int, ...], moved: int) -> QueryPair:
    (winners, distances) = distance_to_instability([counts, other], moved)
    return QueryPair(int(winners[0]), int(distances[0]), int(winners[1]), int(distances[1]))


def sessions(spec: Any, *, replace: bool) -> list[list[QueryPair]]:
    """Short sessions about votes near the threshold, and tied ones; each neighbour moves a vote in the direction that hurts."""
    gone, split = (1 if replace else 0), ((4, 4), (3, 5) if replace else (4, 5))
    found = [[split] * spec.cutoff]
    for lead in (spec.threshold, spec.threshold + math.ceil(spec.query_scale)):
        up, down = ((lead + 2, gone), (lead + 3, 0)), ((lead + 2, 0), (lead + 1, gone))
        found += [[up] * 6, [down] * 6, [up] * 3 + [down] * 3]
    return [[seen(*pair, moved=spec.moved_counts) for pair in pairs] for pairs in found]


def worst(spec: Any, *, replace: bool) -> float:
    """Largest excess of a short session's exact divergence over the claimed delta, either way."""
    law, excess = ThresholdLaw.of(spec), -math.inf
    for queries in sessions(spec, replace=replace):
        exact = outcomes(law, queries)
        for epsilon in EPSILONS:
            excess = max(excess, exact.worst_divergence(epsilon).lower - spec.delta(epsilon))
    return excess


@pytest.mark.parametrize("name", THRESHOLDS[:3])
def test_no_session_diverges_more_than_claimed_where_votes_are_only_cast_or_withdrawn(name: str) -> None:
    assert worst(made(name, cutoff=2), replace=False) <= 1e-9


@pytest.mark.parametrize("name", ["stability", "stability_laplace"])
def test_the_whole_gap_under_replaced_votes_is_caught(name: str) -> None:
    """The twin: a shard of several records, whose vote turns into another, claimed as if it were one record."""
    assert worst(made(name, cutoff=2), replace=True) > 1e-3


# The noisy maxima and counts: half the squared distance.


def laws(spec: Any, counts: tuple[int, ...]) -> np.ndarray:
    return np.asarray(spec.law(np.array(counts, dtype=np.int64)))


def divergence(spec: Any, here: tuple[int, ...], there: tuple[int, ...], epsilon: float) -> float:
    transcripts = itertools.product(range(len(here)), repeat=spec.max_answers)
    p, q = laws(spec, here), laws(spec, there)
    each = ((math.prod(p[list(t)]), math.prod(q[list(t)])) for t in transcripts)
    return sum(max(0.0, ours - math.exp(epsilon) * theirs) for ours, theirs in each)


CASTS = [((4, 4), (4, 5)), ((8, 1), (9, 1)), ((3, 3, 3), (3, 3, 4)), ((6, 3, 1), (6, 3, 2)), ((0, 0), (1, 0))]
REPLACEMENTS = [((5, 4), (4, 5)), ((8, 1), (7, 2)), ((3, 3, 3), (2, 3, 4)), ((6, 3, 1), (5, 4, 1))]


def excess(spec: Any, pairs: list[Any]) -> float:
    both = [*pairs, *((b, a) for a, b in pairs)]
    return max(divergence(spec, *pair, epsilon) - spec.delta(epsilon) for pair in both for epsilon in EPSILONS)


@pytest.mark.parametrize("name", MAXIMA)
@pytest.mark.parametrize("answers", [1, 4])
def test_no_cast_vote_diverges_more_than_claimed_and_a_replaced_one_does(name: str, answers: int) -> None:
    spec = dataclasses.replace(made(name, epsilon=2.0), scale=Fraction(3), max_answers=answers)
    assert excess(spec, CASTS) <= 1e-9
    assert excess(spec, REPLACEMENTS) > 5e-3
    assert excess(dataclasses.replace(spec, vote_change=REPLACED), REPLACEMENTS) <= 1e-9


def test_half_the_counts_move() -> None:
    for name in ("gnmax", "noisy_fraction"):
        assert made(name, REPLACED).mu ** 2 == pytest.approx(made(name).mu ** 2, rel=0.02)  # both spend epsilon
        same = dataclasses.replace(made(name), vote_change=REPLACED)
        assert same.mu**2 == pytest.approx(2 * made(name).mu ** 2)
    few = made("noisy_fraction", votes_per_teacher=3)
    assert dataclasses.replace(few, vote_change=REPLACED).mu ** 2 == pytest.approx(2 * few.mu**2)
    tested, plain = made("confident_gnmax"), made("confident_gnmax", REPLACED)
    assert tested.threshold_scale == plain.threshold_scale
    assert tested.query_scale < plain.query_scale


# Who may claim it.


@pytest.mark.parametrize("name", KNOWN)
def test_json_keeps_it_and_certificates_without_it_mean_replaced_votes(name: str) -> None:
    spec = made(name)
    kept = spec.to_dict()
    assert kept["vote_change"] == WITHDRAWN
    assert parameters_from_dict(kept) == spec
    old = made(name, REPLACED).to_dict()
    assert "vote_change" not in old
    assert parameters_from_dict(old).vote_change == REPLACED


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_a_relation_that_replaces_votes_cannot_be_claimed(name: str, neighbours: str) -> None:
    spec = made(name)
    fields = {"epsilon": 1.0, "delta": 1e-3, "mechanism": name, "private": True, "neighbours": neighbours}
    if neighbours in WITHDRAWING:
        assert Certificate(parameters=spec, **fields).verify() <= 1.0
        return
    with pytest.raises(ArgumentError, match="neighbours must be add_remove or zero_out"):
        Certificate(parameters=spec, **fields)


def test_sessions_refuse_it_before_anything_is_drawn() -> None:
    votes = {"counts": [[60, 1], [30, 0]], "num_classes": 2, "num_teachers": 61, "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(ArgumentError, match="neighbours must be add_remove or zero_out"):
        ts.label(**votes, cutoff=2, vote_change=WITHDRAWN, neighbours="replace_one")
    with pytest.raises(ArgumentError, match="vote_change must be replaced or withdrawn for stability, got 'none'"):
        ts.label(**votes, cutoff=2, vote_change="none")
    release = ts.label(**votes, cutoff=2, vote_change=WITHDRAWN, neighbours="zero_out")
    assert release.certificate.parameters.vote_change == WITHDRAWN
    assert release.certificate.neighbours == "zero_out"
    assert HALTED not in release.labels


def test_it_is_no_option_of_soft_labels_and_passes_through_a_selection() -> None:
    with pytest.raises(ArgumentError, match="vote_change must be replaced for soft labels"):
        SoftLabelRelease(made("stability"))
    with pytest.raises(ArgumentError, match="vote_change must be replaced for soft labels"):
        calibrate_soft("stability", epsilon=1.0, delta=1e-5, cutoff=3, vote_change=WITHDRAWN)
    chosen = calibrate_selection("gnmax", epsilon=1.0, delta=1e-5, repetitions=3, num_queries=5, vote_change=WITHDRAWN)
    assert isinstance(chosen, PrivateSelection)
    assert chosen.relations == WITHDRAWING


def test_a_mechanism_that_does_not_say_so_knows_replaced_votes_only() -> None:
    for name in set(ALL) - {"private_selection", *KNOWN}:
        assert getattr(ALL[name], "vote_changes", (REPLACED,)) == (REPLACED,)


def test_a_vector_of_scores_moves_by_its_length_and_not_by_twice_that() -> None:
    spec = made("noisy_scores", num_queries=4, num_classes=3)
    assert dataclasses.replace(spec, vote_change=REPLACED).mu ** 2 == pytest.approx(4 * spec.mu**2)
    assert spec.squared_sensitivity == spec.squared_norm


def test_nothing_refuses_by_the_number_of_voters_where_it_is_private() -> None:
    """Under add_remove each voter is a record: whether there are more of them than was stated must not show."""
    votes = {"counts": [[5000, 1], [4000, 0]], "num_classes": 2, "num_teachers": 61, "epsilon": 1.0, "delta": 1e-5}
    assert (ts.label(**votes, cutoff=2, vote_change=WITHDRAWN).labels == 0).all()
    assert ts.label_fractions(**votes, votes_per_teacher=1, vote_change=WITHDRAWN).certificate.parameters.moved_counts == 1
    for public in ({"neighbours": "zero_out", "vote_change": WITHDRAWN}, {}):
        with pytest.raises(ArgumentError, match="counts must add up to at most num_teachers = 61"):
            ts.label(**votes, cutoff=2, **public)
    private = {"neighbours": "replace_one", "num_teachers_is_public": False}
    assert (ts.label(**votes, cutoff=2, **private).labels == 0).all()
    assert ts.label_fractions(**votes, votes_per_teacher=1, **private).certificate.parameters.moved_counts == 2
    with pytest.raises(ArgumentError, match="num_teachers_is_public must be true or false, got 'no'"):
        ts.label(**votes, cutoff=2, num_teachers_is_public="no")


def test_earlier_releases_are_held_to_the_relation_and_it_is_shown() -> None:
    spec, plain = made("gnmax"), made("gnmax", REPLACED)
    entry = {"neighbours": "replace_one", "epsilon": 1.0, "delta": 1e-3, "parameters": spec.to_dict()}
    fields = {"epsilon": 1.0, "delta": 1e-3, "mechanism": "gnmax", "private": True}
    with pytest.raises(ArgumentError, match="neighbours must be add_remove or zero_out"):
        Certificate(parameters=plain, neighbours="replace_one", composition=(entry,), **fields).verify()
    assert "add_remove of voters that are themselves protected" in repr(
        Certificate(parameters=spec, neighbours="add_remove", **fields)
    )
