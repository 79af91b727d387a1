"""UCI Adult, embedded: does a person of the 1994 US census earn over 50,000 dollars a year?

Source: B. Becker and R. Kohavi, "Adult", UCI Machine Learning Repository, 1996, https://doi.org/10.24432/C5XW20; licence
CC BY 4.0, https://creativecommons.org/licenses/by/4.0/. The original files `adult.data` and `adult.test` are stored as integer
codes in `adult.npy.xz`, written by `scripts/build_adult.py`; `original_text` gives them back byte for byte. See ADULT_NOTICE.txt.

32,561 records are private. Their id is the line number in `adult.data`, stored as a column, so that it stays when other rows go.
The 16,281 test records are public: a pool of queries and an evaluation set, split by a public seed.

No mean, range, or vocabulary is computed from a private record (see `adult_encoding`). Principal components, where wanted, are
those of the public pool.
"""

from __future__ import annotations

import io
import lzma
from importlib import resources

import numpy as np

from teacher_student.data.adult_encoding import ATTRIBUTES, CATEGORIES, AdultEncoding, Table, encode
from teacher_student.data.dataset import PrivateDataset
from teacher_student.data.projected import project
from teacher_student.data.splits import public_split

TABLE = "adult.npy.xz"
NUM_PRIVATE, NUM_TEST = 32_561, 16_281
CLASS_NAMES = ("<=50K", ">50K")


def read_table() -> Table:
    """Return the embedded table, (48,842, 17) int32, columns as in `adult_encoding.COLUMNS`, the private records first."""
    packed = resources.files("teacher_student.data").joinpath(TABLE).read_bytes()
    table: Table = np.load(io.BytesIO(lzma.decompress(packed)), allow_pickle=False)
    return table


def original_text(table: Table, *, test: bool) -> str:
    """Return the original file, `adult.test` or `adult.data`, byte for byte."""
    rows = table[table[:, 0] == int(test)]
    end = "." if test else ""
    lines = ["|1x3 Cross validator"] if test else []
    for row in rows.tolist():
        values = [_original_value(name, code) for name, code in zip(ATTRIBUTES, row[2:-1], strict=True)]
        lines.append(", ".join([*values, CLASS_NAMES[row[-1]] + end]))
    return "\n".join(lines) + "\n\n"


def _original_value(name: str, code: int) -> str:
    if name not in CATEGORIES:
        return str(code)
    return "?" if code == 0 else CATEGORIES[name][code - 1]


def load_adult(
    split_seed: int | None = 0,
    *,
    pool: int = 10_000,
    components: int | None = None,
    whiten: float = 1.0,
    scale: float | None = None,
    curves: str = "none",
    education: bool = True,
    weight: bool = False,
    student_columns: bool = False,
) -> PrivateDataset:
    """Return Adult as private records, public pool and evaluation set.

    Args:
        split_seed: public seed of the split of the test records; None takes them in the order of the file.
        pool: public points to label; the other test records are for evaluation.
        components: number of principal components of the pool to project on, or None for the plain columns.
        whiten: with components: 1 for variance 1 on the pool for each of them, 0 for their natural ratios, or between.
        scale: with components: divide each column by sqrt(its variance on the pool + scale) first, for example 0.001.
        curves: fixed functions of single columns to add for learners that are linear in their features: "none", "squares" (of the
            five numbers, and whether there is any capital gain or loss), or "steps" (these, and whether the capital gain exceeds
            round amounts of dollars).
        education: keep the sixteen education columns beside education-num.
        weight: keep the census weight (fnlwgt), which says little about the person.
        student_columns: with components: the student sees all columns, and only the teachers, who have few records each, see the
            components.

    Returns:
        Features (n, d) float32; d = 104 for the plain columns (five numbers, 99 categories).

    Raises:
        ArgumentError: a pool that leaves nothing to evaluate on, too many components, a negative seed.
    """
    table = read_table()
    features, names = encode(table, curves=curves, education=education, weight=weight)
    labels = table[:, -1].astype(np.int64)
    test = table[:, 0] == 1
    public, evaluation = public_split(NUM_TEST, pool, split_seed)
    test_features, test_labels = features[test], labels[test]
    plain = PrivateDataset(
        name="adult",
        num_classes=2,
        class_names=CLASS_NAMES,
        private_features=features[~test],
        private_labels=labels[~test],
        private_ids=table[~test, 1].astype(np.int64),
        public_features=test_features[public],
        evaluation_features=test_features[evaluation],
        evaluation_labels=test_labels[evaluation],
        feature_names=names,
        student_encoding=AdultEncoding(curves, education, weight),
    )
    return project(plain, components, whiten=whiten, scale=scale, student_columns=student_columns)
