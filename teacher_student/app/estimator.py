"""`PrivateClassifier`: a run behind scikit-learn's interface.

`fit` composes the settings of `teacher-student run`, with what `planning.recipe` takes for public sizes, runs them on arrays or
DataFrames in memory, and keeps the files of `release/`. Nothing that was computed from private records stays in the object but
what the certificate covers.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from hydra.utils import instantiate
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from teacher_student.aggregation.release import bind_files, load_release, release_folder
from teacher_student.app.composing import compose
from teacher_student.app.settings import settings_from_config
from teacher_student.arguments import (
    ArgumentError,
    PrivacyWarning,
    any_array,
    file_path,
    listed,
    positive_integer,
    positive_number,
    probability,
)
from teacher_student.data import PrivateDataset
from teacher_student.data.dataset import UNUSABLE
from teacher_student.data.splits import public_split
from teacher_student.data.table_files import Columns, as_category, is_frame, is_missing
from teacher_student.data.tables import load_table
from teacher_student.data.views import LabelsOnly
from teacher_student.monitoring.console import Display
from teacher_student.pipeline import BudgetSettings, load_student, run
from teacher_student.pipeline.folder import PUBLISHED, write_text
from teacher_student.pipeline.settings import Estimator
from teacher_student.planning.recipe import recipe, why

DESCRIPTION, REPORT = "estimator.json", "report.html"
MOST_POINTS = 10_000
"""Public points that are asked: more cost time, and hardly make a better student."""
_IN_MEMORY = {"logger": "none", "baselines": "false", "run_folder": "memory", "data.path": "memory", "data.label": "label"}
"""Settings of every fit: what the config says of data that is not read from a file."""
_CLASSES_OF_LABELS = "which classes there are: their list was taken from the labels"

Array = npt.NDArray[Any]

_FRESH_NOISE = "two fits on the same records draw different noise, and with a dozen records the student is little else"
EXPECTED_FAILED_CHECKS = dict.fromkeys(
    ("check_fit_idempotent", "check_classifier_data_not_an_array", "check_supervised_y_2d"), _FRESH_NOISE
)
"""Checks of scikit-learn that privacy forbids to pass, and why; for `check_estimator(..., expected_failed_checks=...)`.

