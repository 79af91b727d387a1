"""Evaluation, and diagnostics for the owner of the data alone: comparison models, single teachers, figures of votes.

Diagnostics are made of private data without noise, after `release/` is complete. They cannot stop a run, and nothing that anybody
else sees depends on them: not the console, not the exit code, no file outside `private/`. Failures go to `private/failures.txt`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from torch import nn

from teacher_student.aggregation.ledger import Account
from teacher_student.data import PrivateDataset
from teacher_student.data.fingerprints import private_remarks
from teacher_student.monitoring.report import PrivateFacts, write_private_report
from teacher_student.monitoring.tensorboard import write_private_events
from teacher_student.pipeline.budget import recognise
from teacher_student.pipeline.rounds import Mode
from teacher_student.pipeline.settings import EachRecord
from teacher_student.pipeline.stages import Run, Teachers, fit, one_process
from teacher_student.student import Targets, predict_probabilities, targets_from_labels
from teacher_student.student.evaluation import confusion_matrix
from teacher_student.student.evaluation import evaluate as metrics_of
from teacher_student.teachers import predict_votes

FAILURES, NOTES = "failures.txt", "notes.txt"
MEASURED = 500
"""Most points on which single teachers are measured."""
STEPS = 1500
"""Most optimiser steps of a comparison model: it has many more labels than the student, so it needs fewer passes."""

Figures = dict[str, float]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Figures of one student on the evaluation set.

    Attributes:
        metrics: by name; empty without an evaluation set.
        majority: share of the evaluation set's largest class, or None without a set.
        confusion: (num_classes, num_classes) counts, or None without a set.
        public: whether the evaluation set, and so all of this, may be published.
    """

    metrics: Figures
    majority: float | None
    confusion: npt.NDArray[np.int64] | None
    public: bool


NO_EVALUATION = Evaluation({}, None, None, public=True)
"""Of a student that was not evaluated."""


def evaluate(network: nn.Module, dataset: PrivateDataset) -> Evaluation:
    """Evaluate a network, from the student's features to logits, on the dataset's evaluation set."""
    features, labels = dataset.student_evaluation_features, dataset.evaluation_labels
    if features is None or labels is None:
        return dataclasses.replace(NO_EVALUATION, public=dataset.evaluation_public)
    probabilities = predict_probabilities(network, features)
    return Evaluation(
        metrics=metrics_of(probabilities, labels),
        majority=float(np.bincount(labels).max() / len(labels)),
        confusion=confusion_matrix(probabilities, labels),
        public=dataset.evaluation_public,
    )


class Asked(NamedTuple):
    """A run whose teachers were asked, and what they said. Private."""

    run: Run
    mode: Mode
    account: Account | None
    votes: npt.NDArray[Any]
    teachers: Teachers
    warnings: Sequence[str] = ()


