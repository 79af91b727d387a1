"""`label_soft` and `SoftLabelSession`: answers, resumption, several classes, certificates, and what may and may not raise."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.aggregation.release import SoftRelease
from teacher_student.mechanisms import GeneratorNoise

PRIVACY = {"epsilon": 8.0, "delta": 1e-5, "num_teachers": 400}


def unbound(certificate):
    """Return a certificate that was made for other answers."""
    return dataclasses.replace(certificate, files={})


def agreeing(values, num_teachers=400):
    """Scores on which all teachers say the same."""
    return np.repeat(np.asarray(values, dtype=float)[:, np.newaxis], num_teachers, axis=1)


def divided(num_queries, num_teachers=400):
    """Scores spread over the whole interval: both tests fail."""
    return np.tile(np.linspace(0, 1, num_teachers), (num_queries, 1))


def test_agreement_is_released_and_edges_by_the_shifted_test():
    scores = agreeing([0.02, 0.5, 1.0])
    scores[1, ::2] = 0.49
    soft = ts.label_soft(scores, bins=10, cutoff=5, **PRIVACY)
    np.testing.assert_allclose(soft.scores, [0.05, 0.5, 0.95])
    assert soft.shifted.tolist() == [False, True, False]
    assert soft.answered.all()
    assert soft.certificate.private
    assert soft.certificate.used["paid"] == 1


def test_division_is_paid_for_and_halts():
    soft = ts.label_soft(divided(4), bins=10, cutoff=2, **PRIVACY)
    assert np.isnan(soft.scores).all()
    assert soft.codes.tolist() == [ts.ABSTAIN, ts.ABSTAIN, ts.HALTED, ts.HALTED]
    assert soft.halted.tolist() == [False, False, True, True]
    assert not soft.answered.any()


def test_bins_may_differ_per_query():
    soft = ts.label_soft(agreeing([0.9, 0.9]), bins=[3, 10], cutoff=5, **PRIVACY)
    np.testing.assert_allclose(soft.scores, [5 / 6, 0.95])
    soft = ts.label_soft(agreeing([0.9]), bin_width=0.25, cutoff=5, **PRIVACY)
    np.testing.assert_allclose(soft.scores, [0.875])


def test_no_value_of_a_score_raises():
    scores = agreeing([0.3, 0.3, 0.3, 0.3])
    scores[0, :] = np.nan
    scores[1, :] = 7.0  # clipped
    scores[2, ::3] = np.inf
    scores[3, :] = -1e308
    soft = ts.label_soft(scores, bins=10, cutoff=5, **PRIVACY)
    assert np.isnan(soft.scores[0])
    np.testing.assert_allclose(soft.scores[1:], [0.95, 0.35, 0.05])


def test_several_classes_share_one_budget():
    one = np.stack([agreeing([0.9, 0.05]), agreeing([0.05, 0.9]), divided(2)], axis=2)
    soft = ts.label_soft(one, bins=10, cutoff=3, **PRIVACY)
    assert soft.scores.shape == (2, 3)
    np.testing.assert_allclose(soft.scores[:, :2], [[0.95, 0.05], [0.05, 0.95]])
    assert np.isnan(soft.scores[:, 2]).all()
    assert soft.certificate.used["paid"] == 4
    session = ts.SoftLabelSession(bins=10, cutoff=3, num_classes=3, **PRIVACY)
    session.answer(one)
    assert (session.remaining_units, session.remaining_cutoff) == (2, 1)
    assert session.certificate.parameters.to_dict() == soft.certificate.parameters.to_dict()  # the guarantee is the same


@pytest.mark.parametrize("mechanism", ["stability", "stability_paper", "stability_redraw", "stability_laplace"])
def test_every_calibration_answers_and_its_certificate_verifies(mechanism):
    soft = ts.label_soft(agreeing([0.25, 0.75], 4000), bins=4, cutoff=4, mechanism=mechanism, **PRIVACY | {"num_teachers": 4000})
    np.testing.assert_allclose(soft.scores, [0.375, 0.875])
    assert soft.certificate.mechanism == mechanism
    assert soft.certificate.parameters.cutoff == 8
    assert soft.certificate.verify() <= 8.0


def test_resumed_session_keeps_its_threshold_budget_and_answers(tmp_path):
    settings = {"bins": 10, "cutoff": 4, "state": tmp_path / "session.sqlite", **PRIVACY}
    first = ts.SoftLabelSession(**settings)
    answers = first.answer(np.concatenate([divided(2), agreeing([0.4])]), query_ids=["a", "b", "c"])
    assert first.remaining_units == 4
    again = ts.SoftLabelSession(**settings)
    assert again.remaining_units == 4
    repeated = again.answer(agreeing([0.9, 0.9, 0.9]), query_ids=["a", "c", "new"], bins=5)
    np.testing.assert_array_equal(repeated, [np.nan, answers[2], 0.9])  # recorded answers stay; a new query uses its own bins
    assert again.remaining_units == 4
    again.answer(divided(9))
    assert again.halted
    release = ts.SoftLabelSession(**settings).release()
    assert len(release.codes) == 13
    assert release.queries[:4] == ("a", "b", "c", "new")
    with pytest.raises(ts.ArgumentError, match="bins must be what the session began with, 10, got 5"):
        ts.SoftLabelSession(**{**settings, "bins": 5})


def test_resumed_session_of_several_classes(tmp_path):
    settings = {"bins": 10, "cutoff": 4, "num_classes": 2, "state": tmp_path / "session.sqlite", **PRIVACY}
    scores = np.stack([agreeing([0.9, 0.2]), agreeing([0.1, 0.8])], axis=2)
    first = ts.SoftLabelSession(**settings).answer(scores, query_ids=["x", "y"])
    session = ts.SoftLabelSession(**settings)
    np.testing.assert_array_equal(session.answer(scores[::-1], query_ids=["x", "y"]), first)
    assert session.release().queries == ("x", "y")
    assert session.release().scores.shape == (2, 2)


def test_label_soft_called_again_with_its_state_gives_the_same_answers(tmp_path):
    scores = np.random.default_rng(0).beta(0.5, 0.5, size=(30, 1)) + np.random.default_rng(1).normal(scale=0.1, size=(30, 200))
    options = {"bins": 5, "cutoff": 30, "state": tmp_path / "session.sqlite", **PRIVACY, "num_teachers": 200}
    one, two = ts.label_soft(scores, **options), ts.label_soft(scores, **options)
    np.testing.assert_array_equal(one.codes, two.codes)


@pytest.mark.parametrize("classes", [None, 2])
def test_release_is_saved_and_loaded(tmp_path, classes):
    scores = agreeing([0.2, 0.55, 0.7])
    scores[2] = np.linspace(0, 1, 400)
    if classes:
        scores = np.stack([scores, 1 - scores], axis=2)
    soft = ts.label_soft(scores, bins=10, cutoff=5, **PRIVACY)
    soft.save(tmp_path / "out")
    back = SoftRelease.load(tmp_path / "out")
    np.testing.assert_array_equal(back.codes, soft.codes)
    np.testing.assert_array_equal(back.scores, soft.scores)
    assert back.certificate.to_json() == soft.certificate.to_json()
    soft.save(tmp_path / "out")  # the same release again, as after a kill between its two files
    other = ts.label_soft(agreeing([0.9]), bins=10, cutoff=5, **PRIVACY)
    with pytest.raises(ts.ArgumentError, match="folder must hold no release yet"):
        other.save(tmp_path / "out")
    text = (tmp_path / "out" / "scores.csv").read_text().replace("0.25", "0.35", 1)
    (tmp_path / "out" / "scores.csv").write_text(text)
    with pytest.raises(ts.ArgumentError, match=r"has '0\.35' in the column score where its codes have '0\.25'"):
        SoftRelease.load(tmp_path / "out")
    with pytest.raises(ts.ArgumentError, match=r"folder must hold scores\.csv and certificate\.json"):
        SoftRelease.load(tmp_path)


@pytest.mark.parametrize("classes", [None, 3])
def test_a_session_that_nobody_has_asked_yet_has_a_release(tmp_path, classes):
    with ts.SoftLabelSession(num_classes=classes, **PRIVACY) as session:
        session.certificate.verify()
        session.release().save(tmp_path)
    assert SoftRelease.load(tmp_path).codes.shape == ((0,) if classes is None else (0, 3))


def test_release_made_with_a_generator_is_not_private():
    noise = GeneratorNoise(np.random.default_rng(0))
    soft = ts.label_soft(agreeing([0.5]), bins=10, cutoff=5, noise=noise, **PRIVACY)
    assert json.loads(soft.certificate.to_json())["private"] is False


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        (agreeing([0.5]), {"bins": 2}, "bins must be at least 3, got 2"),
        (agreeing([0.5]), {"bins": 2.5}, "bins must be an integer of at least 3"),
        (agreeing([0.5]), {"bins": [4, 4]}, "bins must be one number, or one for each of the 1 queries, got 2"),
        (agreeing([0.5]), {"bin_width": 0.3}, "bin_width must be 1 over an integer of at least 3"),
        (agreeing([0.5]), {"cutoff": 0}, "cutoff must be a positive integer, got 0"),
        (agreeing([0.5]), {"epsilon": -1}, "epsilon must be a number above 0, got -1"),
        (agreeing([0.5]), {"mechanism": "gnmax"}, "mechanism must be one of stability, .* for soft labels; got 'gnmax'"),
        ([0.5, 0.5], {}, r"scores must have the shape \(num_queries, num_teachers\), got \(2,\)"),
        (np.zeros((0, 4)), {}, "scores must not be empty"),
        ([["a", "b"]], {}, "scores must be numbers"),
        ([[0.5], [0.5, 0.5]], {}, "scores must be a table whose rows have one width"),
        (agreeing([0.5]) > 0, {}, "scores must be numbers, got values of type bool"),
    ],
)
def test_bad_input_is_one_clear_line(scores, options, message):
    with pytest.raises(ts.ArgumentError, match=message):
        ts.label_soft(scores, **{**PRIVACY, **options})


def test_scores_that_are_not_the_certificates_are_refused(tmp_path):
    """A table was tampered with; the certificate counts answers, units and queries."""
    scores = np.concatenate([agreeing([0.02, 0.5, 0.9]), divided(3)])
    scores[1, ::2] = 0.49
    soft = ts.label_soft(scores, bins=10, cutoff=3, **PRIVACY)
    assert soft.certificate.used["paid"] == 6  # one shifted, two queries at two units, and one with a single unit left
    soft.save(tmp_path / "good")
    assert SoftRelease.load(tmp_path / "good").shifted.tolist() == soft.shifted.tolist()
    plain, shifted = soft.codes[0], soft.codes[1]
    for number, codes in enumerate(
        [
            [plain, shifted, plain, -1, -1],  # a row less
            [plain, shifted, -1, -1, -1, -1],  # an answer less
            [plain, shifted, shifted, shifted, -1, -1],  # an answer more
            [plain, shifted, plain, -1, -1, -2],  # fewer units
            [plain, shifted, shifted, -1, -1, -1],  # more units
        ]
    ):
        SoftRelease(codes, unbound(soft.certificate)).save(tmp_path / str(number))
        with pytest.raises(ts.ArgumentError, match="must be the certificate's"):
            SoftRelease.load(tmp_path / str(number))


def test_a_certificate_of_class_labels_covers_no_scores(tmp_path):
    hard = ts.label(counts=[[4000, 0]], num_classes=2, epsilon=1.0, delta=1e-5, num_teachers=4000)
    soft = ts.label_soft(agreeing([0.25], 4000), epsilon=1.0, num_teachers=4000)
    SoftRelease(soft.codes, unbound(hard.certificate)).save(tmp_path / "soft")
    with pytest.raises(ts.ArgumentError, match="certificate must be of soft labels"):
        SoftRelease.load(tmp_path / "soft")
    ts.Release(hard.labels, unbound(soft.certificate)).save(tmp_path / "hard")
    with pytest.raises(ts.ArgumentError, match="certificate must be of released classes, got one of soft_labels"):
        ts.Release.load(tmp_path / "hard")


def test_a_save_that_was_interrupted_is_completed(tmp_path):
    soft = ts.label_soft(agreeing([0.25, 0.95]), bins=10, cutoff=5, **PRIVACY)
    soft.save(tmp_path)
    (tmp_path / "certificate.json").unlink()
    for _ in range(2):
        soft.save(tmp_path)
    np.testing.assert_array_equal(SoftRelease.load(tmp_path).codes, soft.codes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["certificate.json", "scores.csv"]
