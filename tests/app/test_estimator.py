"""PrivateClassifier: scikit-learn's interface, and nothing private in what is fitted, said or refused."""

from __future__ import annotations

import base64
import dataclasses
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import teacher_student as ts
from teacher_student.app import dispatch
from teacher_student.app.estimator import EXPECTED_FAILED_CHECKS
from teacher_student.arguments import ArgumentError, PrivacyWarning
from teacher_student.planning.recipe import recipe

pytestmark = pytest.mark.usefixtures("no_pictures")
SMALL = ["boosting.rounds=0", "teachers.number=50", "student.settings.epochs=16"]


def blobs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes, which lie 6 deviations apart in the first of three columns."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    return rng.normal(size=(count, 3)) + np.outer(labels, [6.0, 0, 0]), labels


X, Y = blobs(300, 0)
PUBLIC, _ = blobs(60, 1)
POINTS, TRUTH = blobs(200, 2)


def quick(**options) -> ts.PrivateClassifier:
    return ts.PrivateClassifier(**{"epsilon": 10.0, "classes": [0, 1], "settings": SMALL, **options})


@pytest.fixture(scope="module")
def fitted() -> ts.PrivateClassifier:
    from ..pictures import report_little

    with pytest.MonkeyPatch.context() as patch:
        report_little(patch)
        return quick().fit(X, Y, PUBLIC, ids=np.arange(len(X)))


def test_it_learns_and_says_what_it_cost(fitted):
    assert fitted.score(POINTS, TRUTH) > 0.95
    assert (fitted.certificate_.epsilon, fitted.certificate_.neighbours) == (10.0, "add_remove")
    fitted.certificate_.verify()
    assert fitted.certificate_.mechanism == "noisy_scores"
    assert fitted.classes_.tolist() == [0, 1]
    assert fitted.n_features_in_ == 3
    assert "<html" in fitted.report_
    assert "teachers.number=50" in fitted.settings_
    probabilities = fitted.predict_proba(POINTS)
    assert probabilities.shape == (200, 2)
    assert (fitted.classes_[probabilities.argmax(axis=1)] == fitted.predict(POINTS)).all()
    assert is_classifier(fitted)


def test_saved_it_loads_verifies_and_predicts_on_the_command_line(fitted, tmp_path, capsys):
    fitted.save(tmp_path / "mine")
    again = ts.PrivateClassifier.load(tmp_path / "mine")
    assert (again.predict_proba(POINTS) == fitted.predict_proba(POINTS)).all()
    assert again.classes_.dtype == fitted.classes_.dtype
    assert again.settings_ == fitted.settings_
    assert dispatch(["verify", str(tmp_path / "mine")]) == 0
    assert ts.load_student(tmp_path / "mine").predict_proba({f"x{i}": POINTS[:, i] for i in range(3)}) == pytest.approx(
        fitted.predict_proba(POINTS), abs=1e-5
    )
    with pytest.raises(ArgumentError, match="folder must be new or empty"):
        fitted.save(tmp_path / "mine")
    (tmp_path / "mine" / "estimator.json").write_text("{}")
    with pytest.raises(ArgumentError, match=r"PrivateClassifier\.save wrote"):
        ts.PrivateClassifier.load(tmp_path / "mine")


def secrets(records: np.ndarray) -> list[bytes]:
    """Bytes of private numbers in the forms in which an object may hold them."""
    chosen = records[:20].ravel()
    texts = [repr(float(value)).encode() for value in chosen]
    raw = [np.array(value, dtype).tobytes() for value in chosen for dtype in ("<f8", "<f4", ">f8")]
    return [*texts, *raw, *(base64.b64encode(part)[:-2] for part in raw[::3])]


def holds(thing: object, wanted: list[bytes]) -> bool:
    content = pickle.dumps(thing)
    return any(part in content for part in wanted if len(part) >= 4)


def test_nothing_private_stays_in_the_object(fitted):
    assert not holds(fitted, secrets(X))
    assert not holds(fitted.get_params(), secrets(X))
    twin = pickle.loads(pickle.dumps(fitted))
    twin.first_ = X[:1].astype(np.float32)
    assert holds(twin, secrets(X))  # the search sees what a careless fit would keep
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict(POINTS) == fitted.predict(POINTS)).all()


