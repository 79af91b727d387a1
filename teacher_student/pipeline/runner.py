"""The whole way: private records in, publishable student out."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError
from teacher_student.data import PrivateDataset, Shards
from teacher_student.monitoring.console import Display
from teacher_student.monitoring.report import PrivateFacts, ReleasedFacts, write_private_report, write_report
from teacher_student.pipeline import stages
from teacher_student.pipeline.answers import AnyRelease, answers_of
from teacher_student.pipeline.baselines import baselines
from teacher_student.pipeline.folder import RunFolder, open_run
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.student_files import save_student
from teacher_student.student import Student, predict_probabilities
from teacher_student.student.evaluation import confusion_matrix, evaluate


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a run made.

    Attributes:
        folder: of the run.
        release: labels or scores, and certificate.
        student: in evaluation mode.
        metrics: the student's figures on the evaluation set; empty without one.
        private_figures: for each model that saw private records without noise, its figures. Not to be published.
    """

    folder: RunFolder
    release: AnyRelease
    student: Student
    metrics: dict[str, float]
    private_figures: dict[str, dict[str, float]]

    @property
    def accuracy(self) -> float | None:
        """The student's accuracy, what a sweep compares."""
        return self.metrics.get("accuracy")


def run(settings: RunSettings, path: Path, display: Display | None = None) -> RunResult:
    """Go the whole way in the folder `path`; take up a run that was cut off there.

    Raises:
        ArgumentError: bad settings or data, before anything is written or drawn.
    """
    display = display or Display("quiet")
    with display.only():
        return _run(settings, path, display)


def _run(settings: RunSettings, path: Path, display: Display) -> RunResult:
    answers = answers_of(settings)
    with display.stage("data") as advance:
        dataset = settings.data()
        check(settings, dataset)
        advance(1, f"{len(dataset.public_features):,} public points")
    folder = open_run(path, settings.config)
    with display.stage("shards") as advance:
        shards = stages.make_shards(folder, dataset, settings)
        advance(1, f"{settings.num_teachers:,} shards, every record in exactly one")
    with display.stage("teachers", settings.num_teachers) as advance:
        ensemble = stages.train(folder, dataset, shards, settings, advance)
    with display.stage("votes", len(dataset.public_features)) as advance:
        votes = answers.collect_votes(folder, dataset, ensemble, settings, advance)
    with display.stage("labels", len(votes)) as advance:
        release = answers.release_labels(folder, dataset, votes, settings, advance)
    with display.stage("student", settings.student.epochs) as advance:
        targets = answers.targets(release, settings, dataset.num_classes)
        student = stages.teach_student(folder, dataset, targets, settings, advance)
    counts = answers.count_votes(votes, settings)
    result = _evaluate(folder, dataset, shards, counts, release, student, settings, display)
    _tell(result, settings, display)
    return result


def check(settings: RunSettings, dataset: PrivateDataset) -> None:
    """Refuse what could only fail later, before a folder is made: too many shards, an infeasible budget."""
    if settings.num_teachers > len(dataset.private_labels):
        raise ArgumentError(f"teachers.number must be at most the number of records, got {settings.num_teachers}")
    privacy = settings.privacy
    if privacy.neighbours == "add_remove" and dataset.neighbours != "add_remove":
        raise ArgumentError(f"privacy.neighbours must be {dataset.neighbours} for {dataset.name}, got add_remove")
    answers_of(settings).check(settings, dataset)


