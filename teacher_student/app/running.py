"""`teacher-student run`: one run, or a sweep of them."""

from __future__ import annotations

import inspect
import math
import os
import shlex
import signal
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from teacher_student.app import composing
from teacher_student.app.composing import accept_old_names, check_flags, compose, one_line
from teacher_student.app.settings import check_complete, light_settings, settings_from_config, with_recipe
from teacher_student.arguments import ArgumentError
from teacher_student.version import __version__

FLAGS = ("--cfg", "-c", "--resolve", "--package", "-p", "--run", "-r", "--multirun", "-m", "--hydra-help", "--info", "--version")
"""What Hydra understands beside overrides, as far as a run needs it."""


class _Swept(NamedTuple):
    """Public figures of a run of a sweep in this process; other launchers have processes of their own, and print no table."""

    words: tuple[str, ...]
    epsilon: float
    delta: float
    metrics: Mapping[str, float]


_swept: list[_Swept] = []


def run(arguments: Sequence[str]) -> int:
    """`teacher-student run`: from private records to a student that may be published.

    Any setting of `conf/` is an override `name=value`; `-m` sweeps over lists of values, `--cfg job` shows the config only.

        teacher-student run
        teacher-student run experiment=adult privacy.epsilon=0.5 student=mlp
        teacher-student run experiment=blobs debug=fast run_folder=runs/first
        teacher-student run -m privacy.epsilon=0.5,1,2 seed=0,1

    Experiments (experiment=NAME), each with settings that suit its data:

        {experiments}

    Main settings, with their defaults:

        privacy.epsilon=1.0 privacy.delta=1e-5    the guarantee
        mechanism=stability    {mechanisms}
        learner=logistic       teachers: {learners}
        student=mlp            the published model: {students}
        teachers.number=...    more teachers: less noise for each label, weaker teachers
        data=adult             {data}
        budget.epsilon=null    a limit for all runs on the same data
        run_folder=runs/NAME/TIME    baselines=true    console=auto|rich|plain|quiet

    --cfg job prints every setting. docs/guide.md explains them.
    """
    started = _say_hello(arguments)
    if not any(argument.split("=")[0] in ("--hydra-help", "--info", "--version") for argument in arguments):
        check_flags(arguments, "run", FLAGS)
        check_overrides(arguments)
    sys.argv = ["teacher-student run", *accept_old_names(arguments)]
    _swept.clear()
    hydra.main(version_base="1.3", config_path=str(composing.conf_folder()), config_name="run")(_run_one)()
    if started and _swept:
        _tell_sweep(_swept)
    return 0


def _say_hello(arguments: Sequence[str]) -> bool:
    """Print a line at once, since imports take seconds; return whether this is a run that prints anything."""
    asks = any(argument.split("=")[0] in ("--cfg", "-c", "--hydra-help", "--info", "--version") for argument in arguments)
    speaks = not asks and "console=quiet" not in arguments
    if speaks:
        print(f"teacher-student {__version__}", flush=True)
    return speaks


def _tell_sweep(runs: Sequence[_Swept]) -> None:
    """Print the runs of a sweep side by side, and what they cost together."""
    from teacher_student.monitoring.console import Display

    display = Display("auto")
    shared = set.intersection(*(set(one.words) for one in runs)) if len(runs) > 1 else set()
    names = [" ".join(word for word in one.words if word not in shared) or str(place) for place, one in enumerate(runs)]
    rows = zip(names, ({"epsilon": one.epsilon, **one.metrics} for one in runs), strict=True)
    display.grid("the sweep", dict(rows))
    total, delta = (math.fsum(values) for values in zip(*((one.epsilon, one.delta) for one in runs), strict=True))
    display.say(f"If all runs are on the same data: epsilon {total:.4g}, delta {delta:.3g} in all")


