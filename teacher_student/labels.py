"""The two answers that are not classes. What a release holds per query is a class index, `ABSTAIN` or `HALTED`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

ABSTAIN = -1
"""A paid non-answer: the teachers did not agree clearly enough, and saying so cost one unit of the cutoff (bottom)."""

HALTED = -2
"""Not asked: the session had already spent its cutoff, so the query cost nothing and says nothing."""


def vote_type(num_classes: int) -> np.dtype[np.signedinteger[npt.NBitBase]]:
    """Return the integer type of votes: the smallest of at least 16 bits that holds every class index, `ABSTAIN` and `HALTED`.

    >>> vote_type(32_768), vote_type(32_769)
    (dtype('int16'), dtype('int32'))
    """
    return np.promote_types(np.int16, np.min_scalar_type(-num_classes))
