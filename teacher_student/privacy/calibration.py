"""`calibrate`: from what is wanted to the parameters that give it. Each mechanism's class knows how."""

from __future__ import annotations

import math
from typing import Any

from teacher_student.arguments import ArgumentError, choice, positive_integer, positive_number, probability
from teacher_student.privacy import registry
from teacher_student.privacy.parameters import MechanismSpec
from teacher_student.privacy.threshold import check_cutoff

REGISTRY = registry.LABELS
"""Mechanisms that release a class for each query."""


def calibrate(
    mechanism: str, *, epsilon: float, delta: float, cutoff: int | None = None, num_queries: int | None = None, **options: Any
) -> MechanismSpec:
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
    kind = registry.ANSWERING[choice("mechanism", mechanism, registry.ANSWERING)]
    epsilon, delta = positive_number("epsilon", epsilon), probability("delta", delta)
    if kind.pays_for == "abstentions":
        cutoff = check_cutoff(cutoff)
    elif cutoff is not None:
        cutoff = positive_integer("cutoff", cutoff)
    if num_queries is not None:
        num_queries = positive_integer("num_queries", num_queries)
    found = kind.calibrate(epsilon=epsilon, delta=delta, cutoff=cutoff, num_queries=num_queries, **options)
    return _checked(found, epsilon, delta)


def calibrate_soft(
    mechanism: str, *, epsilon: float, delta: float, cutoff: int, num_queries: int | None = None, **options: Any
) -> MechanismSpec:
    """Return parameters for soft labels: their cutoff is the unit budget U = 2 T, two units for an unstable query."""
    cutoff = check_cutoff(cutoff)
    kind = registry.SOFT_LABELS[choice("mechanism", mechanism, registry.SOFT_LABELS)]
    epsilon, delta = positive_number("epsilon", epsilon), probability("delta", delta)
    if num_queries is not None:
        num_queries = positive_integer("num_queries", num_queries)
    found = kind.calibrate_soft(epsilon=epsilon, delta=delta, cutoff=cutoff, num_queries=num_queries, **options)
    return _checked(found, epsilon, delta)


def _checked(found: Any, epsilon: float, delta: float) -> MechanismSpec:
    """Recompute the guarantee from the fields alone, before anyone uses them."""
    recomputed = found.epsilon(delta)
    assert isinstance(found, MechanismSpec)
    if not recomputed <= epsilon:
        raise ArgumentError(f"epsilon must be at least {recomputed:.6g} for {found.mechanism} at this delta, got {epsilon:g}")
    return found


def parameters_from_dict(mapping: Any) -> MechanismSpec:
    """Return the parameters that `MechanismSpec.to_dict` wrote; each class checks its own fields.

    Raises:
        ArgumentError: an unknown mechanism, missing or foreign fields, or a number out of range.
    """
    if not isinstance(mapping, dict):
        raise ArgumentError(f"parameters must be a mapping, got {mapping!r}")
    for name, value in mapping.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ArgumentError(f"parameters must be finite, got {name} = {value}")
    return registry.from_mapping(mapping)
