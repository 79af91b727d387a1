"""Public features for teachers of few records: any data set seen through principal components of its own public points.

A teacher of a handful of records learns little from hundreds of pixels, and much from the twenty directions in which the public
pool varies most. They cost nothing: no private record has a say in them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.data.dataset import Features, PrivateDataset
from teacher_student.data.encodings import NumberColumns, ProjectedEncoding, RowEncoding
from teacher_student.data.splits import PublicProjection

PARTS = ("private", "public", "evaluation")


def project(
    dataset: PrivateDataset,
    components: int | None,
    *,
    whiten: float = 1.0,
    scale: float | None = None,
    student_columns: bool = False,
) -> PrivateDataset:
    """Return the data set with principal components of the public points as features.

    Args:
        dataset: features of any shape; they are flattened first.
        components: how many; None returns the data set as it is.
        whiten: 1 for variance 1 on the public points for each component, 0 for their natural ratios, or between.
        scale: divide each column by sqrt(its variance on the public points + scale) first, or None.
        student_columns: the student keeps the features as they were, and only the teachers see the components.

    Raises:
        ArgumentError: more components than the public points span, `whiten` outside [0, 1], `scale` not above 0.
    """
    if components is None:
        return dataset
    projection = PublicProjection.fit(flat(dataset.public_features), components, whiten=whiten, scale=scale)

    def seen(features: Features | None) -> Features | None:
        return None if features is None else projection.apply(flat(features))

    raw = _raw_rows(dataset)
    encoding = ProjectedEncoding(raw, dataset.public_features.shape[1:], projection)
    changed: dict[str, Any] = {"feature_names": encoding.feature_names}
    changed |= {f"{part}_features": seen(getattr(dataset, f"{part}_features")) for part in PARTS}
    for name in ("feature_names", *(f"{part}_features" for part in PARTS)):
        changed[f"student_{name}"] = getattr(dataset, name) if student_columns else None
    changed["student_encoding"] = raw if student_columns else encoding
    return dataclasses.replace(dataset, **changed)


def _raw_rows(dataset: PrivateDataset) -> RowEncoding | None:
    """What makes the data set's own features of raw rows; None for images, which are features as they are."""
    names, encoding = dataset.feature_names, dataset.student_encoding
    if encoding is not None and encoding.feature_names == names:
        return encoding
    return None if names is None else NumberColumns(names)


def flat(features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return (n, ...) features as rows of numbers."""
    return features.reshape(len(features), -1)
