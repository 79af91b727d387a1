"""How raw rows become the student's features: public, and therefore published with the student, which then takes raw rows.

An encoding treats each row by itself and holds nothing that was computed from private records. Its description consists of YAML's
own types and its arrays of numbers. A published file may name one of the registered kinds and nothing else.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, choice, positive_integer
from teacher_student.data.splits import PublicProjection
from teacher_student.data.table_files import Columns, as_number, column

if TYPE_CHECKING:
    from torch import nn

Arrays = Mapping[str, npt.NDArray[np.generic]]
Features = npt.NDArray[np.float32]

KINDS: dict[str, type[RowEncoding]] = {}
"""Encodings by the `kind` that a published file gives. Each subclass of `RowEncoding` registers itself."""

UNKNOWN_CATEGORY = ("missing or no known category", "none of those known")


class RowEncoding(abc.ABC):
    """From raw rows to the student's features. Subclasses are frozen dataclasses whose fields are their description.

    Attributes:
        kind: name in published files.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        KINDS[cls.kind] = cls

    @classmethod
    def from_description(cls, description: Mapping[str, Any], arrays: Arrays, encoder: nn.Module | None) -> Self:  # noqa: ARG003
        """Return the encoding that `describe` and `arrays` spoke of, checked; `encoder` as `described_encoding` takes it."""
        return cls(**description)

    @property
    @abc.abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """(d,) names of the features."""

    @abc.abstractmethod
    def encode(self, argument: str, table: Columns) -> Features:
        """Return (n, d) finite features; `argument` names the table in messages. A missing column is an `ArgumentError`."""

    def remarks(self, table: Columns) -> list[str]:  # noqa: ARG002 - others have some
        """Return a line for each column with unusable cells: how many there are and what they count as."""
        return []

    def describe(self) -> dict[str, Any]:
        """Return everything but the kind and the arrays, in YAML's own types."""
        return {field.name: _as_yaml(getattr(self, field.name)) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def arrays(self) -> Arrays:
        """Return the numbers that are too many for a description."""
        return {}


def _as_yaml(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _as_yaml(item) for name, item in value.items()}
    return [_as_yaml(item) for item in value] if isinstance(value, tuple) else value


def remark(name: str, cells: int, what: str, counts_as: str) -> list[str]:
    """Return a line that says how many cells of a column are unusable and what they count as, or nothing if there are none."""
    return [f"{name}: {cells:,} {'cell is' if cells == 1 else 'cells are'} {what}, taken as {counts_as}"] if cells else []


def description_of(encoding: RowEncoding) -> dict[str, Any]:
    """Return what `described_encoding` takes beside the arrays."""
    return {"kind": encoding.kind, **encoding.describe()}


def described_encoding(description: Mapping[str, Any], arrays: Arrays, encoder: nn.Module | None = None) -> RowEncoding:
    """Return the encoding of a published description.

    Args:
        description: what `description_of` returned.
        arrays: what `RowEncoding.arrays` returned.
        encoder: the network of a `NetworkEncoding`, unless it is the package's own; its numbers are taken from `arrays`.

    Raises:
        ArgumentError: an unknown kind, or a description that does not fit its kind.
    """
    rest = dict(description)
    kind = KINDS[choice("kind of the encoding", rest.pop("kind", None), KINDS)]
    try:
        return kind.from_description(rest, arrays, encoder)
    except (TypeError, KeyError) as error:
        raise ArgumentError(f"encoding must be described as one of its kind, got {', '.join(rest) or 'nothing'}") from error


@dataclass(frozen=True)
class NumberColumns(RowEncoding):
    """Columns of numbers that are features as they stand, for data that did not come from a table.

    Attributes:
        columns: (d,) their names.
    """

    kind: ClassVar[str] = "numbers"
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        """Take names of any type and sequence."""
        object.__setattr__(self, "columns", tuple(map(str, self.columns)))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(d,) the columns."""
        return self.columns

    def encode(self, argument: str, table: Columns) -> Features:
        """Return (n, d) float32; a cell that is not a finite number is refused."""
        features = np.array([[as_number(cell) for cell in column(argument, table, name)] for name in self.columns]).T
        with np.errstate(over="ignore"):
            encoded = features.astype(np.float32)
        if not np.isfinite(encoded).all():
            row, place = np.argwhere(~np.isfinite(encoded))[0]
            name = self.columns[place]
            raise ArgumentError(f"{name} of {argument} must be a finite number, got {table[name][row]!r} in record {row + 1}")
        return encoded


@dataclass(frozen=True, eq=False)
class NetworkEncoding(RowEncoding):
    """Output of a frozen network, for rows that are arrays.

    Each record passes alone: a batch of one, in memory of its own, on one thread. The last bits of vectorised arithmetic may
    depend on a record's place in a batch, on the size of the batch and on how numbers lie in memory, and no bit may cross shards.

    Attributes:
        network: in evaluation mode, on the CPU.
        row_shape: of one raw row.
        width: number of features.
        layer: name of the submodule whose output is taken; None for the network's own.
    """

    kind: ClassVar[str] = "network"
    own: ClassVar[str] = "DigitNetwork"
    """The only network that a published file may name. Any other comes from whoever loads the student."""
    prefix: ClassVar[str] = "network."
    network: nn.Module
    row_shape: tuple[int, ...]
    width: int
    layer: str | None = None

    @classmethod
    def from_description(cls, description: Mapping[str, Any], arrays: Arrays, encoder: nn.Module | None) -> Self:
        """Return the encoding with the numbers of `arrays` in the network."""
        import torch

        from teacher_student.data.digit_network import DigitNetwork

        if encoder is None and description["network"] != cls.own:
            name = description["network"]
            raise ArgumentError(f"encoder must be given to load_student, a {name}: a file must not choose what is called")
        network = frozen(DigitNetwork() if encoder is None else encoder)
        own, published = network.state_dict(), {}
        for name, array in arrays.items():
            if name.startswith(cls.prefix):
                value, key = torch.as_tensor(array), name.removeprefix(cls.prefix)
                published[key] = value.reshape(own[key].shape) if key in own else value
        network.load_state_dict(published)
        shape = tuple(positive_integer("row_shape", size) for size in description["row_shape"])
        return cls(network, shape, positive_integer("width", description["width"]), description["layer"])

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(width,) names."""
        return tuple(f"feature {number}" for number in range(1, self.width + 1))

    def encode(self, argument: str, table: Columns) -> Features:  # noqa: ARG002 - others read it
        """Refuse a table."""
        raise ArgumentError(f"{argument} must be an array with rows of shape {self.row_shape}: they have no named columns")

    def project(self, rows: Features) -> Features:
        """Return (n, width) features of (n, *row_shape); NaN for a row that is not finite or on which the network fails.

        Nothing is raised and nothing is shown: what one private record provokes stays with its teacher, which then abstains.
        """
        import torch

        found = np.full((len(rows), self.width), np.nan, dtype=np.float32)
        threads = torch.get_num_threads()
        with isolated(), warnings.catch_warnings(), ThreadPoolExecutor(threads) as pool:
            warnings.simplefilter("ignore")
            for _ in pool.map(self._fill, np.array_split(found, threads), np.array_split(rows, threads)):
                pass
        return found

    def _fill(self, found: Features, rows: Features) -> None:
        """Write features of each row into `found`. The network is copied: its hooks must not see another thread's row."""
        import torch

        network = frozen(self.network)
        with torch.inference_mode():
            for row, features in zip(rows, found, strict=True):
                if np.isfinite(row).all():
                    with contextlib.suppress(Exception):
                        features[:] = features_of(network, row, self.layer)

    def describe(self) -> dict[str, Any]:
        """Return the network's name, what it takes and what it gives."""
        name, shape = type(self.network).__name__, list(self.row_shape)
        return {"network": name, "row_shape": shape, "width": self.width, "layer": self.layer}

    def arrays(self) -> Arrays:
        """Return the network's numbers."""
        return {self.prefix + name: value.numpy(force=True) for name, value in self.network.state_dict().items()}


def frozen(network: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode, on the CPU, in float32."""
    import copy

    return copy.deepcopy(network).cpu().float().eval().requires_grad_(requires_grad=False)


def features_of(network: nn.Module, row: Features, layer: str | None) -> Features:
    """Return (width,) features of one row; call it within `isolated`."""
    import torch

    outputs: list[Any] = []
    module = network if layer is None else network.get_submodule(layer)
    handle = module.register_forward_hook(lambda _, __, output: outputs.append(output))
    try:
        network(torch.tensor(row)[None])  # a copy: its place in memory is not the record's place in the table
    finally:
        handle.remove()
    return np.asarray(outputs[-1].numpy(force=True), dtype=np.float32).reshape(-1)


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """One thread, no gradients; afterwards the default generator is as it was, or it would count the records."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode(), torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True, eq=False)
class ProjectedEncoding(RowEncoding):
    """Principal components of public points, of rows that another encoding has turned into numbers.

    Attributes:
        inner: from raw rows to what is projected; None if rows are arrays, as images are.
        shape: of what is projected, for one row; it is flattened first.
        projection: from public points.
    """

    kind: ClassVar[str] = "projected"
    inner: RowEncoding | None
    shape: tuple[int, ...]
    projection: PublicProjection

    @classmethod
    def from_description(cls, description: Mapping[str, Any], arrays: Arrays, encoder: nn.Module | None) -> Self:
        """Return the encoding with the projection of `arrays`."""
        shape = tuple(positive_integer("shape", size) for size in description["shape"])
        mean, directions = (np.asarray(arrays[name], dtype=np.float64) for name in ("mean", "directions"))
        width = math.prod(shape)
        if mean.shape != (width,) or directions.ndim != 2 or len(directions) != width or not directions.shape[1]:
            raise ArgumentError(f"directions must have {width} rows as the mean, got shapes {directions.shape} and {mean.shape}")
        inner = None if description["inner"] is None else described_encoding(description["inner"], arrays, encoder)
        if inner is not None and (len(inner.feature_names),) != shape:
            raise ArgumentError(f"shape must be that of {len(inner.feature_names)} columns, got {shape}")
        return cls(inner, shape, PublicProjection(mean, directions))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(c,) names."""
        return tuple(f"component {number}" for number in range(1, self.projection.directions.shape[1] + 1))

    def encode(self, argument: str, table: Columns) -> Features:
        """Return (n, c) float32."""
        if self.inner is None:
            raise ArgumentError(f"{argument} must be an array with rows of shape {self.shape}: they have no named columns")
        return self.projection.apply(self.inner.encode(argument, table))

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row of an array."""
        return self.inner.row_shape if isinstance(self.inner, NetworkEncoding) else self.shape

    def project(self, rows: Features) -> Features:
        """Return (n, c) components of (n, *row_shape)."""
        seen = self.inner.project(rows) if isinstance(self.inner, NetworkEncoding) else rows
        return self.projection.apply(seen.reshape(len(seen), -1))

    def remarks(self, table: Columns) -> list[str]:
        """Return the remarks of the inner encoding."""
        return [] if self.inner is None else self.inner.remarks(table)

    def describe(self) -> dict[str, Any]:
        """Return the inner encoding's description and the shape."""
        return {"inner": None if self.inner is None else description_of(self.inner), "shape": list(self.shape)}

    def arrays(self) -> Arrays:
        """Return the projection's numbers beside the inner encoding's."""
        inner = {} if self.inner is None else self.inner.arrays()
        return {**inner, "mean": self.projection.mean, "directions": self.projection.directions}
