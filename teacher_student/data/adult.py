"""UCI Adult, embedded: does a person of the 1994 US census earn over 50,000 dollars a year?

Source: B. Becker and R. Kohavi, "Adult", UCI Machine Learning Repository, 1996, https://doi.org/10.24432/C5XW20; licence
CC BY 4.0, https://creativecommons.org/licenses/by/4.0/. The original files `adult.data` and `adult.test` are stored as integer
codes in `adult.npy.xz`, written by `scripts/build_adult.py`; `original_text` gives them back byte for byte. See ADULT_NOTICE.txt.

32,561 records are private. Their id is the line number in `adult.data`, stored as a column, so that it stays when other rows go.
The 16,281 test records are public: a pool of queries and an evaluation set, split by a public seed.

The encoding is fixed. Categories come from the data dictionary (`adult.names`), an unknown value "?" is all zeros, and numbers
are divided by constants. No mean, range, or vocabulary is computed from a private record. Principal components, where wanted,
are those of the public pool.
"""

from __future__ import annotations

import io
import lzma
import math
from importlib import resources

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import choice
from teacher_student.data.dataset import PrivateDataset
from teacher_student.data.projected import project
from teacher_student.data.splits import public_split

TABLE = "adult.npy.xz"
NUM_PRIVATE, NUM_TEST = 32_561, 16_281
CLASS_NAMES = ("<=50K", ">50K")
# The stored columns: 1 for adult.test, the line number (from 1), the fourteen attributes in the original order, 1 for >50K.
ATTRIBUTES = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race", "sex",
    "capital-gain", "capital-loss", "hours-per-week", "native-country",
)  # fmt: skip
COLUMNS = ("test", "line", *ATTRIBUTES, "over_50k")

# The values of the data dictionary in its order. Code 0 is "?", code i is value i - 1.
CATEGORIES: dict[str, tuple[str, ...]] = {
    "workclass": (
        "Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay", "Never-worked",
    ),
    "education": (
        "Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc", "9th", "7th-8th", "12th",
        "Masters", "1st-4th", "10th", "Doctorate", "5th-6th", "Preschool",
    ),
    "marital-status": (
        "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent", "Married-AF-spouse",
    ),
    "occupation": (
        "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty", "Handlers-cleaners",
        "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving", "Priv-house-serv", "Protective-serv",
        "Armed-Forces",
    ),
    "relationship": ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
    "race": ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
    "sex": ("Female", "Male"),
    "native-country": (
        "United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany", "Outlying-US(Guam-USVI-etc)", "India",
        "Japan", "Greece", "South", "China", "Cuba", "Iran", "Honduras", "Philippines", "Italy", "Poland", "Jamaica",
        "Vietnam", "Mexico", "Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador", "Taiwan", "Haiti",
        "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia", "El-Salvador",
        "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands",
    ),
}  # fmt: skip

# Public constants, none of them a statistic of the records: 10^5 is where the capital columns are cut off.
_DIVISORS = {"age": 100.0, "education-num": 16.0, "hours-per-week": 100.0}
_SQUARED = ("age", "education-num", "hours-per-week", "capital-gain", "capital-loss")
_GAIN_STEPS = (3_000, 5_000, 7_000, 10_000)  # dollars
_LOGARITHMS = {"capital-gain": math.log(1e5), "capital-loss": math.log(1e5), "fnlwgt": math.log(1e6)}

Table = npt.NDArray[np.int32]
Columns = dict[str, npt.NDArray[np.float64]]


def read_table() -> Table:
    """Return the embedded table, (48,842, 17) int32, columns as in `COLUMNS`, the private records first."""
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
    )
    return project(plain, components, whiten=whiten, scale=scale, student_columns=student_columns)


def encode(
    table: Table, *, curves: str = "none", education: bool = True, weight: bool = False
) -> tuple[npt.NDArray[np.float32], tuple[str, ...]]:
    """Encode rows of the table, each by itself: (n, d) float32 and the d names."""
    columns: Columns = {}
    for position, name in enumerate(ATTRIBUTES, start=2):
        codes = table[:, position]
        if (name == "education" and not education) or (name == "fnlwgt" and not weight):
            continue
        if name in CATEGORIES:
            for code, value in enumerate(CATEGORIES[name], start=1):
                columns[f"{name}={value}"] = (codes == code).astype(np.float64)
        elif name in _DIVISORS:
            columns[name] = codes / _DIVISORS[name]
        else:
            columns[name] = _logarithm(codes) / _LOGARITHMS[name]
    if choice("curves", curves, ("none", "squares", "steps")) != "none":
        columns |= _curves(columns, steps=curves == "steps")
    return np.stack(list(columns.values()), axis=1).astype(np.float32), tuple(columns)


def _logarithm(values: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """log(1 + value), number by number: vectorised logarithms may depend on a number's place in the array in the last bit."""
    return np.array([math.log1p(value) for value in values.tolist()])


def _curves(columns: Columns, *, steps: bool) -> Columns:
    """Fixed public functions of single columns. Products and comparisons are exact per number, wherever it stands."""
    added = {f"{name} squared": columns[name] * columns[name] for name in _SQUARED}
    for name in ("capital-gain", "capital-loss"):
        added[f"any {name}"] = (columns[name] > 0).astype(np.float64)
    if steps:
        for dollars in _GAIN_STEPS:
            level = math.log1p(dollars) / _LOGARITHMS["capital-gain"]
            added[f"capital-gain over {dollars}"] = (columns["capital-gain"] > level).astype(np.float64)
    return added