def help_text() -> str:
    """Return the help of `run`, with the names that the configs have."""
    folder = composing.conf_folder()

    def listed(group: str, width: int = 60, indent: int = 31) -> str:
        names = ", ".join(sorted(path.stem for path in (folder / group).glob("*.yaml")))
        return f"\n{' ' * indent}".join(textwrap.wrap(names, width, break_on_hyphens=False))

    groups = {f"{group}s": group for group in ("experiment", "mechanism", "learner", "student")} | {"data": "data"}
    sizes = {"experiments": (70, 4)}
    texts = {name: listed(group, *sizes.get(name, (52, 27))) for name, group in groups.items()}
    return (inspect.getdoc(run) or "").format(**texts)


def check_overrides(arguments: Sequence[str]) -> None:
    """Compose a run of a sweep with every value before the first one runs, so that a mistake in the last costs nothing."""
    overrides = [argument for argument in arguments if not argument.startswith("-") or "=" in argument]
    if not {"-m", "--multirun"} & set(arguments):
        if "--cfg" in arguments or "-c" in arguments:
            overrides = [override for override in overrides if "=" in override]
        compose("run", overrides)
        return
    try:
        parsed = OverridesParser.create().parse_overrides(overrides)
    except HydraException as error:
        raise ArgumentError(one_line(error, "run", overrides)) from error
    plain = [override.input_line or "" for override in parsed if not override.is_sweep_override()]
    swept = {
        override.get_key_element(): list(override.sweep_string_iterator())
        for override in parsed
        if override.is_sweep_override() and not override.is_hydra_override()
    }
    first = {key: values[0] for key, values in swept.items()}
    for choice in [first, *({**first, key: value} for key, values in swept.items() for value in values[1:])]:
        light_settings(compose("run", [*plain, *(f"{key}={value}" for key, value in choice.items())]))


def _run_one(config: DictConfig) -> float | None:
    sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    try:
        return _run_or_say_how_to_resume(config, sweep)
    except (ArgumentError, HydraException, OmegaConfBaseException) as error:
        complain(error)
        if sweep:
            return None  # the other runs of the sweep continue
        sys.exit(2)


def _run_or_say_how_to_resume(config: DictConfig, sweep: bool) -> float | None:
    from teacher_student.monitoring.console import Display
    from teacher_student.pipeline.folder import StoppedRunError

    check_complete(config)
    folder = Path(HydraConfig.get().runtime.output_dir if sweep else config.run_folder)
    words = [word for word in sys.argv[1:] if not word.startswith("run_folder=")]
    again = shlex.join(["teacher-student", "run", *words, f"run_folder={folder.parent if sweep else folder}"])
    try:
        display = Display(config.console)
        if sweep:
            display.say(f"run {HydraConfig.get().job.num} of the sweep: {' '.join(HydraConfig.get().overrides.task)}")
        elif not {"RANK", "SLURM_PROCID"} & os.environ.keys():  # several processes would all say it
            display.say(f"{config.name}: loading libraries, which takes a few seconds")
        config, chosen = with_recipe(config, HydraConfig.get().overrides.task)
        settings = settings_from_config(config, chosen=chosen)
        from teacher_student.pipeline import run as run_pipeline

        result = run_pipeline(settings, folder, display)
    except StoppedRunError as stopped:
        raise ArgumentError(f"{stopped}: {again}") from stopped
    except (KeyboardInterrupt, SystemExit) as stop:  # Lightning turns the first into the second
        if not isinstance(stop.__context__ if isinstance(stop, SystemExit) else stop, KeyboardInterrupt):
            raise
        lost = "nothing is lost and nothing is asked twice: to continue, run"
        complain(f"interrupted; {lost} {again}" if folder.exists() else "interrupted before anything was written or spent")
        sys.exit(128 + signal.SIGINT)
    if result is not None and sweep:
        certificate, public = result.release.certificate, result.evaluation.public
        _swept.append(
            _Swept(
                tuple(HydraConfig.get().overrides.task), certificate.epsilon, certificate.delta, result.metrics if public else {}
            )
        )
    return result.accuracy if result is not None and result.evaluation.public else None  # a sweep shows what it compares


def complain(error: Exception | str) -> None:
    """Print one line on standard error."""
    print("teacher-student: " + " ".join(str(error).split()), file=sys.stderr)
