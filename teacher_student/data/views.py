"""Views: how teachers and student see the records that a loader returns. One parameter, `view`, for every data set.

| config | class | what |
|---|---|---|
| `data/view=none` | `View` | records as they are loaded; images may be scaled |
| `data/view=projection` | `Projection` | principal components of the public points |
| `data/view=encoder` | `Encoder` | features of a frozen network, and components of those |
| `data/view=labels_only` | `LabelsOnly` | no public points: training records, stripped of their labels, are queried |

Everything that a view computes comes from public values alone and costs no privacy. Each record is seen by itself. A teacher with
a handful of records learns little from hundreds of pixels and much from the twenty directions in which public points vary most.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, finite_number, positive_integer, positive_number, true_or_false
from teacher_student.data.dataset import Features, PrivateDataset
from teacher_student.data.encodings import (
    NetworkEncoding,
    NumberColumns,
    ProjectedEncoding,
    RowEncoding,
    features_of,
    frozen,
    isolated,
)
from teacher_student.data.splits import PublicProjection, public_split

if TYPE_CHECKING:
    from torch import nn

PARTS = ("private", "public", "evaluation")
_SAME_RECORDS = {"mnist", "mnist5000"}
Loader = Callable[..., PrivateDataset]


@dataclass(frozen=True, kw_only=True)
class View:
    """Records as they are loaded. Images, whose values lie in [0, 1], may be scaled by public constants.

    Attributes:
        mean: subtracted from the values of images.
        std: divides them afterwards.
        flatten: make rows of numbers of images.
    """

    mean: float = 0.0
    std: float = 1.0
    flatten: bool = False

    def load(self, loader: Loader) -> PrivateDataset:
        """Call the loader and return what is seen of its data set."""
        return self.of(loader())

    def of(self, dataset: PrivateDataset) -> PrivateDataset:
        """Return the data set as it is seen.

        Raises:
            ArgumentError: settings that are not numbers, or that would scale columns with names.
        """
        mean, std = finite_number("mean", self.mean), positive_number("std", self.std)
        if not true_or_false("flatten", self.flatten) and (mean, std) == (0.0, 1.0):
            return dataset
        if dataset.feature_names is not None:
            raise ArgumentError(
                "mean, std and flatten must be left alone for columns with names, got others; they are for images"
            )

        def scaled(features: Features) -> Features:
            if (mean, std) != (0.0, 1.0):
                with np.errstate(over="ignore", invalid="ignore"):  # one private number must not show as a warning
                    features = (features - np.float32(mean)) / np.float32(std)
            return flat(features) if self.flatten else features

        return _seen(dataset, scaled)


@dataclass(frozen=True, kw_only=True)
class Projection(View):
    """Principal components of the public points, of features of any shape: see `project`.

    Attributes:
        components: how many; None for none.
        whiten: 1 for variance 1 on the public points for each component, 0 for their natural ratios, or between.
        scale: divide each column by sqrt(its variance on the public points + scale) first, or None.
        student_columns: only the teachers see the components; the student keeps the features as they were.
        up_to_rank: take fewer components where the public points span fewer, instead of refusing.
    """

    components: int | None = None
    whiten: float = 1.0
    scale: float | None = None
    student_columns: bool = False
    up_to_rank: bool = False

    def of(self, dataset: PrivateDataset) -> PrivateDataset:
        """Return the data set as it is seen."""
        return self._projected(super().of(dataset))

    def _projected(self, dataset: PrivateDataset) -> PrivateDataset:
        names = ("whiten", "scale", "student_columns", "up_to_rank")
        return project(dataset, self.components, **{name: getattr(self, name) for name in names})


@dataclass(frozen=True, kw_only=True)
class Encoder(Projection):
    """Features of a frozen network, and principal components of those: see `encode`.

    Attributes:
        encoder: the network, or what returns it when called; None for none.
        layer: name of the submodule whose output is taken; None for the network's own.
        student_columns: only the teachers see the network's features; the student keeps the records as they were loaded.
    """

    encoder: Any = None
    layer: str | None = None

    def of(self, dataset: PrivateDataset) -> PrivateDataset:
        """Return the data set as it is seen."""
        loaded = View.of(self, dataset)
        encoded = encode(loaded, self.encoder, layer=self.layer)
        options: dict[str, Any] = {"whiten": self.whiten, "scale": self.scale, "up_to_rank": self.up_to_rank}
        seen = project(encoded, self.components, **options)
        return dataclasses.replace(seen, **_for_student(loaded)) if self.student_columns else seen


@dataclass(frozen=True, kw_only=True)
class LabelsOnly:
    """No public points: some of the training records, stripped of their labels, are the queries.

    Features, their number and their order are then public, and the neighbours are `label_only`: one label changes.

    Attributes:
        number: of queries, fewer than there are records.
        seed: public; chooses them.
        view: how the records are seen.
    """

    number: int
    seed: int = 0
    view: View = dataclasses.field(default_factory=View)

    def __post_init__(self) -> None:
        """Refuse what is not a view of records."""
        if not isinstance(self.view, View):
            raise ArgumentError(f"view must be one of records, such as Projection(components=15), got {self.view!r}")

    def load(self, loader: Loader) -> PrivateDataset:
        """Call the loader and return the data set without its public points, as it is seen.

        A loader with a parameter `neighbours` may have data without public points; it is told that labels alone are private.
        """
        alone = "neighbours" in signature(loader).parameters
        dataset = loader(neighbours="label_only") if alone else self.view.of(loader())
        last = len(dataset.private_features) - 1
        rows, _ = public_split(last + 1, positive_integer("number", self.number, maximum=last), self.seed)
        dataset = dataset.label_private(rows)
        return self.view.of(dataset) if alone else dataset


def project(
    dataset: PrivateDataset,
    components: int | None,
    *,
    whiten: float = 1.0,
    scale: float | None = None,
    student_columns: bool = False,
    up_to_rank: bool = False,
) -> PrivateDataset:
    """Return the data set with principal components of the public points as features; the other arguments as in `Projection`.

    Raises:
        ArgumentError: more components than the public points span, `whiten` outside [0, 1], `scale` not above 0.
    """
    if components is None:
        return dataset
    options: dict[str, Any] = {"whiten": whiten, "scale": scale, "up_to_rank": up_to_rank}
    projection = PublicProjection.fit(flat(dataset.public_features), components, **options)
    raw = _raw_rows(dataset)
    encoding = ProjectedEncoding(raw, dataset.public_features.shape[1:], projection)
    student = _for_student(dataset) if student_columns else {}
    return _seen(dataset, lambda features: projection.apply(flat(features)), encoding, student)


def _for_student(dataset: PrivateDataset) -> dict[str, Any]:
    """Return the fields by which a student sees the records as `dataset` has them, whatever the teachers see."""
    own = ("feature_names", *(f"{part}_features" for part in PARTS))
    return {f"student_{name}": getattr(dataset, name) for name in own} | {"student_encoding": _raw_rows(dataset)}


def encode(
    dataset: PrivateDataset, encoder: nn.Module | Callable[[], nn.Module] | None, *, layer: str | None = None
) -> PrivateDataset:
    """Return the data set with a frozen network's output for each record as features, for teachers and student.

    The network was trained on public data only and costs no privacy. Private records pass through it one by one (see
    `NetworkEncoding`). `teacher_student.data.pretrained` trains a small one; any other torch module serves as well.

    Args:
        dataset: of features that the network takes, as (1, ...) float32; in most cases images.
        encoder: the network, or what returns it when called. It must never have seen a private record. None returns the data set
            as it is.
        layer: name of the submodule whose output is taken, such as "avgpool" of torchvision's ResNets; None for the network's
            own output.

    Raises:
        ArgumentError: a network of `pretrained` that was trained on the private data's source, one that does not take the public
            points, or one whose output for a record is not always the same.
    """
    if encoder is None:
        return dataset
    network = _checked(encoder, layer)
    source, private = getattr(network, "trained_on", ""), dataset.name
    if source and (source == private or {source, private} == _SAME_RECORDS):
        why = "" if source == private else "; mnist5000 is a part of mnist"
        raise ArgumentError(f"encoder must be trained on other records than the private ones, {private}, got {source}{why}")
    encoding = _fitting(network, dataset, layer)
    return _seen(dataset, encoding.project, encoding)


def _seen(
    dataset: PrivateDataset,
    see: Callable[[Features], Features],
    encoding: NetworkEncoding | ProjectedEncoding | None = None,
    student: dict[str, Any] | None = None,
) -> PrivateDataset:
    """Return the data set with `see` of all its features; the student sees the same unless it has fields of its own."""
    parts = {part: getattr(dataset, f"{part}_features") for part in PARTS}
    changed: dict[str, Any] = {f"{part}_features": None if rows is None else see(rows) for part, rows in parts.items()}
    changed |= {f"student_{name}": None for name in ("feature_names", *changed)}
    changed |= {"feature_names": encoding and encoding.feature_names, "student_encoding": encoding}
    return dataclasses.replace(dataset, **changed | (student or {}))


def _raw_rows(dataset: PrivateDataset) -> RowEncoding | None:
    """Return what makes the data set's own features of raw rows; None for images, which are features as they are."""
    names, encoding = dataset.feature_names, dataset.student_encoding
    if encoding is not None and encoding.feature_names == names:
        return encoding
    return None if names is None else NumberColumns(names)


