"""Run a command in process and record everything that anybody but the keeper of `private/` could see of it.

Votes, noise, the shards' key and the clock are put in, so that two runs on neighbouring tables must look the same. Everything
else is the real thing: loading, sharding, training, prediction, session, student, comparison, reports, console.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import io
import os
import shutil
import stat
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from lightning.pytorch.trainer.connectors import callback_connector

from teacher_student.aggregation import session
from teacher_student.app import dispatch, running
from teacher_student.mechanisms import GeneratorNoise
from teacher_student.monitoring import console
from teacher_student.pipeline import diagnostics, modes, stages

from ..pictures import report_little

RUN = "run"
"""The run's folder below the folder that the command starts in."""

INPUTS = "inputs"
"""Where the loaders' files are, below the same folder; they are the keeper's."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What can be seen of a command.

    Attributes:
        code: exit code; 1 for an exception that nobody caught.
        out: all that went to file descriptor 1.
        err: all that went to file descriptor 2, warnings and the traceback of a crash included.
        files: for every path that is not below `private/` or among the inputs: content, size, mtime in nanoseconds, mode.
    """

    code: int
    out: str
    err: str
    files: dict[str, tuple[bytes, int, int, int]]

    def differences(self, other: Outcome) -> list[str]:
        """Return a line for everything in which two outcomes differ."""
        lines = [
            f"{name}: {getattr(self, name)!r:.2000} against {getattr(other, name)!r:.2000}"
            for name in ("code", "out", "err")
            if getattr(self, name) != getattr(other, name)
        ]
        for path in sorted(self.files.keys() | other.files.keys()):
            mine, theirs = self.files.get(path), other.files.get(path)
            if mine is None or theirs is None:
                lines.append(f"{path}: only {'there' if mine is None else 'here'}")
            else:
                names = ("content", "size", "mtime", "mode")
                lines += [f"{path}: {name}" for name, a, b in zip(names, mine, theirs, strict=True) if a != b]
        return lines


class PutInNoise(GeneratorNoise):
    """The same draws in every session. It claims to be private, so that a ledger is paid as in earnest."""

    private = True

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(7))


def put_in(patch: pytest.MonkeyPatch, *, tied: bool = False) -> None:
    """Put in noise, votes, the shards' key and the clock; make the reports' pictures and the comparison small.

    Args:
        patch: undoes all of it.
        tied: whether every query's votes are tied, so that a threshold test answers nothing.
    """
    report_little(patch)
    patch.setattr(sys, "argv", list(sys.argv))  # a run puts its own words there
    patch.setattr(ConfigLoaderImpl, "load_configuration", _composed_once(ConfigLoaderImpl.load_configuration))
    patch.setattr(running, "check_overrides", lambda _: None)  # it sees the words alone, and composes them once more
    patch.setattr(session, "SystemNoise", PutInNoise)
    patch.setattr(stages, "shard_dataset", functools.partial(stages.shard_dataset, key=bytes(range(32))))
    patch.setattr(console, "time", types.SimpleNamespace(perf_counter=lambda: 0.0))
    patch.setattr(diagnostics, "STEPS", 20)
    patch.setattr(callback_connector, "_load_external_callbacks", lambda _: [])  # it searches all installed packages each time
    for mode in (modes.HardLabels, modes.SoftLabels, modes.Fractions, modes.MeanScores, modes.Gradients):
        patch.setattr(mode, "collect_votes", votes_put_in(mode.collect_votes, tied=tied))


_composed: dict[str, Any] = {}


def _composed_once(compose: Callable[..., Any]) -> Callable[..., Any]:
    """Compose a config of the same words once: it is a function of them, and takes most of a short run's time."""

    def composed(loader: Any, *arguments: Any, **keywords: Any) -> Any:
        key = repr((arguments, keywords))
        if key not in _composed:
            _composed[key] = compose(loader, *arguments, **keywords)
        return copy.deepcopy(_composed[key])

    return composed


