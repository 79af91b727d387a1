"""From a config to the settings of a run. Every value is checked here, before anything is written."""

from __future__ import annotations

import dataclasses
import functools
import glob
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from teacher_student.app.composing import as_written, check_given, compose
from teacher_student.arguments import ArgumentError, positive_integer, true_or_false

_WHERE_AND_HOW = ("run_folder", "console")
"""Settings that change nothing about what a run computes; a resumed run may have others."""


KINDS = {"teacher_student.teachers.LogisticRegression": "table", "teacher_student.pipeline.settings.Estimator": "estimators"}
"""Kinds of recipes by the target of the learner."""
_VIEWS = ("teacher_student.data.View", "teacher_student.data.Projection")


def with_recipe(config: DictConfig, overrides: Sequence[str]) -> tuple[DictConfig, str | None]:
    """Return a run's config with the recipe for public sizes, and why, where the mechanism is left to it; else as it is.

    Args:
        config: composed from `overrides`.
        overrides: the user's own, which win.

    Raises:
        ArgumentError: files or columns of a table that are not there.
    """
    from teacher_student.data.table_files import columns_of
    from teacher_student.planning.recipe import AUTO, recipe, why

    selected = OmegaConf.select
    kind, points = KINDS.get(str(selected(config, "learner._target_"))), selected(config, "data.public")
    if (
        kind is None
        or not isinstance(points, str)
        or selected(config, "mechanism.name") != AUTO
        or selected(config, "data._target_") != "teacher_student.data.load_table"
        or selected(config, "data.view._target_") not in _VIEWS
        or (selected(config, "privacy.cutoff"), selected(config, "privacy.bins")) != (None, None)
    ):
        return config, None
    _check_files(config)
    columns = _load(functools.partial(columns_of, "public", points), config.data)
    asked = len(next(iter(columns.values()))) if config.queries.total is None else config.queries.total
    light = light_settings(config)["privacy"]
    sizes = {"records": light.population or asked, "points": asked}
    taken = recipe(kind, classes=max(2, len(config.data.classes or ())), epsilon=light.epsilon, delta=light.delta, **sizes)
    chosen = {key: f"{key}={value}" for key, value in {**taken, "name": config.name}.items()}
    for override in overrides:
        if (key := override.lstrip("+").partition("=")[0]) not in ("experiment", "mechanism"):
            chosen[key] = override
    stated = "" if light.population else " (taken from the public points; state privacy.population for a better choice)"
    return compose("run", list(chosen.values())), why(taken, epsilon=light.epsilon, **sizes) + stated


def settings_from_config(config: DictConfig, load: Callable[[], Any] | None = None, chosen: str | None = None) -> Any:
    """Build the settings of a run.

    Args:
        config: composed from `conf/run.yaml`.
        load: loads data that is in memory, in place of `config.data`; as it is, without the config's view.
        chosen: why these settings, where a recipe chose them; for the certificate.
    """
    light = light_settings(config)
    light["privacy"] = dataclasses.replace(light["privacy"], chosen=chosen)
    if load is None:
        _check_files(config)
    from teacher_student.pipeline import RunSettings
    from teacher_student.student import QuerySettings

    make = hydra.utils.instantiate
    try:
        return RunSettings(
            name=config.name,
            data=load or _loader(config),
            training=make(config.teachers.training, _convert_="all"),
            learner=_plain(make(config.learner)),
            student_network=_plain(make(config.student.network)),
            student=make(config.student.settings),
            trainer=dict(make(config.trainer)),
            queries=QuerySettings(**config.queries),
            **light,
            config=OmegaConf.to_yaml({name: part for name, part in config.items() if name not in _WHERE_AND_HOW}, resolve=True),
        )
    except HydraException as error:
        raise ArgumentError(_root_cause(error, config)) from error
    except (TypeError, OmegaConfBaseException) as error:
        raise ArgumentError(str(error)) from error


def _plain(made: Any) -> Any:
    """Return Hydra's partial of a class as a plain one: each call would check the class again, a millisecond for each teacher."""
    if isinstance(made, functools.partial) and isinstance(made.func, type):
        return functools.partial(made.func, *made.args, **made.keywords)
    return made


