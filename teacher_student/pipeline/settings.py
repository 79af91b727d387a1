"""The settings of a run, checked before anything is written or drawn."""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from teacher_student.arguments import ArgumentError, positive_integer
from teacher_student.data import PrivateDataset
from teacher_student.pipeline.budget import BudgetSettings
from teacher_student.pipeline.privacy_settings import MOST_TEACHERS, BoostingSettings, PrivacySettings
from teacher_student.student import QuerySettings, StudentSettings
from teacher_student.teachers import TrainingSettings

NetworkClass = Callable[..., Any]
"""Called with the shape of one input and the number of classes."""


@dataclasses.dataclass(frozen=True)
class Estimator:
    """A teacher that is no network: anything with fit and predict.

    Attributes:
        estimator: a scikit-learn estimator to copy, or a callable that builds a learner (see `teachers.train_learners`).
        num_workers: processes; -1 for all cores. The result does not depend on it.
    """

    estimator: Any
    num_workers: int = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Everything that a run needs, all of it public.

    Attributes:
        name: of the experiment.
        seed: of weights, batches and public splits. It never reaches the noise.
        data: loads the data when called.
        num_teachers: number of shards and teachers, k.
        training: how each teacher is trained, if it is a network.
        learner: what each teacher is: a network class, or an `Estimator`.
        privacy: what is promised.
        budget: where it is recorded, beside what earlier runs on the same data have spent, and the limit.
        student_network: the student's network class.
        student: how the student is trained.
        queries: which public points are asked, in which order.
        boosting: rounds of teachers that correct the student.
        trainer: options of Lightning's trainer: accelerator, devices, strategy.
        tensorboard: whether to write event files.
        baselines: whether to train non-private models to compare with.
        config: the composed config as YAML; tells a resumed run from another one.
        correction: an older name of boosting.
    """

    name: str
    seed: int
    data: Callable[[], PrivateDataset]
    num_teachers: int
    learner: Any
    training: TrainingSettings
    privacy: PrivacySettings
    student_network: NetworkClass
    student: StudentSettings
    trainer: Mapping[str, Any]
    queries: QuerySettings = dataclasses.field(default_factory=QuerySettings)
    boosting: BoostingSettings = dataclasses.field(default_factory=BoostingSettings)
    budget: BudgetSettings = dataclasses.field(default_factory=BudgetSettings)
    tensorboard: bool = True
    baselines: bool = True
    config: str = ""
    correction: dataclasses.InitVar[BoostingSettings | None] = None

    def __post_init__(self, correction: BoostingSettings | None) -> None:
        if correction is not None:  # an older name
            notice = "correction is now boosting; the old name is accepted in this version only"
            warnings.warn(notice, FutureWarning, stacklevel=3)
            object.__setattr__(self, "boosting", correction)
        if not isinstance(self.name, str) or not re.fullmatch(r"\w[\w .=,+-]*", self.name):
            raise ArgumentError(f"name must be a word that can name a folder, got {self.name!r}")
        positive_integer("seed", self.seed, minimum=0)
        positive_integer("teachers.number", self.num_teachers, maximum=MOST_TEACHERS)

    @property
    def choices(self) -> dict[str, float | str | bool]:
        """Public settings by their names in the config, without the data's: those may name files and sizes that are private.

        Of a learner's options only numbers and truth values: texts may be paths, or keys to somebody's service.
        """
        privacy = {name: getattr(self.privacy, name) for name in ("epsilon", "delta", "cutoff", "bins", "neighbours")}
        tree = {
            "seed": self.seed,
            "privacy": privacy,
            "mechanism": {"name": self.privacy.mechanism, **self.privacy.options},
            "teachers": {"number": self.num_teachers, "training": self.training.to_dict()},
            "learner": _numbers(_described(self.learner)),
            "student": {"network": _described(self.student_network), "settings": _student_choices(self.student)},
        }
        return dict(_flat(tree))


def _student_choices(student: StudentSettings) -> dict[str, Any]:
    method = student.learning_method
    return dataclasses.asdict(student) | {"method": {"name": method.name, **dataclasses.asdict(method)}}


def _described(thing: Any) -> dict[str, Any]:
    """Name of a network's or an estimator's class, and the options that it was given."""
    if isinstance(thing, Estimator):
        return _described(thing.estimator)
    if isinstance(thing, functools.partial):
        return {"name": getattr(thing.func, "__name__", type(thing.func).__name__), **thing.keywords}
    options = thing.get_params(deep=False) if hasattr(thing, "get_params") else {}
    return {"name": getattr(thing, "__name__", type(thing).__name__), **options}


def _numbers(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in described.items() if name == "name" or isinstance(value, bool | int | float)}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float | str | bool]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, value if isinstance(value, bool | int | float | str) else str(value)
