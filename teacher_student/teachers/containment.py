"""Containment of what a teacher's code raises and draws. No torch is imported, so that workers start quickly.

Code that runs on private records, or on a teacher that learned from them, goes through `attempt`. Of several teachers that were
computed together and failed, `failing` finds those at fault, so that only these abstain.
"""

from __future__ import annotations

import contextlib
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def attempt(call: Callable[[], T]) -> T | None:
    """Return the result of `call`, or None if it raises anything but an interrupt from the keyboard."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  SystemExit too: one shard's records must not end the run
        return None


def failing(group: Sequence[int], succeeds: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return the members that fail alone, of a group that failed together.

    Args:
        group: teachers; `succeeds(group)` was false.
        succeeds: computes a part of the group while all others rest, keeps the result, and returns whether that worked.

    >>> failing(range(8), lambda part: not {2, 7} & set(part))
    [2, 7]
    """
    if len(group) == 1:
        return [group[0]]
    half = len(group) // 2
    return [one for part in (group[:half], group[half:]) if not succeeds(part) for one in failing(part, succeeds)]


@contextlib.contextmanager
def own_generators(seed: int) -> Iterator[None]:
    """Seed the global generators of NumPy, Python and torch (where it is loaded), ignore warnings, and restore all afterwards.

    Teachers may share a process: how much one draws depends on its shard, and must not affect the next one. A warning that one
    shard's records cause must not show either.
    """
    kept, drawn = np.random.get_state(), random.getstate()  # noqa: NPY002
    torch = sys.modules.get("torch")
    torch_kept = None if torch is None else torch.get_rng_state()
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)
    if torch is not None:
        torch.manual_seed(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(kept)  # noqa: NPY002
        random.setstate(drawn)
        if torch is not None:
            torch.set_rng_state(torch_kept)
