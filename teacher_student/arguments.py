"""Validation of arguments, in one place.

Every check takes the argument's name and value, returns the value in its canonical type, and raises `ArgumentError` with
one clear line otherwise: the argument, what it must be, and what it is.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MOST_VOTES = 2**53
"""More votes than this in one cell are a mistake, and sums of them could overflow."""
_LONGEST_MESSAGE = 2000
_LARGEST_INTEGER = 2**63 - 1
_LEAST = 1e-303
"""The smallest positive number that is accepted: the reciprocal of a smaller one may overflow."""


class ArgumentError(ValueError):
    """Bad input. The message is one line for the user; nothing was spent and nothing was written."""

    def __init__(self, message: str) -> None:
        super().__init__(_one_line(message))


class PrivacyWarning(UserWarning):
    """Public numbers that make a guarantee weak, or its answers useless (see `teacher_student.planning.preflight`)."""


def _one_line(message: str) -> str:
    """Values in a message may span lines, as arrays do, or pages."""
    line = " ".join(str(message).split())
    return line if len(line) <= _LONGEST_MESSAGE else line[:_LONGEST_MESSAGE] + " ..."


def positive_integer(name: str, value: object, *, minimum: int = 1, maximum: int | None = None) -> int:
    """Return `value` as an int of at least `minimum` (and at most `maximum`, by default what 64 bits hold).

    >>> positive_integer("cutoff", 0)
    Traceback (most recent call last):
    teacher_student.arguments.ArgumentError: cutoff must be a positive integer, got 0
    """
    wanted = "a positive integer" if minimum == 1 else f"an integer of at least {minimum}"
    if maximum is not None:
        wanted = f"an integer from {minimum} to {maximum}"
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)
    most = _LARGEST_INTEGER if maximum is None else maximum
    if is_integer and maximum is None and int(value) > most:  # type: ignore[call-overload]
        wanted = f"an integer below {most + 1}"
    if not is_integer or not minimum <= int(value) <= most:  # type: ignore[call-overload]
        raise ArgumentError(f"{name} must be {wanted}, got {value!r}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def finite_number(name: str, value: object) -> float:
    """Return `value` as a finite float."""
    if not math.isfinite(number := _number(value)):
        raise ArgumentError(f"{name} must be a finite number, got {value!r}")
    return number


def _number(value: object) -> float:
    """Return `value` as a float; NaN if it is not a number, or an integer that no double holds."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def positive_number(name: str, value: object) -> float:
    """Return `value` as a finite float above zero.

    >>> positive_number("epsilon", -1)
    Traceback (most recent call last):
    teacher_student.arguments.ArgumentError: epsilon must be a number above 0, got -1
    """
    number = _number(value)
    if not _LEAST <= number < math.inf:
        wanted = f"at least {_LEAST}" if 0 < number < _LEAST else "a number above 0"
        raise ArgumentError(f"{name} must be {wanted}, got {value!r}")
    return number


def number_at_least_zero(name: str, value: object) -> float:
    """Return `value` as a finite float of at least 0."""
    if not 0 <= (number := _number(value)) < math.inf:
        raise ArgumentError(f"{name} must be a number of at least 0, got {value!r}")
    return number


def probability(name: str, value: object) -> float:
    """Return `value` as a float strictly between 0 and 1.

    >>> probability("delta", 1e-5)
    1e-05
    """
    number = _number(value)
    if not _LEAST <= number < 1:
        wanted = f"be at least {_LEAST}" if 0 < number < _LEAST else "lie strictly between 0 and 1"
        raise ArgumentError(f"{name} must {wanted}, got {value!r}")
    return number


def fraction_of_one(name: str, value: object) -> float:
    """Return `value` as a float from 0 to 1, both included."""
    if not 0 <= (number := _number(value)) <= 1:
        raise ArgumentError(f"{name} must lie between 0 and 1, got {value!r}")
    return number


def true_or_false(name: str, value: object) -> bool:
    """Return `value` if it is a truth value.

    >>> true_or_false("sharp", 1)
    Traceback (most recent call last):
    teacher_student.arguments.ArgumentError: sharp must be true or false, got 1
    """
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(f"{name} must be true or false, got {value!r}")
    return bool(value)


def floats(name: str, value: object) -> Floats:
    """Return `value` as an array of floats of any shape; NaN and infinities pass."""
    array = any_array(name, value, "hold numbers in rows of one width")
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ArgumentError(f"{name} must hold numbers, got values of type {array.dtype}")
    return array.astype(np.float64)


def numbers_array(name: str, value: object, *, dimensions: int) -> Floats:
    """Return `value` as a non-empty array of floats with that many dimensions; NaN and infinities pass."""
    array = floats(name, value)
    if array.ndim != dimensions or not array.size:
        raise ArgumentError(f"{name} must have entries in {dimensions} dimension(s), got shape {array.shape}")
    return array


