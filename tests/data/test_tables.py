from __future__ import annotations

import shutil
import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacher_student.arguments import ArgumentError
from teacher_student.data import LabelsOnly, load_table, shard_dataset
from teacher_student.data.fingerprints import private_remarks
from teacher_student.data.tables import TableEncoding

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
    if chosen["evaluation"] is not None:
        chosen.setdefault("evaluation_public", True)
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
    options = {"public": None, "ranges": None, "categories": None, "evaluation": None, "user": "owner"}
    options["view"] = LabelsOnly(number=2)
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
    everything = load(tables(), **options | {"view": None, "neighbours": "label_only"})
    assert (everything.public_features == everything.private_features).all()
    by_the_public_table = load(tables(), **options | {"public": tables() / "public.csv"})
    assert by_the_public_table.feature_names == ("age", "job=baker", "job=cook", "job=smith")
    assert len(by_the_public_table.public_features) == 2


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
    "unknown evaluated label": (
        {},
        {"evaluation": EVALUATION.replace("yes", "?")},
        "evaluation must have one of the classes no, yes in column 'sick'",
    ),
    "absent file": ({"public": "absent.csv"}, {}, "public must be a readable table, got absent.csv: No such file"),
    "a folder": ({"evaluation": "."}, {}, "evaluation must end in .csv, .tsv or .parquet, got ."),
    "nothing said of the evaluation": (
        {"evaluation_public": None},
        {},
        "evaluation_public must be true or false for data that is evaluated, got nothing",
    ),
    "evaluation as text": ({"evaluation_public": "yes"}, {}, "evaluation_public must be true or false, got 'yes'"),
    "other suffix": ({"public": "table.xlsx"}, {}, "public must end in .csv, .tsv or .parquet"),
    "ragged row": ({}, {"public": PUBLIC + "1,2\n"}, "public must have 3 cells in every row, got 2 in line 5"),
    "long cell": ({}, {"evaluation": EVALUATION + "1," + "x" * 131_073 + ",no\n"}, "evaluation must be a readable table"),
    "no record": ({}, {"public": "age,job\n"}, "public must have at least one record"),
    "empty file": ({}, {"public": ""}, "public must have at least one record"),
    "doubled column": ({}, {"public": "age,age\n1,2\n"}, "public must have distinct column names, got age, age"),
    "open quote": ({}, {"public": 'age,job\n1,"cook\n'}, "public must be a readable table"),
    "empty private file": ({}, {"private": ""}, "path must have at least one record, and column names before it, got none"),
    "blank private header": ({}, {"private": "\n" + PRIVATE}, "path must have at least one record, and column names before it"),
    "open quote in the private header": ({}, {"private": '"' + PRIVATE}, "path must be a readable table, got .*: unexpected end"),
    "no public": ({"public": None}, {}, "public must be a table to be labelled, got None; the view labels_only queries training"),
    "no public, ids": ({"public": None, "neighbours": "add_remove"}, {}, "public must be a table to be labelled, got None"),
    "too many queries": ({"public": None, "view": LabelsOnly(number=3)}, {}, "^number must be an integer from 1 to 2, got 3"),
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
    for name, argument in (("private", "path"), ("public", "public"), ("evaluation", "evaluation")):
        folder = tables()
        (folder / f"{name}.csv").write_bytes(b"\xff\xfei\x00d\x00,\x00\n\x00")
        with pytest.raises(ArgumentError, match=f"{argument} must be a readable table, got .*: it is not UTF-8") as caught:
            load(folder)
        assert "\n" not in str(caught.value)
    folder = tables()
    (folder / "public.csv").write_bytes(b"age,job\n1,c\xe9\n")
    with pytest.raises(ArgumentError, match=r"public must be a readable table, got .*: it is not UTF-8"):
        load(folder)


