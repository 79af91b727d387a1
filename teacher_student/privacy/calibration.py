"""`calibrate`: from what is wanted to the parameters that give it. Each mechanism's class knows how."""

from __future__ import annotations

import math
from typing import Any

from teacher_student.arguments import ArgumentError, choice, positive_integer, positive_number, probability
from teacher_student.privacy.noisy_fraction import NoisyFraction
from teacher_student.privacy.noisy_max import ConfidentGNMax, Exponential, GNMax, LNMax
from teacher_student.privacy.noisy_scores import NoisyScores
from teacher_student.privacy.parameters import Parameters
from teacher_student.privacy.redrawn import StabilityPaper, StabilityRedraw
from teacher_student.privacy.threshold import ThresholdParameters, check_cutoff
from teacher_student.privacy.tight import Stability, StabilityLaplace

REGISTRY: dict[str, type[Parameters]] = {
    kind.mechanism: kind
    for kind in (Stability, StabilityPaper, StabilityRedraw, StabilityLaplace, GNMax, ConfidentGNMax, LNMax, Exponential)
}
"""Mechanisms that release a class for each query."""

_ALL: dict[str, type[Parameters]] = {**REGISTRY, **{kind.mechanism: kind for kind in (NoisyFraction, NoisyScores)}}


def calibrate(
    mechanism: str, *, epsilon: float, delta: float, cutoff: int | None = None, num_queries: int | None = None, **options: Any
) -> Parameters:
    """Return frozen parameters that spend at most `epsilon` at `delta`.

    Args:
        mechanism: one of `MECHANISMS`, or noisy_fraction or noisy_scores.
        epsilon: above 0.
        delta: strictly between 0 and 1.
        cutoff: paid non-answers before the session halts (stability mechanisms).
        num_queries: most queries asked; needed by `stability_paper` and the noisy maxima.
        options: of that mechanism's calibration, such as `threshold_ratio`.

    Raises:
        ArgumentError: an argument out of range, or a request that cannot be met.

    >>> calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=50).threshold
    30
    """
    kind = _ALL[choice("mechanism", mechanism, _ALL)]
    epsilon, delta = positive_number("epsilon", epsilon), probability("delta", delta)
    if issubclass(kind, ThresholdParameters):
        cutoff = check_cutoff(cutoff)
    elif cutoff is not None:
        cutoff = positive_integer("cutoff", cutoff)
    if num_queries is not None:
        num_queries = positive_integer("num_queries", num_queries)
    found: Parameters = kind.calibrate(  # type: ignore[attr-defined]
        epsilon=epsilon, delta=delta, cutoff=cutoff, num_queries=num_queries, **options
    )
    return _checked(found, epsilon, delta)


def calibrate_soft(
    mechanism: str, *, epsilon: float, delta: float, cutoff: int, num_queries: int | None = None, **options: Any
) -> Parameters:
    """Return parameters for soft labels: their cutoff is the unit budget U = 2 T, two units for an unstable query."""
    units = 2 * check_cutoff(cutoff)
    if choice("mechanism", mechanism, _ALL) != StabilityPaper.mechanism:
        return calibrate(mechanism, epsilon=epsilon, delta=delta, cutoff=units, num_queries=num_queries, **options)
    epsilon, delta = positive_number("epsilon", epsilon), probability("delta", delta)
    found = StabilityPaper.calibrate_soft(epsilon=epsilon, delta=delta, cutoff=cutoff, num_queries=num_queries, **options)
    return _checked(found, epsilon, delta)


def _checked(found: Parameters, epsilon: float, delta: float) -> Parameters:
    """Recompute the guarantee from the fields alone, before anyone uses them."""
    recomputed = found.epsilon(delta)
    if not recomputed <= epsilon:
        raise ArgumentError(f"epsilon must be at least {recomputed:.6g} for {found.mechanism} at this delta, got {epsilon:g}")
    return found


def parameters_from_dict(mapping: Any) -> Parameters:
    """Return the parameters that `Parameters.to_dict` wrote; each class checks its own fields.

    Raises:
        ArgumentError: an unknown mechanism, missing or foreign fields, or a number out of range.
    """
    if not isinstance(mapping, dict):
        raise ArgumentError(f"parameters must be a mapping, got {mapping!r}")
    for name, value in mapping.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ArgumentError(f"parameters must be finite, got {name} = {value}")
    from teacher_student.privacy.selection import PrivateSelection  # which calibrates sessions itself

    kinds: dict[str, type[Parameters]] = {**_ALL, PrivateSelection.mechanism: PrivateSelection}
    return kinds[choice("mechanism", mapping.get("mechanism"), kinds)].from_dict(mapping)
