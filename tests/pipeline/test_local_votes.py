"""Runs in which every record is a teacher: certificates, refusals, users, processes, and what neighbours do to votes."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from teacher_student import ArgumentError
from teacher_student.app import compose, settings_from_config
from teacher_student.data import PrivateDataset, gaussian_blobs
from teacher_student.pipeline import RunSettings, run, stages, verify_folder
from teacher_student.pipeline.folder import open_run
from teacher_student.pipeline.modes import mode_for
from teacher_student.pipeline.processes import ALONE
from teacher_student.pipeline.rounds import silent
from teacher_student.student import representatives

pytestmark = pytest.mark.usefixtures("no_pictures")


def settings(*overrides: str) -> RunSettings:
    base = ["experiment=blobs", "learner=nearest", "data.num_private=3000", "data.num_public=200", "teachers.number=3000"]
    fast = ["queries.order=representative", "queries.total=20", "student.settings.epochs=20", "baselines=false"]
    return settings_from_config(compose("run", [*base, *fast, "budget.ledger=null", "logger=none", *overrides]))


def counts_of(chosen: RunSettings, dataset: PrivateDataset, path, ranks=ALONE) -> np.ndarray:
    this = stages.Run(chosen, dataset, open_run(path, chosen.config))
    return np.array(mode_for(chosen, dataset.public_sizes).collect_votes(this, chosen.learner, silent, ranks))


def test_a_run_certifies_votes_that_are_only_added_or_withdrawn(tmp_path):
    result = run(settings(), tmp_path / "run")
    certificate = result.release.certificate
    assert certificate.parameters.vote_change == "withdrawn"
    assert certificate.neighbours == "add_remove"
    assert certificate.used["num_teachers"] == 900  # 3,000 records with 6 votes each among 20 points
    assert result.metrics["accuracy"] > 0.9
    assert len(result.release.labels) <= 20
    assert "recomputed epsilon" in verify_folder(tmp_path / "run")
    assert not (tmp_path / "run" / "private" / "shards.json").exists()
    dataset = settings().data()
    chosen = representatives(dataset.public_features, 20, 0)
    assert [int(name) for name in result.release.queries] == chosen[: len(result.release.labels)].tolist()


def test_noisy_counts_pay_for_b_of_them(tmp_path):
    result = run(settings("mechanism=noisy_fraction", "queries.order=file", "learner.votes=3"), tmp_path / "run")
    parameters = result.release.certificate.parameters
    assert (parameters.vote_change, parameters.votes_per_teacher, parameters.squared_sensitivity) == ("withdrawn", 3, 3)
    assert np.load(tmp_path / "run" / "private" / "votes" / "counts.npy").sum() == 9000
    assert "recomputed epsilon" in verify_folder(tmp_path / "run")


@pytest.mark.parametrize("neighbours", ["replace_one", "label_only"])
def test_votes_may_be_replaced_under_other_relations(neighbours, tmp_path):
    view = ["data/view=labels_only", "data.view.number=50"] if neighbours == "label_only" else ["privacy.neighbours=replace_one"]
    chosen = settings(*view, "privacy.epsilon=20")
    with mode_for(chosen, chosen.data().public_sizes).open_session() as session:
        assert session.mechanism.parameters.vote_change == "replaced"


@pytest.mark.parametrize("change", ["removed", "nan", "another class"])
def test_one_record_moves_one_vote_of_each_of_its_points(change, tmp_path):
    chosen, dataset = settings(), settings().data()
    before = counts_of(chosen, dataset, tmp_path / "before").astype(int)
    features, labels = dataset.private_features.copy(), dataset.private_labels.copy()
    ids = dataset.private_ids
    if change == "removed":
        features, labels, ids = features[1:], labels[1:], ids[1:]
    elif change == "nan":
        features[0] = np.nan
    else:
        labels[0] = (labels[0] + 1) % 3
    changed = {"private_features": features, "private_labels": labels, "private_ids": ids, "student_private_features": None}
    other = dataclasses.replace(dataset, **changed)
    moved = counts_of(chosen, other, tmp_path / "after").astype(int) - before
    if change == "another class":
        assert (moved.min(), moved.max(), np.abs(moved).sum()) == (-1, 1, 12)
    else:
        assert (moved.min(), moved.max(), np.abs(moved).sum()) == (-1, 0, 6)


def test_a_user_has_one_vote_a_point_however_many_records(tmp_path):
    """The twin, one vote for each record, gives a user as many votes on a point as it has records near it."""
    chosen, dataset = settings(), settings().data()
    users = np.arange(3000) // 3
    owned = dataclasses.replace(dataset, private_users=users)
    counts = counts_of(chosen, owned, tmp_path / "users").astype(int)
    assert counts.sum() == 6 * 1000
    kept = users != 17
    names = ("private_features", "private_labels", "private_users", "private_ids")
    parts = {name: getattr(owned, name)[kept] for name in names}
    without = dataclasses.replace(owned, student_private_features=None, **parts)
    moved = counts_of(chosen, without, tmp_path / "without").astype(int) - counts
    assert (moved.min(), moved.max(), np.abs(moved).sum()) == (-1, 0, 6)


class Two:
    """One of two ranks, whose sum is made by the test."""

    world_size, several = 2, True

    def __init__(self, rank):
        self.rank, self.first = rank, rank == 0

    def from_first(self, value):
        return value

    def sum_to_first(self, counts):
        pass


@pytest.mark.parametrize("users", [False, True])
def test_two_processes_count_as_one_does(users, tmp_path):
    chosen, dataset = settings("queries.order=file"), settings().data()
    if users:
        dataset = dataclasses.replace(dataset, private_users=np.arange(3000) % 700)
    this = stages.Run(chosen, dataset, open_run(tmp_path / "one", chosen.config))
    asked = np.arange(20)
    one, *halves = (stages.count_records(this, chosen.learner, asked, ranks) for ranks in (ALONE, Two(0), Two(1)))
    assert np.array_equal(one, sum(halves))
    assert all(half.sum() < one.sum() for half in halves)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["mechanism=noisy_scores"], "learner must be a network or an estimator for mean scores"),
        (["mechanism=noisy_fraction", "queries.order=file", "boosting.rounds=1"], "boosting.rounds must be"),
        (["queries.order=uncertain"], "queries.order must be file or representative for learner=nearest"),
        (["learner.votes=0"], "learner.votes must be a positive integer"),
        (["queries.total=null"], "queries.total must be given for queries.order=representative"),
    ],
)
def test_bad_settings_get_one_line_before_anything_is_made(overrides, line, tmp_path):
    with pytest.raises(ArgumentError, match=line):
        run(settings(*overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", ["vote_change=withdrawn", "neighbours=zero_out", "num_teachers=5"])
def test_a_run_says_the_relation_itself(option):
    """Teachers of several records replace votes, and the data have one relation: no option may claim another."""
    with pytest.raises(ArgumentError, match=rf"mechanism\.{option.partition('=')[0]} must not be given"):
        settings_from_config(compose("run", ["experiment=blobs", f"+mechanism.{option}"]))


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("answers", ["labels", "counts"])
def test_the_number_of_votes_refuses_nothing(relation, answers, tmp_path):
    """Whoever states ten records has a run like others: how many vote on a point is private, whatever the relation."""
    few = functools.partial(settings, "teachers.number=10", "privacy.epsilon=4", f"privacy.neighbours={relation}")
    words = [] if answers == "labels" else ["mechanism=noisy_fraction", "queries.order=file"]
    result = run(few(*words), tmp_path / "run")
    assert result.release.answered.any()
    assert result.release.certificate.used["num_teachers"] == 3


# Where labels alone are private: the records are the points.


def labels_only(*overrides: str) -> RunSettings:
    return settings("data/view=labels_only", "data.view.number=2000", "queries.total=50", *overrides)


def test_a_changed_label_moves_the_votes_of_one_record_from_class_to_class(tmp_path):
    """The features are public: the points on which a record votes stay, and B votes of each of two classes move."""
    chosen = labels_only("queries.order=file", "mechanism=noisy_fraction")
    dataset = chosen.data()
    labels = dataset.private_labels.copy()
    labels[7] = (labels[7] + 1) % 3
    before, after = (
        counts_of(chosen, dataclasses.replace(dataset, private_labels=given), tmp_path / name).astype(int)
        for name, given in (("before", dataset.private_labels), ("after", labels))
    )
    moved = after - before
    assert before.sum() == 6 * 3000
    assert (moved.min(), moved.max(), np.abs(moved).sum()) == (-1, 1, 2 * 6)
    assert not moved.sum(axis=1).any()
    assert np.abs(moved).any(axis=1).sum() == 6


@pytest.mark.parametrize("mechanism", ["stability", "noisy_fraction"])
def test_a_run_on_its_own_records_pays_for_replaced_votes(mechanism, tmp_path):
    words = {"stability": [], "noisy_fraction": ["mechanism=noisy_fraction", "queries.order=file", "learner.votes=3"]}[mechanism]
    result = run(labels_only("privacy.epsilon=4", *words), tmp_path / "run")
    certificate = result.release.certificate
    assert (certificate.neighbours, certificate.parameters.vote_change) == ("label_only", "replaced")
    if mechanism == "noisy_fraction":
        assert certificate.parameters.squared_sensitivity == 2 * 3
    assert result.metrics["accuracy"] > 0.7  # three classes far apart; the noise is fresh
    assert "under label_only" in verify_folder(tmp_path / "run")


def test_representatives_stand_for_their_clusters():
    points = gaussian_blobs(num_private=10, num_public=300, num_classes=3).public_features
    chosen = representatives(points, 3, 0)
    again = representatives(points, 3, 0)
    assert np.array_equal(chosen, again)
    nearest = ((points[:, None] - points[chosen]) ** 2).sum(-1).argmin(1)
    assert np.bincount(nearest).min() > 60  # each of three blobs has its own
    assert len(set(representatives(np.zeros((5, 2), np.float32), 4, 0).tolist())) == 4
