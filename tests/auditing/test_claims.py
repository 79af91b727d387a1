"""Every calibration's claim holds exactly: divergence at the claimed epsilon <= the claimed delta, on the worst pairs."""

from __future__ import annotations

import numpy as np
import pytest

from teacher_student.auditing.exact import ThresholdLaw, outcomes
from teacher_student.auditing.pairs import (
    MOVES,
    STATISTICS,
    all_split,
    exact_epsilon,
    flipping,
    halved_distance,
    printed_distance,
    random_votes,
    worst_flips,
)
from teacher_student.mechanisms import distance_to_instability
from teacher_student.privacy import calibrate
from teacher_student.privacy.parameters import REPLACED, WITHDRAWN

MECHANISMS = ["stability", "stability_paper", "stability_redraw", "stability_laplace"]
POINTS = [(1, 1.0, 1e-5), (2, 2.0, 1e-3), (3, 0.5, 1e-6), (2, 4.0, 1e-2)]


def _calibrated(mechanism, cutoff, epsilon, delta):
    return calibrate(mechanism, epsilon=epsilon, delta=delta, cutoff=cutoff, num_queries=20)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("cutoff", "epsilon", "delta"), POINTS)
def test_divergence_on_the_worst_flips_is_within_the_claim(mechanism, cutoff, epsilon, delta):
    parameters = _calibrated(mechanism, cutoff, epsilon, delta)
    law = ThresholdLaw.of(parameters)
    found = worst_flips(law, exact_epsilon(delta), ups=(0, 5), downs=(cutoff, 2 * cutoff))
    assert parameters.epsilon(delta) <= epsilon
    assert found.outcomes.worst_divergence(parameters.epsilon(delta)).upper <= delta
    assert found.score <= parameters.epsilon(delta)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("cutoff", "epsilon", "delta"), POINTS)
def test_adaptive_restarts_are_within_the_claim(mechanism, cutoff, epsilon, delta):
    law = ThresholdLaw.of(_calibrated(mechanism, cutoff, epsilon, delta))
    reach = int(max(law.threshold_scale, law.query_scale))
    script = [(law.threshold + reach // 2, +1)] * 5 + [(law.threshold + reach // 2, -1)] * 2
    for votes in (flipping(script), flipping([(distance, -change) for distance, change in script])):
        exact = outcomes(law, votes.seen(halved_distance), restart=True)
        assert exact.worst_divergence(epsilon).upper <= delta


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("cutoff", "epsilon", "delta"), POINTS)
def test_the_failure_event_is_attained_when_every_query_is_split(mechanism, cutoff, epsilon, delta):
    parameters = _calibrated(mechanism, cutoff, epsilon, delta)
    law = ThresholdLaw.of(parameters)
    exact = outcomes(law, all_split(cutoff).seen(halved_distance)).worst_divergence(epsilon)
    assert exact.upper <= parameters.release_delta * (1 + 1e-6) + 1e-12
    assert exact.upper <= delta
    # T tau against 1 - (1 - tau)^T: the union over runs gives away less than a share T tau of itself.
    assert exact.lower >= parameters.release_delta * (1 - parameters.release_delta) * (1 - 1e-6) - 1e-12


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_splits_among_flips_are_within_the_claim(mechanism):
    epsilon, delta = 1.0, 1e-3
    law = ThresholdLaw.of(_calibrated(mechanism, 2, epsilon, delta))
    flips = flipping([(law.threshold, +1)] * 4 + [(law.threshold, -1)] * 2).seen(halved_distance)
    splits = all_split(4).seen(halved_distance)
    for queries in (flips + splits, splits + flips, splits[:1] + flips + splits):
        assert outcomes(law, queries).worst_divergence(epsilon).upper <= delta


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("seed", range(3))
def test_random_neighbours_are_within_the_claim(mechanism, seed):
    epsilon, delta = 2.0, 1e-2
    law = ThresholdLaw.of(_calibrated(mechanism, 2, epsilon, delta))
    generator = np.random.default_rng(seed)
    votes = random_votes(generator, 9, 2 * law.threshold + 5, 3, agreement=generator.random())
    assert outcomes(law, votes.seen(halved_distance)).worst_divergence(epsilon).upper <= delta


@pytest.mark.parametrize(("cutoff", "epsilon", "delta"), POINTS)
def test_renyi_divergence_is_within_the_accountants(cutoff, epsilon, delta):
    parameters = _calibrated("stability", cutoff, epsilon, delta)
    law = ThresholdLaw.of(parameters)
    found = worst_flips(law, exact_epsilon(delta), ups=(0, 5), downs=(cutoff, 3 * cutoff))
    orders = np.array([1.5, 2.0, 4.0, 8.0, 20.0])
    bound = parameters.rdp(orders)
    for exact in (found.outcomes, found.outcomes.reversed()):
        assert all(exact.renyi(order) <= limit * (1 + 1e-9) for order, limit in zip(orders, bound, strict=True))


@pytest.mark.parametrize("mechanism", ["stability", "stability_laplace"])
def test_the_whole_gap_is_within_the_claim_where_votes_are_withdrawn_and_not_where_they_are_replaced(mechanism):
    epsilon, delta = 1.0, 1e-3
    law = ThresholdLaw.of(_calibrated(mechanism, 2, epsilon, delta))
    options = {"ups": (0, 5), "downs": (2, 4), "statistic": printed_distance}
    withdrawn, replaced = (worst_flips(law, exact_epsilon(delta), **options, move=MOVES[name]) for name in (WITHDRAWN, REPLACED))
    assert withdrawn.outcomes.worst_divergence(epsilon).upper <= delta
    assert replaced.outcomes.worst_divergence(epsilon).lower > 2 * delta


def test_flips_have_the_stated_distances():
    seen = flipping([(5, +1), (3, -1), (4, 0)]).seen(halved_distance)
    assert [(query.distance, query.other_distance) for query in seen] == [(5, 6), (3, 2), (4, 4)]
    printed = flipping([(5, +1), (3, -1)]).seen(printed_distance)
    assert [query.other_distance - query.distance for query in printed] == [2, -2]
    withdrawn = flipping([(5, +1), (3, -1), (4, 0)], move=MOVES[WITHDRAWN]).seen(printed_distance)
    assert [(query.distance, query.other_distance) for query in withdrawn] == [(5, 6), (3, 2), (4, 4)]


def test_the_statistic_of_the_audit_is_that_of_the_mechanism():
    generator = np.random.default_rng(3)
    counts = generator.integers(0, 12, size=(300, 4))
    for moved, statistic in ((2, STATISTICS[REPLACED]), (1, STATISTICS[WITHDRAWN])):
        winner, distance = distance_to_instability(counts, moved)
        assert [statistic(row) for row in counts] == list(zip(winner.tolist(), distance.tolist(), strict=True))
