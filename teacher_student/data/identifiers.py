"""Record ids: integers or text, compared and encoded without ambiguity.

The id decides which shard, and therefore which teacher, sees a record. `1` and `"1"` are two ids, and so are `"é"` written with
one code point and with two. Text is not normalised or stripped.

An id is a cell of a private record, so none is refused: one that is neither an integer nor text becomes one of them by itself,
and a missing one is empty text. Ids may repeat: records of one id share a shard and one vote, as the records of one user do.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
import uuid
from collections.abc import Iterable

import numpy as np

from teacher_student.arguments import ArgumentError

Identifier = int | str

MISSING = ""
"""The id of records without one."""

_AS_TEXT = (bytes, np.bool_, bool, datetime.date, datetime.time, decimal.Decimal, uuid.UUID, np.datetime64)
_MOST_BITS = 2_000
"""Python may refuse to print longer integers in decimal digits."""


def canonical_identifiers(name: str, values: object) -> list[Identifier]:
    """Return the ids as a list of Python ints and strings.

    Args:
        name: the argument's name, for the message.
        values: a one-dimensional array, list or other iterable of n ids. Each becomes an integer or text by itself: 7.0 is 7, as
            integers are stored beside a gap; 0.5, dates and bytes are their text; None, NaN and all else is "".

    Raises:
        ArgumentError: `values` is not one-dimensional, or an array whose type cannot hold ids. Never because of one id.

    >>> canonical_identifiers("ids", np.array([3, 4], dtype=np.uint8))
    [3, 4]
    >>> canonical_identifiers("ids", [7.0, None, "a"])
    [7, '', 'a']
    """
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ArgumentError(f"{name} must have one dimension, got {values.ndim}")
        if values.dtype.kind in "iuU":
            return values.tolist()  # type: ignore[no-any-return]
        if values.dtype.kind not in "bfOSM":
            raise ArgumentError(f"{name} must hold integers or strings, got values of type {values.dtype}")
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ArgumentError(f"{name} must be a list of integers or strings, got {values!r}")
    return [_canonical(value) for value in values]


def _canonical(value: object) -> Identifier:
    if type(value) is int or type(value) is str:  # the common case first: a million ids pass here
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return MISSING if np.isnan(number) else int(number) if number.is_integer() else repr(number)
    return MISSING


def encode_identifier(value: Identifier) -> bytes:
    """Return bytes that no other id has: a tag for the type, then digits or UTF-8 (lone surrogates pass).

    >>> encode_identifier(1), encode_identifier("1")
    (b'i1', b's1')
    """
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    return b"i%d" % value if value.bit_length() < _MOST_BITS else b"x%x" % value


def identifier_array(values: list[Identifier]) -> np.ndarray:
    """Return int64 ids as int64 (n,), all others as objects (n,): NumPy's own text type drops trailing NUL characters."""
    if all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
