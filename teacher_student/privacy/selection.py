"""The cost of releasing the best of several private runs by a score, which pays for the runs that are not released.

A run is one whole session and whatever is computed from its release and public data: a student and its score. Running a random
number of times and releasing only the best run costs little more than one run (Liu, Talwar 2019), provided that nobody learns how
many runs there were or what the others released. Each run draws its candidate afresh and uniformly; the number of candidates does
not matter.

**Theorem** (Papernot, Steinke 2022, arXiv:2110.03620v2, theorem 2, at eta = 1). Let one run be (a, R(a))-RDP for all orders a > 1
and draw the number of runs from the geometric distribution, P(n) = g (1 - g)^(n - 1), n >= 1. The best run is (a, R'(a))-RDP with

    R'(a) = R(a) + 2 min over c of [ (1 - 1/c) R(c) + ln(1/g) / c ] + ln(1/g) / (a - 1).

The mean number of runs is 1/g, a whole number here, so that it can be drawn exactly from integers.

**Failure events.** A session of a stability mechanism differs with probability at most `release_delta` from a session M~ for
which the Renyi bound holds against its neighbour, in either direction: both refuse by the same tests, shifted by one record, and
release the same labels. Replace every run by M~. The best run then changes with probability at most `release_delta` / g, the
expected number of runs that change, and the theorem holds for the rest.

**Ties** go to the earlier run. That has the same law as breaking them by a random number that is independent of the data, so the
theorem holds for the run together with that number.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from teacher_student.arguments import ArgumentError, Floats, positive_integer, positive_number, probability
from teacher_student.privacy.calibration import calibrate, parameters_from_dict
from teacher_student.privacy.parameters import Draw, Limit, MechanismSpec
from teacher_student.privacy.rdp import ORDERS, to_delta, to_epsilon
from teacher_student.privacy.registry import register

MOST_REPETITIONS = 10_000
"""Largest mean number of runs."""

_STEPS = 10
"""Bisection steps for the epsilon of one run: up to a thousandth of the budget may stay unspent."""


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateSelection(MechanismSpec):
    """A geometric number of sessions, of which the best is released.

    Attributes:
        session: parameters of each session.
        repetitions: mean number of sessions, at least 2.

    >>> chosen = calibrate_selection("gnmax", epsilon=1.0, delta=1e-5, repetitions=5, num_queries=100)
    >>> 0.3 < chosen.session.epsilon(1e-5) < 0.6 and 0.99 < chosen.epsilon(1e-5) <= 1
    True
    """

    mechanism: ClassVar[str] = "private_selection"
    releases: ClassVar[str] = "selection"
    pays_for: ClassVar[str] = "sessions"
    soft_labels: ClassVar[bool] = False

    session: MechanismSpec
    repetitions: int

    def __post_init__(self) -> None:
        positive_integer("repetitions", self.repetitions, minimum=2, maximum=MOST_REPETITIONS)
        if not isinstance(self.session, MechanismSpec) or isinstance(self.session, PrivateSelection):
            raise ArgumentError(f"session must be the parameters of one mechanism, got {self.session!r}")
        if self.session.rdp(ORDERS[:1]) is None:
            raise ArgumentError(f"session must have a Renyi bound, got {self.session.mechanism}")

    @property
    def relations(self) -> tuple[str, ...]:
        """Those of its sessions."""
        return self.session.relations

    @property
    def one_session(self) -> MechanismSpec:
        """The parameters of the session whose labels are released."""
        return self.session

    @property
    def limit(self) -> Limit:
        """The cap of the session whose labels are released."""
        return self.session.limit

    @property
    def draws(self) -> tuple[Draw, ...]:
        """The noise of each session."""
        return self.session.draws

    def mutants(self) -> dict[str, Self]:
        """Return the mutants of its sessions."""
        return {name: dataclasses.replace(self, session=wrong) for name, wrong in self.session.mutants().items()}

    @classmethod
    def audit_options(cls, cutoff: int, num_queries: int | None, **options: Any) -> dict[str, Any]:
        """Refuse: audit the mechanism of its sessions instead."""
        del cutoff, num_queries, options
        raise ArgumentError("mechanism must be that of the sessions, got private_selection")

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, cutoff: int | None, num_queries: int | None, **options: Any) -> Self:
        """Refuse: `calibrate_selection` also needs the mechanism of the sessions."""
        del epsilon, delta, cutoff, num_queries, options
        raise ArgumentError("mechanism must be that of the sessions, got private_selection; use calibrate_selection")

    @property
    def release_delta(self) -> float:
        """The failure probability of one session times the expected number of sessions."""
        return self.repetitions * self.session.release_delta

    def rdp(self, orders: Sequence[float] | Floats) -> Floats:
        """Return the Renyi divergence bound of the theorem at each order."""
        order, log_mean = np.asarray(orders, dtype=np.float64), math.log(self.repetitions)
        run, helping = self.session.rdp(order), self.session.rdp(ORDERS)
        assert run is not None  # checked by __post_init__
        assert helping is not None
        added = float(np.min((1 - 1 / ORDERS) * helping + log_mean / ORDERS))
        return np.asarray(run + 2 * added + log_mean / (order - 1))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon certified at `delta`."""
        left = probability("delta", delta) - self.release_delta
        return to_epsilon(self.rdp, left) if left > 0 else math.inf

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta certified at `epsilon`."""
        return min(1.0, self.release_delta + to_delta(self.rdp, positive_number("epsilon", epsilon)))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON, including those of the session."""
        return {**super().to_dict(), "session": self.session.to_dict()}

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> Self:
        """Return the parameters that `to_dict` wrote."""
        session = mapping.get("session")
        if isinstance(session, Mapping) and session.get("mechanism") == cls.mechanism:
            raise ArgumentError("session must be the parameters of one mechanism, got another selection")
        return super().from_dict({**mapping, "session": parameters_from_dict(session)})


def calibrate_selection(
    mechanism: str, *, epsilon: float, delta: float, repetitions: int, cutoff: int | None = None, **options: Any
) -> PrivateSelection:
    """Return the selection among sessions of `mechanism` whose total cost is at most `epsilon` at `delta`.

    Args:
        mechanism: of each session.
        epsilon: above 0.
        delta: strictly between 0 and 1.
        repetitions: mean number of sessions.
        cutoff: of each session (stability mechanisms).
        options: of that mechanism's calibration, such as `num_queries`.

    Raises:
        ArgumentError: an argument out of range, or a budget that is too small.
    """
    epsilon, delta = positive_number("epsilon", epsilon), probability("delta", delta)
    runs = positive_integer("repetitions", repetitions, minimum=2, maximum=MOST_REPETITIONS)

    def at(share: float) -> PrivateSelection:
        session = calibrate(mechanism, epsilon=share * epsilon, delta=delta / runs, cutoff=cutoff, **options)
        return PrivateSelection(session=session, repetitions=runs)

    low, high, found = 0.0, 1.0, None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        tried = at(middle)
        if tried.epsilon(delta) <= epsilon and tried.delta(epsilon) <= delta:
            low, found = middle, tried
        else:
            high = middle
    if found is None:
        raise ArgumentError(f"epsilon must be larger for {runs} repetitions of {mechanism}, got {epsilon:g}")
    return found