def test_without_public_points_labels_alone_are_private_and_it_says_so():
    with pytest.warns(PrivacyWarning, match="Labels alone are protected"):
        model = quick().fit(X, Y)
    assert model.certificate_.neighbours == "label_only"
    assert any("labels alone are protected" in line for line in model.certificate_.not_covered)
    assert model.score(POINTS, TRUTH) > 0.9


def test_without_a_list_of_classes_it_says_that_labels_give_it(recwarn):
    names = np.array(["no", "yes"])[Y]
    model = quick(classes=None).fit(X, names, PUBLIC)  # without ids
    assert any("classes were not given" in str(warning.message) for warning in recwarn)
    assert any("which classes there are" in line for line in model.certificate_.not_covered)
    assert set(model.predict(POINTS)) == {"no", "yes"}
    assert model.certificate_.neighbours == "replace_one"
    declared = quick(classes=["yes", "no"]).fit(X, names, PUBLIC)
    assert declared.classes_.tolist() == ["no", "yes"]
    assert not any("which classes there are" in line for line in declared.certificate_.not_covered)
    assert (declared.classes_[declared.predict_proba(POINTS).argmax(axis=1)] == declared.predict(POINTS)).all()


ODD = [np.nan, np.inf, -1e300, None, "prose", {"a": 1}, 10**400, b"\xff"]


def test_no_private_cell_refuses_warns_or_shows():
    """Records with odd cells change no message, and the others are encoded as before."""
    records, labels = X.astype(object), Y.astype(object)
    for place, odd in enumerate(ODD):
        records[7 + place, 1] = odd
        labels[50 + place] = odd
    model = quick()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(records, labels, PUBLIC, ids=np.arange(len(X)))
    assert model.score(POINTS, TRUTH) > 0.9
    beside = {"y": Y.tolist(), "ids": None, "users": None}
    sound, changed = (model._dataset(each, beside, PUBLIC, np.array([0, 1]), ()) for each in (X, records))
    others = np.delete(np.arange(len(X)), range(7, 7 + len(ODD)))
    assert (sound.private_features[others] == changed.private_features[others]).all()
    assert np.isfinite(changed.private_features).all()


def test_one_text_among_the_numbers_of_a_list_changes_no_other_record():
    """Power: read as one array, it would turn the truth values and whole numbers of all other records into other text."""
    rows = [[1.0, True], [0.0, False], [1.0, True]]
    model = quick()
    sound, odd = (model._rows("X", each) for each in (rows, [*rows[:2], ["1", "x"]]))
    assert [list(map(type, row)) for row in sound[:2]] == [list(map(type, row)) for row in odd[:2]]


def test_under_add_remove_nothing_shown_depends_on_the_number_of_records():
    few, many = (
        quick(population=100, settings=SMALL[:1] + SMALL[2:]).fit(X[:n], Y[:n], PUBLIC, ids=np.arange(n)) for n in (0, 300)
    )
    assert few.settings_ == many.settings_
    assert dataclasses.replace(few.certificate_, files={}) == dataclasses.replace(many.certificate_, files={})
    assert few.predict(POINTS).shape == (200,)  # it learned from no record


class Frame:
    """What `fit` needs of a DataFrame, for machines without pandas."""

    def __init__(self, columns: dict[str, list[object]]) -> None:
        self._columns, self.columns = columns, list(columns)
        self.shape = (len(self), len(columns))

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: str) -> list[object]:
        return self._columns[name]

    def to_dict(self) -> dict[str, list[object]]:
        return self._columns


def people(count: int, seed: int) -> tuple[dict[str, list[object]], list[str]]:
    rng = np.random.default_rng(seed)
    jobs, ages = rng.choice(["cook", "judge"], count), rng.integers(18, 90, count)
    pays = np.where(ages + 60 * (jobs == "judge") > 85, "yes", "no")
    return {"age": ages.tolist(), "job": jobs.tolist()}, pays.tolist()


@pytest.fixture(params=["stand-in", pytest.param("pandas", marks=pytest.mark.slow)])
def frame(request):
    if request.param == "pandas":
        return pytest.importorskip("pandas").DataFrame
    return Frame


