from __future__ import annotations

import hashlib
import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.data import Projection, adult, load_adult
from teacher_student.data.adult import AdultEncoding

REPOSITORY = Path(__file__).parents[2]
DIGESTS = {  # of the files as distributed by the UCI repository
    False: "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    True: "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}


@pytest.fixture(scope="module")
def table():
    return adult.read_table()


@pytest.fixture(scope="module")
def data():
    return load_adult()


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("build_adult", REPOSITORY / "scripts" / "build_adult.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("test", [False, True])
def test_the_original_files_come_back_byte_for_byte(build, table, test):
    assert hashlib.sha256(build.original_text(table, test=test).encode()).hexdigest() == DIGESTS[test]


def test_the_digest_would_notice_one_changed_value(build, table):
    changed = table.copy()
    changed[7, 2] += 1
    assert hashlib.sha256(build.original_text(changed, test=False).encode()).hexdigest() != DIGESTS[False]


def test_the_build_is_deterministic_and_small(build, table, tmp_path):
    (tmp_path / "adult.data").write_text(build.original_text(table, test=False))
    (tmp_path / "adult.test").write_text(build.original_text(table, test=True))
    built = build.build_table(tmp_path)
    assert (built == table).all()
    packed = Path(adult.__file__).with_name(adult.TABLE)
    assert packed.stat().st_size < 400_000
    assert packed.read_bytes()[:6] == b"\xfd7zXZ\0"


def test_the_build_refuses_other_files(build, tmp_path):
    (tmp_path / "adult.data").write_text("39, State-gov\n")
    with pytest.raises(SystemExit, match="must have the SHA-256 digest 5b00"):
        build.build_table(tmp_path)


@pytest.mark.slow
def test_packing_twice_gives_the_same_bytes(build, table):
    assert build.pack(np.asfortranarray(table)) == build.pack(np.asfortranarray(table))


def test_sizes_and_ids(data, table):
    assert data.private_features.shape == (32_561, 104)
    assert data.public_features.shape == (10_000, 104)
    assert data.evaluation_features.shape == (6_281, 104)
    assert data.private_ids.tolist() == list(range(1, 32_562))  # the line numbers of adult.data
    assert (table[table[:, 0] == 1, 1] == np.arange(2, 16_283)).all()  # adult.test has a heading
    assert data.neighbours == "add_remove"
    assert len(data.feature_names) == 104
    assert 100 * data.private_labels.mean() == pytest.approx(24.08, abs=0.01)


def test_the_first_record_is_encoded_by_hand(data):
    """39, State-gov, 77516, Bachelors, 13,
    Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, United-States."""
    row = dict(zip(data.feature_names, data.private_features[0].tolist(), strict=True))
    nonzero = {name: value for name, value in row.items() if value}
    ones = ["workclass=State-gov", "education=Bachelors", "marital-status=Never-married", "occupation=Adm-clerical"]
    ones += ["relationship=Not-in-family", "race=White", "sex=Male", "native-country=United-States"]
    numbers = {"age": 0.39, "education-num": 13 / 16, "hours-per-week": 0.4, "capital-gain": math.log(2175) / math.log(1e5)}
    assert nonzero == pytest.approx(dict.fromkeys(ones, 1.0) | numbers)


def test_all_numbers_lie_in_the_unit_interval(data):
    for features in (data.private_features, data.public_features, data.evaluation_features):
        assert features.min() >= 0
        assert features.max() <= 1.0001


def test_unknown_values_are_all_zeros(table):
    encoding = AdultEncoding()
    features, names = encoding.encode_codes(table), encoding.feature_names
    columns = [index for index, name in enumerate(names) if name.startswith("workclass=")]
    known = features[:, columns].sum(axis=1)
    assert ((known == 0) == (table[:, 3] == 0)).all()
    assert (known == 0).sum() == 1836 + 963


def test_options_choose_columns(table):
    assert AdultEncoding(weight=True).encode_codes(table[:2]).shape[1] == 105
    assert AdultEncoding(education=False).encode_codes(table[:2]).shape[1] == 88
    assert AdultEncoding(curves="squares").encode_codes(table[:2]).shape[1] == 111
    steps = AdultEncoding(curves="steps")
    features, names = steps.encode_codes(table[:1]), steps.feature_names
    assert len(names) == 115
    row = dict(zip(names, features[0].tolist(), strict=True))  # age 39, capital gain 2174, no loss, 40 hours
    assert row["age squared"] == pytest.approx(0.39**2)
    assert {name for name in names[104:] if row[name] == 1} == {"any capital-gain"}
    assert (steps.encode_codes(table)[:, -4:].mean(axis=0) > 0).all()
    with pytest.raises(ArgumentError, match="curves must be one of none, squares, steps"):
        load_adult(curves="cubes")


def test_the_split_is_public_disjoint_and_seeded(data):
    other = load_adult(split_seed=1)
    assert (load_adult(split_seed=0).public_features == data.public_features).all()
    assert not (other.public_features == data.public_features).all()
    assert (other.private_features == data.private_features).all()
    total = len(data.evaluation_labels)
    assert total + len(data.public_features) == 16_281
    assert len(load_adult(pool=16_000).evaluation_labels) == 281
    for pool in (0, 16_281, 20_000):
        with pytest.raises(ArgumentError, match="public points must be an integer from 1 to 16280"):
            load_adult(pool=pool)
    with pytest.raises(ArgumentError, match="split_seed must"):
        load_adult(split_seed=-1)


def test_components_come_from_the_public_pool(data):
    reduced = Projection(components=25).of(data)
    assert reduced.private_features.shape == (32_561, 25)
    pool = reduced.public_features.astype(np.float64)
    assert np.allclose(pool.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(np.cov(pool.T, bias=True), np.eye(25), atol=1e-4)
    assert not np.allclose(reduced.private_features.mean(axis=0), 0, atol=1e-3)  # as it would be, were it computed from them
    plain = Projection(components=25, whiten=0).of(data)
    assert (np.diff(plain.public_features.var(axis=0)) <= 1e-9).all()
    assert plain.public_features.var(axis=0).mean() == pytest.approx(1, abs=1e-4)
    for components in (0, 105):
        with pytest.raises(ArgumentError, match="components must"):
            Projection(components=components).of(data)


def test_the_student_may_see_more_than_the_teachers(data):
    same = Projection(components=5).of(data)
    assert same.student_public_features is same.public_features
    assert same.student_evaluation_features is same.evaluation_features
    richer = Projection(components=5, student_columns=True).of(data)
    assert (richer.public_features == same.public_features).all()
    assert (richer.student_public_features == data.public_features).all()
    assert (richer.student_evaluation_features == data.evaluation_features).all()
    assert (richer.student_private_features == data.private_features).all()
    assert richer.student_feature_names == data.feature_names
    assert same.student_feature_names == same.feature_names


def test_a_record_is_encoded_by_itself(table):
    """Same bits whatever other records stand beside it; see also the projection's own test."""
    encoding = AdultEncoding(curves="steps", weight=True)
    whole = encoding.encode_codes(table)
    rng = np.random.default_rng(0)
    for size in (1, 7, 100, 4097):
        rows = rng.choice(len(table), size, replace=False)
        assert (encoding.encode_codes(table[rows]) == whole[rows]).all()


def test_source_and_licence_are_stated():
    notice = Path(adult.__file__).with_name("ADULT_NOTICE.txt").read_text()
    for text in (notice, adult.__doc__):
        assert "CC BY 4.0" in text
        assert "Becker" in text
        assert "10.24432/C5XW20" in text
    assert all(digest in notice for digest in DIGESTS.values())
