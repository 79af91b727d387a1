"""Configs from overrides; a wrong override is an `ArgumentError` of one line, with what was probably meant."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from teacher_student.arguments import ArgumentError

PLUGINS = {"joblib": "teacher-student[sweeps]", "submitit_slurm": "hydra-submitit-launcher", "ray": "hydra-ray-launcher"}
"""Launchers of sweeps that come in packages of their own."""

_OLD, _NEW = "correction", "boosting"
"""A section of settings that was renamed."""
_OF_METHODS = tuple(
    f"student.settings.{name}=" for name in ("confidence", "rounds", "temperature", "mixing", "radius", "entropy_weight")
)
"""Settings that `StudentSettings` accepts in this version, but that no config has any more."""
_TARGET, _OF_TREES = "learner.estimator._target_", "learner.estimator.max_depth"
_OF_VIEWS = re.compile(r"^\+*(?=data\.(encoder|layer|components|whiten|scale|student_columns|mean|std|flatten|label_private)=)")
"""Settings of the data that are now in `data.view`; they are accepted in this version, with a notice when the view is made."""
_NOT_PLAIN = ("defaults", "hydra", "mechanism")


def conf_folder() -> Path:
    """Return where the configs are: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def compose(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """Compose a config.

    Raises:
        ArgumentError: a wrong override.
    """
    overrides = accept_old_names(overrides)
    try:
        return _with_new_names(_compose(config_name, overrides))
    except TypeError as error:  # Hydra raises it for GROUP=[1,[2]]
        raise ArgumentError(f"overrides must choose from a group by name, as in data=adult, got {' '.join(overrides)}") from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # Hydra raises a bare ValueError for GROUP=null
        raise ArgumentError(one_line(error, config_name, overrides)) from error


def _compose(config_name: str, overrides: Sequence[str] = ()) -> DictConfig:
    running, hydra_of_run = GlobalHydra.instance(), GlobalHydra.instance().hydra
    running.clear()  # a run composes once more with its recipe, inside of Hydra
    try:
        with hydra.initialize_config_dir(version_base="1.3", config_dir=str(conf_folder())):
            return hydra.compose(config_name, list(overrides))
    finally:
        running.hydra = hydra_of_run


def compose_whole(verb: str, overrides: Sequence[str]) -> DictConfig:
    """Compose the config of a verb that takes no other settings, apart from a mechanism's options.

    Raises:
        ArgumentError: a wrong override, a setting that is removed or added, or a flag.
    """
    check_flags(overrides, verb)
    config = compose(verb, overrides)
    check_given(config)
    trees = (OmegaConf.to_container(part, resolve=False) for part in (OmegaConf.load(conf_folder() / f"{verb}.yaml"), config))
    wanted, given = ({key for key in _dotted(tree) if key.split(".")[0] not in _NOT_PLAIN} for tree in trees)
    for key in sorted(wanted - given):
        raise ArgumentError(f"{key} must be given, got a config without it")
    for key in sorted(given - wanted):
        raise ArgumentError(f"{key} is not a setting of {verb}; did you mean {difflib.get_close_matches(key, wanted, 1, 0)[0]}?")
    return config


def check_given(config: DictConfig) -> None:
    """Refuse a config without a value that must be given."""
    try:
        missing = sorted(OmegaConf.missing_keys(config))
    except OmegaConfBaseException as error:
        raise ArgumentError(f"{error.full_key} must refer to existing settings: {str(error).splitlines()[0]}") from error
    if missing:
        added = " ".join(f"{key}=VALUE" for key in missing)
        raise ArgumentError(f"{' and '.join(missing)} must be given, got nothing; add {added}")


def accept_old_names(overrides: Sequence[str]) -> list[str]:
    """Return overrides in which settings that have moved are added or renamed, as Hydra would refuse them otherwise."""
    viewed = [_OF_VIEWS.sub("++", re.sub(r"^data\.encoder\.", "data.view.encoder.", override)) for override in overrides]
    added = [f"+{override}" if override.startswith(_OF_METHODS) else override for override in viewed]
    renamed = [re.sub(rf"^(\+*){_OLD}(?=[.=])", rf"\1{_NEW}", override) for override in added]
    if renamed != added:
        _notice(_OLD, f"{_NEW}, as in {_NEW}.rounds=3")
    if "data=csv" in renamed:
        _notice("data=csv", "data=table")
    keys = [override.lstrip("+~").partition("=")[0] for override in renamed]
    if "learner=sklearn" in renamed and _TARGET in keys and _OF_TREES not in keys:
        renamed.insert(keys.index(_TARGET), f"~{_OF_TREES}")  # the default tree's own setting; another class may not have it
    return ["data=table" if override == "data=csv" else override for override in renamed]


def _with_new_names(config: DictConfig) -> DictConfig:
    """Return the config with a renamed section of a user's own file under its new name."""
    if isinstance(config.get(_OLD), DictConfig):
        _notice(_OLD, f"{_NEW}, as in {_NEW}.rounds=3")
        with open_dict(config):
            config[_NEW] = OmegaConf.merge(config[_NEW], config.pop(_OLD))
    return config


def _notice(old: str, new: str) -> None:
    warnings.warn(f"{old} is now {new}; the old name is accepted in this version only", FutureWarning, stacklevel=3)


def one_line(error: Exception, config_name: str, overrides: Sequence[str]) -> str:
    """Return what Hydra or OmegaConf found wrong with `overrides` of a config, in the user's words."""
    text = " ".join(str(error).split())
    if isinstance(error, OverrideParseException):
        return f"{error.override} is not an override: {text.split(' See ')[0]}"
    if isinstance(error, MissingConfigException) and error.options:
        return _no_such_option(str(error.missing_cfg_file), error.options)
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if "group override must be a string" in text and (conf_folder() / (key or ".")).is_dir():
            return _no_such_option(f"{key}/{value}", sorted(path.stem for path in (conf_folder() / key).glob("*.yaml")))
        if key and (f"'{key}'" in text or f"'{override}'" in text):
            if hint := suggestion(key, known_keys(config_name, overrides)):
                return f"{key} is not a setting, got {override!r}{hint}"
            if "Could not override" in text:
                return f"{key} is not a setting, got {override!r}; see teacher-student run --cfg job for all settings"
    return text


def _no_such_option(choice: str, options: Sequence[str]) -> str:
    group, _, name = choice.rpartition("/")
    if group == "hydra/launcher" and name in PLUGINS:
        return f"{choice} must be installed before it can be used: pip install {PLUGINS[name]}"
    return (
        f"{group or 'an override'} must be one of {', '.join(options) or 'GROUP=NAME'}; got {name!r}{suggestion(name, options)}"
    )


def check_flags(arguments: Sequence[str], config_name: str, flags: Sequence[str] = ()) -> None:
    """Refuse an unknown flag, with the setting or the flag that was probably meant."""
    for place, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if not argument.startswith("-") or name in flags:
            continue
        setting = name.lstrip("-").replace("-", "_")
        value = value or next((word for word in arguments[place + 1 : place + 2] if "=" not in word and word[:1] != "-"), "VALUE")
        if key := next(iter(_ending_with(setting, known_keys(config_name))), None):
            raise ArgumentError(f"settings must be written NAME=VALUE, got {argument!r}; did you mean {key}={value}?")
        if flags:
            raise ArgumentError(f"a flag must be one of {', '.join(flags)}; got {argument!r}{suggestion(name, flags)}")
        raise ArgumentError(f"settings must be written NAME=VALUE, got {argument!r}; see teacher-student {config_name} --help")


def suggestion(name: str, known: Sequence[str]) -> str:
    """Return "; did you mean ...?" if a known name ends with `name` or is close to it, else nothing."""
    close = _ending_with(name, known) or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close and close[0] != name else ""


def _ending_with(name: str, known: Sequence[str]) -> list[str]:
    """Return the known keys that are `name` or end with it, those of privacy first."""
    found = (key for key in known if name in (key, key.rpartition(".")[2]))
    return sorted(found, key=lambda key: (key != name, not key.startswith("privacy.")))


def known_keys(config_name: str, overrides: Sequence[str] = ()) -> list[str]:
    """Return every group, and every dotted setting of a config with the groups that `overrides` choose, if they exist."""
    groups = [folder.relative_to(conf_folder()).as_posix() for folder in conf_folder().rglob("*") if folder.is_dir()]
    chosen = [override for override in overrides if override.partition("=")[0] in groups]
    try:
        config = _compose(config_name, chosen)
    except (HydraException, OmegaConfBaseException, ValueError):
        config = _compose(config_name)
    return groups + list(_dotted(OmegaConf.to_container(config, resolve=False)))


def _dotted(tree: Any, prefix: str = "") -> list[str]:
    """Return the dotted name of every branch and leaf of nested mappings."""
    if not isinstance(tree, dict):
        return [prefix]
    return [prefix] * bool(prefix) + [
        key for name, branch in tree.items() for key in _dotted(branch, f"{prefix}{'.' * bool(prefix)}{name}")
    ]


def as_written(message: str, section: str, names: Sequence[str]) -> str:
    """Return a constructor's message with its arguments named as on the command line.

    >>> as_written("ranges of age must be two numbers", "data", ["ranges", "age"])
    'data.ranges of age must be two numbers'
    """
    subject, must, rest = message.partition(" must ")
    known = "|".join(map(re.escape, names))
    return re.sub(rf"(?<![\w.])(?<!of )({known})(?![\w.])", rf"{section}.\1", subject) + must + rest if must else message
