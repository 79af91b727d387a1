"""Kill -9 a run at each of its stages, resume it, and look: it ends as an uninterrupted run does, except for the noise.

Shards (given the key) and votes are the uninterrupted run's to the last bit, and so is the student given the labels; labels that
were recorded before a kill stay as they were, the release is complete and verifies, and the data's account is charged once.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from teacher_student.aggregation import Ledger
from teacher_student.pipeline import load_student, verify_folder

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SMALL = [
    "experiment=blobs",
    "data.num_private=2500",
    "data.num_public=200",
    "+teachers.training.chunk=100",
    "teachers.training.steps=40",
    "student.settings.epochs=2",
    "baselines=false",
    "logger=none",
]
LIMIT = ["budget.epsilon=2.0", "budget.delta=1e-5"]

FEW = ("teachers between two steps", "votes", "labels committed", "labels written", "student's weights", "end")

POINTS: dict[str, list[Any]] = {
    "shards": ["teacher_student.data.shards:ShardManifest.save", "before", 1],
    "shards kept": ["teacher_student.data.shards:ShardManifest.save", "after", 1],
    "teachers between two steps": ["teacher_student.teachers.store:FolderStore.put_unfinished", "after", 3],
    "teachers between two chunks": ["teacher_student.teachers.store:FolderStore.put", "after", 1],
    "votes": ["teacher_student.pipeline.stages:write_array", "before", 1],
    "votes kept": ["teacher_student.pipeline.stages:write_array", "after", 1],
    "session begun": ["teacher_student.aggregation.ledger:Account.pay", "after", 1],
    "labels committed": ["teacher_student.aggregation.rollback:WitnessFile.confirm", "before", 3],
    "labels": ["teacher_student.aggregation.labels:LabelSession.answer", "after", 2],
    "labels written": ["teacher_student.aggregation.release:_write_whole", "after", 1],
    "student": ["teacher_student.pipeline.stages:fit_student", "before", 1],
    "student between two epochs": ["teacher_student.student.module:Student.on_train_epoch_end", "after", 1],
    "student's weights": ["teacher_student.pipeline.published:write_text", "before", 1],
    "report": ["teacher_student.pipeline.runner:write_report", "after", 1],
    "end": ["teacher_student.pipeline.folder:RunFolder.finish", "before", 1],
}


class Server:
    """A process that runs, and is killed, as often as it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledger = folder, folder / "ledger.sqlite"
        self.kills, self.stages = Counter[str](), []  # how many in each stage, and what the last run went through
        script = Path(__file__).with_name("killed_runs.py")
        command = [sys.executable, str(script), *SMALL, *LIMIT, f"budget.ledger={self.ledger}"]
        with (folder / "errors").open("w") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)

    def run(self, name: str, **death: Any) -> bool:
        """Start or resume a run in a folder; return whether it was completed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"folder": str(self.folder / name), **death}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert answer["code"] in {0, -signal.SIGKILL}, (self.folder / "errors").read_text()
        self.stages = answer["stages"]
        if alive := answer["code"] == 0:
            return alive
        self.kills[self.stages[-1]["name"] if self.stages else "before"] += 1
        return False

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("killed"))
    with contextlib.closing(server):
        yield server


@pytest.fixture(scope="module")
def whole(server: Server) -> Path:
    """A run that nobody killed."""
    assert server.run("whole")
    server.ledger.rename(server.folder / "whole.sqlite")
    return server.folder / "whole"


def recorded(folder: Path) -> list[int]:
    """The labels that a run's session has recorded, in order; read as they lie, without the session."""
    path = folder / "private" / "session.sqlite"
    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(path)) as connection, contextlib.suppress(sqlite3.OperationalError):
        blobs = connection.execute("SELECT labels FROM batches ORDER BY number").fetchall()
        return np.frombuffer(b"".join(blob for (blob,) in blobs), dtype="<i8").tolist()
    return []


def begin(server: Server, name: str, whole: Path) -> Path:
    """A folder as a run leaves it that was killed right after its shards, with the key of the whole run."""
    server.ledger.unlink(missing_ok=True)
    folder = server.folder / name
    for part in ("private/votes", "release"):
        (folder / part).mkdir(parents=True)
    (folder / "private").chmod(0o700)
    shutil.copy(whole / "config.yaml", folder)
    shutil.copy(whole / "private" / "shards.json", folder / "private")
    return folder


