"""Configs from overrides; a wrong override is an `ArgumentError` of one line."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Sequence

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from teacher_student.app import configs
from teacher_student.app.slips import check_flags, one_line
from teacher_student.arguments import ArgumentError


def compose(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """Compose a config; a wrong override is an `ArgumentError` of one line."""
    overrides = accept_old_names(overrides)
    try:
        with hydra.initialize_config_dir(version_base="1.3", config_dir=str(configs.conf_folder())):
            return _renamed(hydra.compose(config_name, list(overrides)))
    except TypeError as error:  # of Hydra, for GROUP=[1,[2]]
        raise ArgumentError(f"overrides must choose of a group by name, as in data=adult, got {' '.join(overrides)}") from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # Hydra raises a bare ValueError for GROUP=null
        raise ArgumentError(one_line(error, config_name, overrides)) from error


_OF_METHODS = tuple(
    f"student.settings.{name}=" for name in ("confidence", "rounds", "temperature", "mixing", "radius", "entropy_weight")
)
"""Settings that `StudentSettings` accepts in this version, and that no config has any more."""


_OF_VIEWS = re.compile(r"^\+*(?=data\.(encoder|layer|components|whiten|scale|student_columns|mean|std|flatten|label_private)=)")
"""Settings of the data that are now in `data.view`; they are accepted in this version, with a notice when the view is made."""

_OLD, _NEW = "correction", "boosting"
"""A section of settings that was renamed."""


def accept_old_names(overrides: Sequence[str]) -> list[str]:
    """Return overrides in which settings that have moved are added or renamed, as Hydra would refuse them otherwise."""
    viewed = [_OF_VIEWS.sub("++", re.sub(r"^data\.encoder\.", "data.view.encoder.", override)) for override in overrides]
    added = [f"+{override}" if override.startswith(_OF_METHODS) else override for override in viewed]
    renamed = [re.sub(rf"^(\+*){_OLD}(?=[.=])", rf"\1{_NEW}", override) for override in added]
    if renamed != added:
        _notice(_OLD, f"{_NEW}, as in {_NEW}.rounds=3")
    if "data=csv" in renamed:
        _notice("data=csv", "data=table")
    return ["data=table" if override == "data=csv" else override for override in renamed]


def _notice(old: str, new: str) -> None:
    warnings.warn(f"{old} is now {new}; the old name is accepted in this version only", FutureWarning, stacklevel=3)


def _renamed(config: DictConfig) -> DictConfig:
    """Return the config with a renamed section of a user's own file under its new name."""
    if isinstance(config.get(_OLD), DictConfig):
        _notice(_OLD, f"{_NEW}, as in {_NEW}.rounds=3")
        with open_dict(config):
            config[_NEW] = OmegaConf.merge(config[_NEW], config.pop(_OLD))
    return config


def check_given(config: DictConfig) -> None:
    """Refuse a config with a value that must be given and was not."""
    try:
        missing = sorted(OmegaConf.missing_keys(config))
    except OmegaConfBaseException as error:
        raise ArgumentError(f"{error.full_key} must refer to settings that are there: {str(error).splitlines()[0]}") from error
    if missing:
        added = " ".join(f"{key}=VALUE" for key in missing)
        raise ArgumentError(f"{' and '.join(missing)} must be given, got nothing; add {added}")


_NOT_PLAIN = ("defaults", "hydra", "mechanism")


def compose_whole(verb: str, overrides: Sequence[str]) -> DictConfig:
    """Compose the config of a verb whose settings are all there are: none may be taken away, none added but to a mechanism."""
    check_flags(overrides, verb)
    config = compose(verb, overrides)
    check_given(config)
    trees = (
        OmegaConf.to_container(part, resolve=False) for part in (OmegaConf.load(configs.conf_folder() / f"{verb}.yaml"), config)
    )
    wanted, given = ({key for key in configs.dotted(tree) if key.split(".")[0] not in _NOT_PLAIN} for tree in trees)
    for key in sorted(wanted - given):
        raise ArgumentError(f"{key} must be given, got a config without it")
    for key in sorted(given - wanted):
        raise ArgumentError(f"{key} is not a setting of {verb}; did you mean {difflib.get_close_matches(key, wanted, 1, 0)[0]}?")
    return config