All three compare the predictions of two fits. Everything else in them holds: other kinds of arrays are taken, and a column vector
of labels gives scikit-learn's warning.
"""


class PrivateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that may be published: it learns from private records with differential privacy.

    `fit(X, y, public_X)` trains teachers on disjoint shards of the private records, asks them about the public points, and trains
    a student on the noisy answers (`teacher-student run`). What is fitted is the student alone. Each `fit` spends `epsilon` and
    `delta` again: two fits on the same records, as in cross-validation or a grid search, cost twice, and choosing among them by
    private figures is not covered. `budget` keeps count.

    Who is protected follows from what `fit` is given:

    - `public_X` and `ids` (or `users`): one record (one user) more or less (`add_remove`). Then the number of records is private.
    - `public_X` alone: one record is replaced (`replace_one`).
    - no `public_X`: features are public, and one label changes (`label_only`). A `PrivacyWarning` says so.

    How records are encoded is public: from `ranges` and `categories`, or from `public_X`. A missing number counts as the middle
    of its range, a number outside as the nearest end, and an unknown category as none. A record without a usable label has no
    teacher. No private value is refused. Transformers before it in a `Pipeline` must not learn from private records: use
    stateless ones, or put the pipeline into `base_estimator`, where every teacher has its own.

    Args:
        epsilon: of one fit.
        delta: of one fit.
        classes: public list of classes. None takes the categories of a categorical `y`, False and True for truth values, and else
            the labels in `y`: the certificate then says that this list is not protected, and a `PrivacyWarning`, too.
        base_estimator: a scikit-learn classifier for each teacher, or None for what the recipe takes.
        settings: overrides as after `teacher-student run`, such as ["teachers.number=2000", "student=mlp"]. They win over the
            recipe.
        ranges: {column: (low, high)} of numeric columns, which are "x0", "x1", ... in arrays.
        categories: {column: [value, ...]} of the other columns. With either, only declared columns are features.
        population: public order of magnitude of the number of records, for `add_remove`; None takes the number of public points.
        budget: {"dataset": public name of the records, "ledger": file, "epsilon": limit, "delta": limit}, as `budget.*` of
            `teacher-student run`. None keeps no ledger.
        folder: a new folder, in which `release/` may be published and `private/` must not; None keeps no private file.
        n_jobs: processes for teachers that are scikit-learn classifiers.
        random_state: seed of weights, batches and public splits. It never reaches the noise, so two fits differ.
        verbose: show the stages of the run.

    Attributes:
        classes_: (num_classes,) sorted.
        n_features_in_: columns of X.
        feature_names_in_: their names, if X was a DataFrame.
        certificate_: what the fit cost, and under which relation.
        release_: the noisy answers from which the student learned.
        student_: the published student, which takes raw rows.
        report_: the publishable report, as HTML.
        settings_: the overrides of `teacher-student run` that were used.
    """

    feature_names_in_: Array

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        classes: Sequence[Any] | None = None,
        base_estimator: Any = None,
        settings: Sequence[str] = (),
        ranges: Mapping[str, Sequence[float]] | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
        population: int | None = None,
        budget: Mapping[str, Any] | None = None,
        folder: str | os.PathLike[str] | None = None,
        n_jobs: int | None = None,
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.base_estimator = base_estimator
        self.settings = settings
        self.ranges = ranges
        self.categories = categories
        self.population = population
        self.budget = budget
        self.folder = folder
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn's checks should know: noise is fresh in every fit, and few records give a poor score."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there is a student."""
        return hasattr(self, "student_")

    def fit(self, X: Any, y: Any, public_X: Any = None, *, ids: Any = None, users: Any = None) -> Self:
        """Spend epsilon and delta on a student.

        Args:
            X: (n, d) private records, an array or a DataFrame; or (n, ...) numbers, such as images.
            y: (n,) their labels.
            public_X: (m, d) public points that resemble them. None takes the records themselves: then labels alone are private.
            ids: (n,) ids stored with the records, for `add_remove`. Never their positions.
            users: (n,) the owner of each record, for `add_remove` of users.

        Raises:
            ArgumentError: settings, columns or public values that cannot be used; nothing was spent.
        """
        privacy = {"epsilon": positive_number("epsilon", self.epsilon), "delta": probability("delta", self.delta)}
        seed = 0 if self.random_state is None else positive_integer("random_state", self.random_state, minimum=0)
        budget = _budget(self.budget)
        records = self._rows("X", X, y)
        columns = {"y": _column("y", y), "ids": _column("ids", ids), "users": _column("users", users)}
        labels = columns["y"] or []
        for name, cells in columns.items():
            if cells is not None and len(cells) != len(records):
                raise ArgumentError(f"{name} must have one entry for each row of X, got another number of them")
        points = None if public_X is None else self._points(public_X, records.shape[1:], seed)
        classes, not_covered = _class_list(self.classes, y, labels)
        size = len(records)
        if points is None and size < 2:
            raise ArgumentError(f"X must have at least two rows where public_X is not given, got n_samples = {size}")
        if points is not None and (ids is not None or users is not None):  # add_remove: the number of records is private
            size = len(points) if self.population is None else positive_integer("population", self.population)
        asked = min(size - 1, MOST_POINTS) if points is None else len(points)
        kind = "images" if records.ndim > 2 else "table" if self.base_estimator is None else "estimators"
        taken = recipe(kind, records=size, points=asked, classes=len(classes), **privacy)
        chosen = self._overrides(taken, privacy, seed)
        config = compose("run", chosen)
        view = instantiate(config.data.view)
        if points is None:
            _warn(
                "public_X was not given, so the records themselves are the public points. Labels alone are protected: features, "
                "their number and their order count as public (label_only)."
            )
            view = LabelsOnly(number=asked, seed=seed, view=view)
        load = functools.partial(self._dataset, records, columns, points, classes, not_covered)
        chosen_for = why(taken, records=size, points=asked, epsilon=privacy["epsilon"])
        settings = settings_from_config(config, functools.partial(view.load, load), chosen_for)
        settings = dataclasses.replace(settings, budget=budget, config=settings.config + _digest(points))
        if self.base_estimator is not None:
            teacher = Estimator(clone(self.base_estimator), 1 if self.n_jobs is None else self.n_jobs)
            settings = dataclasses.replace(settings, learner=teacher)
        with tempfile.TemporaryDirectory(prefix="teacher-student-") as scratch:
            path = Path(scratch) / "run" if self.folder is None else file_path("folder", self.folder).expanduser()
            result = run(settings, path, _Console("auto" if self.verbose else "quiet"))
            if result is None:
                raise ArgumentError("fit must run in one process, got several that torchrun or Slurm has started")
            self._describe(result.folder.release, classes, chosen)
            self._read(result.folder.release)
        return self

    def predict(self, X: Any) -> Array:
        """Return (n,) the likeliest class of each row, the first one of equals."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likeliest]  # type: ignore[no-any-return]

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return (n, num_classes) probabilities, columns in the order of `classes_`."""
        check_is_fitted(self)
        rows = self._rows("X", X)
        features = torch.as_tensor(self.student_.encode(self._table(rows)), dtype=torch.float64)
        network = copy.deepcopy(self.student_).double().eval()  # so that a row's place in X moves no digit that is shown
        with torch.inference_mode():
            return network(features).softmax(dim=1).numpy()  # type: ignore[no-any-return]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write what may be published into a new folder: answers, certificate, student and report.

        `load` reads it, and so do `teacher-student verify` and `predict`.

        Raises:
            ArgumentError: the folder exists and is not empty, or cannot be written.
        """
        check_is_fitted(self)
        target = file_path("folder", folder).expanduser()
        try:
            target.mkdir(parents=True, exist_ok=True)
            if any(target.iterdir()):
                raise ArgumentError(f"folder must be new or empty, got {target}")
            for name, content in self.released_files_.items():
                (target / name).write_bytes(content)
                os.utime(target / name, (PUBLISHED, PUBLISHED))
            os.utime(target, (PUBLISHED, PUBLISHED))
        except OSError as error:
            raise ArgumentError(f"folder must be a folder that can be written, got {target} ({error.strerror})") from error

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Return the fitted classifier of a folder that `save` wrote, or of the `folder` of a fit. Nothing is unpickled.

        Raises:
            ArgumentError: no such folder, or a file that the certificate binds was changed.
        """
        return cls()._read(release_folder(folder))

    def _rows(self, name: str, X: Any, y: Any = "no_validation") -> Array:
        """Return X as an array, (n, d) cells or (n, ...) numbers; only its type and its shape may be refused.

        Given `y`, columns are learned, else they must be those of the fit.
        """
        if scipy.sparse.issparse(X):
            raise ArgumentError(f"{name} must be dense, got a sparse matrix")
        array = _cells_of_frame(X) if is_frame(X) else _array(name, X)
        if array.dtype.kind == "c":
            raise ArgumentError(f"{name} must hold real numbers or text: Complex data not supported")
        if array.ndim < 2:
            raise ArgumentError(f"{name} must have two dimensions, got {array.ndim}. Reshape your data: a single row is [row]")
        if 0 in array.shape[1:]:
            raise ArgumentError(f"{name} must have a column, got 0 feature(s) (shape=(, 0)) while a minimum of 1 is required.")
        names = (
            [str(column) for column in X.columns] if is_frame(X) and all(isinstance(each, str) for each in X.columns) else None
        )
        learn = not isinstance(y, str)
        if names is not None and not learn and hasattr(self, "feature_names_in_"):
            if names != (known := [str(column) for column in self.feature_names_in_]):
                raise ArgumentError(
                    f"The feature names of {name} should match those that were passed during fit, {', '.join(known)}, got "
                    f"{', '.join(names)}"
                )
            return array
        validate_data(self, array, y, reset=learn, skip_check_array=True)
        if learn and names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        return array

    def _points(self, public_X: Any, shape: tuple[int, ...], seed: int) -> Array:
        """Return public points, at most `MOST_POINTS` of them."""
        points = self._rows("public_X", public_X)
        if points.shape[1:] != shape or not len(points):
            raise ArgumentError(f"public_X must have rows of shape {shape}, as X, and at least one, got shape {points.shape}")
        return points[public_split(len(points), MOST_POINTS, seed)[0]] if len(points) > MOST_POINTS else points

    def _table(self, rows: Array) -> Array | Columns:
        """Return (n, d) cells as named columns; images as they are."""
        names = getattr(self, "feature_names_in_", [f"x{place}" for place in range(rows.shape[1])])
        return rows if rows.ndim > 2 else dict(zip(names, rows.T.tolist(), strict=True))

    def _dataset(
        self,
        records: Array,
        beside: Mapping[str, Any],
        points: Array | None,
        classes: Array,
        not_covered: Sequence[str],
        neighbours: str = "",
    ) -> PrivateDataset:
        """Return what a run takes: the loader of data in memory, which a view calls.

        Args:
            records: (n, ...) private.
            beside: (n,) cells of y, ids and users, or None.
            points: (m, ...) public, or None where labels alone are private.
            classes: (num_classes,) public.
            not_covered: for the certificate.
            neighbours: "label_only" without public points, else "" for what ids and users support.
        """
        names = [_name(value) for value in classes]
        seen, public = self._table(records), None if points is None else self._table(points)
        if isinstance(seen, dict):
            special = {key: _free(key, seen) for key, cells in beside.items() if cells is not None}
            dataset = load_table(
                {**seen, **{name: beside[key] for key, name in special.items()}},
                special["y"],
                id=special.get("ids"),
                user=special.get("users"),
                classes=names,
                public=public,
                ranges=self.ranges,
                categories=self.categories,
                neighbours=neighbours,
                name="records",
            )
            return dataclasses.replace(dataset, not_covered=tuple(not_covered))
        place = {name: index for index, name in enumerate(names)}
        return PrivateDataset(
            name="records",
            num_classes=len(names),
            class_names=tuple(names),
            private_features=np.asarray(seen),
            private_labels=np.array([place.get(_name(cell), UNUSABLE) for cell in beside["y"]], dtype=np.int64),
            private_ids=beside["ids"],
            private_users=beside["users"],
            public_features=np.asarray(seen if public is None else public),
            neighbours=neighbours,
            not_covered=tuple(not_covered),
        )

    def _overrides(self, taken: Mapping[str, str], privacy: Mapping[str, float], seed: int) -> list[str]:
        """Return overrides of `conf/run.yaml`: those of the recipe, and the user's own, which win."""
        fixed = {f"privacy.{name}": repr(value) for name, value in privacy.items()} | {"seed": str(seed), **_IN_MEMORY}
        chosen = {key: f"{key}={value}" for key, value in {**taken, **fixed}.items()}
        for override in listed("settings", self.settings):
            chosen[str(override).lstrip("+").partition("=")[0]] = str(override)
        return list(chosen.values())

    def _describe(self, release: Path, classes: Array, chosen: list[str]) -> None:
        """Add to a release what `load` needs to know beside the student, and bind the certificate to it."""
        names = getattr(self, "feature_names_in_", None)
        description = {
            "classes": classes.tolist(),
            "n_features_in": self.n_features_in_,
            "feature_names_in": None if names is None else names.tolist(),
            "settings": chosen,
        }
        write_text(release / DESCRIPTION, json.dumps(description, indent=2, default=str) + "\n")
        bind_files(release)
        for path in (*release.iterdir(), release):
            os.utime(path, (PUBLISHED, PUBLISHED))

    def _read(self, release: Path) -> Self:
        """Take everything that is fitted from the files of a release."""
        try:
            files = {path.name: path.read_bytes() for path in sorted(release.iterdir()) if path.is_file()}
            description = json.loads(files[DESCRIPTION])
            self.classes_ = np.array(description["classes"])
            self.n_features_in_ = int(description["n_features_in"])
            if description["feature_names_in"] is not None:
                self.feature_names_in_ = np.array(description["feature_names_in"], dtype=object)
            self.settings_ = [str(override) for override in description["settings"]]
            self.report_ = files[REPORT].decode()
        except (OSError, KeyError, ValueError, TypeError) as error:
            raise ArgumentError(f"folder must be one that PrivateClassifier.save wrote, got {release}: {error}") from error
        self.release_ = load_release(release)
        self.certificate_ = self.release_.certificate
        self.student_ = load_student(release)
        self.released_files_ = files
        return self


