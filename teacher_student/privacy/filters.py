"""Filters: budgets for releases that are chosen one after the other, with parameters that may depend on earlier answers.

A release fits if a sum stays within a number that was fixed beforehand. Taking the smallest of several bounds over the releases
so far (`Composition`) is not a filter, because which bound is smallest would depend on what was released. So an account has one
filter, chosen when it is opened.

| filter | what is summed | needs of every part |
|---|---|---|
| basic | the claimed epsilons; the claimed deltas | nothing |
| renyi | Renyi divergences at one order; probabilities of failure events | `rdp` |
| gaussian | mu^2; probabilities of failure events | `mu` |

Basic: Rogers, Roth, Ullman, Vadhan 2016. Renyi at an order fixed beforehand: Feldman, Zrnic 2021. Gaussian: Smith, Thakurta 2022
(the argument is in `gaussian`). All of them also hold for interleaved sessions (Haney, Shoemate, Tian, Vadhan, Vyrros, Xu, Zhang
2023). The last two reserve the share `RELEASE_SHARE` of delta for failure events: let every session release the neighbour's label
on queries whose winner differs between neighbours. This changes the outcome with at most the sum of those probabilities, which
never exceeds that share, and the filter holds for the rest.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from teacher_student.arguments import ArgumentError, choice, positive_number, probability
from teacher_student.privacy.gaussian import gaussian_mu
from teacher_student.privacy.parameters import MechanismSpec
from teacher_student.privacy.rdp import ORDERS

RELEASE_SHARE = 0.1
"""Share of delta for failure events under `renyi` and `gaussian`. Calibrations spend at most this share of theirs on them."""

_LAST_DIGITS = 1e-12
"""Relative tolerance: budgets and claims are decimal numbers, and in doubles three times 0.4 is slightly more than 1.2."""


class Claim(NamedTuple):
    """One session as it is charged. Its parameters must cost at most `epsilon` at `delta` (`MechanismSpec.epsilon`)."""

    parameters: MechanismSpec
    epsilon: float
    delta: float


@dataclasses.dataclass(frozen=True)
class Filter(ABC):
    """A budget that is fixed beforehand.

    Attributes:
        epsilon: limit on all admitted sessions together.
        delta: limit on all admitted sessions together.
    """

    name: ClassVar[str]

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive_number("epsilon", self.epsilon))
        object.__setattr__(self, "delta", probability("delta", self.delta))

    def admits(self, claims: Sequence[Claim]) -> bool:
        """Return whether the budget covers all of `claims`: those admitted before and the next one."""
        return self.spent(claims) <= 1 + _LAST_DIGITS  # NaN is refused

    def spent(self, claims: Sequence[Claim]) -> float:
        """Return the share of the budget that is spent, from 0 to 1; of several resources, the largest share."""
        shares = [_sum(amounts) / budget for amounts, budget in self._resources(claims)]
        return math.inf if any(math.isnan(share) for share in shares) else max(shares)

    @abstractmethod
    def _resources(self, claims: Sequence[Claim]) -> Sequence[tuple[Iterable[float], float]]:
        """Return, for each quantity that is summed, the amounts of the claims and the limit."""

    def _releases(self, claims: Sequence[Claim]) -> tuple[Iterable[float], float]:
        return [claim.parameters.release_delta for claim in claims], RELEASE_SHARE * self.delta


class BasicFilter(Filter):
    """Epsilons and deltas are added."""

    name: ClassVar[str] = "basic"

    def _resources(self, claims: Sequence[Claim]) -> Sequence[tuple[Iterable[float], float]]:
        return ([claim.epsilon for claim in claims], self.epsilon), ([claim.delta for claim in claims], self.delta)


class RenyiFilter(Filter):
    """Renyi divergences at one order are added. Better than `basic` for more than a handful of sessions.

    >>> round(RenyiFilter(1.0, 1e-5).order, 1)
    18.0
    """

    name: ClassVar[str] = "renyi"

    @property
    def order(self) -> float:
        """The order at which the budget pays for the most Gaussian answers. It depends on the budget alone."""
        return float(ORDERS[int(np.argmax(self._budgets() / ORDERS))])

    def _resources(self, claims: Sequence[Claim]) -> Sequence[tuple[Iterable[float], float]]:
        order = np.array([self.order])
        budget = float(self._budgets().max(where=order == ORDERS, initial=-math.inf))
        if budget <= 0:
            raise ArgumentError(f"epsilon must be larger for the renyi filter at delta {self.delta:g}, got {self.epsilon:g}")
        bounds = [claim.parameters.rdp(order) for claim in claims]
        return ([math.inf if bound is None else float(bound[0]) for bound in bounds], budget), self._releases(claims)

    def _budgets(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return at each order the divergence that (epsilon, 0.9 delta) allows (Canonne, Kamath, Steinke 2020, prop. 12)."""
        delta = (1 - RELEASE_SHARE) * self.delta
        return np.asarray(self.epsilon - np.log1p(-1 / ORDERS) + np.log(delta * ORDERS) / (ORDERS - 1))


class GaussianFilter(Filter):
    """Squares of mu are added. Exact, for Gaussian mechanisms only."""

    name: ClassVar[str] = "gaussian"

    def _resources(self, claims: Sequence[Claim]) -> Sequence[tuple[Iterable[float], float]]:
        squares = [math.inf if claim.parameters.mu is None else claim.parameters.mu**2 for claim in claims]
        return (squares, gaussian_mu(self.epsilon, (1 - RELEASE_SHARE) * self.delta) ** 2), self._releases(claims)


FILTERS: dict[str, type[Filter]] = {kind.name: kind for kind in (BasicFilter, RenyiFilter, GaussianFilter)}


def make_filter(name: str, epsilon: float, delta: float) -> Filter:
    """Return the filter of this name with this budget.

    Raises:
        ArgumentError: no such filter, or a budget out of range.
    """
    return FILTERS[choice("filter", name, FILTERS)](epsilon, delta)


def _sum(amounts: Iterable[float]) -> float:
    given = list(amounts)
    return math.fsum(given) if all(map(math.isfinite, given)) else math.inf