def test_data_frames_with_text_columns_and_text_labels(frame, tmp_path):
    private, pays = people(300, 0)
    private["job"][3] = "a private job"
    points, _ = people(60, 1)
    model = quick(classes=["no", "yes"]).fit(frame(private), pays, frame(points))
    assert model.feature_names_in_.tolist() == ["age", "job"]
    assert "a private job" not in str(model.released_files_)
    rows, wanted = people(200, 2)
    assert model.score(frame(rows), wanted) > 0.7
    model.save(tmp_path / "mine")
    assert (ts.PrivateClassifier.load(tmp_path / "mine").predict(frame(rows)) == model.predict(frame(rows))).all()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame({"age": rows["age"], "work": rows["job"]}))
    declared = quick(classes=["no", "yes"], ranges={"age": [0, 100]}, categories={"job": ["cook", "judge"]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        assert declared.fit(frame(private), pays).student_.encoding.inner.feature_names == ("age", "job=cook", "job=judge")


@pytest.mark.slow
def test_any_scikit_learn_classifier_can_be_a_teacher_also_a_pipeline():
    teacher = make_pipeline(StandardScaler(), KNeighborsClassifier(1))
    model = quick(base_estimator=teacher).fit(X, Y, PUBLIC)
    assert model.certificate_.mechanism == "noisy_fraction"
    assert model.score(POINTS, TRUTH) > 0.9


@pytest.mark.slow
def test_images_are_asked_by_local_votes():
    images = np.repeat(np.repeat(X[:, :1, None], 4, axis=1), 4, axis=2).astype(np.float32)
    asked = np.repeat(np.repeat(PUBLIC[:, :1, None], 4, axis=1), 4, axis=2).astype(np.float32)
    images[5] = np.nan
    model = ts.PrivateClassifier(10.0, classes=[0, 1], settings=["student.settings.epochs=10"])
    model.fit(images, Y, asked, ids=np.arange(len(X)))
    assert model.certificate_.mechanism == "noisy_fraction"
    assert (model.predict(images[10:]) == Y[10:]).mean() > 0.9


def test_it_works_at_the_end_of_a_pipeline_and_can_be_cloned(fitted):
    model = make_pipeline(FunctionTransformer(lambda rows: rows / 10), quick())
    model.fit(X, Y, privateclassifier__public_X=PUBLIC / 10)
    assert model.score(POINTS, TRUTH) > 0.9
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copied.predict(POINTS)


def test_a_budget_counts_every_fit_and_refuses_the_one_too_many(tmp_path):
    budget = {"dataset": "people", "ledger": str(tmp_path / "ledger.sqlite"), "epsilon": 25.0, "delta": 1e-3}
    model = quick(budget=budget)
    model.fit(X, Y, PUBLIC).fit(X, Y, PUBLIC)
    assert len(model.certificate_.composition) == 1
    with pytest.raises(ArgumentError, match="epsilon"):
        model.fit(X, Y, PUBLIC)
    for wrong in ({}, {"ledger": "x"}, {"dataset": "a", "epslion": 1}, 3):
        with pytest.raises(ArgumentError, match="budget must be a mapping"):
            quick(budget=wrong).fit(X, Y, PUBLIC)


def test_a_folder_keeps_the_run(tmp_path):
    model = quick(folder=tmp_path / "run").fit(X, Y, PUBLIC)
    assert (tmp_path / "run" / "private").is_dir()
    assert dispatch(["verify", str(tmp_path / "run")]) == 0
    assert (ts.PrivateClassifier.load(tmp_path / "run").predict(POINTS) == model.predict(POINTS)).all()
    assert len({path.stat().st_mtime for path in (tmp_path / "run" / "release").rglob("*")}) == 1
    with pytest.raises(ArgumentError, match="new or an unfinished run"):
        quick(folder=tmp_path / "run").fit(X, Y, PUBLIC)


def test_no_folder_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    quick().fit(X, Y, PUBLIC)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    ("options", "given", "says"),
    [
        ({"epsilon": -1}, {}, "epsilon must be a number above 0"),
        ({"delta": 1.5}, {}, "delta must lie"),
        ({"classes": [0]}, {}, "classes must hold at least two classes, got one class"),
        ({"classes": None}, {"y": np.linspace(0, 1, 300)}, "continuous"),
        ({"classes": None}, {"y": np.zeros(300, int)}, "y must hold at least two classes, got one class"),
        ({"settings": ["teachers.nubmer=3"]}, {}, "did you mean teachers.number"),
        ({"settings": "student=mlp"}, {}, "settings must be a list"),
        ({"random_state": "x"}, {}, "random_state must be an integer"),
        ({}, {"y": Y[:5]}, "y must have one entry for each row of X, got another number of them"),
        ({}, {"ids": [1]}, "ids must have one entry for each row"),
        ({}, {"y": np.ones((300, 2))}, "y must have one dimension, got 2"),
        ({}, {"X": X[:, 0]}, "Reshape your data"),
        ({}, {"X": X[:, :2]}, "features"),
        ({}, {"X": X + 1j}, "Complex data not supported"),
        ({}, {"public_X": PUBLIC[:0]}, "public_X must have rows of shape"),
        ({}, {"public_X": np.ones((5, 3))}, "at least one feature column"),
    ],
    ids=str,
)
def test_bad_input_is_one_line_and_spends_nothing(options, given, says, tmp_path):
    ledger = tmp_path / "ledger.sqlite"
    with pytest.raises(ValueError, match=says) as refused:
        quick(budget={"dataset": "a", "ledger": str(ledger)}, **options).fit(**{"X": X, "y": Y, "public_X": PUBLIC, **given})
    assert "\n" not in str(refused.value)
    assert not ledger.exists()


@pytest.mark.slow
def test_a_column_of_labels_is_taken_with_scikit_learns_warning():
    with pytest.warns(DataConversionWarning):
        quick().fit(X, Y[:, None], PUBLIC)


CHEAP = {
    *("check_estimator_tags_renamed", "check_valid_tag_types", "check_estimator_repr", "check_no_attributes_set_in_init"),
    *("check_do_not_raise_errors_in_init_or_set_params", "check_mixin_order", "check_parameters_default_constructible"),
    *("check_get_params_invariance", "check_set_params", "check_estimators_unfitted", "check_fit1d", "check_requires_y_none"),
    *("check_complex_data", "check_estimators_empty_data_messages", "check_classifiers_one_label", "check_fit2d_1sample"),
    *("check_classifiers_regression_target", "check_supervised_y_no_nan", "check_estimator_sparse_array"),
    "check_n_features_in_after_fitting",
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_cheap_checks_pass():
    from sklearn.utils.estimator_checks import estimator_checks_generator

    found = {getattr(check, "func", check).__name__: (model, check) for model, check in estimator_checks_generator(quick_check())}
    assert set(found) >= CHEAP
    for name in sorted(CHEAP):
        model, check = found[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(model)


def quick_check() -> ts.PrivateClassifier:
    return ts.PrivateClassifier(settings=SMALL)


@pytest.mark.slow
def test_check_estimator_passes_but_for_what_is_explained():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(quick_check(), expected_failed_checks=EXPECTED_FAILED_CHECKS, on_fail=None)
    assert not [(result["check_name"], result["exception"]) for result in results if result["status"] == "failed"]
    known = {result["check_name"] for result in results}
    assert set(EXPECTED_FAILED_CHECKS) <= known


@pytest.mark.slow
def test_a_small_table_at_epsilon_1_is_above_its_majority_class():
    features, labels = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    private, public, rest = np.split(order, [284, 426])
    scores = [
        ts.PrivateClassifier(classes=[0, 1], random_state=seed)
        .fit(features[private], labels[private], features[public])
        .score(features[rest], labels[rest])
        for seed in range(4)
    ]
    assert np.mean(scores) > 0.85  # majority class 0.63; 0.92 ± 0.03 in 20 fits


def test_the_recipe_grows_with_public_sizes():
    sizes = {"points": 1000, "classes": 2, "delta": 1e-5}
    made = [recipe("table", records=n, epsilon=1.0, **sizes) for n in (100, 2000, 50_000)]
    assert [int(each["data.view.components"]) for each in made] == [5, 23, 105]
    assert [int(each["teachers.number"]) for each in made] == [100, 2000, 16_000]
    with pytest.raises(ArgumentError, match="kind must be one of"):
        recipe("trees", records=1, epsilon=1.0, **sizes)