def choice(name: str, value: object, options: Collection[str], *, empty: str | None = None) -> str:
    """Return `value` if it is one of `options`; `empty`, where it is given, stands for "" and None.

    >>> choice("mechanism", "laplace", ["stability", "gnmax"])
    Traceback (most recent call last):
    teacher_student.arguments.ArgumentError: mechanism must be one of gnmax, stability; got 'laplace'
    """
    if empty is not None and (value is None or (isinstance(value, str) and not value)):
        return empty
    if not isinstance(value, str) or value not in options:
        raise ArgumentError(f"{name} must be one of {', '.join(sorted(options))}; got {value!r}")
    return value


def integer_matrix(name: str, value: object, *, columns: int | None = None) -> npt.NDArray[np.integer]:
    """Return `value` as a non-empty two-dimensional integer array, its integer type kept.

    Args:
        name: the argument's name, for the message.
        value: anything that NumPy can read. Floats are taken if each of them is a whole number.
        columns: the width that the array must have, or None.

    Raises:
        ArgumentError: not two-dimensional, empty, ragged, not whole numbers, NaN, or of another width.
    """
    array = any_array(name, value, "be a table whose rows have one width")
    if array.ndim != 2:
        raise ArgumentError(f"{name} must have two dimensions, got shape {array.shape}")
    if array.size == 0:
        raise ArgumentError(f"{name} must not be empty, got shape {array.shape}")
    if columns is not None and array.shape[1] != columns:
        raise ArgumentError(f"{name} must have {columns} columns, got {array.shape[1]}")
    return _whole_numbers(name, array)


def vote_counts(name: str, value: object, *, columns: int | None = None) -> npt.NDArray[np.integer]:
    """Return `value` as a table of votes per class, shape (num_queries, num_classes), none negative, its integer type kept.

    >>> vote_counts("counts", [[3, -1]])
    Traceback (most recent call last):
    teacher_student.arguments.ArgumentError: counts must not be negative, got -1
    """
    counts = integer_matrix(name, value, columns=columns)
    if np.issubdtype(counts.dtype, np.signedinteger) and (lowest := int(counts.min())) < 0:
        raise ArgumentError(f"{name} must not be negative, got {lowest}")
    if counts.dtype.itemsize == 8 and (highest := int(counts.max())) > _MOST_VOTES:
        raise ArgumentError(f"{name} must be at most {_MOST_VOTES}, got {highest}")
    return counts


def whole_numbers(name: str, value: object) -> Integers:
    """Return `value` as an int64 array of any shape, a copy."""
    whole = _whole_numbers(name, any_array(name, value, "hold whole numbers in rows of one width"))
    if whole.size and int(whole.max()) > np.iinfo(np.int64).max:
        raise ArgumentError(f"{name} must be at most {np.iinfo(np.int64).max}, got {int(whole.max())}")
    return np.array(whole, dtype=np.int64)


def names_of_rows(name: str, value: object, rows: int) -> tuple[str, ...] | None:
    """Return `value` as one string for each of `rows` rows, or None where there is none."""
    if value is None:
        return None
    if isinstance(value, str | bytes) or not isinstance(value, Sequence) or any(not isinstance(each, str) for each in value):
        raise ArgumentError(f"{name} must be strings, got {value!r}")
    if len(value) != rows:
        raise ArgumentError(f"{name} must name each of {rows} rows, got {len(value)}")
    return tuple(value)


def listed(name: str, value: object) -> tuple[Any, ...]:
    """Return the members of a list, tuple, range or array; a text is no list."""
    scalar = isinstance(value, np.ndarray) and value.ndim == 0
    if scalar or isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray):
        raise ArgumentError(f"{name} must be a list, got {value!r}")
    return tuple(value)


def file_path(name: str, value: object) -> Path:
    """Return `value` as a path."""
    if not isinstance(value, str | os.PathLike) or "\x00" in str(value):
        raise ArgumentError(f"{name} must be a path, got {value!r}")
    return Path(value)


def any_array(name: str, value: object, wanted: str) -> npt.NDArray[np.generic]:
    """Return `value` as an array of any type; `wanted` says what it must be, where its rows differ."""
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ArgumentError(f"{name} must {wanted}, got rows that differ") from error


def _whole_numbers(name: str, array: npt.NDArray[np.generic]) -> npt.NDArray[np.integer]:
    if np.issubdtype(array.dtype, np.integer):
        return array  # type: ignore[return-value]
    if not np.issubdtype(array.dtype, np.floating):
        raise ArgumentError(f"{name} must hold whole numbers, got values of type {array.dtype}")
    if not np.isfinite(array).all():
        raise ArgumentError(f"{name} must hold whole numbers, got NaN or infinity")
    with np.errstate(invalid="ignore"):  # a float beyond the integers is unlike whatever it becomes
        whole = array.astype(np.int64)
    if not np.array_equal(whole, array):
        bad = array[whole != array].flat[0]
        raise ArgumentError(f"{name} must hold whole numbers, got {bad}")
    return whole