LINES = {
    "a long cell": b"9,30," + b"x" * 131_073 + b",bob,no",
    "no UTF-8": b"9,30,\xff\xfe,bob,no",
    "no UTF-8 in the id": b"\xc3,30,cook,bob,no",
    "half a character": b"9,30,cook,bob,\xe2\x82",
    "NUL": b"9,3\x000,co\x00ok,bob,no\x00",
    "nothing but NUL": b"\x00",
    "an open quote": b'9,30,"cook,bob,no',
    "an open quote first": b'"9,30,cook,bob,no',
    "a closed quote, then text": b'9,30,"co"ok,bob,no',
    "quotes alone": b'"""',
    "few cells": b"9,30",
    "many cells": b"9,30,cook,bob,no,,,,",
    "two lines in quotes": b'9,30,"cook\n8,40,smith,ann,yes\n",bob,no',
    "carriage returns in quotes": b'9,30,"co\r\rok",bob,no',
    "a bare carriage return": b"9,30,co\rok,bob,no",
    "a byte order mark": b"\xef\xbb\xbf9,30,cook,bob,no",
    "line separators": "9,30,a\u2028b\x0b\x0c\x1c\x85c,bob,no".encode(),
    "numbers out of range": b"9,1e999,cook,bob,no",
    "a number of 200,000 digits": b"9," + b"7" * 200_000 + b",cook,bob,no",
    "dates": b"9,2026-01-31,31.01.2026,bob,no",
    "a spreadsheet's error": b"9,#N/A,#REF!,#N/A,no",
    "an unknown label": b"9,30,cook,bob,maybe",
    "no label": b"9,30,cook,bob,",
    "a label that names nothing": b"9,30,cook,bob,None",
    "no id": b",30,cook,bob,no",
    "no id and no label": b",30,cook,,",
    "another's id": b"3,30,cook,bob,no",
    "an unknown category": b"9,30,astronaut,bob,no",
    "spaces": b"   ",
    "a public row": b"9,30,cook,bob,no",
}
UNTAUGHT = {
    "half a character", "NUL", "nothing but NUL", "an open quote", "an open quote first", "a closed quote, then text",
    "quotes alone", "few cells", "many cells", "a bare carriage return", "an unknown label", "no label",
    "a label that names nothing", "no id and no label", "spaces",
}  # fmt: skip


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("place", [0, 2, 3])
@pytest.mark.parametrize("name", LINES)
def test_whatever_one_private_line_holds_all_other_records_are_as_without_it(tables, capfd, name, place, end):
    """The line is added among others, of which one has quotes and a comma: features, labels, ids and shards stay as they were."""
    folder, line = tables(), LINES[name]
    sound = PRIVATE.replace("cook,bob", '"cook, or ""chef""","bob"').encode().splitlines()
    if end == b"\r" and (b"\r" in line or b"\n" in line):
        return  # with such ends of lines these are several records
    key = b"0123456789abcdef"

    def read(lines):
        (folder / "private.csv").write_bytes(end.join([*lines, b""]))
        data = load(folder)
        return data, shard_dataset(data, 1000, key)[0]

    without, before = read(sound)
    data, after = read([*sound[: 1 + place], line, *sound[1 + place :]])
    others = np.delete(np.arange(len(data.private_labels)), place)
    assert len(others) == len(without.private_labels) == 3
    assert (data.private_features[others] == without.private_features).all()
    assert (data.private_labels[others] == without.private_labels).all()
    assert [data.private_ids[row] for row in others] == without.private_ids.tolist()
    for shard in range(1000):
        assert [row for row in after.of(shard) if row != place] == [others[row] for row in before.of(shard)]
    assert (place in after.order) == (name not in UNTAUGHT)
    assert capfd.readouterr() == ("", "")


def test_a_private_table_may_have_no_record(tables):
    for text in (PRIVATE.splitlines()[0], PRIVATE.splitlines()[0] + "\n\n"):
        data = load(tables(private=text))
        assert data.private_features.shape == (0, 3)
        assert data.neighbours == "add_remove"


def test_a_private_line_in_place_of_another_moves_nobody_in_a_table_without_ids(tables):
    before = load(tables(), id=None)
    after = load(tables(private=PRIVATE.replace("3,60,smith,ann,yes", '"3,60')), id=None)
    assert (after.private_features[[0, 2]] == before.private_features[[0, 2]]).all()
    assert after.private_labels.tolist() == [0, -1, 0]


def test_a_private_evaluation_table_loses_the_rows_that_cannot_be_used(tables):
    odd = EVALUATION + '30,cook,never\n1,2,3,4,5\n"'
    assert load(tables(evaluation=odd), evaluation_public=False).evaluation_labels.tolist() == [1, 0]
    assert load(tables(evaluation="age,job,sick\n"), evaluation_public=False).evaluation_labels is None


