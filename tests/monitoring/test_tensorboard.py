"""Event files are read back: what a person sees in TensorBoard is there, and what is private is not in the publishable one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from teacher_student.app import compose, settings_from_config
from teacher_student.monitoring.tensorboard import write_released_events
from teacher_student.pipeline import run
from tests.monitoring.test_report import released

EVERYTHING = {"scalars": 0, "images": 0, "histograms": 0, "tensors": 0}
RUN = """experiment=blobs data.num_private=1500 data.num_public=200
    teachers.number=80 student.settings.epochs=5 privacy.epsilon=8""".split()  # noqa: SIM905


def read(folder) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance=EVERYTHING).Reload()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return run(settings_from_config(compose("run", RUN)), tmp_path_factory.mktemp("runs") / "secret-place").folder


@pytest.fixture(scope="module")
def events(folder):
    return read(folder.release / "tensorboard")


def test_released_scalars_and_pictures(events, folder):
    scalars = set(events.Tags()["scalars"])
    assert {"student/loss", "evaluation/accuracy", "release/answered", "release/epsilon", "spend/answers"} <= scalars
    assert len(events.Scalars("student/loss")) == 5
    labels = np.loadtxt(folder.release / "labels.csv", delimiter=",", skiprows=1, usecols=1)
    assert events.Scalars("release/answered")[0].value == (labels >= 0).sum() == events.Scalars("spend/answers")[-1].value
    assert {"figures/Released labels by class", "figures/Labels and what they cost"} <= set(events.Tags()["images"])
    assert events.Images(events.Tags()["images"][0])[0].encoded_image_string.startswith(b"\x89PNG")


def test_released_hyper_parameters(events):
    content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    values = metadata.parse_session_start_info_plugin_data(content).hparams
    assert values["privacy.epsilon"].number_value == 8
    assert values["teachers.number"].number_value == 80
    assert values["mechanism.name"].string_value == "stability"
    assert values["student.settings.epochs"].number_value == 5
    assert not [name for name in values if name.startswith(("data", "run_folder"))]


def test_private_histograms_and_figures(folder):
    events = read(folder.private / "tensorboard")
    assert {"votes/gap", "votes/share of the winner", "shards/records", "teachers/accuracy"} <= set(events.Tags()["histograms"])
    assert {"teachers/loss", "non-private model/accuracy"} <= set(events.Tags()["scalars"])
    assert "figures/Records per shard" in events.Tags()["images"]
    records = events.Histograms("shards/records")[0].histogram_value
    assert (records.num, records.sum) == (80, 1500)


def test_nothing_private_is_published(events, folder):
    tags = {tag for kind in ("scalars", "images", "histograms") for tag in events.Tags()[kind]}
    assert {tag.split("/")[0] for tag in tags} == {"student", "evaluation", "release", "spend", "figures"}
    names = {path.name for path in (folder.release / "tensorboard").iterdir()}
    assert names == {"events.out.tfevents.student", "events.out.tfevents.release"}
    assert all(event.wall_time == event.step for tag in events.Tags()["scalars"] for event in events.Scalars(tag))
    for path in folder.release.rglob("*"):
        published = path.read_bytes() if path.is_file() else b""
        assert b"secret-place" not in published
        assert b"num_private" not in published


def test_the_report_does_not_say_how_many_records_there_are(folder):
    text = (folder.release / "report.html").read_text()
    visible = "".join(part.split("</svg>")[-1] for part in text.split("<svg"))
    assert "1500" not in visible
    assert "1,500" not in visible


def test_the_same_facts_give_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        write_released_events(tmp_path / name, released())
    one, two = (next((tmp_path / name).iterdir()).read_bytes() for name in ("one", "two"))
    assert one == two


def test_scores_become_a_histogram_and_empty_releases_are_written(tmp_path):
    write_released_events(tmp_path / "soft", released(answers="scores", labels=None, scores=np.array([0.1, np.nan, 0.9])))
    assert read(tmp_path / "soft").Histograms("release/scores")[0].histogram_value.num == 2
    halted = dataclasses.replace(released(), labels=np.full(5, -2), metrics={}, majority=None, confusion=None)
    write_released_events(tmp_path / "halted", halted)
    assert "release/answered" in read(tmp_path / "halted").Tags()["scalars"]
