"""Record ids: integers or text, compared and encoded without ambiguity.

The id decides which shard, and so which teacher, sees a record. `1` and `"1"` are two ids; so are `"é"` written with one code
point and with two. Nothing is normalised, stripped or rounded, because an encoding that is not injective could move a record.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable

import numpy as np

from teacher_student.arguments import ArgumentError

Identifier = int | str


def canonical_identifiers(name: str, values: object) -> list[Identifier]:
    """Return the ids as a list of Python ints and strings.

    Args:
        name: the argument's name, for the message.
        values: a one-dimensional array, list or other iterable of n ids.

    Raises:
        ArgumentError: not one-dimensional, or an id that is neither an integer nor text (floats, booleans, None, bytes).

    >>> canonical_identifiers("ids", np.array([3, 4], dtype=np.uint8))
    [3, 4]
    """
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ArgumentError(f"{name} must have one dimension, got shape {values.shape}")
        if values.dtype.kind in "iuU":
            return values.tolist()  # type: ignore[no-any-return]
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ArgumentError(f"{name} must be a list of integers or strings, got {values!r}")
    return [_canonical(name, value) for value in values]


def _canonical(name: str, value: object) -> Identifier:
    if type(value) is int or type(value) is str:  # the common case first: a million ids pass here
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_):
        return int(value)
    raise ArgumentError(f"{name} must hold integers or strings, got {value!r}")


def encode_identifier(value: Identifier) -> bytes:
    """Return bytes that no other id has: a tag for the type, then decimal digits or UTF-8 (lone surrogates pass).

    >>> encode_identifier(1), encode_identifier("1")
    (b'i1', b's1')
    """
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    return b"i%d" % value


def refuse_duplicates(name: str, values: list[Identifier]) -> None:
    """Raise `ArgumentError` naming the first id that occurs twice."""
    if len(set(values)) == len(values):
        return
    seen: set[Identifier] = set()
    for value in values:
        if value in seen:
            raise ArgumentError(f"{name} must not repeat, got {value!r} twice; if it owns several records, name it as user")
        seen.add(value)


def identifier_array(values: list[Identifier]) -> np.ndarray:
    """Return int64 ids as int64 (n,), all others as objects (n,): NumPy's own text type drops trailing NUL characters."""
    if all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
