"""The student as files that anyone may read: weights as safetensors, what they belong to as YAML. Nothing is unpickled."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from safetensors.torch import load_file, save_file
from torch import nn

from teacher_student.arguments import ArgumentError, file_path
from teacher_student.pipeline.folder import write_atomically
from teacher_student.pipeline.settings import NetworkClass
from teacher_student.pipeline.stages import build_network
from teacher_student.student import Standardized
from teacher_student.teachers import CNN, MLP, LogisticRegression, ResNet

WEIGHTS, DESCRIPTION = "student.safetensors", "student.yaml"

NETWORKS: dict[str, NetworkClass] = {network.__name__: network for network in (CNN, MLP, LogisticRegression, ResNet)}
"""Networks that a file may name. It must not choose what else is imported or called."""


def save_student(
    release_folder: Path,
    network: nn.Module,
    network_class: NetworkClass,
    *,
    shape: Sequence[int],
    class_names: Sequence[str],
    feature_names: Sequence[str] | None,
) -> None:
    """Write the student's weights and what is needed to use them."""
    keywords = dict(network_class.keywords) if isinstance(network_class, functools.partial) else {}
    function: Any = network_class.func if isinstance(network_class, functools.partial) else network_class
    description = {
        "network": function.__name__,
        "options": _plain(keywords),
        "input_shape": list(shape),
        "class_names": list(class_names),
        "feature_names": None if feature_names is None else list(feature_names),
    }
    state = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    partial = release_folder / (WEIGHTS + ".partial")
    save_file(state, partial)
    partial.chmod(0o644)  # to be published, unlike what safetensors makes
    partial.replace(release_folder / WEIGHTS)
    write_atomically(release_folder / DESCRIPTION, yaml.safe_dump(description, sort_keys=False))


def _plain(value: Any) -> Any:
    """Return `value` as YAML's own types; configs bring list and mapping types of their own."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def load_student(folder: str | Path, network: NetworkClass | None = None) -> Standardized:
    """Load a published student.

    Args:
        folder: a run's `release/`, or the run's folder.
        network: the network's class, for students whose network is not one of `NETWORKS`.

    Returns:
        The network in evaluation mode: raw features of the recorded shape to logits.

    Raises:
        ArgumentError: no student there, or a network that is not known and not given.
    """
    path = file_path("folder", folder)
    path = path / "release" if (path / "release").is_dir() else path
    try:
        description = yaml.safe_load((path / DESCRIPTION).read_text(encoding="utf-8"))
        name, shape = description["network"], tuple(int(size) for size in description["input_shape"])
        build = network or functools.partial(NETWORKS[name], **description["options"])
        student = Standardized(build_network(build, shape, len(description["class_names"]))(), shape)
        student.load_state_dict(load_file(path / WEIGHTS))
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, yaml.YAMLError) as error:
        raise ArgumentError(
            f"folder must hold a student of a known network, got {path}: {' '.join(str(error).split())}"
        ) from error
    return student.eval()
