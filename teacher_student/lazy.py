"""Names that are imported when they are first used, and modules that have moved.

Importing lazily keeps `label` free of torch. A module that moved is found under its old name for one more
version, with a notice.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any


def exported(
    package: str, homes: Mapping[str, str], names: Sequence[str], renamed: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__`.

    Args:
        package: its `__name__`.
        homes: for each name that is imported when it is used, the module below the package that has it.
        names: all public names, its `__all__`.
        renamed: new names by the old ones, which are accepted in this version with a `FutureWarning`.

    >>> find, listing = exported("teacher_student", {"Certificate": "privacy.certificate"}, ["Certificate", "label"])
    >>> find("Certificate").__name__, listing()
    ('Certificate', ['Certificate', 'label'])
    """

    def find(name: str) -> Any:
        if new := (renamed or {}).get(name):
            notice = f"{package}.{name} is now {new}; the old name is accepted in this version only"
            warnings.warn(notice, FutureWarning, stacklevel=2)
            name = new
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return find, lambda: list(names)


MOVED = {
    "teacher_student.aggregation.budgets": "teacher_student.aggregation.entries",
    "teacher_student.aggregation.folder": "teacher_student.aggregation.release",
    "teacher_student.aggregation.histograms": "teacher_student.aggregation.soft_label",
    "teacher_student.aggregation.label_session": "teacher_student.aggregation.labels",
    "teacher_student.aggregation.labelling": "teacher_student.aggregation.labels",
    "teacher_student.aggregation.load": "teacher_student.aggregation.release",
    "teacher_student.aggregation.saved_release": "teacher_student.aggregation.release",
    "teacher_student.aggregation.soft_release": "teacher_student.aggregation.release",
    "teacher_student.aggregation.statement": "teacher_student.aggregation.ledger",
    "teacher_student.aggregation.sum_release": "teacher_student.aggregation.release",
    "teacher_student.aggregation.witness": "teacher_student.aggregation.rollback",
    "teacher_student.app.configs": "teacher_student.app.composing",
    "teacher_student.app.slips": "teacher_student.app.composing",
    "teacher_student.benchmarks": "research.benchmarks",
    "teacher_student.data.adult_encoding": "teacher_student.data.adult",
    "teacher_student.data.encoded": "teacher_student.data.views",
    "teacher_student.data.image_folder": "teacher_student.data.images",
    "teacher_student.data.network_encoding": "teacher_student.data.encodings",
    "teacher_student.data.projected": "teacher_student.data.views",
    "teacher_student.data.table_encoding": "teacher_student.data.tables",
    "teacher_student.data.tabular": "teacher_student.data.tables",
    "teacher_student.data.vision": "teacher_student.data.images",
    "teacher_student.mechanisms.subsample_aggregate": "research.subsample_aggregate",
    "teacher_student.pipeline.answers": "teacher_student.pipeline.modes",
    "teacher_student.monitoring.curves": "teacher_student.monitoring.tensorboard",
    "teacher_student.pipeline.baselines": "teacher_student.pipeline.diagnostics",
    "teacher_student.pipeline.corrections": "teacher_student.pipeline.rounds",
    "teacher_student.pipeline.judgement": "teacher_student.pipeline.diagnostics",
    "teacher_student.pipeline.launch": "teacher_student.pipeline.processes",
    "teacher_student.pipeline.predicting": "teacher_student.pipeline.published",
    "teacher_student.pipeline.promises": "teacher_student.pipeline.settings",
    "teacher_student.pipeline.published_student": "teacher_student.pipeline.published",
    "teacher_student.pipeline.query_rounds": "teacher_student.pipeline.modes",
    "teacher_student.pipeline.ranks": "teacher_student.pipeline.processes",
    "teacher_student.pipeline.student_files": "teacher_student.pipeline.published",
    "teacher_student.pipeline.worlds": "teacher_student.pipeline.attack",
    "teacher_student.privacy.choosing": "teacher_student.planning.request",
    "teacher_student.privacy.data_dependent": "research.data_dependent",
    "teacher_student.privacy.foresight": "teacher_student.planning.preflight",
    "teacher_student.privacy.kappa": "teacher_student.privacy.svt_rdp",
    "teacher_student.privacy.noisy_fraction": "teacher_student.privacy.noisy_sums",
    "teacher_student.privacy.noisy_scores": "teacher_student.privacy.noisy_sums",
    "teacher_student.privacy.redrawn": "teacher_student.privacy.svt_resampled_threshold",
    "teacher_student.privacy.tight": "teacher_student.privacy.svt_fixed_threshold",
    "teacher_student.privacy.joint_choice": "teacher_student.planning.search",
    "teacher_student.privacy.planner": "teacher_student.planning.report",
    "teacher_student.privacy.stand_in": "teacher_student.planning.search",
    "teacher_student.privacy.utility": "teacher_student.planning.request",
    "teacher_student.student.correction": "teacher_student.student.boosting",
    "teacher_student.student.methods.fixmatch": "teacher_student.student.methods.consistency",
    "teacher_student.student.methods.mean_teacher": "teacher_student.student.methods.consistency",
    "teacher_student.student.methods.pseudo_label": "teacher_student.student.methods.consistency",
    "teacher_student.student.methods.self_training": "teacher_student.student.methods.supervised",
    "teacher_student.student.noisy_maximum": "teacher_student.student.label_noise",
    "teacher_student.student.propagation": "teacher_student.student.targets",
    "teacher_student.student.standardize": "teacher_student.student.module",
    "teacher_student.teachers.augment": "teacher_student.teachers.randomness",
    "teacher_student.teachers.class_scores": "teacher_student.teachers.prediction",
    "teacher_student.teachers.scores": "teacher_student.teachers.prediction",
    "teacher_student.teachers.strategy": "teacher_student.teachers.trainer",
    "teacher_student.teachers.vision": "teacher_student.teachers.networks",
    "teacher_student.theory": "research.theory",
}
"""Where the modules are that moved since the last version; those below a package that moved are found as well."""


class MovedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a module by its old name: the same module object, after one `FutureWarning`."""

    def find_spec(self, fullname: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a module in `MOVED`; None for any other name."""
        if (home := new_name(fullname)) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, loader_state=home)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Import the module by its new name."""
        message = f"{spec.name} is now {spec.loader_state}; the old name is accepted in this version only"
        warnings.warn(message, FutureWarning, stacklevel=2)
        module = importlib.import_module(spec.loader_state)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back, which the import system has just replaced."""
        alias = module.__spec__
        module.__spec__ = None if alias is None else alias.loader_state


def new_name(module: str) -> str | None:
    """Return the present name of a module that moved, None for any other.

    >>> new_name("teacher_student.theory.pac"), new_name("teacher_student.privacy")
    ('research.theory.pac', None)
    """
    for old, new in MOVED.items():
        if module == old or module.startswith(f"{old}."):
            return new + module.removeprefix(old)
    return None


def accept_old_names() -> None:
    """Let the import system find the modules in `MOVED`: first, or it would make a second copy of what is below a package."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())
