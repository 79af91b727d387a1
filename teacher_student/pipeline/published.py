"""The published student: its files, and its predictions for raw rows. Nothing is unpickled.

`student.safetensors` holds the weights. `student.yaml` holds everything that is needed to use them: the network, the classes and
how a raw row becomes features (public ranges, categories and options). Arrays of the encoding, such as a public projection, are
in `encoding.safetensors`.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from safetensors import SafetensorError
from safetensors import numpy as arrays_in_files
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from teacher_student.arguments import ArgumentError, file_path
from teacher_student.data.encodings import (
    NetworkEncoding,
    NumberColumns,
    ProjectedEncoding,
    RowEncoding,
    described_encoding,
    description_of,
)
from teacher_student.data.table_files import Columns, check_column, columns_of, read_table_file
from teacher_student.pipeline.folder import STUDENT_FILES, whole, write_text
from teacher_student.pipeline.settings import NetworkClass
from teacher_student.pipeline.stages import build_network
from teacher_student.student import Standardized, predict_probabilities
from teacher_student.teachers import CNN, MLP, LogisticRegression, ResNet

WEIGHTS, DESCRIPTION, ARRAYS = STUDENT_FILES

NETWORKS: dict[str, NetworkClass] = {network.__name__: network for network in (CNN, MLP, LogisticRegression, ResNet)}
"""Networks that a file may name; no file can choose what else is imported or called."""

_OF_ARRAYS = (ProjectedEncoding, NetworkEncoding)


class PublishedStudent(Standardized):
    """A student that takes raw rows: a torch module from features to logits, with the encoding of its rows.

    Rows are a path to a .csv, .tsv or .parquet table, a pandas DataFrame, columns by name or a list of mappings, with the columns
    that the teachers learned from; further columns are ignored. Cells are treated as in training: a missing number becomes the
    middle of its range, one outside the range its nearest end, an unknown category none of the known ones. An array of features,
    such as images, has the shape of the data set, before any network or projection.

    Args:
        network: what is scaled for.
        shape: of the features of one row.
        class_names: in the order of the logits.
        encoding: from raw rows to features; None if there are no named columns.
    """

    def __init__(
        self, network: nn.Module, shape: tuple[int, ...], class_names: Sequence[str], encoding: RowEncoding | None
    ) -> None:
        super().__init__(network, shape)
        self.class_names = tuple(class_names)
        self.encoding = encoding

    def predict(self, rows: Any) -> npt.NDArray[np.str_]:
        """Return (n,) names of classes.

        Raises:
            ArgumentError: rows are not a table, or lack a column.
        """
        return self.names(self.predict_proba(rows))

    def predict_proba(self, rows: Any) -> npt.NDArray[np.float32]:
        """Return (n, num_classes) probabilities, columns in the order of `class_names`.

        Raises:
            ArgumentError: rows are not a table, or lack a column.
        """
        return predict_probabilities(self, self.encode(rows))

    def names(self, probabilities: npt.NDArray[np.float32]) -> npt.NDArray[np.str_]:
        """Return (n,) names of the likeliest classes, the first one of equals."""
        return np.array(self.class_names)[probabilities.argmax(axis=1)]

    def encode(self, rows: Any) -> npt.NDArray[np.float32]:
        """Return (n, *input_shape) float32 features of rows."""
        if isinstance(rows, Tensor):
            rows = rows.numpy(force=True)
        if isinstance(rows, np.ndarray):
            return self._from_array(rows)
        if self.encoding is None:
            raise ArgumentError(f"table must be an array with rows of shape {self.row_shape}: they have no named columns")
        return self.encoding.encode("table", columns_of("table", rows))

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row of an array."""
        return self.encoding.row_shape if isinstance(self.encoding, _OF_ARRAYS) else tuple(self.center.shape)

    def _from_array(self, array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        if array.dtype.kind not in "biuf" or array.shape[1:] != self.row_shape or not array.size:
            given = f"{array.dtype} of shape {array.shape}"
            raise ArgumentError(f"table must hold numbers in rows of shape {self.row_shape}, got {given}")
        with np.errstate(over="ignore"):
            features = np.ascontiguousarray(array, dtype=np.float32)
        if not np.isfinite(features).all():
            raise ArgumentError("table must hold finite numbers, got NaN or infinity")
        return self.encoding.project(features) if isinstance(self.encoding, _OF_ARRAYS) else features


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
    made: Any = network_class if isinstance(network_class, functools.partial) else functools.partial(network_class)
    description = {
        "network": made.func.__name__,
        "options": _plain(made.keywords),
        "input_shape": list(shape),
        "class_names": list(class_names),
        "feature_names": None if feature_names is None else list(feature_names),
    }
    if encoding is not None:
        description["encoding"] = description_of(encoding)
        # safetensors writes an array's memory as it is, so a transposed array would come back wrong
        if arrays := {name: np.ascontiguousarray(array) for name, array in encoding.arrays().items()}:
            with _readable(release_folder / ARRAYS) as draft:
                arrays_in_files.save_file(arrays, draft)
    state = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    with _readable(release_folder / WEIGHTS) as draft:
        save_file(state, draft)
    write_text(release_folder / DESCRIPTION, yaml.safe_dump(description, sort_keys=False, allow_unicode=True))


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[Path]:
    """Yield a draft that ends up readable by everybody; safetensors makes files for their owner alone."""
    with whole(path) as draft:
        yield draft
        draft.chmod(0o644)


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
    """Load a published student, in evaluation mode.

    `predict` and `predict_proba` take raw rows; called as a torch module, it maps features of the recorded shape to logits.

    Args:
        folder: a run's `release/`, or the run's folder.
        network: the network's class, for students whose network is not one of `NETWORKS`.
        encoder: the frozen network of the encoding, if it is not one of `teacher_student.data.pretrained`; its numbers are loaded
            from the folder.

    Raises:
        ArgumentError: no student there, or a network that is unknown and not given.
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


def predict_file(folder: str | Path, *, table: str, out: str, id: str | None = None) -> str:  # noqa: A002 - the verb says id=COLUMN
    """Write the student's classes and probabilities for the rows of a file, in their order.

    Args:
        folder: a run's `release/`, a copy of it, or the run's folder.
        table: a .csv, .tsv or .parquet table of raw rows, or a .npy array of features, as of images; never unpickled.
        out: a new .csv file: the row (its number from 1, or its `id`), the prediction, each class's probability to six decimals.
        id: name of a column of `table` that names its rows in `out`, or None.

    Returns:
        What was written, and remarks on cells that had to be corrected; a line each.

    Raises:
        ArgumentError: no student, a table that does not fit it, a file that is there or cannot be written; nothing is written.
    """
    student = load_student(folder)
    target = file_path("out", out).expanduser()
    if target.suffix.lower() != ".csv" or target.exists() or not target.parent.is_dir():
        raise ArgumentError(f"out must be a new .csv file in a folder that is there, got {out}")
    rows = _read(table)
    heading, labels = _row_names(rows, id)
    probabilities = student.predict_proba(rows)
    predicted = student.names(probabilities).tolist()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([heading, "prediction", *(f"probability={name}" for name in student.class_names)])
    for label, name, row in zip(labels, predicted, probabilities.tolist(), strict=True):
        writer.writerow([label, name, *(f"{value:.6f}" for value in row)])
    try:
        write_text(target, text.getvalue())
    except OSError as error:
        raise ArgumentError(f"out must be a file that can be written, got {target} ({error.strerror})") from error
    counts = Counter(predicted)
    found = ", ".join(f"{counts[name]:,} {name}" for name in student.class_names)
    remarks = student.encoding.remarks(rows) if student.encoding is not None and isinstance(rows, dict) else []
    return "\n".join([*remarks, f"{len(predicted):,} predictions ({found}) written to {target}"])


def _read(table: str) -> Columns | npt.NDArray[Any]:
    path = file_path("table", table).expanduser()
    if path.suffix.lower() != ".npy":
        return read_table_file("table", path)
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise ArgumentError(f"table must be a readable .npy array of numbers, got {path} ({error})") from error


def _row_names(rows: Columns | npt.NDArray[Any], id: str | None) -> tuple[str, Sequence[object]]:  # noqa: A002 - as above
    if id is None:
        return "row", range(1, len(next(iter(rows.values())) if isinstance(rows, dict) else rows) + 1)
    if not isinstance(rows, dict):
        raise ArgumentError(f"id must be null for a table without named columns, got {id!r}")
    check_column("id", rows, id, "table")
    return id, rows[id]