def flat(features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return (n, ...) features as rows of numbers; n may be 0."""
    return features.reshape(len(features), math.prod(features.shape[1:]))


def _checked(encoder: Any, layer: str | None) -> nn.Module:
    from torch import nn

    network = encoder if isinstance(encoder, nn.Module) else encoder() if callable(encoder) else encoder
    if not isinstance(network, nn.Module):
        raise ArgumentError(f"encoder must be a torch module or return one when it is called, got {type(network).__name__}")
    if layer is not None and not (isinstance(layer, str) and layer in dict(network.named_modules())):
        names = ", ".join(name for name, _ in network.named_children())
        raise ArgumentError(f"layer must name a submodule of the encoder such as {names}, got {layer!r}")
    return frozen(network)


def _fitting(network: nn.Module, dataset: PrivateDataset, layer: str | None) -> NetworkEncoding:
    """Return the encoding; refuse, by public points alone, a network that fails, remembers or draws random numbers."""
    points = dataset.public_features
    with isolated():
        try:
            first = features_of(network, points[0], layer)
        except Exception as error:
            raise ArgumentError(f"encoder must take features of shape {(1, *points.shape[1:])}, but: {error}") from error
        again = [features_of(network, points[row], layer) for row in (-1, 0)][-1]
    if not np.array_equal(first, again):
        raise ArgumentError("encoder must say the same of a record each time, got a network that remembers or draws at random")
    return NetworkEncoding(network, points.shape[1:], len(first), layer)


_OF_VIEWS = ("encoder", "layer", "components", "whiten", "scale", "student_columns", "mean", "std", "flatten")
_OF_LABELS_ONLY = ("label_private", "label_private_seed", "split_seed")


def take_old_keywords(loader: Loader, keywords: dict[str, Any], view: View | LabelsOnly | None) -> View | LabelsOnly:
    """Take out of `keywords` what loaders took before there were views; return the view that it stands for beside `view`.

    Accepted in this version, with a `FutureWarning`. Keywords that the loader itself has are left alone.
    """
    view = View() if view is None else view
    if not isinstance(view, View | LabelsOnly):
        raise ArgumentError(f"view must be a view such as Projection(components=15), got {view!r}")
    own = signature(loader).parameters
    old = {name: keywords.pop(name) for name in (*_OF_VIEWS, *_OF_LABELS_ONLY) if name in keywords and name not in own}
    if not old:
        return view
    warnings.warn(
        f"{', '.join(old)}: now set in the view of the data, as in data/view=projection data.view.components=15 or "
        "data/view=labels_only data.view.number=100; accepted here in this version only",
        FutureWarning,
        stacklevel=3,
    )
    inner = view.view if isinstance(view, LabelsOnly) else view
    if settings := {name: old[name] for name in old if name in _OF_VIEWS}:
        inner = Encoder(**{**{field.name: getattr(inner, field.name) for field in dataclasses.fields(inner)}, **settings})
    if (number := old.get("label_private")) is not None:
        return LabelsOnly(number=number, seed=old.get("label_private_seed", old.get("split_seed", 0)), view=inner)
    return dataclasses.replace(view, view=inner) if isinstance(view, LabelsOnly) else inner
