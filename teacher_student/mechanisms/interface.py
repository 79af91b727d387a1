"""The interface of all mechanisms, and how a spec becomes the mechanism that it describes.

A mechanism is a pure function of (counts, state, noise). All that it remembers is in a frozen `State`, which a session stores
before it hands out an answer. Its `parameters` own the cost (`teacher_student.privacy`); the mechanism reads its scales from the
same object, so sampler and cost cannot disagree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy.typing as npt

from teacher_student.arguments import ArgumentError, Integers, positive_integer
from teacher_student.mechanisms.noise import Noise
from teacher_student.privacy.parameters import MechanismSpec
from teacher_student.privacy.registry import attach, box_of

Counts = npt.NDArray[Any]
"""Votes per class of some queries, shape (num_queries, num_classes), of any integer type."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """All that a mechanism remembers between two batches. Secret: it never leaves the session.

    Attributes:
        noisy_threshold: the threshold w + rho in use; None where the mechanism has none.
        paid: units spent so far: abstentions for the stability mechanisms, answers for the others.
        answered: queries that got an answer.
        asked: queries that reached the mechanism; those told `HALTED` do not count.
    """

    noisy_threshold: int | None = dataclasses.field(default=None, repr=False)
    paid: int = 0
    answered: int = 0
    asked: int = 0

    def __post_init__(self) -> None:
        if self.noisy_threshold is not None and not isinstance(self.noisy_threshold, int):
            raise ArgumentError(f"noisy_threshold must be an integer, got {self.noisy_threshold!r}")
        for name in ("paid", "answered", "asked"):
            positive_integer(name, getattr(self, name), minimum=0)

    @property
    def threshold(self) -> int:
        """The noisy threshold.

        Raises:
            ArgumentError: none was drawn.
        """
        if self.noisy_threshold is None:
            raise ArgumentError("state must hold a noisy threshold; make it with start()")
        return self.noisy_threshold

    def to_dict(self) -> dict[str, int | None]:
        """Return the fields as JSON numbers."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> Self:
        """Return the state that `to_dict` wrote.

        >>> State.from_dict(State(paid=2, asked=5, answered=3).to_dict()).paid
        2
        """
        if not isinstance(mapping, Mapping) or set(mapping) != {field.name for field in dataclasses.fields(cls)}:
            raise ArgumentError(f"state must hold noisy_threshold, paid, answered and asked, got {mapping!r}")
        return cls(**mapping)


@runtime_checkable
class Mechanism(Protocol):
    """Answers queries, given as vote counts, one after the other."""

    @property
    def parameters(self) -> MechanismSpec:
        """The public numbers in use, which own the cost."""

    def start(self, noise: Noise) -> State:
        """Return the state before the first query; draw the noisy threshold if the mechanism has one."""

    def answer(self, counts: Counts, state: State, noise: Noise) -> tuple[Integers, State]:
        """Answer the queries in order, with fresh noise.

        Args:
            counts: votes per class, shape (num_queries, num_classes), any integer type.
            state: from `start` or the previous call; not changed.
            noise: source of the noise.

        Returns:
            labels, shape (num_queries,), int64: a class, `ABSTAIN` or `HALTED`; and the state after the last query.
        """

    def halted(self, state: State) -> bool:
        """Whether the next query would be told `HALTED`."""


Drawn = TypeVar("Drawn", bound=Callable[..., Any])


def samples(*kinds: type[MechanismSpec]) -> Callable[[Drawn], Drawn]:
    """Attach a sampler to the specs whose answers it draws; a decorator.

    The sampler is a class of `Mechanism`, called with the spec. For a `NoisyMaxParameters` it is a function of (counts, spec,
    noise) from votes (m, C) to a class or `ABSTAIN` for each row; `noisy_max.NoisyMax` then enforces the caps.
    """

    def decorate(sampler: Drawn) -> Drawn:
        for kind in kinds:
            attach(kind, sampler)
        return sampler

    return decorate


def build_mechanism(parameters: MechanismSpec) -> Mechanism:
    """Return the mechanism that `parameters` describe.

    >>> from teacher_student.privacy import calibrate
    >>> type(build_mechanism(calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=50))).__name__
    'OnlineRelease'

    Raises:
        ArgumentError: parameters without a sampler.
    """
    if not isinstance(parameters, MechanismSpec):
        raise ArgumentError(f"parameters must be those of a mechanism that answers vote counts, got {parameters!r}")
    mechanism: Mechanism = box_of(parameters)(parameters)
    return mechanism