def finish(server: Server, folder: Path, whole: Path, seen: list[list[int]]) -> None:
    """Go to the end and compare."""
    assert server.run(folder.name)
    compare(server, folder, whole, seen)


def compare(server: Server, folder: Path, whole: Path, seen: list[list[int]]) -> None:
    """Compare a run at its end with the whole one; `seen` are the labels that were recorded after each kill."""
    counts = [np.load(path / "private" / "votes" / "counts.npy", allow_pickle=False) for path in (folder, whole)]
    same_key = len({(path / "private" / "shards.json").read_text() for path in (folder, whole)}) == 1
    assert np.array_equal(*counts) == same_key
    with (folder / "release" / "labels.csv").open() as stream:
        final = [int(row["label"]) for row in csv.DictReader(stream)]
    assert final == recorded(folder)
    for before in seen:
        assert final[: len(before)] == before
    names = [sorted(path.name for path in (run / "release").iterdir()) for run in (folder, whole)]
    assert names[0] == names[1]
    assert "recomputed epsilon" in verify_folder(folder)
    load_student(folder)
    assert len(Ledger(server.ledger).entries()) == 1


def student_of(folder: Path) -> bytes:
    """The published weights, which are removed, so that a resumed run must make them again."""
    path = folder / "release" / "student.safetensors"
    weights = path.read_bytes()
    path.unlink()
    return weights


def test_a_run_that_is_killed_at_every_stage_ends_as_an_uninterrupted_one(server: Server, whole: Path) -> None:
    folder, seen = begin(server, "every", whole), []
    for stage in FEW:
        assert not server.run("every", point=POINTS[stage]), stage
        seen.append(recorded(folder))
    assert sorted(set(map(len, seen))) == [0, 80, 200]
    uninterrupted = student_of(folder)  # the run that was killed at its end trained it in one go, from the labels on file
    assert not server.run("every", point=POINTS["student between two epochs"])
    finish(server, folder, whole, seen)
    assert student_of(folder) == uninterrupted


@pytest.mark.slow
def test_a_run_that_is_killed_before_its_shards_are_kept_makes_others(server: Server, whole: Path) -> None:
    server.ledger.unlink(missing_ok=True)
    assert not server.run("early", point=POINTS["shards"])
    assert not (server.folder / "early" / "private" / "shards.json").exists()
    assert not server.run("early", point=POINTS["shards kept"])
    finish(server, server.folder / "early", whole, [])


@pytest.mark.slow
@pytest.mark.parametrize("stage", [name for name in POINTS if "shards" not in name])
def test_a_run_that_is_killed_once(server: Server, whole: Path, stage: str) -> None:
    folder = begin(server, stage, whole)
    assert not server.run(stage, point=POINTS[stage])
    finish(server, folder, whole, [recorded(folder)])


STAGES = ("data", "shards", "teachers", "votes", "labels", "student", "report", "diagnostics")


@pytest.mark.slow
def test_runs_that_are_killed_in_every_stage_at_random(server: Server, whole: Path) -> None:
    """At least 80 kills: each run dies twice in each stage, at a random moment and before a random line of the package."""
    generator = np.random.default_rng(7)
    begin(server, "timed", whole)
    assert server.run("timed")
    seconds = {stage["name"]: stage["seconds"] for stage in server.stages}
    begin(server, "counted", whole)
    assert server.run("counted", count=True)
    lines = {stage["name"]: stage["lines"] for stage in server.stages}
    assert tuple(lines) == STAGES
    server.kills.clear()
    for number in itertools.count():
        folder, seen = begin(server, f"random {number}", whole), []
        for stage in STAGES:
            for death in ({"seconds": generator.uniform(0, seconds[stage])}, {"lines": int(generator.integers(0, lines[stage]))}):
                if not (folder / "private" / "finished.json").exists():
                    server.run(folder.name, stage=stage, **death)
                    seen.append(recorded(folder))
        if not (folder / "private" / "finished.json").exists():
            assert server.run(folder.name)
        compare(server, folder, whole, seen)
        if server.kills.total() >= 80:
            break
    toll = ", ".join(f"{name} {server.kills[name]}" for name in STAGES)
    print(f"{server.kills.total()} kills of {number + 1} runs at random: {toll}; labels changed 0, inconsistent ends 0")
    assert min(server.kills[name] for name in ("teachers", "votes", "labels", "student", "report")) > 0
