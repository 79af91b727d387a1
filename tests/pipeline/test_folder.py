"""A run's folder: private is 0700, an interrupted run is resumed, anything else that exists is refused."""

import dataclasses
import os
import stat

import pytest

from teacher_student import ArgumentError
from teacher_student.app import compose, settings_from_config
from teacher_student.pipeline.folder import open_run


def test_private_is_for_the_owner_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        folder = open_run(tmp_path / "runs" / "one", "a: 1\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.private.stat().st_mode) == 0o700
    assert (folder.path / "config.yaml").read_text() == "a: 1\n"


def test_unfinished_run_of_the_same_config_is_taken_up(tmp_path):
    folder = open_run(tmp_path / "one", "a: 1\n")
    assert open_run(tmp_path / "one", "a: 1\n").path == folder.path
    folder.finish({"done": True})
    with pytest.raises(ArgumentError, match="which exists"):
        open_run(tmp_path / "one", "a: 1\n")


def test_other_config_and_strange_folders_are_refused(tmp_path):
    open_run(tmp_path / "one", "a: 1\n")
    with pytest.raises(ArgumentError, match="another config"):
        open_run(tmp_path / "one", "a: 2\n")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "thesis.tex").write_text("x")
    with pytest.raises(ArgumentError, match="which exists"):
        open_run(tmp_path / "two", "a: 1\n")
    assert [path.name for path in (tmp_path / "two").iterdir()] == ["thesis.tex"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArgumentError, match="run_folder"):
        open_run(tmp_path / "file", "a: 1\n")


def test_links_are_refused_and_nothing_is_written_through_them(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "link").symlink_to(elsewhere)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("link", "dangling"):
        with pytest.raises(ArgumentError, match=r"^run_folder must be a folder of its own, got .*, which is a link"):
            open_run(tmp_path / name, "a: 1\n")
    assert list(elsewhere.iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("part", ["private", "release", "private/votes", "private/teachers", "release/labels.csv"])
def test_a_run_whose_parts_lead_elsewhere_is_not_taken_up(tmp_path, part):
    folder = open_run(tmp_path / "one", "a: 1\n")
    place = folder.path / part
    if place.is_dir():
        place.rename(tmp_path / "moved")
    place.symlink_to(tmp_path / "moved")
    with pytest.raises(ArgumentError, match=r"^run_folder must hold no links, got "):
        open_run(folder.path, "a: 1\n")


def test_what_a_kill_left_half_written_is_not_published(tmp_path):
    folder = open_run(tmp_path / "one", "a: 1\n")
    for name in (".labels.csv.x1", "student.safetensors.partial", "labels.csv"):
        (folder.release / name).write_text("x")
    folder.votes.rmdir()
    folder.private.chmod(0o755)
    open_run(folder.path, "a: 1\n")
    assert [path.name for path in folder.release.iterdir()] == ["labels.csv"]
    assert folder.votes.is_dir()
    assert stat.S_IMODE(folder.private.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["../up", "a/b", "/root", "..", ".", "", "a\\b", "a\nb", 7, None])
def test_names_cannot_climb(name):
    settings = settings_from_config(compose("run", ["experiment=blobs"]))
    with pytest.raises(ArgumentError, match=r"^name must be a word that can name a folder"):
        dataclasses.replace(settings, name=name)
