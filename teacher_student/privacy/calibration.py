"""`calibrate`: from a budget to the parameters that meet it. Each mechanism's spec does the work; here requests are checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from teacher_student.arguments import ArgumentError, choice, positive_integer, positive_number, probability
from teacher_student.privacy import registry
from teacher_student.privacy.parameters import REPLACED, MechanismSpec
from teacher_student.privacy.threshold import check_cutoff


def calibrate(
    mechanism: str, *, epsilon: float, delta: float, cutoff: int | None = None, num_queries: int | None = None, **options: Any
) -> MechanismSpec:
    """Return frozen parameters that spend at most `epsilon` at `delta`.

    Args:
        mechanism: one of `MECHANISMS`, or noisy_fraction or noisy_scores.
        epsilon: above 0.
        delta: strictly between 0 and 1.
        cutoff: abstentions that are paid for before the session halts (stability mechanisms).
        num_queries: largest number of queries; needed by `stability_paper` and the noisy maxima.
        options: of that mechanism's calibration, such as `threshold_ratio`.

    Raises:
        ArgumentError: an argument out of range, or a request that cannot be met.

    >>> calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=50).threshold
    30
    """
    return _calibrate(registry.ANSWERING, "calibrate", mechanism, epsilon, delta, cutoff, num_queries, options)


def calibrate_soft(
    mechanism: str, *, epsilon: float, delta: float, cutoff: int, num_queries: int | None = None, **options: Any
) -> MechanismSpec:
    """Return parameters for soft labels. Their cutoff is the unit budget U = 2 T, two units for an unstable query."""
    return _calibrate(registry.SOFT_LABELS, "calibrate_soft", mechanism, epsilon, delta, cutoff, num_queries, options)


def _calibrate(
    known: registry.Registry,
    method: str,
    mechanism: str,
    epsilon: float,
    delta: float,
    cutoff: int | None,
    num_queries: int | None,
    options: Mapping[str, Any],
) -> MechanismSpec:
    """Check the request, calibrate, and recompute the guarantee from the fields alone before anyone uses them."""
    kind = known[choice("mechanism", mechanism, known)]
    epsilon, delta = positive_number("epsilon", epsilon), probability("delta", delta)
    if kind.pays_for == "abstentions":
        cutoff = check_cutoff(cutoff)
    elif cutoff is not None:
        cutoff = positive_integer("cutoff", cutoff)
    if num_queries is not None:
        num_queries = positive_integer("num_queries", num_queries)
    found = getattr(kind, method)(epsilon=epsilon, delta=delta, cutoff=cutoff, num_queries=num_queries, **options)
    assert isinstance(found, MechanismSpec)
    if method == "calibrate_soft" and getattr(found, "vote_change", REPLACED) != REPLACED:
        raise ArgumentError(f"vote_change must be {REPLACED} for soft labels, got {options['vote_change']!r}")
    recomputed = found.epsilon(delta)
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
