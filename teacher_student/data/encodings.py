"""How the rows of a table become features: public, and so published with the student, which then takes rows as people have them.

An encoding treats each row by itself and holds nothing that was computed from private records. Its description is made of YAML's
own types, its arrays are numbers; a file may name one of `ENCODINGS` and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, choice, positive_integer
from teacher_student.data.adult_encoding import AdultEncoding
from teacher_student.data.network_encoding import NetworkEncoding
from teacher_student.data.splits import PublicProjection
from teacher_student.data.table_encoding import TableEncoding, as_number
from teacher_student.data.table_files import Columns, column

Arrays = Mapping[str, npt.NDArray[np.generic]]


class RowEncoding(Protocol):
    """From raw rows to the student's features."""

    kind: ClassVar[str]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(d,) names of the features."""

    def encode(self, argument: str, table: Columns) -> npt.NDArray[np.float32]:
        """Return (n, d) finite features; `argument` names the table in messages. A missing column is an `ArgumentError`."""

    def remarks(self, table: Columns) -> list[str]:
        """Return a line for each column with cells that are not as they should be, and what they count as."""

    def describe(self) -> dict[str, Any]:
        """Return everything about it but its kind and its arrays, in YAML's own types."""

    def arrays(self) -> Arrays:
        """Return the numbers that are too many for a description."""


@dataclass(frozen=True)
class NumberColumns:
    """Columns of numbers that are features as they stand, for data that did not come from a table.

    Attributes:
        feature_names: (d,) the columns.
    """

    kind: ClassVar[str] = "numbers"
    feature_names: tuple[str, ...]

    def encode(self, argument: str, table: Columns) -> npt.NDArray[np.float32]:
        """Return (n, d) float32; a cell that is no finite number is refused."""
        features = np.array([[as_number(cell) for cell in column(argument, table, name)] for name in self.feature_names]).T
        with np.errstate(over="ignore"):
            encoded = features.astype(np.float32)
        if not np.isfinite(encoded).all():
            row, place = np.argwhere(~np.isfinite(encoded))[0]
            name = self.feature_names[place]
            raise ArgumentError(f"{name} of {argument} must be a finite number, got {table[name][row]!r} in record {row + 1}")
        return encoded

    def remarks(self, table: Columns) -> list[str]:  # noqa: ARG002 - others have some
        """Return nothing: what is not as it should be is refused."""
        return []

    def describe(self) -> dict[str, Any]:
        """Return the names."""
        return {"columns": list(self.feature_names)}

    def arrays(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return nothing."""
        return {}


@dataclass(frozen=True, eq=False)
class ProjectedEncoding:
    """Principal components of public points, of rows that another encoding has made numbers of.

    Attributes:
        inner: from raw rows to what is projected; None if that comes as arrays only, as images do.
        shape: of what is projected, for one row; it is flattened first.
        projection: from public points.
    """

    kind: ClassVar[str] = "projected"
    inner: RowEncoding | None
    shape: tuple[int, ...]
    projection: PublicProjection

    @classmethod
    def described(
        cls, inner: Mapping[str, Any] | None, shape: Sequence[int], *, arrays: Arrays, encoder: Any
    ) -> ProjectedEncoding:
        """Return the encoding of a published description, checked."""
        sizes = tuple(positive_integer("shape", size) for size in shape)
        mean, directions = (np.asarray(arrays[name], dtype=np.float64) for name in ("mean", "directions"))
        width = math.prod(sizes)
        if mean.shape != (width,) or directions.ndim != 2 or len(directions) != width or not directions.shape[1]:
            raise ArgumentError(f"directions must have {width} rows as the mean, got shapes {directions.shape} and {mean.shape}")
        encoding = None if inner is None else described_encoding(inner, arrays, encoder)
        if encoding is not None and (len(encoding.feature_names),) != sizes:
            raise ArgumentError(f"shape must be that of {len(encoding.feature_names)} columns, got {sizes}")
        return cls(encoding, sizes, PublicProjection(mean, directions))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(c,) names."""
        return tuple(f"component {number}" for number in range(1, self.projection.directions.shape[1] + 1))

    def encode(self, argument: str, table: Columns) -> npt.NDArray[np.float32]:
        """Return (n, c) float32."""
        if self.inner is None:
            raise ArgumentError(f"{argument} must be an array with rows of shape {self.shape}: they have no named columns")
        return self.projection.apply(self.inner.encode(argument, table))

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Of one row of an array."""
        return self.inner.row_shape if isinstance(self.inner, NetworkEncoding) else self.shape

    def project(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return (n, c) components of (n, *row_shape) rows."""
        if isinstance(self.inner, NetworkEncoding):
            features = self.inner.project(features)
        return self.projection.apply(features.reshape(len(features), -1))

    def remarks(self, table: Columns) -> list[str]:
        """Return the remarks of the inner encoding."""
        return [] if self.inner is None else self.inner.remarks(table)

    def describe(self) -> dict[str, Any]:
        """Return the inner encoding's description, and the shape."""
        inner = None if self.inner is None else description_of(self.inner)
        return {"inner": inner, "shape": list(self.shape)}

    def arrays(self) -> Arrays:
        """Return the projection's numbers, beside the inner encoding's."""
        inner = {} if self.inner is None else self.inner.arrays()
        return {**inner, "mean": self.projection.mean, "directions": self.projection.directions}


def description_of(encoding: RowEncoding) -> dict[str, Any]:
    """Return what `described_encoding` takes, beside the arrays."""
    return {"kind": encoding.kind, **encoding.describe()}


ENCODINGS: dict[str, Callable[[Mapping[str, Any], Arrays, Any], RowEncoding]] = {
    TableEncoding.kind: lambda description, _, __: TableEncoding.declared(**description),
    AdultEncoding.kind: lambda description, _, __: AdultEncoding.described(**description),
    NumberColumns.kind: lambda description, _, __: NumberColumns(tuple(str(name) for name in description["columns"])),
    ProjectedEncoding.kind: lambda description, arrays, encoder: ProjectedEncoding.described(
        **description, arrays=arrays, encoder=encoder
    ),
    NetworkEncoding.kind: lambda description, arrays, encoder: NetworkEncoding.described(
        **description, arrays=arrays, encoder=encoder
    ),
}


def described_encoding(description: Mapping[str, Any], arrays: Arrays, encoder: Any = None) -> RowEncoding:
    """Return the encoding that a published description speaks of.

    Args:
        description: what `description_of` returned.
        arrays: what `RowEncoding.arrays` returned.
        encoder: the network of a network's encoding, for others than the package's own; its numbers are loaded.

    Raises:
        ArgumentError: an unknown kind, or a description that is none of that kind's.
    """
    rest = dict(description)
    build = ENCODINGS[choice("kind of the encoding", rest.pop("kind", None), ENCODINGS)]
    try:
        return build(rest, arrays, encoder)
    except (TypeError, KeyError) as error:
        raise ArgumentError(f"encoding must be described as one of its kind, got {', '.join(rest) or 'nothing'}") from error
