"""Encodings that are published with a student: described and built again they make the same bits of raw rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import yaml

from teacher_student.arguments import ArgumentError
from teacher_student.data import Projection, View, adult, load_adult
from teacher_student.data.adult import ATTRIBUTES, AdultEncoding
from teacher_student.data.digit_network import DigitNetwork
from teacher_student.data.encodings import KINDS, NumberColumns, described_encoding, description_of
from teacher_student.data.table_files import columns_of
from teacher_student.data.tables import TableEncoding

from ..adult_rows import original_rows

ODD = TableEncoding({"größe": [-1e-7, 1e22], "age": [0.1, 0.3]}, {"job": ["yes", "1", "a: b", "Zoë"], "grade": [1, 2]})
ROWS = {
    "größe": [0, "x", None, math.nan],
    "age": ["0.25", 0.2, "", 9],
    "job": ["1", "a: b", None, "cook"],
    "grade": [1, 2.0, math.nan, "2"],
    "unused": [1, 2, 3, 4],
}


def again(encoding):
    """The encoding that comes out of a file."""
    described = yaml.safe_load(yaml.safe_dump(description_of(encoding), sort_keys=False))
    return described_encoding(described, encoding.arrays())


def test_a_table_encoding_survives_its_description():
    assert again(ODD) == ODD
    encoded = again(ODD).encode("table", columns_of("table", ROWS))
    assert np.array_equal(encoded, ODD.encode("table", ROWS))
    assert encoded[:, 2:].tolist() == [[0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]]


def test_any_object_may_stand_in_a_cell():
    """Cells of frames and of Parquet are not only text and numbers; some of them cannot even be compared."""
    pandas = pytest.importorskip("pandas")
    cells = [pandas.NA, pandas.NaT, np.zeros(2), [1], b"1", np.float32(2), np.float64("nan"), np.int8(2), True]
    encoding = TableEncoding({"age": [0, 4]}, {"grade": [1, 2]})
    encoded = encoding.encode("table", columns_of("table", [{"age": cell, "grade": cell} for cell in cells]))
    assert encoded[:, 2].tolist() == [0, 0, 0, 0, 0, 1, 0, 1, 0]
    assert encoded[:, 0].tolist() == [0.5, 0.5, 0.5, 0.5, 0.25, 0.5, 0.5, 0.5, 0.25]


def test_what_is_not_as_it_should_be_is_counted():
    assert ODD.remarks(columns_of("table", ROWS)) == [
        "größe: 3 cells are no number, taken as the middle of -1e-07 to 1e+22",
        "age: 1 cell is no number, taken as the middle of 0.1 to 0.3",
        "age: 1 cell is outside 0.1 to 0.3, taken as its nearest end",
        "job: 2 cells are missing or no known category, taken as none of those known",
        "grade: 1 cell is missing or no known category, taken as none of those known",
    ]
    fitting = {"größe": [0], "age": [0.2], "job": ["yes"], "grade": ["1"]}
    assert ODD.remarks(fitting) == []


def raw_rows(rows, encoding):
    """Rows of adult.test as the original file has them."""
    table = adult.read_table()
    return original_rows(table[table[:, 0] == 1][rows], encoding)


@pytest.mark.parametrize(
    ("options", "view"),
    [
        ({}, View()),
        ({"curves": "steps", "education": False, "weight": True}, View()),
        ({"curves": "squares"}, Projection(components=7, scale=0.001)),
        ({}, Projection(components=7, student_columns=True)),
    ],
    ids=str,
)
def test_raw_rows_of_adult_become_the_bits_that_the_student_was_judged_on(options, view):
    data = load_adult(None, view=view, **options)
    encoding = again(data.student_encoding)
    rows = raw_rows(slice(10_000, 10_300), AdultEncoding(**options))
    assert np.array_equal(encoding.encode("table", rows), data.student_evaluation_features[:300])
    assert encoding.feature_names == data.student_feature_names
    assert [name for line in encoding.remarks(rows) for name in ATTRIBUTES if line.startswith(name + ":")] == [
        "workclass",
        "occupation",
        "native-country",
    ]


def test_label_private_data_keeps_its_encoding_where_it_keeps_its_columns():
    data = load_adult(None, view=Projection(components=3, student_columns=True))
    assert data.label_private(np.arange(50)).student_encoding is data.student_encoding


@pytest.mark.parametrize("cell", ["", "thirty", 1.5, -1, 2.0**40, None], ids=str)
def test_numbers_that_adult_never_lacks_are_refused(cell):
    rows = raw_rows(slice(2), AdultEncoding())
    rows["age"][1] = cell
    with pytest.raises(ArgumentError, match=r"^age of table must be a whole number of at least 0, got .* in record 2$"):
        AdultEncoding().encode("table", rows)


def test_columns_of_numbers_are_taken_as_they_are():
    encoding = again(NumberColumns(("x1", "x2")))
    assert encoding.encode("table", {"x2": ["3", 4], "x1": [1, 2.5]}).tolist() == [[1, 3], [2.5, 4]]
    with pytest.raises(ArgumentError, match=r"^x2 of table must be a finite number, got 'no' in record 2$"):
        encoding.encode("table", {"x2": ["3", "no"], "x1": [1, 2.5]})


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"kind": "pickle"},
        {"kind": "table"},
        {"kind": "table", "ranges": {"age": [5]}, "categories": {}},
        {"kind": "table", "ranges": {"age": [5, 6]}, "categories": {}, "call": "os.system"},
        {"kind": "numbers"},
        {"kind": "adult", "curves": "none", "education": True, "weight": 1},
        {"kind": "projected", "inner": None, "shape": [3]},
        {"kind": "projected", "inner": None, "shape": [-3]},
    ],
    ids=str,
)
def test_a_description_of_something_else_is_refused(described):
    with pytest.raises(ArgumentError):
        described_encoding(described, {})


def test_a_projection_of_another_size_is_refused():
    adults = {"kind": "adult", "curves": "none", "education": True, "weight": False}
    arrays = {"mean": np.zeros(104), "directions": np.zeros((103, 2))}
    with pytest.raises(ArgumentError, match="directions must have 104 rows"):
        described_encoding({"kind": "projected", "inner": adults, "shape": [104]}, arrays)
    arrays = {"mean": np.zeros(103), "directions": np.zeros((103, 2))}
    with pytest.raises(ArgumentError, match="shape must be that of 104 columns"):
        described_encoding({"kind": "projected", "inner": adults, "shape": [103]}, arrays)


PUBLISHED = """
table: {kind: table, ranges: {age: [0.0, 80.0]}, categories: {job: [cook, smith]}}
adult: {kind: adult, curves: steps, education: false, weight: false}
numbers: {kind: numbers, columns: [x1, x2]}
network: {kind: network, network: DigitNetwork, row_shape: [1, 8, 8], width: 64, layer: null}
projected: {kind: projected, inner: {kind: numbers, columns: [x1, x2]}, shape: [2]}
"""
"""Descriptions as the first version wrote them into `student.yaml`."""
MEAN = np.array([-0.06299483217298985, -0.22202339097857476])
DIRECTIONS = np.array([[0.13118141906534384], [0.3369102631064131]])


@pytest.mark.parametrize("kind", ["table", "adult", "numbers", "network", "projected"])
def test_what_was_published_earlier_is_read_and_written_as_it_was(kind):
    assert set(KINDS) == {"table", "adult", "numbers", "network", "projected"}
    described = yaml.safe_load(PUBLISHED)[kind]
    weights = {f"network.{name}": value.numpy() for name, value in DigitNetwork().state_dict().items()}
    arrays = {"network": weights, "projected": {"mean": MEAN, "directions": DIRECTIONS}}.get(kind, {})
    encoding = described_encoding(described, arrays)
    assert description_of(encoding) == described
    assert list(description_of(encoding)) == list(described)
    assert {name: value.tobytes() for name, value in encoding.arrays().items()} == {
        name: value.tobytes() for name, value in arrays.items()
    }
    if kind == "projected":
        assert encoding.encode("table", {"x1": [1.5], "x2": [-2]}).tolist() == [[-0.39398267865180969]]
