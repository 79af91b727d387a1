"""What the keeper alone sees: comparison models, single teachers, figures of votes. Made of private data without noise.

It comes after `release/` is complete, and it cannot stop a run. Nothing that anybody else sees depends on how it went: not the
console, not the exit code, no file outside `private/`. What failed is told in `private/failures.txt`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from torch import nn

from teacher_student.aggregation.ledger import Account
from teacher_student.data import PrivateDataset, Shards
from teacher_student.data.fingerprints import private_remarks
from teacher_student.monitoring.report import PrivateFacts, write_private_report
from teacher_student.monitoring.tensorboard import write_private_events
from teacher_student.pipeline.baselines import Figures, baselines
from teacher_student.pipeline.budget import recognise
from teacher_student.pipeline.evaluation import NO_EVALUATION, Evaluation, evaluate
from teacher_student.pipeline.modes import mode_for
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import Run, Teachers, one_process, votes_on

FAILURES, NOTES = "failures.txt", "notes.txt"
MEASURED = 500
"""Most points on which single teachers are measured."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Diagnostics:
    """What was found. Private.

    Attributes:
        evaluation: of the student; on a private evaluation set it is made here.
        figures: of the models without privacy, by name.
    """

    evaluation: Evaluation
    figures: dict[str, Figures]


class Attempts:
    """Calls what may fail on odd records; failures, and what libraries complain of then, go into a file.

    Args:
        path: of the file, begun anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)

    def __call__(self, what: str, make: Callable[[], T]) -> T | None:
        """Return what `make` returns, or None where it fails."""
        remarks = io.StringIO()
        with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.redirect_stderr(remarks):
            warnings.simplefilter("ignore")
            try:
                return make()
            except Exception:  # noqa: BLE001 - whatever it is, it may come from a private record
                self.tell(f"{what}\n{traceback.format_exc()}{remarks.getvalue()}\n")
        return None

    def tell(self, text: str) -> None:
        """Add to the file; a full disk is no reason to stop."""
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(text)


def write_notes(run: Run, account: Account | None) -> None:
    """Write what the keeper should know of the private data before labels are paid for."""
    attempt = Attempts(run.folder.private / NOTES)
    notes = list(attempt("records", lambda: private_remarks(run.dataset)) or ())
    if account is not None:
        notes.append(attempt("ledger", lambda: recognise(account, run.dataset)) or "")
    attempt.tell("".join(f"{note}\n" for note in notes if note))


def diagnose(
    run: Run, shards: Shards, votes: npt.NDArray[Any], teachers: Teachers, student: nn.Module | None, evaluation: Evaluation
) -> Diagnostics:
    """Write the private report, for people and for TensorBoard; compare the student with models without privacy.

    Args:
        run: whose release is complete.
        shards: of its records.
        votes: of its teachers.
        teachers: of the first round.
        student: the published one, or None where nothing was answered.
        evaluation: of the student on a public evaluation set.
    """
    attempt = Attempts(run.folder.private / FAILURES)
    found = attempt("diagnostics", lambda: _diagnose(run, shards, votes, teachers, student, evaluation, attempt))
    return found or Diagnostics(evaluation, {})


def _diagnose(
    run: Run,
    shards: Shards,
    votes: npt.NDArray[Any],
    teachers: Teachers,
    student: nn.Module | None,
    evaluation: Evaluation,
    attempt: Attempts,
) -> Diagnostics:
    settings, dataset, folder = run.settings, run.dataset, run.folder
    answers = mode_for(settings)
    counts = attempt("votes", lambda: answers.count_votes(votes, settings))
    alone = attempt("single teachers", lambda: _single_teachers(dataset, teachers, settings))
    figures: dict[str, Figures] = {}
    if student is not None:
        if not dataset.evaluation_public:
            evaluation = attempt("student", lambda: evaluate(student, dataset)) or NO_EVALUATION
        if settings.baselines and dataset.evaluation_labels is not None:
            figures = _compare(dataset, settings, counts, shards, alone, attempt)
    models = {"student": evaluation.metrics, **figures} if evaluation.metrics else figures
    facts = attempt("figures of votes", lambda: _facts(settings.name, counts, shards, models, alone))
    if facts is not None:
        attempt("report", lambda: write_private_report(folder.private / "report.html", facts))
        if settings.tensorboard:
            attempt("TensorBoard", lambda: write_private_events(folder.private / "tensorboard", facts))
    return Diagnostics(evaluation, figures)


@dataclasses.dataclass(frozen=True)
class _Alone:
    """Of each teacher by itself: (num_teachers,) whether it abstains on all points, its accuracy or None without evaluation."""

    abstains: npt.NDArray[np.bool_]
    accuracy: npt.NDArray[np.float64] | None


def _single_teachers(dataset: PrivateDataset, teachers: Teachers, settings: RunSettings) -> _Alone:
    options = dataclasses.replace(settings, trainer=one_process(settings.trainer))
    votes = np.concatenate(list(votes_on(dataset.public_features[:MEASURED], teachers, options)))
    abstains = np.asarray((votes < 0).all(axis=0))
    if dataset.evaluation_features is None or dataset.evaluation_labels is None or not settings.baselines:
        return _Alone(abstains, None)
    points, labels = dataset.evaluation_features[:MEASURED], dataset.evaluation_labels[:MEASURED]
    votes = np.concatenate(list(votes_on(points, teachers, options)))
    return _Alone(abstains, np.asarray((votes == labels[:, None]).mean(axis=0)))


def _compare(
    dataset: PrivateDataset,
    settings: RunSettings,
    counts: npt.NDArray[np.integer] | None,
    shards: Shards,
    alone: _Alone | None,
    attempt: Attempts,
) -> dict[str, Figures]:
    """Return the figures of the majority class, of one teacher, and of models that saw private data without noise."""
    labels = dataset.evaluation_labels
    assert labels is not None
    figures = {"majority class": {"accuracy": float(np.bincount(labels).max() / len(labels))}}
    holders = np.diff(shards.offsets) > 0
    if alone is not None and alone.accuracy is not None and holders.any():
        figures["one teacher alone, on average"] = {"accuracy": float(alone.accuracy[holders].mean())}
    noiseless = None
    if counts is not None:
        noiseless = attempt("noiseless labels", lambda: mode_for(settings).noiseless_targets(counts, settings))
    for name, make in baselines(dataset, noiseless, settings).items():
        if (found := attempt(name, make)) is not None:
            figures[name] = found
    return figures


def _facts(
    name: str,
    counts: npt.NDArray[np.integer] | None,
    shards: Shards,
    models: dict[str, Figures],
    alone: _Alone | None,
) -> PrivateFacts | None:
    if counts is None:
        return None
    ordered = np.sort(counts, axis=1).astype(np.int64)
    sizes = np.diff(shards.offsets)
    accuracy = None if alone is None or alone.accuracy is None else alone.accuracy[sizes > 0]
    return PrivateFacts(
        name=name,
        models=models,
        gaps=ordered[:, -1] - ordered[:, -2],
        winners_share=ordered[:, -1] / np.maximum(ordered.sum(1), 1),
        shard_sizes=sizes,
        teacher_accuracy=accuracy if accuracy is not None and len(accuracy) else None,
        empty=int((sizes == 0).sum()),
        abstaining=None if alone is None else int(alone.abstains.sum()),
    )
