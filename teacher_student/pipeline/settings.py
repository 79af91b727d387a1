"""The settings of a run, checked before anything is written or drawn. Importing them loads no torch."""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from teacher_student.arguments import (
    ArgumentError,
    choice,
    fraction_of_one,
    number_at_least_zero,
    positive_integer,
    positive_number,
    probability,
)
from teacher_student.data import NEIGHBOURS, PrivateDataset
from teacher_student.pipeline.budget import BudgetSettings
from teacher_student.privacy import HYPERPARAMETERS

if TYPE_CHECKING:
    from teacher_student.student import QuerySettings, StudentSettings
    from teacher_student.teachers import TrainingSettings

NetworkClass = Callable[..., Any]
"""Called with the shape of one input and the number of classes."""

MOST_TEACHERS = 10**7
"""Bound on `teachers.number`. It is a constant: the number of records is private, so no visible refusal may depend on it."""


_OF_THE_RUN = {
    *("epsilon", "delta", "cutoff", "neighbours", "hyperparameters", "num_classes", "num_teachers", "num_queries", "vote_change"),
    *("num_teachers_is_public", "state", "noise", "account"),
}
"""Arguments of sessions that are not options of a mechanism: a wrong relation or `vote_change` would make a certificate false."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """The guarantee and the mechanism that gives it.

    Attributes:
        epsilon: of the whole release.
        delta: of the whole release.
        mechanism: name of the mechanism.
        options: further options of its calibration.
        cutoff: paid non-answers before the session halts; None lets the planner choose from public sizes.
        neighbours: the neighbouring relation; None is the data's own.
        bins: for soft labels, bins of the histogram; None for hard labels. Soft labels need a cutoff.
        hyperparameters: how they were chosen, for the certificate: fixed, or on a public_surrogate.
        population: public order of magnitude of the number of records, for warnings and plans; None if none is public.
        chosen: why these settings, in one line, where `mechanism=auto` chose them; for the certificate.
    """

    epsilon: float
    delta: float
    mechanism: str = "stability"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cutoff: int | None = 50
    neighbours: str | None = None
    bins: int | None = None
    hyperparameters: str = "fixed"
    population: int | None = None
    chosen: str | None = None

    def __post_init__(self) -> None:
        positive_number("privacy.epsilon", self.epsilon)
        probability("privacy.delta", self.delta)
        if not isinstance(self.options, Mapping):
            raise ArgumentError(f"mechanism must be a mapping of options, got {self.options!r}")
        for name in _OF_THE_RUN & set(self.options):
            raise ArgumentError(
                f"mechanism.{name} must not be given: a run says it itself, from its data, learner and privacy settings"
            )
        if self.neighbours is not None:
            choice("privacy.neighbours", self.neighbours, NEIGHBOURS)
        choice("privacy.hyperparameters", self.hyperparameters, HYPERPARAMETERS)
        for name, minimum in (("cutoff", 1), ("population", 1), ("bins", 3)):
            if (value := getattr(self, name)) is not None:
                positive_integer(f"privacy.{name}", value, minimum=minimum)
        if self.mechanism == "auto" and self.cutoff is not None:  # mechanisms that pay for answers have no cutoff of non-answers
            object.__setattr__(self, "mechanism", "stability")
        if self.bins is not None:
            positive_integer("privacy.cutoff", self.cutoff)  # the planner chooses for hard labels only


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoostingSettings:
    """How often teachers correct the student (see `pipeline.rounds`), and how far.

    Attributes:
        rounds: rounds of teachers after the first.
        step: for votes, how far the logits of a point move apart if all teachers agree; for scores, the missing probability
            that a score of 1 stands for.
        shrinkage: for scores: what a move costs where the student is sure.
    """

    rounds: int = 0
    step: float = 2.0
    shrinkage: float = 0.06

    def __post_init__(self) -> None:
        positive_integer("boosting.rounds", self.rounds, minimum=0)
        positive_number("boosting.step", self.step)
        number_at_least_zero("boosting.shrinkage", self.shrinkage)


@dataclasses.dataclass(frozen=True)
class Estimator:
    """A teacher that is not a network: anything with fit and predict.

    Attributes:
        estimator: a scikit-learn estimator to copy, or a callable that builds a learner (see `teachers.train_learners`).
        num_workers: processes; -1 for all cores. The result does not depend on it.
    """

    estimator: Any
    num_workers: int = -1


class EachRecord:
    """No models and no shards: every private record, or user with all records, speaks for itself.

    `num_teachers` is then a public order of magnitude of the number of records, which itself is private.

    Attributes:
        does: what a record does.
        needs: what it can do nothing without.
    """

    does: ClassVar[str]
    needs: ClassVar[str]


@dataclasses.dataclass(frozen=True)
class RecordVoters(EachRecord):
    """Every private record votes with its own label on the public points nearest to it (`teachers.record_voters`).

    Attributes:
        votes: asked points on which a record, or a user with all records, votes.
    """

    does, needs = "is a teacher and votes for itself", "nearest needs a mechanism of votes: records only vote"

    votes: int = 6

    def __post_init__(self) -> None:
        positive_integer("learner.votes", self.votes)


@dataclasses.dataclass(frozen=True)
class GradientDescent(EachRecord):
    """Every private record gives its bounded gradient of one linear model, in each step of gradient descent.

    `teachers.record_gradients` makes the gradients, `student.descent` follows their noisy sums.

    Attributes:
        steps: of gradient descent; each is a round of the session.
        learning_rate: length of a step along a gradient as long as a record's may be, in a direction without preconditioner.
        momentum: share of the last step that is made again.
    """

    does, needs = "gives its bounded gradient in each step", "gradients needs mechanism=noisy_scores"

    steps: int = 40
    learning_rate: float = 0.5
    momentum: float = 0.8

    def __post_init__(self) -> None:
        positive_integer("learner.steps", self.steps, maximum=1000)
        positive_number("learner.learning_rate", self.learning_rate)
        fraction_of_one("learner.momentum", self.momentum)


def _default_queries() -> QuerySettings:
    from teacher_student.student import QuerySettings  # loads torch

    return QuerySettings()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Everything that a run needs, all of it public.

    Attributes:
        name: of the experiment.
        seed: of weights, batches and public splits. It never reaches the noise.
        data: loads the data when called.
        num_teachers: number of shards and teachers, k.
        learner: what each teacher is: a network class, an `Estimator`, or `EachRecord`: `RecordVoters`, `GradientDescent`.
        training: how each teacher is trained, if it is a network.
        privacy: the guarantee.
        student_network: the student's network class.
        student: how the student is trained.
        trainer: options of Lightning's trainer: accelerator, devices, strategy.
        queries: which public points are asked, in which order.
        boosting: rounds of teachers that correct the student.
        budget: where the cost is recorded, and the limit for all runs on the same data.
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
    queries: QuerySettings = dataclasses.field(default_factory=_default_queries)
    boosting: BoostingSettings = dataclasses.field(default_factory=BoostingSettings)
    budget: BudgetSettings = dataclasses.field(default_factory=BudgetSettings)
    tensorboard: bool = True
    baselines: bool = True
    config: str = ""
    correction: dataclasses.InitVar[BoostingSettings | None] = None

    def __post_init__(self, correction: BoostingSettings | None) -> None:
        if correction is not None:
            notice = "correction is now boosting; the old name is accepted in this version only"
            warnings.warn(notice, FutureWarning, stacklevel=3)
            object.__setattr__(self, "boosting", correction)
        if not isinstance(self.name, str) or not re.fullmatch(r"\w[\w .=,+-]*", self.name):
            raise ArgumentError(f"name must be a word that can name a folder, got {self.name!r}")
        positive_integer("seed", self.seed, minimum=0)
        positive_integer("teachers.number", self.num_teachers, maximum=MOST_TEACHERS)

    @property
    def each_record(self) -> EachRecord | None:
        """The learner if every record speaks for itself; None for models."""
        return self.learner if isinstance(self.learner, EachRecord) else None

    @property
    def record_voters(self) -> RecordVoters | None:
        """The learner if every record votes for itself; None otherwise."""
        return self.learner if isinstance(self.learner, RecordVoters) else None

    @property
    def choices(self) -> dict[str, float | str | bool]:
        """Public settings by their names in the config, without the data's: those may name files and sizes that are private.

        A learner's options are included only if they are numbers or truth values: texts may be paths, or keys to a service.
        """
        privacy = {name: getattr(self.privacy, name) for name in ("epsilon", "delta", "cutoff", "bins", "neighbours")}
        options = _described(self.learner)
        learner = {key: value for key, value in options.items() if key == "name" or isinstance(value, bool | int | float)}
        method = self.student.learning_method
        student = dataclasses.asdict(self.student) | {"method": {"name": method.name, **dataclasses.asdict(method)}}
        tree = {
            "seed": self.seed,
            "privacy": privacy,
            "mechanism": {"name": self.privacy.mechanism, **self.privacy.options},
            "teachers": {"number": self.num_teachers, "training": self.training.to_dict()},
            "learner": learner,
            "student": {"network": _described(self.student_network), "settings": student},
        }
        return dict(_flat(tree))


def _described(thing: Any) -> dict[str, Any]:
    """Return the name of a network's or an estimator's class, and the options that it was given."""
    if isinstance(thing, Estimator):
        return _described(thing.estimator)
    if isinstance(thing, functools.partial):
        return {"name": getattr(thing.func, "__name__", type(thing.func).__name__), **thing.keywords}
    options = thing.get_params(deep=False) if hasattr(thing, "get_params") else {}
    return {"name": getattr(thing, "__name__", type(thing).__name__), **options}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float | str | bool]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, value if isinstance(value, bool | int | float | str) else str(value)