def _evaluate(
    folder: RunFolder,
    dataset: PrivateDataset,
    shards: Shards,
    counts: npt.NDArray[np.integer],
    release: AnyRelease,
    student: Student,
    settings: RunSettings,
    display: Display,
) -> RunResult:
    metrics: dict[str, float] = {}
    probabilities = None
    if dataset.student_evaluation_features is not None and dataset.evaluation_labels is not None:
        probabilities = predict_probabilities(student.publishable, dataset.student_evaluation_features)
        metrics = evaluate(probabilities, dataset.evaluation_labels)
    with display.stage("comparison") as advance:
        noiseless = answers_of(settings).noiseless_targets(counts, settings)
        figures = baselines(dataset, noiseless, settings) if settings.baselines else {}
        advance(1, "models without privacy")
    with display.stage("reports") as advance:
        _publish(folder, dataset, release, student, settings, metrics, probabilities)
        models = {"student": metrics, **figures} if metrics else {}
        write_private_report(folder.private / "report.html", _private_facts(settings.name, counts, shards, models))
        folder.finish({"metrics": metrics, "private_figures": figures, "seconds": display.seconds})
        advance(1, str(folder.release / "report.html"))
    return RunResult(folder, release, student, metrics, figures)


def _publish(
    folder: RunFolder,
    dataset: PrivateDataset,
    release: AnyRelease,
    student: Student,
    settings: RunSettings,
    metrics: dict[str, float],
    probabilities: npt.NDArray[np.float32] | None,
) -> None:
    save_student(
        folder.release,
        student.publishable,
        settings.student_network,
        shape=dataset.student_public_features.shape[1:],
        class_names=dataset.class_names,
        feature_names=dataset.student_feature_names,
    )
    public = dataset.evaluation_public and probabilities is not None
    labels = dataset.evaluation_labels
    write_report(
        folder.release / "report.html",
        ReleasedFacts(
            name=settings.name,
            settings=_public_settings(settings, release),
            certificate=json.loads(release.certificate.to_json()),
            cutoff=settings.privacy.cutoff,
            class_names=dataset.class_names,
            curve=student.losses,
            metrics=metrics if public else {},
            majority=float(np.bincount(labels).max() / len(labels)) if public else None,
            confusion=confusion_matrix(probabilities, labels) if public else None,
            **answers_of(settings).facts(release, settings, dataset.num_classes),
        ),
    )


def _public_settings(settings: RunSettings, release: AnyRelease) -> dict[str, Any]:
    return {
        "teachers": settings.num_teachers,
        "mechanism": settings.privacy.mechanism,
        "epsilon": settings.privacy.epsilon,
        "delta": settings.privacy.delta,
        "cutoff": settings.privacy.cutoff,
        "bins": settings.privacy.bins or "none: hard labels",
        "queries": len(release.answered),
        "answered": int(release.answered.sum()),
        "a paid non-answer is taught as": settings.student.unanswered,
        "seed of weights and splits": settings.seed,
    }


def _private_facts(
    name: str, counts: npt.NDArray[np.integer], shards: Shards, models: dict[str, dict[str, float]]
) -> PrivateFacts:
    ordered = np.sort(counts, axis=1).astype(np.int64)
    total = np.maximum(ordered.sum(1), 1)
    return PrivateFacts(
        name=name,
        models=models,
        gaps=ordered[:, -1] - ordered[:, -2],
        winners_share=ordered[:, -1] / total,
        shard_sizes=np.diff(shards.offsets),
        teacher_accuracy=None,
        abstaining=int(shards.num_shards - total.max()),
    )


def _tell(result: RunResult, settings: RunSettings, display: Display) -> None:
    certificate = result.release.certificate
    rows: dict[str, object] = {
        "labels released": f"{int(result.release.answered.sum()):,} of {len(result.release.answered):,} asked",
        "epsilon, delta": f"{certificate.epsilon:.4g}, {certificate.delta:.3g} ({certificate.neighbours})",
    }
    rows |= {f"student {name}": f"{value:.4f}" for name, value in result.metrics.items()}
    rows |= {
        name: ", ".join(f"{figure} {value:.4f}" for figure, value in figures.items())
        for name, figures in result.private_figures.items()
    }
    rows["time"] = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in display.seconds.items() if seconds >= 0.05)
    display.table(settings.name, rows, private=list(result.private_figures))
    display.say(f"Publish as it is:  {result.folder.release}\nKeep private:      {result.folder.private}")
