"""Runs that die: a process that has everything loaded and forks a run for each line that it reads.

    python killed_runs.py OVERRIDE...

A line is JSON: `folder` of the run, and how it dies: `seconds` after which it is killed, or `point`, where it kills itself:
[MODULE:NAME, "before" or "after", number of the call]; without either it goes to its end. The answer is the exit code.
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
from pathlib import Path
from typing import Any

from teacher_student.app import compose, settings_from_config
from teacher_student.pipeline import query_rounds, run, stages
from teacher_student.pipeline.answers import answers_of
from teacher_student.teachers import chunk


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


def work(settings: Any, order: dict[str, Any]) -> None:
    """Run, in small portions: more places to die between."""
    chunk._ROWS_PER_WINDOW = 2**13
    query_rounds.QUERIES_PER_ANSWER = 40
    stages.train_teachers = functools.partial(stages.train_teachers, save_seconds=0.0)
    if "point" in order:
        die_at(*order["point"])
    run(settings, Path(order["folder"]))


def fork(settings: Any, order: dict[str, Any]) -> int:
    """Return the exit code of one run."""
    child = os.fork()
    if not child:
        try:
            work(settings, order)
        except BaseException:  # noqa: BLE001 - whatever it is, the child must end here
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if "seconds" in order:
        time.sleep(order["seconds"])
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """Answer orders until there are no more."""
    settings = settings_from_config(compose("run", sys.argv[1:]))
    answers_of(settings).check(settings, settings.data())  # calibrates once for all forks; nothing of torch runs before them
    for line in sys.stdin:
        print(fork(settings, json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
