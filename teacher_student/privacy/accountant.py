"""Composition of several releases from the same data, where the list of releases was fixed beforehand.

Each mechanism owns its cost; this module adds costs. It tries every route that all parts allow and returns the smallest bound,
since each of them is valid.

| route | needs of every part | how |
|---|---|---|
| single | one release only | its own bound |
| gaussian | `mu` | sqrt of the sum of mu^2, exact |
| pure | `pure_parts` of one loss | optimal composition, exact for randomised response |
| distribution | `mu` or `pure_parts` | privacy loss distributions (dp-accounting), rounded against the guarantee |
| renyi | `rdp` | sum at each order, converted by dp-accounting |
| basic | nothing | sum of epsilons, delta shared evenly |

The probabilities of failure events (`release_delta`) are added. Proof: replace each session by one that, on queries whose winner
differs between neighbours, releases the neighbour's label. This changes the outcome with at most the sum of those probabilities,
whatever the order of the sessions, and the bounds above hold for the rest.

**The list of parameters is fixed before the first release.** Queries may depend on whatever was released, and sessions may be
interleaved: each part's bound holds for adaptively asked queries, and adaptive and concurrent composition cost no more under each
of these routes (Dong, Roth, Su 2019; Kairouz, Oh, Viswanath 2015; Lyu 2022; Vadhan, Zhang 2023). But which parameters come next,
or whether any do, must not depend on released answers. Keeping this bound over all of them within a budget is not enough: take
one session of `lnmax` (20 answers, scale 50), and choose the next one by its outcome among six that each keep the bound at
epsilon 2 below 9.7e-6; then the true delta is 2.4e-5. Use `filters` for releases that are chosen one after the other.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import special

from teacher_student.arguments import ArgumentError, Floats, positive_integer, positive_number, probability
from teacher_student.privacy.gaussian import gaussian_delta, gaussian_epsilon, mu_from_squares
from teacher_student.privacy.parameters import MechanismSpec
from teacher_student.privacy.pure import LARGEST_COUNT, pure_delta, pure_epsilon
from teacher_student.privacy.rdp import ORDERS

INTERVAL = 1e-4
"""Width of the bins of a privacy loss distribution; losses are rounded up to the next."""

_NEGLIGIBLE = 1e-20
"""Mass at the upper end of a loss distribution that is counted as certain failure."""

_LAST_DIGITS = 4e-15
"""Relative error of a log factorial, of the products it enters, and of their difference."""


class Route(NamedTuple):
    """One valid bound on the cost apart from failure events."""

    name: str
    epsilon: Callable[[float], float]
    delta: Callable[[float], float]


@dataclasses.dataclass(frozen=True)
class Composition:
    """Releases over the same data, listed before the first of them (see the module).

    Attributes:
        parts: parameters and the number of sessions that run with them.

    >>> from teacher_student.privacy import calibrate
    >>> first = calibrate("gnmax", epsilon=0.5, delta=1e-6, num_queries=100)
    >>> second = calibrate("stability", epsilon=0.5, delta=1e-6, cutoff=20)
    >>> both = Composition().add(first).add(second, 2)
    >>> 0.5 < both.epsilon(1e-5) < 1.5
    True
    """

    parts: tuple[tuple[MechanismSpec, int], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.parts, tuple) or not all(isinstance(part, tuple) and len(part) == 2 for part in self.parts):
            raise ArgumentError(f"parts must be pairs of parameters and a count, got {self.parts!r}")
        for parameters, count in self.parts:
            if not isinstance(parameters, MechanismSpec):
                raise ArgumentError(f"parameters must be those of a mechanism whose cost is known, got {parameters!r}")
            positive_integer("count", count, minimum=0, maximum=LARGEST_COUNT)
        answers = sum(count * parameters.pure_parts[1] for parameters, count in self.parts if parameters.pure_parts)
        if answers > LARGEST_COUNT:
            raise ArgumentError(f"count must leave at most {LARGEST_COUNT} pure answers to be composed, got {answers}")

    def add(self, parameters: MechanismSpec, count: int = 1) -> Self:
        """Return the composition with `count` more sessions of `parameters`.

        Raises:
            ArgumentError: not the parameters of a mechanism, or a count that is not an integer >= 0.
        """
        return dataclasses.replace(self, parts=(*self.parts, (parameters, count)))

    @property
    def release_delta(self) -> float:
        """Sum of the probabilities of failure events."""
        return math.fsum(count * parameters.release_delta for parameters, count in self.parts)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon certified at `delta`; infinite if the failure events need more than that."""
        left = probability("delta", delta) - self.release_delta
        if not self._counted:
            return 0.0
        return min(_number(route.epsilon(left), math.inf) for route in self.routes) if left > 0 else math.inf

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta certified at `epsilon`."""
        if epsilon != 0:
            positive_number("epsilon", epsilon)
        if not self._counted:
            return 0.0
        return min(1.0, self.release_delta + min(_number(route.delta(epsilon), 1.0) for route in self.routes))

    def to_list(self) -> list[dict[str, Any]]:
        """Return the parameters and the count of each part, for a certificate."""
        return [{"count": count, "parameters": parameters.to_dict()} for parameters, count in self._counted]

    @functools.cached_property
    def routes(self) -> tuple[Route, ...]:
        """Every route that all parts allow."""
        return tuple(_routes(self._counted))

    @property
    def _counted(self) -> tuple[tuple[MechanismSpec, int], ...]:
        return tuple((parameters, count) for parameters, count in self.parts if count > 0)


def _number(bound: float, otherwise: float) -> float:
    """Return `bound`, or `otherwise` for NaN."""
    return otherwise if math.isnan(bound) else bound


Parts = tuple[tuple[MechanismSpec, int], ...]


def _routes(parts: Parts) -> Iterator[Route]:
    if len(parts) == 1 and parts[0][1] == 1:
        yield _single(parts[0][0])
    if all(parameters.mu is not None for parameters, _ in parts):
        mu = mu_from_squares(*(count * (parameters.mu or 0.0) ** 2 for parameters, count in parts))
        yield Route("gaussian", functools.partial(gaussian_epsilon, mu), functools.partial(gaussian_delta, mu))
    elif all(parameters.mu is not None or parameters.pure_parts is not None for parameters, _ in parts):
        yield _pure_or_distribution(parts)
    renyi = [(count, parameters.rdp(ORDERS)) for parameters, count in parts]
    if all(bound is not None for _, bound in renyi):
        yield _renyi_route(np.sum([count * bound for count, bound in renyi if bound is not None], axis=0))
    yield _basic(parts)


def _single(parameters: MechanismSpec) -> Route:
    released = parameters.release_delta
    return Route(
        "single",
        lambda delta: parameters.epsilon(delta + released),
        lambda epsilon: max(0.0, _number(parameters.delta(epsilon), 1.0) - released),
    )


def _pure_or_distribution(parts: Parts) -> Route:
    squares = [count * parameters.mu**2 for parameters, count in parts if parameters.mu is not None]
    pure: dict[float, int] = {}
    for parameters, count in parts:
        if parameters.mu is None and parameters.pure_parts is not None:
            loss, times = parameters.pure_parts
            pure[loss] = pure.get(loss, 0) + count * times
    if len(pure) == 1 and not squares:
        loss, times = next(iter(pure.items()))
        return Route("pure", functools.partial(pure_epsilon, loss, times), functools.partial(pure_delta, loss, times))
    distribution = _distribution(mu_from_squares(*squares), pure)
    return Route(
        "distribution",
        lambda delta: float(distribution.get_epsilon_for_delta(delta)),
        lambda epsilon: float(distribution.get_delta_for_epsilon(epsilon)),
    )


def _distribution(mu: float, pure: dict[float, int]) -> Any:
    """Return dp-accounting's privacy loss distribution of a mu-GDP part and of `pure` answers (loss to number)."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    found = pld.identity(value_discretization_interval=INTERVAL)
    if mu > 0:
        found = found.compose(pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=INTERVAL))
    for loss, times in pure.items():
        rounded, infinite = _loss_masses(loss, times)
        found = found.compose(pld.PrivacyLossDistribution.create_from_rounded_probability(rounded, infinite, INTERVAL))
    return found


