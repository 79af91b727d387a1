"""GPUs without a GPU: on the `meta` device, or on a fake one, an operation that would make a GPU wait for the host raises."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

COPIES = ("aten::_to_copy", "aten::copy_")
READS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::is_nonzero")
CONSTANTS = (torch.tensor, torch.as_tensor, torch.asarray)


class HostTrafficError(BaseException):
    """A copy between host and device, a number read from the device, or an operation on both. No `except` may take it."""


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().split(".")[0]
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if name in READS and any(tensor.device.type != "cpu" for tensor in inputs):
            raise HostTrafficError(f"{name} waits for the device")
        out = func(*args, **(kwargs or {}))
        every = inputs + [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        kinds = {tensor.device.type for tensor in every if tensor.ndim or name in COPIES}  # scalars of the host may join in
        if len(kinds) > 1:
            raise HostTrafficError(f"{name} on {sorted(kinds)}")
        return out


class _Constants(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = torch.device(kwargs.get("device") or "cpu")
        if func in CONSTANTS and device.type != "cpu" and not isinstance(args[0], Tensor):
            raise HostTrafficError(f"torch.{func.__name__} of host values on {device}")
        return func(*args, **kwargs)


@contextlib.contextmanager
def no_host_traffic() -> Iterator[None]:
    """Raise `HostTrafficError` where anything inside would make a device wait for the host, or mixes the two."""
    with _Constants(), _Operations():
        yield
