"""A published student at work: classes for rows as people have them, from its release folder alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from teacher_student.arguments import ArgumentError
from teacher_student.data.encodings import NetworkEncoding, ProjectedEncoding, RowEncoding
from teacher_student.data.table_files import columns_of
from teacher_student.student import Standardized, predict_probabilities

_OF_ARRAYS = (ProjectedEncoding, NetworkEncoding)


class PublishedStudent(Standardized):
    """A student that takes rows: a torch module from features to logits that also knows what its rows look like.

    Rows are a path to a .csv, .tsv or .parquet table, a pandas DataFrame, columns by name or a list of mappings, with the columns
    that the teachers learned from; others do no harm. Cells are taken as in training: a number that is missing as the middle of
    its range, one outside the range as its nearest end, a category that is not known as none of those that are. An array of
    features has the shape of the data set, before any network or projection that it is seen through: that is how images are
    given.

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
            ArgumentError: rows that are no table, or a column that is missing.
        """
        return self.names(self.predict_proba(rows))

    def predict_proba(self, rows: Any) -> npt.NDArray[np.float32]:
        """Return (n, num_classes) probabilities, columns in the order of `class_names`.

        Raises:
            ArgumentError: rows that are no table, or a column that is missing.
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