def _loss_masses(loss: float, times: int) -> tuple[dict[int, float], float]:
    """Return the masses of `times` randomised responses on the grid of `INTERVAL`, rounded up, and the mass left to failure.

    Their logarithms are sums of terms as large as ln(times!), which lose their last digits; the masses are raised by as much.
    """
    wrong = np.arange(times + 1)
    log_choose = special.gammaln(times + 1) - special.gammaln(wrong + 1) - special.gammaln(times - wrong + 1)
    slack = 1e-9 + _LAST_DIGITS * float(special.gammaln(times + 2))
    mass = np.exp(log_choose - wrong * np.logaddexp(0, loss) - (times - wrong) * np.logaddexp(0, -loss)) * (1 + slack)
    kept = mass > _NEGLIGIBLE / (times + 1)
    bins = np.ceil((times - 2 * wrong) * loss / INTERVAL).astype(np.int64)
    rounded: dict[int, float] = {}
    for place, weight in zip(bins[kept].tolist(), mass[kept].tolist(), strict=True):
        rounded[place] = rounded.get(place, 0.0) + weight
    return rounded, _NEGLIGIBLE


def _renyi_route(rdp: Floats) -> Route:
    from dp_accounting import rdp as accounting
    from dp_accounting.rdp.rdp_privacy_accountant import compute_delta

    orders, bounds = ORDERS.tolist(), np.where(np.isnan(rdp), math.inf, rdp).tolist()  # dp-accounting takes NaN for a cost of 0
    return Route(
        "renyi",
        lambda delta: float(accounting.compute_epsilon(orders, bounds, delta)[0]),
        lambda epsilon: float(compute_delta(orders, bounds, epsilon)[0]),
    )


def _basic(parts: Parts) -> Route:
    releases = sum(count for _, count in parts)

    def epsilon(delta: float) -> float:
        share = delta / releases
        return math.fsum(count * parameters.epsilon(parameters.release_delta + share) for parameters, count in parts)

    return Route("basic", epsilon, functools.partial(_invert, epsilon))


def _invert(epsilon: Callable[[float], float], wanted: float) -> float:
    """Return the smallest delta, to a relative 1e-6, at which the decreasing `epsilon` is at most `wanted`, or else 1."""
    low, high = math.log(1e-300), 0.0
    if epsilon(math.exp(low)) <= wanted:
        return math.exp(low)
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon(math.exp(middle)) <= wanted else (middle, high)
    return math.exp(high)
