"""A public encoding of table columns: numbers to [0, 1], categories to indicator columns."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, finite_number
from teacher_student.data.table_files import Columns, column

MOST_CATEGORIES = 100  # a public column of text with more values is an identifier or prose, not a category
PLACEHOLDERS = frozenset(
    {"NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?", "<NA>"}
    | {"#N/A", "#NA", "#DIV/0!", "#NULL!", "#NUM!", "#REF!", "#VALUE!", "#NAME?"}  # of spreadsheets
)
"""Cells that count as missing where a column is otherwise of numbers."""
UNKNOWN = ("missing or no known category", "none of those known")


@dataclass(frozen=True)
class TableEncoding:
    """Ranges and category lists. Every record is encoded from its own cells alone.

    Attributes:
        ranges: numeric columns with their public (low, high).
        categories: categorical columns with their public values; a value that is not listed is all zeros.
    """

    kind: ClassVar[str] = "table"
    ranges: dict[str, tuple[float, float]]
    categories: dict[str, tuple[str, ...]]

    @classmethod
    def declared(cls, ranges: Mapping[str, Sequence[float]], categories: Mapping[str, Sequence[object]]) -> TableEncoding:
        """Check what the config says.

        Raises:
            ArgumentError: a range that is not low < high, an empty or repeating list, a column in both, no column at all.
        """
        for argument, given in (("ranges", ranges), ("categories", categories)):
            if not isinstance(given, Mapping):
                raise ArgumentError(f"{argument} must be a mapping from column names, got {given!r}")
        both = set(ranges) & set(categories)
        if both:
            raise ArgumentError(f"ranges and categories must name different columns, got {', '.join(sorted(both))} in both")
        if not ranges and not categories:
            raise ArgumentError("ranges and categories must name at least one feature column, got none")
        numbers = {str(name): _range(str(name), bounds) for name, bounds in ranges.items()}
        return cls(numbers, {str(name): _category_list(str(name), values) for name, values in categories.items()})

    @classmethod
    def from_public(cls, table: Columns, excluded: Sequence[str]) -> TableEncoding:
        """Read ranges and category lists off a public table; columns with a single value are left out.

        A column is numeric if all its cells are numbers, missing, or one of `PLACEHOLDERS`.

        Args:
            table: public.
            excluded: label, id and user columns.

        Raises:
            ArgumentError: a text column with more than 100 values, or no usable column.
        """
        ranges: dict[str, tuple[float, float]] = {}
        categories: dict[str, tuple[str, ...]] = {}
        for name, cells in table.items():
            present = [cell for cell in cells if not _missing(cell)]
            if name in excluded or len({str(cell) for cell in present}) < 2:
                continue
            numbers = [as_number(cell) for cell in present if str(cell) not in PLACEHOLDERS]
            if numbers and all(map(math.isfinite, numbers)):
                if min(numbers) < max(numbers):
                    ranges[name] = (min(numbers), max(numbers))
                continue
            values = sorted({str(cell) for cell in present})
            if len(values) > MOST_CATEGORIES:
                raise ArgumentError(_too_many(name, values))
            categories[name] = tuple(values)
        return cls.declared(ranges, categories)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(d,) names: the numeric columns, then `column=value`."""
        indicators = (f"{name}={value}" for name, values in self.categories.items() for value in values)
        return (*self.ranges, *indicators)

    def encode(self, argument: str, table: Columns) -> npt.NDArray[np.float32]:
        """Return (n, d) float32 in [0, 1], never NaN; `argument` names the table in messages."""
        encoded: list[npt.NDArray[np.generic]] = []
        for name, (low, high) in self.ranges.items():
            numbers = np.array([as_number(cell) for cell in column(argument, table, name)])
            with np.errstate(over="ignore", invalid="ignore"):  # one private number must not show as a warning
                scaled = np.clip((numbers - low) / (high - low), 0.0, 1.0)
            encoded.append(np.where(np.isnan(scaled), 0.5, scaled))
        for name, values in self.categories.items():
            position = {value: index for index, value in enumerate(values)}
            codes = np.array([position.get(as_category(cell, position), -1) for cell in column(argument, table, name)])
            encoded.extend(codes == index for index in range(len(values)))
        return np.stack(encoded, axis=1).astype(np.float32)

    def describe(self) -> dict[str, Any]:
        """Return what `declared` takes, in YAML's own types."""
        return {
            "ranges": {name: list(bounds) for name, bounds in self.ranges.items()},
            "categories": {name: list(values) for name, values in self.categories.items()},
        }

    def arrays(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return nothing: the description says it all."""
        return {}

    def remarks(self, table: Columns) -> list[str]:
        """Return a line for each column in which cells lie outside what was declared, and what they count as."""
        lines = []
        for name, (low, high) in self.ranges.items():
            numbers = [as_number(cell) for cell in table[name]]
            lines += remark(name, sum(map(math.isnan, numbers)), "no number", f"the middle of {low:g} to {high:g}")
            outside = sum(number < low or number > high for number in numbers)
            lines += remark(name, outside, f"outside {low:g} to {high:g}", "its nearest end")
        for name, values in self.categories.items():
            unknown = sum(as_category(cell, values) not in values for cell in table[name])
            lines += remark(name, unknown, *UNKNOWN)
        return lines


def _too_many(name: str, values: list[str]) -> str:
    odd = [value for value in values if value not in PLACEHOLDERS and not math.isfinite(as_number(value))]
    if 2 * len(odd) < len(values):
        return f"public must have numbers in column {name!r}, got {odd[0]!r} among them; leave such cells empty"
    return (
        f"categories must be declared for {name!r}, got {len(values)} values in the public table; if it is no feature, list "
        "those that are in ranges and categories"
    )


def remark(name: str, cells: int, what: str, counts_as: str) -> list[str]:
    """Return a line that says how many cells of a column are what, if any."""
    return [f"{name}: {cells:,} {'cell is' if cells == 1 else 'cells are'} {what}, taken as {counts_as}"] if cells else []


def as_category(cell: object, values: Container[str]) -> str:
    """Return a cell as a category: a missing one is "", and 3.0 is "3" where that is listed, as for integers beside a gap."""
    if _missing(cell):
        return ""
    try:
        text = str(cell)
    except Exception:  # noqa: BLE001 - an integer of 5,000 digits, say: no known category
        return ""
    whole = isinstance(cell, float | np.floating) and cell.is_integer() and text not in values
    return str(int(cell)) if whole else text  # type: ignore[call-overload]


def _missing(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and not cell) or (isinstance(cell, float | np.floating) and math.isnan(cell))


def as_number(cell: object) -> float:
    """Return a cell as a float, NaN where it is none."""
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _range(name: str, bounds: Sequence[float]) -> tuple[float, float]:
    try:
        low, high = (finite_number(f"ranges of {name}", bound) for bound in bounds)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"ranges of {name} must be two numbers [low, high], got {bounds!r}") from error
    if low >= high:
        raise ArgumentError(f"ranges of {name} must be [low, high] with low < high, got {bounds!r}")
    return low, high


def _category_list(name: str, values: Sequence[object]) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise ArgumentError(f"categories of {name} must be a list of values, got {values!r}")
    listed = tuple(str(value) for value in values)
    if len(set(listed)) != len(listed):
        raise ArgumentError(f"categories of {name} must be distinct, got {', '.join(listed)}")
    return listed