class _Console(Display):
    """Issues warnings as Python's."""

    def warn(self, text: str) -> None:
        """Issue a `PrivacyWarning`."""
        _warn(text)

    alert = warn


def _warn(text: str) -> None:
    warnings.warn(text, PrivacyWarning, stacklevel=3)


def _budget(given: Mapping[str, Any] | None) -> BudgetSettings:
    """Return where the cost is recorded, with the defaults of `teacher-student run`; nowhere if nothing is given."""
    if given is None:
        return BudgetSettings()
    known = [field.name for field in dataclasses.fields(BudgetSettings)]
    if not isinstance(given, Mapping) or not set(given) <= set(known) or not given.get("dataset"):
        raise ArgumentError(f"budget must be a mapping of {', '.join(known)} that names the dataset, got {given!r}")
    return BudgetSettings(**{"ledger": os.environ.get("TEACHER_STUDENT_LEDGER", "runs/ledger.sqlite"), **given})


def _cells_of_frame(frame: Any) -> Array:
    """Return (n, d) cells of a DataFrame as objects."""
    names = list(frame.columns)
    array = np.empty((len(frame), len(names)), dtype=object)
    for place, name in enumerate(names):
        array[:, place] = list(frame[name])
    return array


def _array(name: str, values: Any) -> Array:
    """Return values as an array; cells of a list as they are, or one text among numbers would turn all of them into text."""
    array = np.array(values, dtype=object) if isinstance(values, list | tuple) else any_array(name, values, "be an array")
    return any_array(name, values, "have rows of one shape") if array.dtype.kind == "O" and array.ndim > 2 else array