@pytest.mark.parametrize("argument", ["public", "evaluation"])
@pytest.mark.parametrize("way", ["path", "other path", "link", "hard link", "copy"])
def test_the_private_table_is_refused_as_a_public_one(tables, argument, way):
    folder = tables()
    private, other = folder / "private.csv", folder / "other.csv"
    {
        "path": lambda: None,
        "other path": lambda: (folder / "down").mkdir(),
        "link": lambda: other.symlink_to(private),
        "hard link": lambda: other.hardlink_to(private),
        "copy": lambda: shutil.copy(private, other),
    }[way]()
    given = {"path": private, "other path": folder / "down" / ".." / "private.csv"}.get(way, other)
    with pytest.raises(
        ArgumentError,
        match=rf"^{argument} must (be another file than the private one|hold other records than the private file), got",
    ) as caught:
        load(folder, **{argument: given})
    assert "\n" not in str(caught.value)


def test_one_record_less_makes_no_copy_and_is_told_to_the_keeper_alone(tables, capfd):
    """Rows and ids that tables share change nothing that anybody else sees."""
    folder = tables(public="\n".join(PRIVATE.splitlines()[:-1]))
    remarks = private_remarks(load(folder))
    assert remarks[0] == "2 of the private ids are in the public table too."
    assert remarks[1].startswith("2 feature rows have a place in the private and in the public data")
    assert capfd.readouterr() == ("", "")
    odd = tables(private=PRIVATE + "17,20,cook,ann,no\n5,1,cook,ann,?\n")
    assert [line[:40] for line in private_remarks(load(odd))[:2]] == [
        "1 private record has no label of the cla",
        "1 private record has the id of another o",
    ]
    assert private_remarks(load(tables(private="id,age,job,sick\n")))[0] == "There is no private record."


def test_two_private_tables_are_not_compared_by_what_they_hold(tables):
    folder = tables()
    shutil.copy(folder / "private.csv", folder / "other.csv")
    assert len(load(folder, evaluation=folder / "other.csv", evaluation_public=False).evaluation_labels) == 3
    with pytest.raises(ArgumentError, match="evaluation must be another file than the private one"):
        load(folder, evaluation=folder / "private.csv", evaluation_public=False)


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
    arrow.parquet = types.ModuleType("pyarrow.parquet")
    columns = [types.SimpleNamespace(to_pylist=lambda column=column: column) for column in cells.values()]
    arrow.parquet.read_table = lambda path: types.SimpleNamespace(column_names=list(cells), column=columns.__getitem__)
    arrow.parquet.read_schema = lambda path: types.SimpleNamespace(names=list(cells))
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", arrow.parquet)
    folder = tables()
    (folder / "x.parquet").touch()
    options = SPEC | {"classes": [False, True]}
    data = load_table(folder / "x.parquet", "sick", id="id", public=folder / "public.csv", **options)
    assert data.private_ids.tolist() == [7, 8]
    assert data.private_ids.dtype == np.int64
    assert data.private_features.tolist() == [[0.375, 1, 0], [0.5, 0, 0]]
    assert data.private_labels.tolist() == [0, 1]


def pa_table(arrow):
    """Three people; the second has a job that is not UTF-8 and no id, which makes pandas' ids floats, and no label."""
    offsets = arrow.py_buffer(np.array([0, 4, 6, 11], np.int32))
    job = arrow.Array.from_buffers(arrow.string(), 3, [None, offsets, arrow.py_buffer(b"cook\xff\xfesmith")])
    return arrow.table({"id": [7.0, None, 9.0], "age": ["20", "x", ""], "job": job, "sick": ["no", None, "yes"]})


