from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacher_student.arguments import ArgumentError
from teacher_student.data import load_table
from teacher_student.data.table_encoding import TableEncoding

PRIVATE = """id,age,job,owner,sick
17,20,cook,ann,no
3,60,smith,ann,yes
8,40,cook,bob,no
"""
PUBLIC = """age,job,sick
30,cook,?
50,"smith"
70,baker,?
""".replace('"smith"\n', '"smith",?\n')
EVALUATION = """age,job,sick
20,cook,yes
80,baker,no
"""
SPEC = {"ranges": {"age": [0, 80]}, "categories": {"job": ["cook", "smith"]}, "classes": ["no", "yes"]}


@pytest.fixture
def tables(tmp_path):
    def write(**changes):
        texts = {"private": PRIVATE, "public": PUBLIC, "evaluation": EVALUATION} | changes
        for name, text in texts.items():
            (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
        return tmp_path

    return write


def load(folder, **options):
    chosen = {
        "label": "sick",
        "id": "id",
        "public": folder / "public.csv",
        "evaluation": folder / "evaluation.csv",
        **SPEC,
    } | options
    return load_table(folder / "private.csv", **chosen)


def test_a_table_is_read_as_declared(tables):
    data = load(tables())
    assert data.name == "private"
    assert data.feature_names == ("age", "job=cook", "job=smith")
    assert data.private_features.tolist() == [[0.25, 1, 0], [0.75, 0, 1], [0.5, 1, 0]]
    assert data.private_labels.tolist() == [0, 1, 0]
    assert data.private_ids.tolist() == ["17", "3", "8"]
    assert data.public_features.tolist() == [[0.375, 1, 0], [0.625, 0, 1], [0.875, 0, 0]]
    assert data.evaluation_labels.tolist() == [1, 0]
    assert (data.neighbours, data.unit) == ("add_remove", "record")


def test_a_specification_comes_from_the_public_table_only(tables):
    data = load(tables(), ranges=None, categories=None, classes=None)
    assert data.feature_names == ("age", "job=baker", "job=cook", "job=smith")
    assert data.private_features[:, 0].tolist() == [0, 0.75, 0.25]  # public ages are 30 to 70; 20 is clipped
    changed = load(tables(private=PRIVATE.replace("60,smith", "99,pilot")), ranges=None, categories=None, classes=None)
    assert changed.feature_names == data.feature_names
    assert (changed.private_features[[0, 2]] == data.private_features[[0, 2]]).all()
    assert changed.private_features[1].tolist() == [1, 0, 0, 0]


def test_users_and_tables_without_ids(tables):
    data = load(tables(), user="owner")
    assert data.private_users.tolist() == ["ann", "ann", "bob"]
    assert data.unit == "user"
    assert load(tables(), id=None).neighbours == "replace_one"
    with pytest.raises(ArgumentError, match="neighbours must be replace_one for records without ids"):
        load(tables(), id=None, neighbours="add_remove")


def test_label_private_mode_queries_the_training_records(tables):
    options = {"public": None, "label_private": 2, "ranges": None, "categories": None, "evaluation": None, "user": "owner"}
    data = load(tables(), **options)
    assert data.neighbours == "label_only"
    assert data.feature_names == ("age", "job=cook", "job=smith")  # from the training features, which are public here
    assert len(data.private_features) == 3
    rows = {tuple(row) for row in data.private_features.tolist()}
    assert len(data.public_features) == 2
    assert {tuple(row) for row in data.public_features.tolist()} <= rows
    relabelled = load(tables(private=PRIVATE.replace("ann,yes", "ann,no")), **options)
    assert (relabelled.public_features == data.public_features).all()
    assert (relabelled.private_features == data.private_features).all()
    assert (relabelled.private_labels != data.private_labels).sum() == 1


@given(
    st.lists(st.one_of(st.none(), st.text(max_size=8), st.floats(), st.integers(), st.binary(max_size=3)), min_size=1, max_size=8)
)
def test_no_private_cell_stops_the_encoding(cells):
    encoding = TableEncoding({"number": (0.0, 80.0)}, {"word": ("a", "b")})
    encoded = encoding.encode("path", {"number": list(cells), "word": list(cells)})
    assert encoded.shape == (len(cells), 3)
    assert ((encoded >= 0) & (encoded <= 1)).all()
    for row, cell in enumerate(cells):
        alone = encoding.encode("path", {"number": [cell], "word": [cell]})
        assert (alone[0] == encoded[row]).all()


def test_unusable_cells_take_public_constants(tables):
    data = load(tables(private=PRIVATE.replace("20,cook", ",").replace("60,smith", "nan,pilot").replace("40,cook", "1e999,cook")))
    assert data.private_features.tolist() == [[0.5, 0, 0], [0.5, 0, 0], [1, 1, 0]]


BAD = {
    "misspelt label": (
        {"label": "sik"},
        {},
        "^label must be a column of .*'sik', which is missing from .*; did you mean 'sick'?",
    ),
    "misspelt id": ({"id": "di", "ranges": None, "categories": None}, {}, "^id must be a column of .*'di', which is missing"),
    "no label": ({"label": None}, {}, "^label must be the name of a column, got None"),
    "no name": ({"user": 3}, {}, "^user must be the name of a column, got 3"),
    "label column": (
        {"label": "ill"},
        {},
        r"^label must be a column of .*private\.csv, got 'ill', which is missing from the columns id, age, job, owner, sick$",
    ),
    "id column": ({"id": "key"}, {}, "^id must be a column of .*got 'key', which is missing"),
    "feature column": ({"ranges": {"height": [0, 1]}}, {}, "path must have a column 'height'"),
    "public column": ({}, {"public": "job\ncook\n"}, "public must have a column 'age', got the columns job"),
    "evaluation label": ({}, {"evaluation": "age,job\n1,cook\n"}, "evaluation must have a column 'sick'"),
    "duplicate id": ({}, {"private": PRIVATE.replace("3,60", "17,60")}, "^id must not repeat, got '17' twice"),
    "empty id": (
        {},
        {"private": PRIVATE.replace("3,60", ",60")},
        "id must be filled in for every record, got an empty 'id' in record 2",
    ),
    "unknown label": (
        {},
        {"private": PRIVATE.replace("bob,no", "bob,maybe")},
        "path must have one of the classes no, yes in column 'sick', got 'maybe' in record 3",
    ),
    "unknown evaluated label": (
        {},
        {"evaluation": EVALUATION.replace("yes", "?")},
        "evaluation must have one of the classes no, yes in column 'sick'",
    ),
    "absent file": ({"public": "absent.csv"}, {}, "public must be a readable table, got absent.csv: No such file"),
    "a folder": ({"evaluation": "."}, {}, "evaluation must end in .csv, .tsv or .parquet, got ."),
    "other suffix": ({"public": "table.xlsx"}, {}, "public must end in .csv, .tsv or .parquet"),
    "ragged row": ({}, {"private": PRIVATE + "1,2\n"}, "path must have 5 cells in every row, got 2 in line 5"),
    "no record": ({}, {"public": "age,job\n"}, "public must have at least one record"),
    "empty file": ({}, {"public": ""}, "public must have at least one record"),
    "doubled column": ({}, {"public": "age,age\n1,2\n"}, "public must have distinct column names, got age, age"),
    "open quote": ({}, {"public": 'age,job\n1,"cook\n'}, "public must be a readable table"),
    "no public": ({"public": None}, {}, "public or label_private must be given"),
    "both": ({"label_private": 1}, {}, "public or label_private must be given"),
    "too many queries": ({"public": None, "label_private": 3}, {}, "^label_private must be an integer from 1 to 2, got 3"),
    "no classes": ({"classes": None, "evaluation": None}, {}, "classes must be the public list of labels, got None"),
    "private evaluation": (
        {"classes": None, "evaluation_public": False},
        {},
        "classes must be the public list of labels, got None",
    ),
    "classes as text": ({"classes": "yes"}, {}, "classes must be the public list of labels, got 'yes'"),
    "empty range": ({"ranges": {"age": [5, 5]}}, {}, r"ranges of age must be \[low, high\] with low < high"),
    "one number": ({"ranges": {"age": [5]}}, {}, "ranges of age must be two numbers"),
    "no number": ({"ranges": {"age": 5}}, {}, "ranges of age must be two numbers"),
    "list as text": ({"categories": {"job": "cook"}}, {}, "categories of job must be a list of values, got 'cook'"),
    "repeated value": ({"categories": {"job": ["a", "a"]}}, {}, "categories of job must be distinct"),
    "both kinds": ({"ranges": {"job": [0, 1]}}, {}, "ranges and categories must name different columns, got job in both"),
    "no feature": ({"ranges": {}, "categories": {}}, {}, "ranges and categories must name at least one feature column"),
    "label as feature": ({"categories": {"sick": ["no", "yes"]}}, {}, "must not name the label, id or user column, got 'sick'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_get_one_clear_line(tables, tmp_path, monkeypatch, case):
    options, texts, message = BAD[case]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match=message) as caught:
        load(tables(**texts), **options)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_text_get_one_clear_line(tables):
    folder = tables()
    (folder / "private.csv").write_bytes(b"id,age\n\xff\xfe\x00,1\n")
    with pytest.raises(ArgumentError, match="path must be a readable table") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_public_text_with_too_many_values_must_be_declared(tables):
    folder = tables(public="job\n" + "\n".join(f"job {number}" for number in range(101)))
    with pytest.raises(ArgumentError, match="categories must be declared for 'job', got 101 values"):
        load(folder, ranges=None, categories=None)


def test_numbers_of_which_some_are_missing_stay_numbers(tables):
    """Tables say in many ways that a number is missing; such a column is no text column."""
    public = "age,job\n30,cook\nNA,smith\n,cook\n70,?\nnan,cook\n"
    data = load(tables(public=public), ranges=None, categories=None)
    assert data.feature_names == ("age", "job=?", "job=cook", "job=smith")
    assert data.public_features[:, 0].tolist() == [0, 0.5, 0.5, 1, 0.5]
    many = "age,job\n" + "".join(f"{age},cook\n{age}.5,smith\n" for age in range(60)) + "old,cook\n"
    with pytest.raises(ArgumentError, match=r"^public must have numbers in column 'age', got 'old' among them; leave such"):
        load(tables(public=many), ranges=None, categories=None)


def test_tab_separated_tables_and_byte_order_marks(tables):
    folder = tables()
    (folder / "public.tsv").write_text("\ufeffage\tjob\n30\tcook\n\n", encoding="utf-8")
    assert load(folder, public=folder / "public.tsv").public_features.tolist() == [[0.375, 1, 0]]


def test_parquet_needs_pyarrow(tables, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ArgumentError, match=r"^pyarrow must be installed to read public\.parquet; uv sync --extra tables"):
        load(tables(), public="public.parquet")


def test_parquet_cells_keep_their_types(tables, monkeypatch):
    """With a stand-in for pyarrow, which is no dependency; the real one is used where it is installed."""
    cells = {"age": [30, None], "job": ["cook", None], "id": [7, 8], "sick": [False, True]}
    arrow = types.ModuleType("pyarrow")
    arrow.ArrowException = ValueError
    arrow.parquet = types.ModuleType("pyarrow.parquet")
    arrow.parquet.read_table = lambda path: types.SimpleNamespace(to_pydict=lambda: cells)
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", arrow.parquet)
    data = load_table("x.parquet", "sick", id="id", public=tables() / "public.csv", **SPEC | {"classes": [False, True]})
    assert data.private_ids.tolist() == [7, 8]
    assert data.private_ids.dtype == np.int64
    assert data.private_features.tolist() == [[0.375, 1, 0], [0.5, 0, 0]]
    assert data.private_labels.tolist() == [0, 1]


def test_real_parquet(tables, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"age": [30.0, None], "job": ["cook", "smith"]}), tmp_path / "public.parquet")
    assert load(tables(), public=tmp_path / "public.parquet").public_features.tolist() == [[0.375, 1, 0], [0.5, 0, 1]]
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(ArgumentError, match="public must be a readable table"):
        load(tables(), public=tmp_path / "bad.parquet")
