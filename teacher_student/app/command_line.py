"""The `teacher-student` command: its verbs, its help, and its exit codes."""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Callable, Sequence

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from teacher_student.app.composing import suggestion
from teacher_student.app.running import complain, help_text, run
from teacher_student.app.verbs import audit, benchmark, label, ledger, plan, predict, select, verify
from teacher_student.arguments import ArgumentError
from teacher_student.version import __version__

HELP = """teacher-student {version}: private models from sensitive records (PATE style)

  run        everything: records, shards, teachers, votes, labels, student
               teacher-student run experiment=adult privacy.epsilon=0.5
               teacher-student run -m privacy.epsilon=0.5,1,2      (a sweep)
  label      private labels from the predictions of any models
               teacher-student label predictions=votes.npy num_teachers=1000 num_classes=10 out=labels
  select     the best of several candidates: teacher-student select counts=[a.npy,b.npy] num_teachers=1000 num_classes=10 out=best
  predict    classes for raw rows:            teacher-student predict runs/mine/TIME table=people.csv out=predictions.csv
  plan       what each mechanism could do:    teacher-student plan num_teachers=1000 num_queries=10000
  audit      attack a mechanism, or students: teacher-student audit mechanism=stability [target=student]
  verify     recompute a certificate:         teacher-student verify runs/adult/2026-01-31_12-00-00
  ledger     what was spent on which data:    teacher-student ledger runs/ledger.sqlite
  benchmark  measure this machine:            teacher-student benchmark --help

Each verb has examples: teacher-student run --help. Append --cfg job to a run to read its config without running it."""

VERBS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": run,
    "label": label,
    "select": select,
    "predict": predict,
    "plan": plan,
    "audit": audit,
    "verify": verify,
    "ledger": ledger,
    "benchmark": benchmark,
}


def main() -> None:
    """Entry point of the `teacher-student` command."""
    sys.exit(dispatch(sys.argv[1:]))


def dispatch(arguments: Sequence[str]) -> int:
    """Run one verb; bad input is one line on standard error and exit code 2."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP.format(version=__version__))
        return 0
    if arguments[0] == "--version":
        print(__version__)
        return 0
    verb, *rest = arguments
    try:
        if verb not in VERBS:
            raise ArgumentError(f"the verb must be one of {', '.join(VERBS)}; got {verb!r}{suggestion(verb, list(VERBS))}")
        if verb != "benchmark" and ("--help" in rest or "-h" in rest):
            print(help_text() if verb == "run" else inspect.getdoc(VERBS[verb]))
            return 0
        return VERBS[verb](rest)
    except (ArgumentError, OmegaConfBaseException, HydraException) as error:
        complain(error)
        return 2
    except KeyboardInterrupt:
        complain("interrupted")
        return 128 + signal.SIGINT
