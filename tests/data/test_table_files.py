"""Tables as columns, from any form that rows may have; files are read in `test_tables.py`."""

from __future__ import annotations

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.data.table_files import columns_of


def test_rows_may_stand_in_any_form(tmp_path):
    pandas = pytest.importorskip("pandas")
    wanted = {"age": [1, 2], "job": ["a", "b"]}
    listed = [{"age": 1, "job": "a"}, {"job": "b", "age": 2}]
    (tmp_path / "rows.csv").write_text("age,job\n1,a\n2,b\n")
    for rows in (wanted, listed, pandas.DataFrame(wanted), {name: np.array(cells) for name, cells in wanted.items()}):
        assert columns_of("table", rows) == wanted
    assert columns_of("table", tmp_path / "rows.csv") == {"age": ["1", "2"], "job": ["a", "b"]}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"age": 1}, {"job": "a"}], "table must have a cell 'job' in every row, got row 1 without it"),
        ([], "at least one row"),
        ({}, "at least one row"),
        ({"age": [], "job": []}, "at least one row"),
        ({"age": [1], "job": [1, 2]}, "all columns as many cells"),
        ([[1, 2]], "got list"),
        ({"age": 1}, "got dict"),
        (7, "got int"),
        (b"x", "got bytes"),
        ("nowhere.csv", "table must be a readable table"),
    ],
    ids=str,
)
def test_rows_in_no_form_get_one_line(rows, says):
    with pytest.raises(ArgumentError, match=says):
        columns_of("table", rows)