def light_settings(config: DictConfig) -> dict[str, Any]:
    """Build the settings that need no torch, whose import takes seconds: a mistake in them is refused at once, before a sweep."""
    from teacher_student.pipeline import BoostingSettings, BudgetSettings, PrivacySettings
    from teacher_student.pipeline.settings import MOST_TEACHERS

    check_complete(config)
    try:
        mechanism = dict(config.mechanism)
        return {
            "seed": positive_integer("seed", config.seed, minimum=0),
            "num_teachers": positive_integer("teachers.number", config.teachers.number, maximum=MOST_TEACHERS),
            "privacy": PrivacySettings(mechanism=mechanism.pop("name", None), options=mechanism, **config.privacy),
            "budget": BudgetSettings(**config.budget),
            "boosting": BoostingSettings(**config.boosting),
            "tensorboard": true_or_false("logger.tensorboard", config.logger.tensorboard),
            "baselines": true_or_false("baselines", config.baselines),
        }
    except (TypeError, OmegaConfBaseException) as error:
        raise ArgumentError(str(error)) from error


def _check_gpu(trainer: DictConfig) -> None:
    """Refuse a GPU where the system has no device file of one, before the import of torch; whatever is in doubt passes."""
    wanted = trainer.get("accelerator") in ("gpu", "cuda")
    if wanted and sys.platform == "linux" and not any(glob.glob(pattern) for pattern in _GPU_FILES):
        raise ArgumentError("trainer.accelerator must be one that this machine has, got gpu; use trainer=cpu")


_GPU_FILES = ("/dev/nvidia*", "/dev/nvhost*", "/dev/nvmap", "/dev/dxg", "/dev/kfd")
"""Devices of NVIDIA (also Jetson), of Windows' subsystem for Linux, and of AMD."""

_PARTS = (
    "data",
    "teachers",
    "learner",
    "mechanism",
    "privacy",
    "queries",
    "boosting",
    "budget",
    "student",
    "trainer",
    "logger",
)


def check_complete(config: DictConfig) -> None:
    """Refuse a config that lacks a section or a value that must be given, or that wants a GPU where there is none."""
    for name in _PARTS:
        if not isinstance(config.get(name), DictConfig):
            raise ArgumentError(f"{name} must be a section of settings such as {name}.NAME=VALUE, got {config.get(name)!r}")
    check_given(config)
    if not str(config.run_folder or ""):
        raise ArgumentError(f"run_folder must name a new folder, got {config.run_folder!r}")
    _check_gpu(config.trainer)


def _loader(config: DictConfig) -> Any:
    """Return what loads the data, as it is seen, when called."""
    from teacher_student.data.views import take_old_keywords

    if not isinstance(config.data.get("view", {}), DictConfig | dict):
        raise ArgumentError(f"data.view must be a section of settings that data/view=NAME chooses, got {config.data.view!r}")
    options = config.copy()
    OmegaConf.set_struct(options, value=False)
    view = hydra.utils.instantiate(config.data.get("view"))
    options.data.pop("view", None)
    made = hydra.utils.instantiate(options.data, _partial_=True)
    keywords = dict(made.keywords)
    if "label_private" in keywords:
        keywords.setdefault("label_private_seed", config.seed)
    view = take_old_keywords(made.func, keywords, view)
    inspect.signature(made.func).bind_partial(*made.args, **keywords)  # a TypeError now, not after the folder is made
    loader = functools.partial(made.func, *made.args, **keywords)
    return functools.partial(_load, functools.partial(view.load, loader), config.data)


def _check_files(config: DictConfig) -> None:
    """Refuse absent files and columns before torch is imported, which takes seconds."""
    from teacher_student.data.registry import CHECKS

    room, _, name = str(config.data.get("_target_")).rpartition(".")
    if room == "teacher_student.data" and (check := CHECKS.get(name)):
        known = {name: config.data[name] for name in inspect.signature(check).parameters if name in config.data}
        labels_only = OmegaConf.select(config, "data.view._target_") == "teacher_student.data.LabelsOnly"
        if labels_only or config.data.get("label_private") is not None:
            known["neighbours"] = "label_only"
        _load(functools.partial(check, **known), config.data)


def _load(loader: Callable[[], Any], data: DictConfig) -> Any:
    try:
        return loader()
    except ArgumentError as error:
        of_view = as_written(str(error), "data.view", [str(name) for name in data.get("view") or ()])
        raise ArgumentError(as_written(of_view, "data", [str(name) for name in data])) from error


def _root_cause(error: BaseException, config: DictConfig) -> str:
    """Return the innermost message, which Hydra has wrapped, with settings named as in the config."""
    section = re.search(r"full_key: ([\w.]+)", str(error))
    while error.__cause__ is not None:
        error = error.__cause__
    line = " ".join(str(error).split())
    if section is None or not isinstance(tree := OmegaConf.select(config, section[1]), DictConfig):
        return line
    return as_written(line, section[1], [str(name) for name in tree])
