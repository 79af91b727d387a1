"""No public data: training records lose their labels and are queried; one changed label moves one vote of a query at most."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from teacher_student import ArgumentError
from teacher_student.app import compose, settings_from_config
from teacher_student.data import PrivateDataset, shard_dataset
from teacher_student.pipeline import RunSettings, run, stages, verify_folder
from teacher_student.pipeline.folder import RunFolder
from teacher_student.teachers import predict_votes

pytestmark = pytest.mark.usefixtures("no_pictures")

KEY = b"0123456789abcdef0123456789abcdef"


def labels_only(number: int) -> list[str]:
    return ["data/view=labels_only", f"data.view.number={number}"]


def settings(*overrides: str) -> RunSettings:
    return settings_from_config(compose("run", ["baselines=false", "logger=none", *overrides]))


@pytest.mark.parametrize("data", ["adult", "blobs", "digits"])
def test_every_dataset_can_do_without_public_points(data):
    chosen = settings(f"data={data}", *labels_only(50))
    dataset, again = chosen.data(), chosen.data()
    assert dataset.neighbours == "label_only"
    assert dataset.public_features.shape == (50, *dataset.private_features.shape[1:])
    rows = {row.tobytes() for row in dataset.private_features}
    assert all(row.tobytes() in rows for row in dataset.public_features)
    assert np.array_equal(dataset.public_features, again.public_features)
    assert len(dataset.student_points) == 50
    assert dataset.student_points.shape[1:] == dataset.student_evaluation_features.shape[1:]


def votes(dataset: PrivateDataset, chosen: RunSettings, folder: RunFolder) -> np.ndarray:
    """(num_queries, num_teachers) votes under a fixed sharding key."""
    folder.private.mkdir(parents=True)
    shard_dataset(dataset, chosen.num_teachers, KEY)[1].save(folder.private / "shards.json")
    teachers = stages.train(stages.Run(chosen, dataset, folder), lambda *_: None)
    return np.concatenate(list(predict_votes(teachers, dataset.public_features, trainer_options=chosen.trainer)))


@pytest.fixture(scope="module")
def small():
    base = [
        "experiment=blobs",
        "data.num_private=200",
        *labels_only(60),
        "teachers.number=25",
        "teachers.training.steps=20",
    ]
    return settings(*base)


def test_one_label_moves_one_vote_of_each_query_at_most(small, tmp_path):
    dataset = small.data()
    labels = dataset.private_labels.copy()
    labels[7] = (labels[7] + 1) % 3
    neighbour = dataclasses.replace(dataset, private_labels=labels)
    one = votes(dataset, small, RunFolder(tmp_path / "one"))
    other = votes(neighbour, small, RunFolder(tmp_path / "other"))
    changed = np.flatnonzero((one != other).any(axis=0))
    assert len(changed) == 1  # one teacher, all others bit-identical; and it did change its mind somewhere
    assert np.array_equal(dataset.public_features, neighbour.public_features)


def test_no_other_relation_can_be_claimed(tmp_path):
    """Another feature would be another query, and one record more another choice of queries."""
    for relation in ("replace_one", "add_remove"):
        with pytest.raises(ArgumentError, match=r"privacy\.neighbours must be label_only"):
            run(settings("experiment=blobs", *labels_only(60), f"privacy.neighbours={relation}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_whole_run_says_that_labels_alone_are_private(tmp_path):
    chosen = settings("experiment=blobs", *labels_only(150), "student.settings.epochs=20")
    result = run(chosen, tmp_path / "run")
    assert result.release.certificate.neighbours == "label_only"
    assert "under label_only" in verify_folder(tmp_path / "run")
    assert "labelled differently" in (result.folder.release / "report.html").read_text()
    assert result.metrics["accuracy"] > 0.8


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["data=blobs", *labels_only(5000)], r"data\.view\.number must be an integer from 1 to 4999, got 5000"),
        (["data=digits", *labels_only(0)], r"data\.view\.number must be an integer from 1 to 999, got 0"),
        (
            ["data=image_folder", "data.private=nowhere"],
            r"data\.public must be a folder to be labelled, got None; the view labels_only",
        ),
    ],
)
def test_bad_numbers_get_one_clear_line(overrides, says):
    with pytest.raises(ArgumentError, match=says):
        settings(*overrides).data()
