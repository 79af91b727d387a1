"""Runs that die: a process that has everything loaded and forks a run for each line that it reads.

    python killed_runs.py OVERRIDE...

A line is JSON: `folder` of the run, and how it dies. `point`: it kills itself at [MODULE:NAME, "before" or "after", number of the
call]. `stage` with `lines` or `seconds`: it kills itself before so many more lines of the package, or is killed from outside so
much later than the stage began. Without either it goes to its end. The answer is JSON too: the exit `code`, and the `stages` that
it went through, each with its `seconds` and its `lines`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import teacher_student
from teacher_student.app import compose, settings_from_config
from teacher_student.monitoring.console import Display
from teacher_student.pipeline import modes, run, stages
from teacher_student.pipeline.modes import mode_for
from teacher_student.teachers import chunk

sys.path.append(str(Path(__file__).parents[1]))
import pictures
from assassin import Assassin

PACKAGE = str(Path(teacher_student.__file__).parent)


def die_at(target: str, when: str, number: int) -> None:
    """Have this process killed before or after the given call of a function or method."""
    module, path = target.split(":")
    *owners, name = path.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    original, calls = getattr(owner, name), 0

    @functools.wraps(original)
    def deadly(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **keywords)
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, deadly)


def tell_stages(order: dict[str, Any], told: int) -> None:
    """Write the name of each stage, and lines so far, to the pipe `told` when it begins and when it ends; arm its assassin."""
    stage, counter = Display.stage, Assassin(PACKAGE, "line", 10**12)
    sys.settrace(counter if order.get("count") else None)

    def tell(name: str) -> None:
        os.write(told, f"{name} {10**12 - counter.left}\n".encode())

    @contextlib.contextmanager
    def telling(self: Display, name: str, total: int | None = None) -> Iterator[Any]:
        tell(name)
        if order.get("stage") == name and "lines" in order:
            sys.settrace(Assassin(PACKAGE, "line", order["lines"]))
        with stage(self, name, total) as advance:
            yield advance
        tell("")

    Display.stage = telling  # type: ignore[method-assign]


def work(settings: Any, order: dict[str, Any], told: int) -> None:
    """Run, in small portions: more places to die between, and nothing drawn."""
    chunk._ROWS_PER_WINDOW = 2**13
    modes.QUERIES_PER_ANSWER = 40
    pictures.report_little(pytest.MonkeyPatch())
    stages.train_teachers = functools.partial(stages.train_teachers, save_seconds=0.0)
    tell_stages(order, told)
    if "point" in order:
        die_at(*order["point"])
    run(settings, Path(order["folder"]))


def fork(settings: Any, order: dict[str, Any]) -> dict[str, Any]:
    """Run in a child; return its exit code and the stages it went through."""
    read, told = os.pipe()
    child = os.fork()
    if not child:
        try:
            work(settings, order, told)
        except BaseException:  # noqa: BLE001 - whatever it is, the child must end here
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(told)
    begun = watch(read, child, order)
    return {"code": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), "stages": begun}


def watch(told: int, child: int, order: dict[str, Any]) -> list[dict[str, Any]]:
    """Read what the child tells until it ends; kill it when the order says so."""
    begun: list[dict[str, Any]] = []
    with open(told) as lines:
        for line in lines:
            name, _, count = line[:-1].rpartition(" ")
            if name:
                begun.append({"name": name, "began": time.perf_counter(), "first": int(count)})
            else:
                last = begun[-1]
                last.update(seconds=time.perf_counter() - last.pop("began"), lines=int(count) - last.pop("first"))
            if name and name == order.get("stage") and "seconds" in order:
                time.sleep(order["seconds"])
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
    return begun


def main() -> None:
    """Answer orders until there are no more."""
    settings = settings_from_config(compose("run", sys.argv[1:]))
    mode_for(settings, settings.data().public_sizes).check()  # calibrates once for all forks; nothing of torch runs before them
    for line in sys.stdin:
        print(json.dumps(fork(settings, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
