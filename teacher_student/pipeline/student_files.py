"""The student as files that anyone may read: numbers as safetensors, what they belong to as YAML. Nothing is unpickled.

`student.yaml` says everything that is needed to use the weights: the network, the classes and how a raw row becomes features
(public ranges, categories and options). Numbers that are too many for it, such as those of a public projection, are in
`encoding.safetensors`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors import SafetensorError
from safetensors import numpy as arrays_in_files
from safetensors.torch import load_file, save_file
from torch import nn

from teacher_student.arguments import ArgumentError, file_path
from teacher_student.data.encodings import NumberColumns, RowEncoding, described_encoding, description_of
from teacher_student.pipeline.folder import STUDENT_FILES, whole, write_atomically
from teacher_student.pipeline.published_student import PublishedStudent
from teacher_student.pipeline.settings import NetworkClass
from teacher_student.pipeline.stages import build_network
from teacher_student.teachers import CNN, MLP, LogisticRegression, ResNet

WEIGHTS, DESCRIPTION, ARRAYS = STUDENT_FILES

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
    encoding: RowEncoding | None,
) -> None:
    """Write the student's weights and what is needed to use them, on raw rows if there is an encoding."""
    keywords = dict(network_class.keywords) if isinstance(network_class, functools.partial) else {}
    function: Any = network_class.func if isinstance(network_class, functools.partial) else network_class
    description = {
        "network": function.__name__,
        "options": _plain(keywords),
        "input_shape": list(shape),
        "class_names": list(class_names),
        "feature_names": None if feature_names is None else list(feature_names),
    }
    if encoding is not None:
        description["encoding"] = description_of(encoding)
        # safetensors writes an array's memory as it lies: a transposed one would come back as other numbers
        if arrays := {name: np.ascontiguousarray(array) for name, array in encoding.arrays().items()}:
            with _published(release_folder / ARRAYS) as draft:
                arrays_in_files.save_file(arrays, draft)
    state = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    with _published(release_folder / WEIGHTS) as draft:
        save_file(state, draft)
    write_atomically(release_folder / DESCRIPTION, yaml.safe_dump(description, sort_keys=False, allow_unicode=True))


@contextlib.contextmanager
def _published(path: Path) -> Iterator[Path]:
    with whole(path) as draft:
        yield draft
        draft.chmod(0o644)  # to be published, unlike what safetensors makes


def _plain(value: Any) -> Any:
    """Return `value` as YAML's own types; configs bring list and mapping types of their own."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def load_student(
    folder: str | Path, network: NetworkClass | None = None, *, encoder: nn.Module | None = None
) -> PublishedStudent:
    """Load a published student.

    Args:
        folder: a run's `release/`, or the run's folder.
        network: the network's class, for students whose network is not one of `NETWORKS`.
        encoder: the frozen network that rows are seen through, where it is not one of `teacher_student.data.pretrained`; its
            numbers are loaded from the folder.

    Returns:
        The student in evaluation mode. `predict` and `predict_proba` take raw rows; called as the torch module that it is, it
        maps features of the recorded shape to logits.

    Raises:
        ArgumentError: no student there, or a network that is not known and not given.
    """
    path = file_path("folder", folder).expanduser()
    path = path / "release" if (path / "release").is_dir() else path
    for name in (DESCRIPTION, WEIGHTS):
        if not (path / name).is_file():
            raise ArgumentError(f"folder must be a run or its release/ with a student, got {path}, which has no {name}")
    try:
        return _load(path, network, encoder)
    except (OSError, LookupError, TypeError, ValueError, RuntimeError, yaml.YAMLError, SafetensorError) as error:
        raise ArgumentError(f"folder must hold a student of a known network, got {path}: {error}") from error


def _load(path: Path, network: NetworkClass | None, encoder: nn.Module | None) -> PublishedStudent:
    description = yaml.safe_load((path / DESCRIPTION).read_text(encoding="utf-8"))
    name, shape = description["network"], tuple(int(size) for size in description["input_shape"])
    class_names = [str(each) for each in description["class_names"]]
    build = network or functools.partial(NETWORKS[name], **description["options"])
    encoding = _encoding(path, description, encoder)
    student = PublishedStudent(build_network(build, shape, len(class_names))(), shape, class_names, encoding)
    student.load_state_dict(load_file(path / WEIGHTS))
    return student.eval()


def _encoding(path: Path, description: Mapping[str, Any], encoder: nn.Module | None) -> RowEncoding | None:
    names = description["feature_names"]
    if names is None:
        return None
    if (described := description.get("encoding")) is None:
        return NumberColumns(tuple(str(name) for name in names))
    arrays = arrays_in_files.load_file(path / ARRAYS) if (path / ARRAYS).is_file() else {}
    encoding = described_encoding(described, arrays, encoder)
    if list(encoding.feature_names) != names:
        raise ArgumentError(f"encoding must make the columns of feature_names, got {', '.join(encoding.feature_names)}")
    return encoding
