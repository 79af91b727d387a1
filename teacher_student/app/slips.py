"""What is wrong with a command line, in one line, and what was probably meant."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Sequence

from hydra.errors import MissingConfigException, OverrideParseException

from teacher_student.app import configs
from teacher_student.arguments import ArgumentError

PLUGINS = {"joblib": "teacher-student[sweeps]", "submitit_slurm": "hydra-submitit-launcher", "ray": "hydra-ray-launcher"}
"""Launchers of sweeps that come in packages of their own."""


def one_line(error: Exception, config_name: str, overrides: Sequence[str]) -> str:
    """Return what Hydra or OmegaConf found wrong with `overrides` of a config, in the user's words."""
    text = " ".join(str(error).split())
    if isinstance(error, OverrideParseException):
        return f"{error.override} is not an override: {text.split(' See ')[0]}"
    if isinstance(error, MissingConfigException) and error.options:
        return _no_such_option(str(error.missing_cfg_file), error.options)
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if "group override must be a string" in text and (configs.conf_folder() / (key or ".")).is_dir():
            return _no_such_option(f"{key}/{value}", sorted(path.stem for path in (configs.conf_folder() / key).glob("*.yaml")))
        if key and (f"'{key}'" in text or f"'{override}'" in text):
            if hint := meant(key, configs.known_keys(config_name, overrides)):
                return f"{key} is not a setting, got {override!r}{hint}"
            if "Could not override" in text:
                return f"{key} is not a setting, got {override!r}; see teacher-student run --cfg job for those that are"
    return text


def _no_such_option(choice: str, options: Sequence[str]) -> str:
    group, _, name = choice.rpartition("/")
    if group == "hydra/launcher" and name in PLUGINS:
        return f"{choice} must be installed before it can be used: pip install {PLUGINS[name]}"
    return f"{group or 'an override'} must be one of {', '.join(options) or 'GROUP=NAME'}; got {name!r}{meant(name, options)}"


def meant(name: str, known: Sequence[str]) -> str:
    """Return "; did you mean ...?" where a known name ends with `name` or is close to it, else nothing."""
    close = by_name(name, known) or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close and close[0] != name else ""


def check_flags(arguments: Sequence[str], config_name: str, flags: Sequence[str] = ()) -> None:
    """Refuse what begins with a dash and is no flag, with the setting or the flag that was probably meant."""
    for place, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if not argument.startswith("-") or name in flags:
            continue
        setting = name.lstrip("-").replace("-", "_")
        value = value or next((word for word in arguments[place + 1 : place + 2] if "=" not in word and word[:1] != "-"), "VALUE")
        if key := next(iter(by_name(setting, configs.known_keys(config_name))), None):
            raise ArgumentError(f"settings must be written NAME=VALUE, got {argument!r}; did you mean {key}={value}?")
        if flags:
            raise ArgumentError(f"a flag must be one of {', '.join(flags)}; got {argument!r}{meant(name, flags)}")
        raise ArgumentError(f"settings must be written NAME=VALUE, got {argument!r}; see teacher-student {config_name} --help")


def by_name(name: str, known: Sequence[str]) -> list[str]:
    """Return the known keys that are `name` or end with it, those of privacy first."""
    found = (key for key in known if name in (key, key.rpartition(".")[2]))
    return sorted(found, key=lambda key: (key != name, not key.startswith("privacy.")))


def as_written(message: str, section: str, names: Sequence[str]) -> str:
    """Return what a constructor says of its arguments with these named as on the command line.

    >>> as_written("ranges of age must be two numbers", "data", ["ranges", "age"])
    'data.ranges of age must be two numbers'
    """
    subject, must, rest = message.partition(" must ")
    known = "|".join(map(re.escape, names))
    return re.sub(rf"(?<![\w.])(?<!of )({known})(?![\w.])", rf"{section}.\1", subject) + must + rest if must else message


def complain(error: Exception | str) -> None:
    """Print one line on standard error."""
    print("teacher-student: " + " ".join(str(error).split()), file=sys.stderr)
