"""UCI Adult, embedded: does a person of the 1994 US census earn over 50,000 dollars a year?

Source: B. Becker and R. Kohavi, "Adult", UCI Machine Learning Repository, 1996, https://doi.org/10.24432/C5XW20; licence
CC BY 4.0, https://creativecommons.org/licenses/by/4.0/. The original files `adult.data` and `adult.test` are stored as integer
codes in `adult.npy.xz`, written by `scripts/build_adult.py`, which can also give them back byte for byte. See ADULT_NOTICE.txt.

32,561 records are private. Their id is the line number in `adult.data`, stored as a column, so that it stays when other rows go.
The 16,281 test records are public: a pool of queries and an evaluation set, split by a public seed.

The encoding is fixed, and no mean, range or vocabulary in it comes from a private record. Categories are those of the data
dictionary (`adult.names`), an unknown value "?" is all zeros, and numbers are divided by constants.
"""

from __future__ import annotations

import io
import lzma
import math
from dataclasses import dataclass
from importlib import resources
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, choice, true_or_false
from teacher_student.data.dataset import PrivateDataset
from teacher_student.data.encodings import UNKNOWN_CATEGORY, RowEncoding, remark
from teacher_student.data.splits import public_split
from teacher_student.data.table_files import Columns, as_number, column

TABLE = "adult.npy.xz"
CLASS_NAMES = ("<=50K", ">50K")
CURVES = ("none", "squares", "steps")
_LARGEST = 2**31 - 1

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


def read_table() -> Table:
    """Return the embedded table, (48,842, 17) int32, columns as in `COLUMNS`, the private records first."""
    packed = resources.files("teacher_student.data").joinpath(TABLE).read_bytes()
    table: Table = np.load(io.BytesIO(lzma.decompress(packed)), allow_pickle=False)
    return table


@dataclass(frozen=True)
class AdultEncoding(RowEncoding):
    """From a person to features; all options are public.

    Attributes:
        curves: fixed functions of single columns to add for learners that are linear in their features: "none", "squares" (of the
            five numbers, and whether there is any capital gain or loss), or "steps" (these, and whether the capital gain exceeds
            round amounts of dollars).
        education: keep the sixteen education columns beside education-num.
        weight: keep the census weight (fnlwgt), which says little about the person.
    """

    kind: ClassVar[str] = "adult"
    curves: str = "none"
    education: bool = True
    weight: bool = False

    def __post_init__(self) -> None:
        """Check the options."""
        true_or_false("education", self.education)
        true_or_false("weight", self.weight)
        choice("curves", self.curves, CURVES)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that are encoded, in their order."""
        left_out = {"education": not self.education, "fnlwgt": not self.weight}
        return tuple(name for name in ATTRIBUTES if not left_out.get(name, False))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(d,) names; d = 104 without any option."""
        return tuple(self._features(np.zeros((0, len(COLUMNS)), dtype=np.int32)))

    def encode(self, argument: str, table: Columns) -> npt.NDArray[np.float32]:
        """Return (n, d) float32, the bits that `load_adult` has for the same person; a category not in the list is all zeros."""
        codes = np.zeros((len(next(iter(table.values()))), len(COLUMNS)), dtype=np.int32)
        for name in self.attributes:
            cells = column(argument, table, name)
            codes[:, COLUMNS.index(name)] = _codes(name, cells) if name in CATEGORIES else _whole(argument, name, cells)
        return self.encode_codes(codes)

    def encode_codes(self, table: Table) -> npt.NDArray[np.float32]:
        """Return (n, d) float32 of rows of the embedded table, each by itself."""
        return np.stack(list(self._features(table).values()), axis=1).astype(np.float32)

    def _features(self, table: Table) -> dict[str, npt.NDArray[np.float64]]:
        columns: dict[str, npt.NDArray[np.float64]] = {}
        for name in self.attributes:
            codes = table[:, COLUMNS.index(name)]
            if name in CATEGORIES:
                indicators = {f"{name}={value}": codes == code for code, value in enumerate(CATEGORIES[name], start=1)}
                columns |= {key: indicator.astype(np.float64) for key, indicator in indicators.items()}
            elif name in _DIVISORS:
                columns[name] = codes / _DIVISORS[name]
            else:
                columns[name] = _logarithm(codes) / _LOGARITHMS[name]
        # Products and comparisons are exact for each number, wherever it stands.
        if self.curves != "none":
            columns |= {f"{name} squared": columns[name] * columns[name] for name in _SQUARED}
            columns |= {f"any {name}": (columns[name] > 0).astype(np.float64) for name in ("capital-gain", "capital-loss")}
        if self.curves == "steps":
            for dollars in _GAIN_STEPS:
                level = math.log1p(dollars) / _LOGARITHMS["capital-gain"]
                columns[f"capital-gain over {dollars}"] = (columns["capital-gain"] > level).astype(np.float64)
        return columns

    def remarks(self, table: Columns) -> list[str]:
        """Return a line for each column with values that the data dictionary does not have."""
        names = [name for name in self.attributes if name in CATEGORIES]
        return [line for name in names for line in remark(name, _codes(name, table[name]).count(0), *UNKNOWN_CATEGORY)]


def _logarithm(values: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """log(1 + value), number by number: vectorised logarithms may depend on a number's place in the array in the last bit."""
    return np.array([math.log1p(value) for value in values.tolist()])


def _codes(name: str, cells: list[object]) -> list[int]:
    code = {value: place for place, value in enumerate(CATEGORIES[name], start=1)}
    return [code.get(str(cell), 0) for cell in cells]


def _whole(argument: str, name: str, cells: list[object]) -> list[int]:
    numbers = [as_number(cell) for cell in cells]
    for row, value in enumerate(numbers, start=1):
        if not (0 <= value <= _LARGEST and value.is_integer()):
            raise ArgumentError(
                f"{name} of {argument} must be a whole number of at least 0, got {cells[row - 1]!r} in record {row}"
            )
    return [int(value) for value in numbers]


def load_adult(
    split_seed: int | None = 0, *, pool: int = 10_000, curves: str = "none", education: bool = True, weight: bool = False
) -> PrivateDataset:
    """Return Adult as private records, public pool and evaluation set; features (n, d) float32.

    Args:
        split_seed: public seed of the split of the test records; None takes them in the order of the file.
        pool: public points to label; the other test records are for evaluation.
        curves: see `AdultEncoding`.
        education: see `AdultEncoding`.
        weight: see `AdultEncoding`.

    Raises:
        ArgumentError: a pool that leaves nothing to evaluate on, a negative seed, unknown curves.
    """
    encoding, table = AdultEncoding(curves, education, weight), read_table()
    labels, test = table[:, -1].astype(np.int64), table[:, 0] == 1
    public, evaluation = public_split(int(test.sum()), pool, split_seed)
    features = encoding.encode_codes(table)
    return PrivateDataset(
        name="adult",
        num_classes=2,
        class_names=CLASS_NAMES,
        private_features=features[~test],
        private_labels=labels[~test],
        private_ids=table[~test, 1].astype(np.int64),
        public_features=features[test][public],
        evaluation_features=features[test][evaluation],
        evaluation_labels=labels[test][evaluation],
        feature_names=encoding.feature_names,
        student_encoding=encoding,
    )
