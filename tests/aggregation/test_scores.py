"""Bounded scores: no vector longer than is paid for, sessions over rounds, releases, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

import teacher_student as ts
from teacher_student import ArgumentError
from teacher_student.aggregation import Ledger, add_scores, empty_sums
from teacher_student.aggregation.scores import bounded
from teacher_student.mechanisms import RecordedNoise
from teacher_student.pipeline.files import verify_folder

RANDOM = np.random.default_rng(0)
ODD = [0.0, 1.0, -1.0, 1e-300, 1e300, -1e308, np.inf, -np.inf, np.nan, 0.1, 3e7]


def lengths(vectors):
    return [sum(value * value for value in map(int, row)) for row in vectors]  # Python's integers do not overflow


@pytest.mark.parametrize("entries", [1, 2, 7, 400])
@pytest.mark.parametrize("norm", [1e-12, 0.3, 1.0, 1e12])
def test_no_vector_is_longer_than_is_paid_for(entries, norm):
    odd = RANDOM.choice(ODD, size=(300, entries))
    plain = RANDOM.standard_normal((300, entries)) * 10.0 ** RANDOM.integers(-3, 4, size=(300, 1)) * norm
    flat = np.full((3, entries), norm) * [[1], [-1], [1 + 1e-15]]
    for vectors in (odd, plain, flat):
        assert max(lengths(bounded(vectors, norm))) <= 64**2 * entries


def test_a_twin_that_rounds_to_nearest_is_longer():
    """Its vectors can exceed the bound, which is why steps are truncated toward 0."""
    vectors = RANDOM.standard_normal((300, 400)) * 5
    shrunk = vectors * (64 / np.maximum(1.0, np.sqrt((vectors**2).mean(1, keepdims=True))))
    assert max(lengths(np.rint(shrunk))) > 64**2 * 400 >= max(lengths(bounded(vectors, 1.0)))


def test_long_vectors_are_shrunk_and_short_ones_kept():
    short, long = np.array([0.5, -0.25, 0.0, 0.125]), np.array([30.0, -30.0, 30.0, 30.0])
    assert bounded(short[None], 1.0).tolist() == [[32, -16, 0, 8]]
    assert bounded(long[None], 1.0).tolist() == [[64, -64, 64, 64]]
    assert bounded(np.array([[np.nan, 0.5, np.inf, -0.5]]), 1.0).tolist() == [[0, 32, 0, -32]]


def test_a_teacher_moves_the_sums_by_its_own_vector_alone():
    """Whatever the chunks, the sums of two neighbours differ by two bounded vectors."""
    scores = RANDOM.standard_normal((50, 30, 3))
    other = scores.copy()
    other[17] *= -1e6
    sums = []
    for table, size in ((scores, 50), (scores, 7), (other, 13)):
        total = empty_sums(30, 3)
        for first in range(0, 50, size):
            add_scores(total, np.moveaxis(table[first : first + size], 0, 1), 1.0)
        sums.append(total)
    assert np.array_equal(sums[0], sums[1])
    mine = bounded(np.stack([scores[17], other[17]]).reshape(2, -1), 1.0).reshape(2, 30, 3)
    assert np.array_equal(sums[2] - sums[0], mine[1] - mine[0])
    assert lengths([(sums[2] - sums[0]).ravel()])[0] <= 4 * 64**2 * 90


def release(scores=None, **changes):
    given = {"norm": 1.0, "epsilon": 1.0, "delta": 1e-5, "num_teachers": 100}
    return ts.average_scores(np.full((3, 100, 2), [0.5, -0.5]) if scores is None else scores, **(given | changes))


def test_means_are_those_of_the_scores():
    found = release(noise=RecordedNoise([640, 0, -640, 0, 0, 6400]))
    assert found.noisy_counts.tolist() == [[3840, -3200], [2560, -3200], [3200, 3200]]
    assert found.means == pytest.approx(np.array([[0.6, -0.5], [0.4, -0.5], [0.5, 0.5]]))
    assert not found.certificate.private


def test_means_are_unbiased_under_real_noise():
    """Mean of 6,000 noisy means, within 6 standard errors (false alarms: 2e-9)."""
    found = release(np.full((3000, 20, 2), [0.5, -0.5]), epsilon=8.0, num_teachers=20)
    parameters = found.certificate.parameters
    error = float(parameters.scale) / (64 * 20) / np.sqrt(6000)
    assert abs((found.means * [1, -1]).mean() - 0.5) < 6 * error
    assert found.certificate.private
    assert found.certificate.verify() <= 8.0


def test_save_load_and_verify(tmp_path):
    found = release()
    found.save(tmp_path / "out")
    assert np.array_equal(ts.ScoreRelease.load(tmp_path / "out").codes, found.codes)
    assert "noisy_scores is (1, 1e-05)-private" in verify_folder(tmp_path / "out")
    with pytest.raises(ArgumentError, match="must hold fractions"):
        ts.FractionRelease.load(tmp_path / "out")
    (tmp_path / "out" / "noisy_scores.csv").rename(tmp_path / "out" / "fractions.csv")
    with pytest.raises(ArgumentError):
        verify_folder(tmp_path / "out")


GIVEN = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "num_queries": 2, "num_teachers": 100, "norm": 1.0}


def test_rounds_are_paid_once_and_answers_stay(tmp_path):
    with ts.ScoreSession(**GIVEN, rounds=2, state=tmp_path / "s.sqlite") as session:
        assert session.mechanism.parameters.squared_norm == 2 * 64**2 * 4
        first = session.answer([[5, -5], [100, -100]], query_ids=["0:0", "0:1"])
    with ts.ScoreSession(**GIVEN, rounds=2, state=tmp_path / "s.sqlite") as session:
        again = session.answer([[0, 0], [0, 0]], query_ids=["0:0", "0:1"])
        assert np.array_equal(first, again)
        assert not session.halted
        session.answer([[1, 1], [2, 2]], query_ids=["1:0", "1:1"])
        assert session.halted
        assert np.isnan(session.answer([[1, 1], [2, 2]], query_ids=["2:0", "2:1"])).all()
        assert session.release().means.shape == (6, 2)


@pytest.mark.parametrize(
    ("sums", "names"),
    [
        ([[1, 2]], ["1:0"]),
        ([[1, 2]] * 3, ["1:0", "1:1", "1:2"]),
        ([[1, 2]] * 2, ["0:0", "1:0"]),
        ([[1, 2]], None),
        ([[1, 2]] * 3, None),
    ],
)
def test_all_but_whole_rounds_are_refused(sums, names):
    """Otherwise a vector could have its whole length in each part of a round that is answered."""
    with ts.ScoreSession(**GIVEN, rounds=3, noise=RecordedNoise([0] * 4)) as session:
        session.answer([[5, -5], [100, -100]], query_ids=["0:0", "0:1"])
        with pytest.raises(ArgumentError, match="one whole round of 2"):
            session.answer(sums, query_ids=names)
        assert session.remaining_units == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": {"steps": 1}},
        {"parameters": {"max_answers": 10**6}, "epsilon": 0.1},
        {"used": {"num_classes": 9}},
        {"used": {"norm": None}},
        {"used": {"num_teachers": 0}},
        {"epsilon": 0.5},
    ],
)
def test_a_certificate_that_claims_other_things_is_refused(tmp_path, changes):
    release().save(tmp_path)
    stated = json.loads((tmp_path / "certificate.json").read_text())
    for name, value in changes.items():
        stated[name] = {**stated[name], **value} if isinstance(value, dict) else value
    (tmp_path / "certificate.json").write_text(json.dumps(stated))
    with pytest.raises(ArgumentError):
        verify_folder(tmp_path)


def test_classes_beside_a_certificate_of_sums_are_refused(tmp_path):
    release().save(tmp_path)
    (tmp_path / "noisy_scores.csv").unlink()
    (tmp_path / "labels.csv").write_text("query,label,answered\n0,0,1\n1,1,1\n2,0,1\n")
    with pytest.raises(ArgumentError, match="released classes"):
        verify_folder(tmp_path)


def test_sums_that_could_wrap_around_are_refused():
    for kind in (np.int16, np.int32, np.float64):
        with pytest.raises(ArgumentError, match="empty_sums"):
            add_scores(np.zeros((3, 2), kind), np.ones((3, 5, 2)), 1.0)


def test_the_account_pays_before_noise_is_drawn(tmp_path):
    account = Ledger(tmp_path / "ledger.sqlite").account("people", epsilon=1.5, delta=1e-4)
    release(account=account)
    with pytest.raises(ArgumentError, match="epsilon"):
        release(account=account)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": np.zeros((3, 4))}, "scores must have the shape"),
        ({"scores": np.zeros((0, 4, 2))}, "scores must have the shape"),
        ({"scores": [["a"]]}, "scores"),
        ({"norm": 0.0}, "norm"),
        ({"norm": np.nan}, "norm"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_drawn(changes, message):
    with pytest.raises(ArgumentError, match=message):
        release(**{"noise": RecordedNoise([]), **changes})


def test_sums_of_another_shape_are_refused():
    with pytest.raises(ArgumentError, match="scores must have the shape"):
        add_scores(empty_sums(3, 2), np.zeros((5, 3, 2)), 1.0)
    with ts.ScoreSession(**GIVEN) as session:
        for sums in ([[1, 2, 3]] * 2, [[0.5, 1.0]] * 2, [[2**60, 0]] * 2):
            with pytest.raises(ArgumentError, match="sums"):
                session.answer(sums)
        assert session.remaining_units == 2


@pytest.mark.parametrize("names", [int, 7, ["a"], "ab"])
def test_names_that_name_no_queries_are_refused(names):
    """A shorter list of names would have assigned classes of one query to another."""
    given = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "num_teachers": 10}
    with ts.ScoreSession(**given, num_queries=2, norm=1.0) as session, pytest.raises(ArgumentError, match="query_ids"):
        session.answer([[1, 2], [3, 4]], query_ids=names)
    with ts.FractionSession(**given, max_answers=2) as session, pytest.raises(ArgumentError, match="query_ids"):
        session.answer(counts=[[1, 2], [3, 4]], query_ids=names)


@pytest.mark.parametrize("classes", [2**62, 2**64])
def test_sums_that_no_memory_holds_are_refused(classes):
    with pytest.raises(ArgumentError, match="num_"):
        empty_sums(3, classes)


@pytest.mark.parametrize(("shape", "norm"), [((0, 2), 1.0), ((3, 2), 0.0)])
def test_nothing_is_added_to_no_sums_or_within_no_norm(shape, norm):
    with pytest.raises(ArgumentError, match=r"sums|norm"):
        add_scores(np.zeros(shape, dtype=np.int64), np.zeros((shape[0], 0, shape[1])), norm)


def test_a_session_that_was_not_asked_has_a_certificate_and_an_empty_release():
    with ts.ScoreSession(3, 1.0, 1e-5, num_queries=10, norm=0.5, num_teachers=100) as session:
        assert session.certificate.epsilon == 1.0
        assert len(session.release().codes) == 0
