"""Several releases from the same data: what they cost together.

Each mechanism owns its cost, and this only adds. What can be added decides the route; every route that all parts allow is taken,
and the least bound counts, since each of them is one.

| route | needs of every part | how |
|---|---|---|
| single | one release only | its own bound |
| gaussian | `mu` | sqrt of the sum of mu^2, exact |
| pure | `pure_parts` of one loss | optimal composition, exact for randomised response |
| distribution | `mu` or `pure_parts` | privacy loss distributions (dp-accounting), rounded against the guarantee |
| renyi | `rdp`, or `mu` or `pure_parts` instead | sum at each order, converted by dp-accounting |
| basic | nothing | sum of epsilons, delta shared evenly |

The delta of a part's release (`release_delta`) is added as it stands: put in the place of each session one that, on queries whose
winner differs between neighbours, releases the neighbour's label. That changes the outcome with at most the sum of those
probabilities, whatever the order of the sessions, and the bounds above hold for what is left.

Later releases may be chosen, and sessions interleaved, in any way that depends on what was released: each part's bound holds for
adaptively asked queries, and adaptive and concurrent composition cost no more under each of these routes (Dong, Roth, Su 2019;
Kairouz, Oh, Viswanath 2015; Lyu 2022; Vadhan, Zhang 2023). The list of parameters itself is fixed beforehand, or any later one is
chosen so that this bound over all of them stays within what was promised.
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
from teacher_student.privacy.gaussian import compose_mu, gaussian_delta, gaussian_epsilon
from teacher_student.privacy.kappa import ORDERS
from teacher_student.privacy.parameters import Parameters
from teacher_student.privacy.pure import pure_delta, pure_epsilon, pure_rdp

INTERVAL = 1e-4
"""Width of the bins of a privacy loss distribution; losses are rounded up to the next."""

_NEGLIGIBLE = 1e-20
"""Mass of a loss distribution's upper end that is counted as a certain failure."""


class Route(NamedTuple):
    """One valid bound on all but the release parts."""

    name: str
    epsilon: Callable[[float], float]
    delta: Callable[[float], float]


@dataclasses.dataclass(frozen=True)
class Composition:
    """Releases over the same data.

    Attributes:
        parts: parameters, and how many sessions were or will be run with them.

    >>> from teacher_student.privacy import calibrate
    >>> first = calibrate("gnmax", epsilon=0.5, delta=1e-6, num_queries=100)
    >>> second = calibrate("stability", epsilon=0.5, delta=1e-6, cutoff=20)
    >>> both = Composition().add(first).add(second, 2)
    >>> 0.5 < both.epsilon(1e-5) < 1.5
    True
    """

    parts: tuple[tuple[Parameters, int], ...] = ()

    def __post_init__(self) -> None:
        for parameters, count in self.parts:
            if not isinstance(parameters, Parameters):
                raise ArgumentError(f"parameters must be those of a mechanism whose cost is known, got {parameters!r}")
            positive_integer("count", count, minimum=0)

    def add(self, parameters: Parameters, count: int = 1) -> Self:
        """Return the composition with `count` more sessions of `parameters`.

        Raises:
            ArgumentError: not the parameters of a mechanism, or a count that is no whole number >= 0.
        """
        return dataclasses.replace(self, parts=(*self.parts, (parameters, count)))

    @property
    def release_delta(self) -> float:
        """The deltas of the release parts, added."""
        return math.fsum(count * parameters.release_delta for parameters, count in self.parts)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon certified at `delta`; infinite if the release parts need more than that."""
        left = probability("delta", delta) - self.release_delta
        if not self._counted:
            return 0.0
        return min(route.epsilon(left) for route in self.routes) if left > 0 else math.inf

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta certified at `epsilon`."""
        if epsilon != 0:
            positive_number("epsilon", epsilon)
        if not self._counted:
            return 0.0
        return min(1.0, self.release_delta + min(route.delta(epsilon) for route in self.routes))

    def to_list(self) -> list[dict[str, Any]]:
        """Return the parts for a certificate: each part's parameters and its count."""
        return [{"count": count, "parameters": parameters.to_dict()} for parameters, count in self._counted]

    @functools.cached_property
    def routes(self) -> tuple[Route, ...]:
        """Every route that all parts allow."""
        return tuple(_routes(self._counted))

    @property
    def _counted(self) -> tuple[tuple[Parameters, int], ...]:
        return tuple((parameters, count) for parameters, count in self.parts if count > 0)


Parts = tuple[tuple[Parameters, int], ...]


def _routes(parts: Parts) -> Iterator[Route]:
    if len(parts) == 1 and parts[0][1] == 1:
        yield _single(parts[0][0])
    if all(parameters.mu is not None for parameters, _ in parts):
        mu = compose_mu(*(count * (parameters.mu or 0.0) ** 2 for parameters, count in parts))
        yield Route("gaussian", functools.partial(gaussian_epsilon, mu), functools.partial(gaussian_delta, mu))
    elif all(parameters.mu is not None or parameters.pure_parts is not None for parameters, _ in parts):
        yield _pure_or_distribution(parts)
    renyi = [_renyi(parameters, count) for parameters, count in parts]
    if all(bound is not None for bound in renyi):
        yield _renyi_route(np.sum([bound for bound in renyi if bound is not None], axis=0))
    yield _basic(parts)


def _single(parameters: Parameters) -> Route:
    released = parameters.release_delta
    return Route(
        "single",
        lambda delta: parameters.epsilon(delta + released),
        lambda epsilon: max(0.0, parameters.delta(epsilon) - released),
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
    distribution = _distribution(compose_mu(*squares), pure)
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
    """Return the masses of `times` randomised responses on the grid of `INTERVAL`, rounded up, and the mass left to failure."""
    wrong = np.arange(times + 1)
    log_choose = special.gammaln(times + 1) - special.gammaln(wrong + 1) - special.gammaln(times - wrong + 1)
    mass = np.exp(log_choose - wrong * np.logaddexp(0, loss) - (times - wrong) * np.logaddexp(0, -loss)) * (1 + 1e-9)
    kept = mass > _NEGLIGIBLE / (times + 1)
    bins = np.ceil((times - 2 * wrong) * loss / INTERVAL).astype(np.int64)
    rounded: dict[int, float] = {}
    for place, weight in zip(bins[kept].tolist(), mass[kept].tolist(), strict=True):
        rounded[place] = rounded.get(place, 0.0) + weight
    return rounded, _NEGLIGIBLE


def _renyi(parameters: Parameters, count: int) -> Floats | None:
    own = parameters.rdp(ORDERS)
    if own is not None:
        return np.asarray(count * own)
    if parameters.mu is not None:
        return np.asarray(count * ORDERS * parameters.mu**2 / 2)
    if parameters.pure_parts is not None:
        loss, times = parameters.pure_parts
        return pure_rdp(loss, count * times, ORDERS)
    return None


def _renyi_route(rdp: Floats) -> Route:
    from dp_accounting import rdp as accounting
    from dp_accounting.rdp.rdp_privacy_accountant import compute_delta

    orders, bounds = ORDERS.tolist(), rdp.tolist()
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
    """Return the smallest delta, to a relative 1e-6, at which a falling `epsilon` is at most `wanted`; 1 if there is none."""
    low, high = math.log(1e-300), 0.0
    if epsilon(math.exp(low)) <= wanted:
        return math.exp(low)
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon(math.exp(middle)) <= wanted else (middle, high)
    return math.exp(high)