class Attempts:
    """Calls what may fail on odd records; failures, and the warnings of libraries, go into a file.

    Args:
        path: of the file; an older one is deleted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)

    def __call__(self, what: str, make: Callable[[], T]) -> T | None:
        """Return what `make` returns, or None if it fails."""
        remarks = io.StringIO()
        with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.redirect_stderr(remarks):
            warnings.simplefilter("ignore")
            try:
                return make()
            except Exception:  # noqa: BLE001 - whatever it is, it may come from a private record
                self.tell(f"{what}\n{traceback.format_exc()}{remarks.getvalue()}\n")
        return None

    def tell(self, text: str) -> None:
        """Append to the file; a full disk is no reason to stop."""
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(text)


def write_notes(run: Run, account: Account | None) -> None:
    """Write what the owner of the data should know before labels are paid for."""
    attempt = Attempts(run.folder.private / NOTES)
    notes = list(attempt("records", lambda: private_remarks(run.dataset)) or ())
    if account is not None:
        notes.append(attempt("ledger", lambda: recognise(account, run.dataset)) or "")
    attempt.tell("".join(f"{note}\n" for note in notes if note))


@dataclasses.dataclass(frozen=True)
class Diagnostics:
    """Private results.

    Attributes:
        evaluation: of the student; on a private evaluation set it is made here.
        figures: of the models without privacy, by name.
    """

    evaluation: Evaluation
    figures: dict[str, Figures]


def diagnose(asked: Asked, student: nn.Module | None, evaluation: Evaluation) -> Diagnostics:
    """Write the private report, for people and for TensorBoard; compare the student with models without privacy.

    Args:
        asked: the run, whose release is complete, and the teachers of its first round.
        student: the published one, or None if nothing was answered.
        evaluation: of the student on a public evaluation set.
    """
    attempt = Attempts(asked.run.folder.private / FAILURES)
    found = attempt("diagnostics", lambda: _diagnose(asked, student, evaluation, attempt))
    return found or Diagnostics(evaluation, {})


def _diagnose(asked: Asked, student: nn.Module | None, evaluation: Evaluation, attempt: Attempts) -> Diagnostics:
    run, settings, private = asked.run, asked.run.settings, asked.run.folder.private
    counts = attempt("votes", lambda: asked.mode.count_votes(asked.votes))
    alone = attempt("single teachers", lambda: _single_teachers(run, asked.teachers))
    figures: dict[str, Figures] = {}
    if student is not None:
        if not run.dataset.evaluation_public:
            evaluation = attempt("student", lambda: evaluate(student, run.dataset)) or NO_EVALUATION
        if settings.baselines and run.dataset.evaluation_labels is not None:
            noiseless = None if counts is None else attempt("noiseless labels", lambda: asked.mode.noiseless_targets(counts))
            figures = dict(_compare(run, noiseless, alone, attempt))
    models = {"student": evaluation.metrics, **figures} if evaluation.metrics else figures
    facts = None if counts is None else attempt("figures of votes", lambda: _facts(run, counts, models, alone))
    if facts is not None:
        attempt("report", lambda: write_private_report(private / "report.html", facts))
        if settings.tensorboard:
            attempt("TensorBoard", lambda: write_private_events(private / "tensorboard", facts))
    return Diagnostics(evaluation, figures)


class _Alone(NamedTuple):
    """Of each teacher by itself: (num_teachers,) whether it abstains on all points, its accuracy or None without evaluation."""

    abstains: npt.NDArray[np.bool_]
    accuracy: npt.NDArray[np.float64] | None


def _single_teachers(run: Run, teachers: Teachers) -> _Alone:
    dataset, options = run.dataset, one_process(run.settings.trainer)
    if isinstance(teachers, EachRecord):
        return _Alone(np.zeros(0, dtype=np.bool_), None)
    votes = np.concatenate(list(predict_votes(teachers, dataset.public_features[:MEASURED], trainer_options=options)))
    abstains = np.asarray((votes < 0).all(axis=0))
    if dataset.evaluation_features is None or dataset.evaluation_labels is None or not run.settings.baselines:
        return _Alone(abstains, None)
    points, labels = dataset.evaluation_features[:MEASURED], dataset.evaluation_labels[:MEASURED]
    votes = np.concatenate(list(predict_votes(teachers, points, trainer_options=options)))
    return _Alone(abstains, np.asarray((votes == labels[:, None]).mean(axis=0)))


def _compare(run: Run, noiseless: Targets | None, alone: _Alone | None, attempt: Attempts) -> Iterator[tuple[str, Figures]]:
    """Yield the figures of the majority class, of one teacher, and of models that saw private data without noise."""
    labels = run.dataset.evaluation_labels
    assert labels is not None
    yield "majority class", {"accuracy": float(np.bincount(labels).max() / len(labels))}
    if alone is not None and alone.accuracy is not None and (holders := np.diff(run.shards.offsets) > 0).any():
        yield "one teacher alone, on average", {"accuracy": float(alone.accuracy[holders].mean())}
    for name, make in baselines(run, noiseless).items():
        if (found := attempt(name, make)) is not None:
            yield name, found


def baselines(run: Run, noiseless: Targets | None) -> dict[str, Callable[[], Figures]]:
    """Return what privacy cost: functions that fit a model and return its figures on the evaluation set; empty without one.

    Each may fail on odd records.

    Args:
        run: the student learns once more from the private records themselves.
        noiseless: for each public point what the teachers say, for a student of answers without noise; or None. Private.
    """
    dataset = run.dataset
    if dataset.evaluation_labels is None:
        return {}
    models: dict[str, Callable[[], Figures]] = {"non-private model": lambda: _figures(run, *_records(dataset))}
    if noiseless is None:
        return models
    return {"student of noiseless labels": lambda: _figures(run, dataset.student_points, noiseless), **models}


def _records(dataset: PrivateDataset) -> tuple[npt.NDArray[np.float32], Targets]:
    """Return the private records with finite features and a label, and their labels as targets."""
    records = dataset.private_features if dataset.student_private_features is None else dataset.student_private_features
    usable = np.asarray(np.isfinite(records.reshape(len(records), -1)).all(axis=1)) & (dataset.private_labels >= 0)
    return records[usable], targets_from_labels(dataset.private_labels[usable], dataset.num_classes)


def _figures(run: Run, points: npt.NDArray[np.float32], targets: Targets) -> Figures:
    settings = run.settings.student
    epochs = min(settings.epochs, max(1, STEPS * settings.batch_size // len(points)))
    plain = dataclasses.replace(settings, epochs=epochs, method="supervised", label_noise=0.0, propagation=0.0)
    return evaluate(fit(run, targets, points=points, settings=plain).publishable, run.dataset).metrics


def _facts(run: Run, counts: npt.NDArray[np.integer], models: dict[str, Figures], alone: _Alone | None) -> PrivateFacts:
    ordered = np.sort(counts, axis=1).astype(np.int64)
    sizes = np.zeros(0, dtype=np.int64) if run.settings.each_record else np.diff(run.shards.offsets)
    accuracy = None if alone is None or alone.accuracy is None else alone.accuracy[sizes > 0]
    return PrivateFacts(
        name=run.settings.name,
        models=models,
        gaps=ordered[:, -1] - ordered[:, -2],
        winners_share=ordered[:, -1] / np.maximum(ordered.sum(1), 1),
        shard_sizes=sizes,
        teacher_accuracy=accuracy if accuracy is not None and len(accuracy) else None,
        empty=int((sizes == 0).sum()),
        abstaining=None if alone is None else int(alone.abstains.sum()),
        evaluated=0 if run.dataset.evaluation_labels is None else len(run.dataset.evaluation_labels),
    )