def _column(name: str, values: Any) -> list[Any] | None:
    """Return the cells of one column."""
    if values is None:
        return None
    array = values.to_numpy() if hasattr(values, "to_numpy") else _array(name, values)
    if array.ndim == 2 and array.shape[1] == 1:
        text = f"A column-vector {name} was passed when a 1d array was expected"  # scikit-learn's words
        warnings.warn(text, DataConversionWarning, stacklevel=3)
        array = array[:, 0]
    if array.ndim != 1:
        raise ArgumentError(f"{name} must have one dimension, got {array.ndim}")
    return list(array) if array.dtype.kind == "O" else array.tolist()


def _class_list(declared: Sequence[Any] | None, y: Any, cells: Sequence[Any]) -> tuple[Array, list[str]]:
    """Return (num_classes,) sorted classes, and what the certificate has to say about where they come from."""
    if declared is not None:
        return _distinct_classes("classes", listed("classes", declared)), []
    if (dtype := getattr(y, "dtype", None)) is not None and hasattr(dtype, "categories"):
        return _distinct_classes("y", list(dtype.categories)), []
    if cells and all(isinstance(cell, bool) for cell in cells):
        return np.array([False, True]), []
    found = _distinct_classes("y", [cell for cell in cells if not is_missing(cell)])
    if found.dtype.kind == "f" and not (np.isfinite(found) & (found == np.round(found))).all():
        raise ArgumentError("y must hold classes where classes are not given, got continuous numbers; give classes=[...]")
    _warn(
        "classes were not given, so the labels in y are the public list of classes: that a class occurs at all is not protected. "
        "Give classes=[...]."
    )
    return found, [_CLASSES_OF_LABELS]


def _distinct_classes(name: str, values: Sequence[Any]) -> Array:
    try:
        found = np.unique(np.array(values))
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name} must hold classes of one type, which can be sorted, got others") from error
    if len(found) < 2 or found.ndim != 1:
        raise ArgumentError(f"{name} must hold at least two classes, got {['no', 'one'][len(found)]} class")
    return found


def _name(value: Any) -> str:
    """Return the text by which a label is compared: 1, 1.0 and "1" are one class."""
    return as_category(value, ())


def _free(name: str, columns: Mapping[str, Any]) -> str:
    """Return a name that no column has."""
    while name in columns:
        name += "_"
    return name


def _digest(points: Array | None) -> str:
    """Return a line for the config, so that a run is not resumed with other public points."""
    text = "none" if points is None else hashlib.sha256(repr(points.tolist()).encode()).hexdigest()
    return f"# public points: {text}\n"
