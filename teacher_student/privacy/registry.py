"""The registry of mechanisms: each spec is registered once, gets a sampler, and is looked up by its name.

    @register                              @samples(GNMax)                       (`mechanisms.interface`)
    @dataclasses.dataclass(...)            def gnmax(counts, spec, noise): ...
    class GNMax(...): ...

A spec that lacks a piece is refused when it is registered, and one without a sampler when its name is first looked up, before
anything is trained or paid for. Nothing is assumed in place of a missing piece.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from teacher_student.arguments import ArgumentError, choice
from teacher_student.privacy.parameters import LabelSpec, MechanismSpec

SAMPLERS_IN = "teacher_student.mechanisms"
"""Package whose modules are imported when a mechanism is first looked up, so that a new file there is found. A name and not an
import, because `privacy` imports no other package."""

Kind = TypeVar("Kind", bound=type[MechanismSpec])
Sampler = Callable[..., Any]

ORDER = (
    "stability",
    "stability_paper",
    "stability_redraw",
    "stability_laplace",
    "gnmax",
    "confident_gnmax",
    "lnmax",
    "exponential",
)
"""Mechanisms that come first in tables; the others follow in alphabetical order."""

_SPECS: dict[str, type[MechanismSpec]] = {}
_SAMPLERS: dict[type[MechanismSpec], Sampler] = {}
_BOXES: dict[type[MechanismSpec], Sampler] = {}
_loaded = False


def register(kind: Kind) -> Kind:
    """Register a mechanism under its name; a class decorator.

    Raises:
        ArgumentError: a piece is missing, which the message names, or the name is taken.
    """
    if not isinstance(kind, type) or not issubclass(kind, MechanismSpec):
        raise ArgumentError(f"mechanism must be a subclass of MechanismSpec, got {kind!r}")
    name = getattr(kind, "mechanism", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentError(f"mechanism must be a name such as gnmax, a class attribute of {kind.__name__}, got {name!r}")
    if "__dataclass_params__" not in vars(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ArgumentError(f"mechanism {name} must be a frozen dataclass, got {kind.__name__}")
    for base in kind.__mro__[1:]:
        if base in _SPECS.values():
            raise ArgumentError(
                f"mechanism {name} must not inherit from {base.__name__}, a mechanism itself, which would silently supply "
                "the pieces that it lacks"
            )
    lacks = [piece for piece, values in kind.DECLARED.items() if not _declares(kind, piece, values)] or _unwritten(kind)
    if lacks:
        raise ArgumentError(f"mechanism {name} must have {lacks[0]} (see `{_family(kind)}`), got {kind.__name__} without it")
    taken = _SPECS.get(name)
    if taken is not None and (taken.__module__, taken.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ArgumentError(f"mechanism must be a new name, got {name}, which is {taken.__module__}.{taken.__qualname__}")
    _SPECS[name] = kind
    return kind


def _declares(kind: type[MechanismSpec], piece: str, values: tuple[object, ...]) -> bool:
    value = getattr(kind, piece, inspect.Parameter.empty)
    return value is not inspect.Parameter.empty and (not values or value in values)


def _unwritten(kind: type[MechanismSpec]) -> list[str]:
    missing = sorted(kind.__abstractmethods__)
    if issubclass(kind, LabelSpec) and not missing and not kind.says_who_wins():
        return ["win_probability, since vote_noise is None"]
    if kind.soft_labels and not hasattr(kind, "calibrate_soft"):
        return ["calibrate_soft, since soft_labels is true"]
    return missing


def _family(kind: type[MechanismSpec]) -> str:
    return next(base.__name__ for base in kind.__mro__[1:] if issubclass(base, MechanismSpec))


def attach(kind: type[MechanismSpec], sampler: Sampler) -> None:
    """Set how answers of `kind` are drawn: by a class that implements `Mechanism`, or by a function (`interface.samples`)."""
    _SAMPLERS[kind] = sampler


def sampler_of(spec: MechanismSpec) -> Sampler:
    """Return the sampler of `spec`; for a class that is not registered, the sampler of its nearest base.

    Raises:
        ArgumentError: there is none.
    """
    load()
    kind = type(spec)
    candidates = [kind] if _SPECS.get(spec.mechanism) is kind else list(kind.__mro__)
    for base in candidates:
        if base in _SAMPLERS:
            return _SAMPLERS[base]
    raise ArgumentError(f"parameters must be those of a mechanism that answers vote counts, got {spec!r}")


def attach_box(family: type[MechanismSpec], box: Sampler) -> None:
    """Set the `Mechanism` class that enforces the caps of a family of specs whose samplers are functions."""
    _BOXES[family] = box


def box_of(spec: MechanismSpec) -> Sampler:
    """Return the `Mechanism` class of `spec`: its sampler, if that is a class, else the box of its family.

    Raises:
        ArgumentError: there is none.
    """
    sampler = sampler_of(spec)
    if isinstance(sampler, type):
        return sampler
    for base in type(spec).__mro__:
        if base in _BOXES:
            return _BOXES[base]
    raise ArgumentError(f"mechanism {spec.mechanism} must have a class as its sampler, not a function: see `Mechanism`")


def load() -> None:
    """Import every module that may contain a mechanism, once."""
    global _loaded
    if not _loaded:
        _loaded = True
        for module in pkgutil.iter_modules(importlib.import_module(SAMPLERS_IN).__path__, f"{SAMPLERS_IN}."):
            importlib.import_module(module.name)


class Registry(Mapping[str, type[Any]]):
    """The mechanisms that release certain kinds of answers, by name, in the order of tables.

    Args:
        releases: kinds of answers, from `parameters.RELEASES`.
        soft_labels: whether to keep only those that answer soft labels.
    """

    def __init__(self, *releases: str, soft_labels: bool = False) -> None:
        self._releases, self._soft = releases, soft_labels

    def __iter__(self) -> Iterator[str]:
        load()
        kept = [name for name, kind in _SPECS.items() if kind.releases in self._releases and kind.soft_labels >= self._soft]
        return iter(sorted(kept, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return any(name == known for known in self)

    def __getitem__(self, name: str) -> type[Any]:
        """Return the mechanism of this name.

        Raises:
            ArgumentError: it has no sampler.
            KeyError: there is no such mechanism.
        """
        if name not in self:
            raise KeyError(name)
        kind = _SPECS[name]
        if kind.releases != "selection" and kind not in _SAMPLERS:
            raise ArgumentError(
                f"mechanism {name} must have a sampler: decorate what draws its answers with @samples({kind.__name__}) "
                f"in {SAMPLERS_IN}"
            )
        return kind


LABELS = Registry("labels")
"""Mechanisms that release a class for each query."""

SOFT_LABELS = Registry("labels", soft_labels=True)
"""Those of them that also release soft labels."""

ANSWERING = Registry("labels", "counts", "scores")
"""Mechanisms of one session."""

ALL = Registry("labels", "counts", "scores", "selection")


def from_mapping(mapping: Mapping[str, Any]) -> MechanismSpec:
    """Return the spec that `MechanismSpec.to_dict` wrote."""
    load()
    return _SPECS[choice("mechanism", mapping.get("mechanism"), _SPECS)].from_dict(mapping)
