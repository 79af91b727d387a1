"""A run's folder: private is 0700, a cut-off run is taken up, anything else that exists is refused."""

import os
import stat

import pytest

from teacher_student import ArgumentError
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
