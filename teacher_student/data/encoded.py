"""Private records seen through a frozen network: features that teachers of one record each can vote by.

The network was trained on public data only, so that nothing of it is charged; private records pass through it one by one (see
`NetworkEncoding`). `teacher_student.data.pretrained` trains a small one on the spot; any other torch module does as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from teacher_student.arguments import ArgumentError
from teacher_student.data.dataset import PrivateDataset
from teacher_student.data.network_encoding import NetworkEncoding, alone, features_of, frozen
from teacher_student.data.projected import PARTS

if TYPE_CHECKING:
    from torch import nn

_SAME_RECORDS = {"mnist", "mnist5000"}


def encode(
    dataset: PrivateDataset, encoder: nn.Module | Callable[[], nn.Module] | None, *, layer: str | None = None
) -> PrivateDataset:
    """Return the data set with what a frozen network says of each record as features, for teachers and student.

    Args:
        dataset: of features that the network takes, as (1, ...) float32: images, in most cases.
        encoder: the network, or what returns it when called; it must not have seen a private record, in no way. None returns
            the data set as it is.
        layer: name of the submodule whose output is taken, such as "avgpool" of torchvision's ResNets; None for the network's
            own output.

    Raises:
        ArgumentError: a network of `pretrained` that was trained on the private data's source, one that does not take the public
            points, or one that does not say the same of a record each time.
    """
    if encoder is None:
        return dataset
    network = _checked(encoder, layer)
    _refuse_own(getattr(network, "trained_on", ""), dataset.name)
    encoding = _fitting(network, dataset, layer)
    changed: dict[str, Any] = {"feature_names": encoding.feature_names, "student_encoding": encoding}
    for part in PARTS:
        rows = getattr(dataset, f"{part}_features")
        changed[f"{part}_features"] = None if rows is None else encoding.project(rows)
        changed[f"student_{part}_features"] = None
    return dataclasses.replace(dataset, **changed, student_feature_names=None)


def _checked(encoder: Any, layer: str | None) -> nn.Module:
    from torch import nn

    network = encoder if isinstance(encoder, nn.Module) else encoder() if callable(encoder) else encoder
    if not isinstance(network, nn.Module):
        raise ArgumentError(f"encoder must be a torch module or return one when it is called, got {type(network).__name__}")
    if layer is not None and not (isinstance(layer, str) and layer in dict(network.named_modules())):
        names = ", ".join(name for name, _ in network.named_children())
        raise ArgumentError(f"layer must name a submodule of the encoder such as {names}, got {layer!r}")
    return frozen(network)


def _refuse_own(source: str, private: str) -> None:
    if source and (source == private or {source, private} == _SAME_RECORDS):
        why = "" if source == private else "; mnist5000 is a part of mnist"
        raise ArgumentError(f"encoder must be trained on other records than the private ones, {private}, got {source}{why}")


def _fitting(network: nn.Module, dataset: PrivateDataset, layer: str | None) -> NetworkEncoding:
    """Return the encoding; refuse, by public points alone, a network that fails, remembers or draws random numbers."""
    points = dataset.public_features
    with alone():
        try:
            first = features_of(network, points[0], layer)
        except Exception as error:
            raise ArgumentError(f"encoder must take features of shape {(1, *points.shape[1:])}, but: {error}") from error
        encoding = NetworkEncoding(network, points.shape[1:], len(first), layer)
        again = [features_of(network, points[row], layer) for row in (-1, 0)][-1]
    if not np.array_equal(first, again):
        raise ArgumentError("encoder must say the same of a record each time, got a network that remembers or draws at random")
    return encoding