def votes_put_in(collect: Callable[..., npt.NDArray[Any]], *, tied: bool) -> Callable[..., npt.NDArray[Any]]:
    """Return a function that asks the teachers in earnest and then returns made-up votes of the same shape."""

    @functools.wraps(collect)
    def collected(mode: Any, run: stages.Run, *arguments: Any, **keywords: Any) -> npt.NDArray[Any]:
        said = collect(mode, run, *arguments, **keywords)
        few = run.settings.privacy.options.get("votes_per_teacher", len(said))
        return made_up(said.shape, said.dtype, run.settings.num_teachers * few // len(said), tied=tied)

    return collected


def made_up(shape: tuple[int, ...], dtype: npt.DTypeLike, voters: int, *, tied: bool) -> npt.NDArray[Any]:
    """Return votes that public sizes alone decide.

    Nine in ten of the voters agree on a class, and on every seventh query they are split. Probabilities are nearly the same of
    all teachers, or all over the bins.
    """
    rng = np.random.default_rng(3)
    if np.issubdtype(dtype, np.floating):
        centre = rng.choice([0.06, 0.94], (shape[0], 1))
        spread = np.where((np.arange(shape[0]) % 7 == 0) | tied, 1.0, 0.02)[:, None]
        return np.clip(centre + spread * rng.uniform(-1, 1, shape), 0, 1).astype(dtype)
    votes = np.zeros(shape, dtype=dtype)
    first = rng.integers(shape[1], size=shape[0])
    split = np.full(shape[0], True) if tied else np.arange(shape[0]) % 7 == 0
    rows = np.arange(shape[0])
    votes[rows, first] = np.where(split, voters // 2, voters - voters // 10)
    votes[rows, (first + 1) % shape[1]] = np.where(split, voters // 2, voters // 10)
    return votes


def outcome(command: Sequence[str], folder: Path) -> Outcome:
    """Run `teacher-student` with these words in `folder`, and look."""
    before = Path.cwd()
    torch.manual_seed(0)
    os.chdir(folder)
    try:
        with _descriptors() as streams:
            code = _exit_code(command)
    finally:
        os.chdir(before)
    return Outcome(code, *(stream.getvalue() for stream in streams), seen_below(folder))


def _exit_code(command: Sequence[str]) -> int:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda *given, **_: print("warning:", *given[:2], file=sys.stderr)
            return dispatch(command)
    except SystemExit as stop:
        return int(stop.code or 0)
    except Exception:  # noqa: BLE001 - what a shell would show of it
        traceback.print_exc()
        return 1


@contextlib.contextmanager
def _descriptors() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Collect what goes to descriptors 1 and 2, whoever writes it: Python, a library, another process."""
    found = io.StringIO(), io.StringIO()
    with tempfile.TemporaryFile("w+", errors="backslashreplace") as out, tempfile.TemporaryFile("w+") as err:
        saved = os.dup(1), os.dup(2)
        os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                yield found
        finally:
            for stream, text, descriptor, old in zip((out, err), found, (1, 2), saved, strict=True):
                stream.flush()
                os.dup2(old, descriptor)
                os.close(old)
                stream.seek(0)
                text.write(stream.read())


def seen_below(folder: Path) -> dict[str, tuple[bytes, int, int, int]]:
    """Return all paths but the inputs and what is below `private/`, whose own time is the keeper's too."""
    found = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if parts[0] == INPUTS or "private" in parts[:-1]:
            continue
        about = path.lstat()
        closed = parts[-1] == "private"
        content = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
        size = len(content)
        found["/".join(parts)] = content, size, 0 if closed else about.st_mtime_ns, about.st_mode
    return found


def emptied(folder: Path) -> Path:
    """Return the folder, new, with a folder for inputs: both runs of a pair start from the same place."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / INPUTS).mkdir(parents=True)
    return folder
