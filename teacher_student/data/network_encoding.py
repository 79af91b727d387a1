"""What a frozen network says of each record by itself: public, and so published with the student.

Each record passes alone, a batch of one, from memory of its own and on one thread. Vectorised arithmetic may depend in its last
bits on a record's place in a batch, on the batch's size and on how numbers lie in memory; no bit may cross shards.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, positive_integer
from teacher_student.data.table_files import Columns

if TYPE_CHECKING:
    from torch import nn

OWN = "DigitNetwork"
"""The one network that a published file may name; any other is handed over by whoever loads the student."""
_PREFIX = "network."


@dataclass(frozen=True, eq=False)
class NetworkEncoding:
    """A frozen network's features, of rows that come as arrays.

    Attributes:
        network: in evaluation mode, on the CPU.
        row_shape: of one raw row.
        width: how many features there are.
        layer: name of the submodule whose output they are; None for the network's own.
    """

    kind: ClassVar[str] = "network"
    network: nn.Module
    row_shape: tuple[int, ...]
    width: int
    layer: str | None = None

    @classmethod
    def described(
        cls, network: str, row_shape: Sequence[int], width: int, layer: str | None, *, arrays: Mapping[str, Any], encoder: Any
    ) -> NetworkEncoding:
        """Return the encoding of a published description, checked."""
        import torch

        from teacher_student.data.digit_network import DigitNetwork

        if encoder is None and network != OWN:
            raise ArgumentError(f"encoder must be given to load_student, a {network}: a file must not choose what is called")
        module = frozen(DigitNetwork() if encoder is None else encoder)
        own = module.state_dict()
        given = {name.removeprefix(_PREFIX): torch.as_tensor(value) for name, value in arrays.items() if name.startswith(_PREFIX)}
        module.load_state_dict({name: value.reshape(own[name].shape) if name in own else value for name, value in given.items()})
        sizes = tuple(positive_integer("row_shape", size) for size in row_shape)
        return cls(module, sizes, positive_integer("width", width), layer)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(width,) names."""
        return tuple(f"feature {number}" for number in range(1, self.width + 1))

    def encode(self, argument: str, table: Columns) -> npt.NDArray[np.float32]:  # noqa: ARG002 - others read it
        """Refuse a table."""
        raise ArgumentError(f"{argument} must be an array with rows of shape {self.row_shape}: they have no named columns")

    def project(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return (n, width) features of (n, *row_shape); NaN for a row that is not finite or on which the network fails.

        Nothing is raised and nothing is shown: what one private record provokes stays with its teacher, which then abstains.
        """
        found = np.full((len(rows), self.width), np.nan, dtype=np.float32)
        with alone(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for row, features in zip(rows, found, strict=True):
                if np.isfinite(row).all():
                    with contextlib.suppress(Exception):
                        features[:] = features_of(self.network, row, self.layer)
        return found

    def remarks(self, table: Columns) -> list[str]:  # noqa: ARG002 - others have some
        """Return nothing."""
        return []

    def describe(self) -> dict[str, Any]:
        """Return the network's name, and what it takes and gives."""
        network = type(self.network).__name__
        return {"network": network, "row_shape": list(self.row_shape), "width": self.width, "layer": self.layer}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the network's numbers."""
        return {_PREFIX + name: value.numpy(force=True) for name, value in self.network.state_dict().items()}


def frozen(network: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode, on the CPU, in float32."""
    import copy

    return copy.deepcopy(network).cpu().float().eval().requires_grad_(requires_grad=False)


def features_of(network: nn.Module, row: npt.NDArray[np.float32], layer: str | None) -> npt.NDArray[np.float32]:
    """Return (width,) features of one row; to be called within `alone`."""
    import torch

    heard: list[Any] = []
    speaker = network if layer is None else network.get_submodule(layer)
    handle = speaker.register_forward_hook(lambda _, __, output: heard.append(output))
    try:
        network(torch.tensor(row)[None])  # a copy: its place in memory is not the record's place in the table
    finally:
        handle.remove()
    return np.asarray(heard[-1].numpy(force=True), dtype=np.float32).reshape(-1)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One thread, no gradients, and the default generator put back: it could count the records."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode(), torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
