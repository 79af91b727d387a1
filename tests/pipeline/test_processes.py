"""Several processes: the run of one, each stage done once, and all stop when one does."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest

from teacher_student.app import compose, settings_from_config
from teacher_student.arguments import ArgumentError
from teacher_student.data import gaussian_blobs
from teacher_student.monitoring.console import Display
from teacher_student.pipeline import modes, run, runner, stages
from teacher_student.pipeline.folder import open_run
from teacher_student.pipeline.processes import Ranks

pytestmark = pytest.mark.usefixtures("no_pictures")

FAST = [
    "experiment=blobs",
    "data.num_private=600",
    "data.num_public=60",
    "teachers.number=50",
    "+teachers.training.chunk=8",
    "teachers.training.steps=20",
    "student.settings.epochs=2",
    "baselines=false",
    "logger=none",
    "privacy.epsilon=20",
]
TWO = ["trainer=ddp", "trainer.accelerator=cpu"]


def settings(*overrides):
    return settings_from_config(compose("run", [*FAST, *overrides]))


def assert_as_in_one_process(path, tmp_path, *overrides):
    """Train again in this process on the same shards: the same teachers to the last bit, the same votes."""
    alone = settings(*overrides)
    folder = open_run(tmp_path / "alone", alone.config)
    shutil.copy(path / "private" / "shards.json", folder.private)
    runner.ask_teachers(alone, folder.path, Display("quiet"), Ranks())
    files = [file.relative_to(folder.private) for file in folder.private.rglob("*.safetensors")]
    votes = "scores.npy" if alone.privacy.bins else "counts.npy"
    for file in [f"votes/{votes}", "shards.json", *files]:
        assert (path / "private" / file).read_bytes() == (folder.private / file).read_bytes(), file
    assert len(files) == 7


@pytest.fixture
def sessions(monkeypatch):
    """Every session that this process opens on a file, hence every one that can spend."""
    opened, original = [], modes.LabelSession

    def session(*arguments, state=None, **keywords):
        if state is not None:
            opened.append(state)
        return original(*arguments, state=state, **keywords)

    monkeypatch.setattr(modes, "LabelSession", session)
    return opened


def test_two_processes_make_the_run_of_one(tmp_path, sessions):
    result = run(settings(*TWO), tmp_path / "two")
    assert result.release.answered.any()
    assert sessions == [tmp_path / "two" / "private" / "session.sqlite"]
    assert_as_in_one_process(tmp_path / "two", tmp_path)


@pytest.mark.slow
def test_records_vote_in_two_processes_as_in_one(tmp_path, sessions):
    words = ["learner=nearest", "queries.order=representative", "queries.total=20"]
    run(settings(*TWO, *words), tmp_path / "two")
    assert len(sessions) == 1
    alone = settings(*words)
    folder = open_run(tmp_path / "alone", alone.config)
    runner.ask_teachers(alone, folder.path, Display("quiet"), Ranks())
    for name in ("counts.npy", "asked.npy"):
        assert (tmp_path / "two" / "private" / "votes" / name).read_bytes() == (folder.votes / name).read_bytes(), name
    assert np.load(folder.votes / "counts.npy").sum() == 6 * 600


class Second(Ranks):
    """The second of two ranks, without the first: what is shared has been made."""

    several = False

    def __init__(self):
        super().__init__()
        self.rank, self.world_size = 1, 2


class BrokenSecond(Second):
    """Takes itself for the first."""

    first = True


def run_as(ranks, path, monkeypatch):
    """Go the whole way as `ranks` in a run whose first rank has made the shards."""
    chosen = settings()
    folder = open_run(path, chosen.config)
    assert runner.Run(chosen, chosen.data(), folder).shards
    monkeypatch.setattr(runner, "launch", lambda *_: contextlib.nullcontext(ranks))
    result = run(chosen, path)
    assert result is None
    assert not list(folder.release.iterdir())
    assert not (folder.private / "session.sqlite").exists()
    assert not (folder.votes / "counts.npy").exists()


def test_no_rank_but_the_first_spends_or_publishes(tmp_path, monkeypatch, sessions):
    run_as(Second(), tmp_path / "sound", monkeypatch)
    assert sessions == []
    with pytest.raises(AssertionError):
        run_as(BrokenSecond(), tmp_path / "broken", monkeypatch)


class InAnotherProcess:
    """Data that is something else once it is unpickled, in the process that was started."""

    def __init__(self, here, there):
        self.here, self.there = here, there

    def __call__(self):
        return self.here()

    def __reduce__(self):
        return functools.partial, (self.there.func, *self.there.args)


def refused(there, tmp_path, sessions):
    chosen = settings(*TWO)
    object.__setattr__(chosen, "data", InAnotherProcess(chosen.data, there))
    with pytest.raises(ArgumentError) as caught:
        run(chosen, tmp_path / "run")
    assert sessions == []
    assert not (tmp_path / "run" / "private" / "session.sqlite").exists()
    return str(caught.value)


@pytest.mark.slow
def test_a_process_that_dies_stops_all(tmp_path, sessions):
    assert "a process of this run stopped; all processes stop, nothing was spent" in refused(
        functools.partial(os._exit, 3), tmp_path, sessions
    )


@pytest.mark.slow
def test_processes_that_see_other_data_stop(tmp_path, sessions):
    said = refused(functools.partial(gaussian_blobs, 600, 60), tmp_path, sessions)
    assert said.startswith("public points must be the same for all processes of a run, but differs between rank 0 and 1")


@pytest.mark.slow
def test_a_killed_run_of_two_goes_on(tmp_path, monkeypatch, sessions):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(stages, "collect_counts", killed)
        with pytest.raises(KeyboardInterrupt):
            run(settings(*TWO), tmp_path / "two")
    stamps = {file: file.stat().st_mtime_ns for file in (tmp_path / "two" / "private" / "teachers").glob("chunk*")}
    assert len(stamps) == 7
    run(settings(*TWO), tmp_path / "two")
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in stamps.items())
    assert len(sessions) == 1
    assert_as_in_one_process(tmp_path / "two", tmp_path)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def started_by(launcher, arguments):
    """Commands and environments of the two processes as a launcher would start them, or of the launcher."""
    module = ["-m", "teacher_student.app", "run", *arguments]
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    if launcher == "torchrun":
        return [([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *module], threads)]
    job = {"SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "1", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "1"}
    job |= {"SLURM_LOCALID": "0", "SLURM_NODELIST": "127.0.0.1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    ranks = [{"SLURM_PROCID": rank, "SLURM_NODEID": rank} for rank in "01"]
    return [([sys.executable, *module], {**threads, **job, **rank}) for rank in ranks]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
@pytest.mark.parametrize("kind", [[], ["privacy.bins=10", "data.num_classes=2", "privacy.cutoff=2000"]], ids=["hard", "soft"])
def test_a_launcher_starts_the_processes(launcher, kind, tmp_path):
    nodes = ["trainer.devices=1", "trainer.num_nodes=2"] if launcher == "slurm" else []
    arguments = [*FAST, *TWO, *nodes, *kind, f"run_folder={tmp_path / 'two'}", "console=plain"]
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        for command, environment in started_by(launcher, arguments)
    ]
    printed = [process.communicate(timeout=400)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    assert "".join(printed).count("Publish as it is") == 1
    assert_as_in_one_process(tmp_path / "two", tmp_path, *kind)


@pytest.mark.parametrize(
    ("overrides", "environment", "says"),
    [
        (["trainer.num_nodes=2"], {}, r"trainer\.num_nodes must be 1 without torchrun or Slurm, got 2"),
        (
            ["trainer.devices=2"],
            {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "4", "RANK": "0", "LOCAL_RANK": "0"},
            r"trainer\.devices times trainer\.num_nodes must be the number of processes that were started, 4, got 2 times 1",
        ),
        (
            ["trainer=cpu"],
            {"SLURM_JOB_NAME": "train", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2"},
            "number of processes that were started, 2, got 1 times 1",
        ),
        (["trainer.accelerator=abacus"], {}, "trainer must be options"),
        (["trainer.strategy=fsdp"], {}, r"trainer\.strategy must be auto or ddp"),
    ],
)
def test_devices_that_do_not_add_up_are_refused(overrides, environment, says, tmp_path, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArgumentError, match=says):
        run(settings(*TWO, *overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_counts_are_summed_in_their_own_type():
    """Of one rank alone the sum is its own, and a check finds nobody who has stopped."""
    counts = np.arange(6, dtype=np.uint8).reshape(3, 2)
    ranks = Ranks()
    ranks.sum_to_first(counts)
    ranks.check()
    assert counts.tolist() == [[0, 1], [2, 3], [4, 5]]