def test_real_parquet(tables, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"age": [30.0, None], "job": ["cook", "smith"]}), tmp_path / "public.parquet")
    assert load(tables(), public=tmp_path / "public.parquet").public_features.tolist() == [[0.375, 1, 0], [0.5, 0, 1]]
    odd = pa_table(arrow)
    parquet.write_table(odd, tmp_path / "private.parquet")
    data = load_table(tmp_path / "private.parquet", "sick", id="id", public=tmp_path / "public.parquet", **SPEC)
    assert data.private_labels.tolist() == [0, -1, 1]
    assert data.private_ids.tolist() == [7, "", 9]
    assert data.private_features.tolist() == [[0.25, 1, 0], [0.5, 0, 0], [0.5, 0, 1]]
    with pytest.raises(ArgumentError, match="public must have readable cells in column 'job'"):
        load_table(tmp_path / "public.parquet", "job", public=tmp_path / "private.parquet", **SPEC)
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(ArgumentError, match="public must be a readable table"):
        load(tables(), public=tmp_path / "bad.parquet")


@pytest.mark.parametrize("classes", [[0, 1], [0.0, 1.0], ["0", "1"], ["0.0", "1.0"]], ids=str)
def test_whole_numbers_are_one_class_however_they_are_written(classes):
    columns = {"age": [20, 30, 40, 50, 60], "sick": ["0", "1.0", 1, 0.0, "0.5"]}
    data = load_table(columns, "sick", classes=classes, public={"age": [10, 70]})
    assert data.private_labels.tolist() == [0, 1, 1, 0, -1]
    assert (data.name, data.neighbours) == ("table", "replace_one")


OTHERS = {"age": ["30", "", "50"], "job": ["cook", "judge", "cook"], "street": ["a", "b", "c"], "same": ["1", "1", "1"]}
PEOPLE = OTHERS | {"pays": ["no", "yes", "no"]}


def test_a_column_that_is_dropped_is_no_feature_and_the_columns_are_told() -> None:
    kept = load_table(PEOPLE, "pays", public=OTHERS, classes=["no", "yes"], drop=["street"])
    assert kept.feature_names == ("age", "job=cook", "job=judge")
    assert kept.public_notes == (
        "Columns: numbers age; categories job (2); not used street, same; cells missing in public age (1)",
    )
    with pytest.raises(ArgumentError, match=r"drop must be a column of the table, got 'stret', .*did you mean 'street'"):
        load_table(PEOPLE, "pays", public=OTHERS, classes=["no", "yes"], drop=["stret"])
    with pytest.raises(ArgumentError, match=r"drop must be a list of columns, got 'street'"):
        load_table(PEOPLE, "pays", public=OTHERS, classes=["no", "yes"], drop="street")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="drop must not be given beside ranges and categories"):
        load_table(PEOPLE, "pays", public=OTHERS, classes=["no", "yes"], drop=["street"], ranges={"age": [0, 99]})


def test_columns_of_odd_numbers_are_asked_about() -> None:
    numbers = [str(number) for number in range(40)]
    for cells, says in (
        ([*numbers, "unknown"], r"public must have numbers in column 'wage', got 'unknown' among them; .*data\.drop=\[wage\]"),
        (["3,5", "4,25", "7"], "public must have numbers with decimal points in column 'wage', got '3,5'"),
        ([f"street {number}" for number in range(101)], r"categories must be declared for 'wage', .*data\.drop=\[wage\]"),
    ):
        table = {"wage": cells, "age": [str(place) for place in range(len(cells))]}
        with pytest.raises(ArgumentError, match=says):
            TableEncoding.from_public(table, [])
        assert TableEncoding.from_public(table, ["wage"]).feature_names == ("age",)
    few = TableEncoding.from_public({"grade": ["1", "2", "3", "none"]}, [])
    assert few.categories == {"grade": ("1", "2", "3", "none")}


def test_a_misspelt_class_gets_a_suggestion() -> None:
    judged = PEOPLE | {"pays": ["no", "Yes ", "no"]}
    with pytest.raises(ArgumentError, match=r"got 'Yes ' in record 2; did you mean 'yes'\?"):
        load_table(PEOPLE, "pays", public=OTHERS, classes=["no", "yes"], evaluation=judged, evaluation_public=True)


def test_a_table_with_other_separators_says_so(tmp_path) -> None:
    (tmp_path / "own.csv").write_text("age;job;pays\n30;cook;no\n")
    with pytest.raises(
        ArgumentError, match=r"whose cells seem to be separated by ';'; save it with commas, or with tabs as \.tsv"
    ):
        load_table(tmp_path / "own.csv", "pays", public=OTHERS, classes=["no", "yes"])
