"""From a person of Adult to features: the columns and values of the original files, and the options of `load_adult`.

The encoding is fixed. Categories come from the data dictionary (`adult.names`), an unknown value "?" is all zeros, and numbers
are divided by constants; a student that is published takes raw rows by it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, choice, true_or_false
from teacher_student.data.table_encoding import UNKNOWN, as_number, remark
from teacher_student.data.table_files import Columns, column

_LARGEST = 2**31 - 1
CURVES = ("none", "squares", "steps")

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
Features = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class AdultEncoding:
    """The options of `load_adult` that decide what a person's columns are; all of them public.

    Attributes:
        curves: none, squares or steps.
        education: whether the education columns are features.
        weight: whether the census weight is one.
    """

    kind: ClassVar[str] = "adult"
    curves: str = "none"
    education: bool = True
    weight: bool = False

    @classmethod
    def described(cls, curves: str, education: bool, weight: bool) -> AdultEncoding:
        """Return the encoding of a published description, checked."""
        truths = true_or_false("education", education), true_or_false("weight", weight)
        return cls(choice("curves", curves, CURVES), *truths)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(d,) names as `load_adult` gives them."""
        return self._encode(np.zeros((0, len(COLUMNS)), dtype=np.int32))[1]

    def encode(self, argument: str, table: Columns) -> npt.NDArray[np.float32]:
        """Return (n, d) float32, the bits that `load_adult` has for the same person; a category not in the list is all zeros."""
        codes = np.zeros((len(next(iter(table.values()))), len(COLUMNS)), dtype=np.int32)
        for name in used_attributes(self.education, self.weight):
            cells = column(argument, table, name)
            codes[:, COLUMNS.index(name)] = _codes(name, cells) if name in CATEGORIES else _whole(argument, name, cells)
        return self._encode(codes)[0]

    def _encode(self, codes: Table) -> tuple[npt.NDArray[np.float32], tuple[str, ...]]:
        return encode(codes, curves=self.curves, education=self.education, weight=self.weight)

    def remarks(self, table: Columns) -> list[str]:
        """Return a line for each column with values that the data dictionary has not."""
        names = [name for name in used_attributes(self.education, self.weight) if name in CATEGORIES]
        return [line for name in names for line in remark(name, _codes(name, table[name]).count(0), *UNKNOWN)]

    def describe(self) -> dict[str, Any]:
        """Return the options."""
        return {"curves": self.curves, "education": self.education, "weight": self.weight}

    def arrays(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return nothing: the options say it all."""
        return {}


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


def encode(
    table: Table, *, curves: str = "none", education: bool = True, weight: bool = False
) -> tuple[npt.NDArray[np.float32], tuple[str, ...]]:
    """Encode rows of the table, each by itself: (n, d) float32 and the d names."""
    columns: Features = {}
    for name in used_attributes(education, weight):
        codes = table[:, COLUMNS.index(name)]
        if name in CATEGORIES:
            for code, value in enumerate(CATEGORIES[name], start=1):
                columns[f"{name}={value}"] = (codes == code).astype(np.float64)
        elif name in _DIVISORS:
            columns[name] = codes / _DIVISORS[name]
        else:
            columns[name] = _logarithm(codes) / _LOGARITHMS[name]
    if choice("curves", curves, CURVES) != "none":
        columns |= _curves(columns, steps=curves == "steps")
    return np.stack(list(columns.values()), axis=1).astype(np.float32), tuple(columns)


def used_attributes(education: bool, weight: bool) -> tuple[str, ...]:
    """The columns that are encoded, in their order."""
    return tuple(name for name in ATTRIBUTES if (name != "education" or education) and (name != "fnlwgt" or weight))


def _logarithm(values: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """log(1 + value), number by number: vectorised logarithms may depend on a number's place in the array in the last bit."""
    return np.array([math.log1p(value) for value in values.tolist()])


def _curves(columns: Features, *, steps: bool) -> Features:
    """Fixed public functions of single columns. Products and comparisons are exact per number, wherever it stands."""
    added = {f"{name} squared": columns[name] * columns[name] for name in _SQUARED}
    for name in ("capital-gain", "capital-loss"):
        added[f"any {name}"] = (columns[name] > 0).astype(np.float64)
    if steps:
        for dollars in _GAIN_STEPS:
            level = math.log1p(dollars) / _LOGARITHMS["capital-gain"]
            added[f"capital-gain over {dollars}"] = (columns["capital-gain"] > level).astype(np.float64)
    return added
