"""A whole run: private records in, publishable student out."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.release import AnyRelease, bind_files
from teacher_student.arguments import ArgumentError
from teacher_student.data import PrivateDataset
from teacher_student.data.public_sizes import check_neighbours
from teacher_student.data.registry import DATASETS
from teacher_student.monitoring.console import Display
from teacher_student.monitoring.report import ReleasedFacts, write_report
from teacher_student.monitoring.tensorboard import write_released_events
from teacher_student.pipeline import stages
from teacher_student.pipeline.diagnostics import NO_EVALUATION, NOTES, Asked, Evaluation, diagnose, evaluate, write_notes
from teacher_student.pipeline.folder import SESSION, RunFolder, open_run, resumable, shared_run, whole
from teacher_student.pipeline.modes import mode_class, mode_for
from teacher_student.pipeline.processes import Ranks, digest, launch
from teacher_student.pipeline.published import save_student
from teacher_student.pipeline.rounds import Checked, Mode
from teacher_student.pipeline.settings import Estimator, RunSettings
from teacher_student.pipeline.stages import Run
from teacher_student.planning.preflight import alerts, suggestion
from teacher_student.privacy import Certificate
from teacher_student.privacy.certificate import file_digest
from teacher_student.student import Student
from teacher_student.teachers.trainer import silence_lightning
from teacher_student.version import __version__

_IMAGES, _MOST_ROWS = 8, 20
"""Most public images of a class in the report, and the largest number of classes with images."""


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The results of a run.

    Attributes:
        folder: the paths of its files.
        release: labels or scores, and certificate.
        student: in evaluation mode.
        evaluation: the student's figures on the evaluation set; not to be published unless `evaluation.public`.
        warnings: what speaks against release and student, from public and released numbers.
        private_figures: for each model that saw private records without noise, its figures. Not to be published.
    """

    folder: RunFolder
    release: AnyRelease
    student: Student
    evaluation: Evaluation
    private_figures: dict[str, dict[str, float]]
    warnings: tuple[str, ...] = ()

    @property
    def judgement(self) -> Evaluation:
        """An older name of `evaluation`."""
        return self.evaluation

    @property
    def metrics(self) -> dict[str, float]:
        """The student's figures by name; empty without an evaluation set."""
        return self.evaluation.metrics

    @property
    def accuracy(self) -> float | None:
        """The student's accuracy, which a sweep compares."""
        return self.metrics.get("accuracy")


def run(settings: RunSettings, path: Path, display: Display | None = None) -> RunResult | None:
    """Run the pipeline in the folder `path`; resume if it was interrupted.

    Returns:
        The results; None in every process but the first, if torchrun or Slurm has started several.

    Raises:
        ArgumentError: bad settings or data, before anything is written or drawn; or nothing was answered, after the release.
        StoppedRunError: a full disk or a damaged file; started again in the same folder, the run continues.
    """
    display = display or Display("quiet")
    with silence_lightning(), resumable(path):
        with launch(settings.trainer, functools.partial(_help, settings, path)) as ranks:
            asked = ask_teachers(settings, path, display if ranks.first else Display("quiet"), ranks)
        return None if asked is None else _teach(asked, display)


def _help(settings: RunSettings, path: Path, ranks: Ranks) -> None:
    """Entry point of a process that the first one started."""
    with silence_lightning():
        ask_teachers(settings, path, Display("quiet"), ranks)


def ask_teachers(settings: RunSettings, path: Path, display: Display, ranks: Ranks) -> Asked | None:
    """Go from the records to the votes: the part that ranks share. Only the first has all the votes; the others get None."""
    ranks.assert_same("config", settings.config)
    if ranks.several:
        _check_several(settings)
    with display.stage("data") as advance:
        with ranks.first_rank_first():
            dataset = settings.data()
            mode = mode_for(settings, dataset.public_sizes)
            if ranks.first:
                checked = check(mode, path)
        ranks.assert_same("public points", digest(dataset.public_features) if ranks.several else "")
        columns = f" of {len(mode.sizes.feature_names):,} columns" if mode.sizes.feature_names else ""
        advance(1, f"{mode.sizes.num_points:,} public points{columns}")
    if ranks.first:
        _announce(dataset, checked, display)
    path = Path(ranks.from_first(str(path.absolute()))) if ranks.several else path
    account = None
    with display.stage("shards") as advance:
        with ranks.first_rank_first():
            this = Run(settings, dataset, open_run(path, settings.config) if ranks.first else shared_run(path))
            if ranks.first:
                if note := settings.budget.news():
                    display.say(note)
                account = settings.budget.open(settings.budget.dataset or mode.sizes.name)
            if settings.each_record is None:
                _ = this.shards
            if ranks.first:
                write_notes(this, account)
        advance(1, _of_shards(settings))
    display.say(f"Private notes on the data: {this.folder.private / NOTES}")
    with display.stage("teachers", settings.num_teachers) as advance:
        teachers = stages.train(this, advance, ranks)
    with display.stage("votes", mode.sizes.num_points) as advance:
        votes = mode.collect_votes(this, teachers, advance, ranks)
        advance(mode.sizes.num_points, f"on {mode.sizes.num_points:,} public points")
    return Asked(this, mode, account, votes, teachers, checked.warnings) if ranks.first else None


def _announce(dataset: PrivateDataset, checked: Checked, display: Display) -> None:
    """Print what public data and settings say before anything is trained or spent."""
    for note in dataset.public_notes:
        display.say(note)
    if checked.chosen:
        display.say(f"mechanism=auto took {checked.chosen}")
    for text in (*checked.warnings, *checked.outlook):
        display.warn(text)


def _of_shards(settings: RunSettings) -> str:
    if settings.each_record:
        return f"none: every record {settings.each_record.does}"
    return f"{settings.num_teachers:,} shards, every record in exactly one"


def _check_several(settings: RunSettings) -> None:
    """Refuse what only one process can do."""
    if isinstance(settings.learner, Estimator):
        raise ArgumentError(
            "trainer must be cpu for estimators as teachers: learner.num_workers gives them processes of their own"
        )
    if not mode_class(settings).several_processes:
        raise ArgumentError(f"trainer must have one device for mechanism={settings.privacy.mechanism}, got several processes")
    if settings.boosting.rounds:
        raise ArgumentError(f"boosting.rounds must be 0 for several processes, got {settings.boosting.rounds}; use one device")


def check(mode: Mode, path: Path) -> Checked:
    """Refuse what could only fail later, before a folder is made; return what the run costs, and warnings.

    It knows settings and public sizes alone. The number of records is private: there may be more teachers than records, and those
    without records abstain.
    """
    settings, sizes, neighbours = mode.settings, mode.sizes, mode.settings.privacy.neighbours
    if neighbours not in (None, sizes.neighbours):
        if sizes.neighbours == "label_only":
            raise ArgumentError(
                f"privacy.neighbours must be label_only for {sizes.name}, got {neighbours}: its features are public"
            )
        try:
            check_neighbours(neighbours, has_ids=sizes.has_ids, ids_name_labels=sizes.ids_name_labels)
        except ArgumentError as error:
            raise ArgumentError(f"privacy.{error}") from error
    settings.queries.asked(sizes.num_points)
    checked = mode.check()
    checked.outlook.extend(stages.check_teachers(sizes, settings))
    if not (path / "private" / SESSION).exists():  # otherwise the account was charged, or will be
        settings.budget.check(
            settings.budget.dataset or sizes.name,
            checked.parameters,
            neighbours=mode.neighbours,
            epsilon=settings.privacy.epsilon,
            delta=settings.privacy.delta,
        )
    return checked


def _teach(asked: Asked, display: Display) -> RunResult:
    """Go from the votes to the student, in one process. The release is complete before the diagnostics begin."""
    this, mode, folder = asked.run, asked.mode, asked.run.folder
    student, evaluation = None, NO_EVALUATION
    with folder.releasing():
        with display.stage("labels", mode.asked) as advance:
            release = mode.release_labels(this, asked.votes, advance, asked.account)
            advance(len(release.answered), _count(release, mode))
        if release.answered.any():
            with display.stage("student", this.settings.student.epochs) as advance:
                student = mode.teach(this, release, advance)
        with display.stage("report") as advance:
            if student is not None:
                _save_student(this, student)
                evaluation = evaluate(student.publishable, this.dataset) if this.dataset.evaluation_public else NO_EVALUATION
            warnings = _alerts(asked, release, evaluation)
            _write_report(this, mode, release, student, evaluation, warnings)
            advance(1, str(folder.release / "report.html"))
    with display.stage("diagnostics") as advance:
        found = diagnose(asked, None if student is None else student.publishable, evaluation)
        advance(1, f"private: {folder.private / 'report.html'}")
    if student is None:
        raise ArgumentError(_no_answer(mode, release, folder))
    folder.finish({"metrics": found.evaluation.metrics, "private_figures": found.figures, "seconds": display.seconds})
    _tell(this, mode, release, evaluation, display)
    for text in warnings:
        display.alert(text)
    return RunResult(folder, release, student, found.evaluation, found.figures, warnings)


def _alerts(asked: Asked, release: AnyRelease, evaluation: Evaluation) -> tuple[str, ...]:
    """Return what speaks against a release and its student, from public and released numbers; earlier warnings come first."""
    found = alerts(
        release.certificate,
        int(release.answered.sum()),
        release.answered.size,
        population=asked.run.settings.privacy.population,
        accuracy=evaluation.metrics.get("accuracy"),
        majority=evaluation.majority,
        classes_found=release.classes_found,
    )
    return tuple(dict.fromkeys([*asked.warnings, *found]))


def _no_answer(mode: Mode, release: AnyRelease, folder: RunFolder) -> str:
    """Say that there is nothing to learn from, what has been spent, and what would answer more, from public sizes."""
    certificate, request = release.certificate, mode.request()
    advice = "" if request is None else f" What would help a run on other records: {suggestion(certificate.parameters, request)}"
    return (
        f"{mode.answers} must hold at least one answer for a student, got none of {len(release.answered):,}; epsilon "
        f"{certificate.epsilon:g} is spent, and {folder.private / 'report.html'} shows how far the teachers agreed.{advice}"
    )


def _save_student(this: Run, student: Student) -> None:
    dataset = this.dataset
    save_student(
        this.folder.release,
        student.publishable,
        this.settings.student_network,
        shape=dataset.student_points.shape[1:],
        class_names=dataset.class_names,
        feature_names=dataset.student_feature_names,
        encoding=dataset.student_encoding,
    )


def _write_report(
    this: Run, mode: Mode, release: AnyRelease, student: Student | None, evaluation: Evaluation, warnings: Sequence[str]
) -> None:
    """Write the publishable report, for people and for TensorBoard, and bind the certificate to it."""
    settings, folder = this.settings, this.folder
    facts = ReleasedFacts(
        name=settings.name,
        settings=_public_settings(settings, release),
        choices=settings.choices,
        certificate=json.loads(release.certificate.to_json()),
        answers=mode.answers,
        file=release.FILE,
        cutoff=_cutoff(release),
        class_names=this.dataset.class_names,
        curve=student.losses if student else (),
        metrics=evaluation.metrics,
        majority=evaluation.majority,
        confusion=evaluation.confusion,
        about=_about(this, release),
        alerts=warnings,
        recorded=bool(settings.budget.ledger),
        rounds=mode.rounds,
        images=_labelled_images(this, mode, release),
        **mode.facts(release),
    )
    with whole(folder.release / "report.html") as draft:
        write_report(draft, facts)
    if settings.tensorboard:
        write_released_events(folder.release / "tensorboard", facts)
    bind_files(folder.release)  # nothing in release/ is written after this


def _cutoff(release: AnyRelease) -> int | None:
    """Return the cutoff in use, which the planner may have chosen; None for mechanisms without one."""
    return release.certificate.parameters.to_dict().get("cutoff")


def _about(this: Run, release: AnyRelease) -> dict[str, str]:
    """Return who is protected, the data by a public name, which release this is, and of which version."""
    settings, certificate = this.settings, release.certificate
    change = {"add_remove": "added or left out", "replace_one": "replaced", "label_only": "labelled differently"}
    whom = "one record" if this.dataset.unit == "record" else "all records of one user"
    builtin = (
        this.dataset.name if this.dataset.name in DATASETS and this.dataset.name != "table" else "not named"
    )  # a file's name
    return {
        "protected": f"{whom}, {change[certificate.neighbours]}",
        "data": settings.budget.dataset or builtin,
        "release": f"{file_digest(this.folder.release / release.FILE)[:12]}, the first digits of the SHA-256 of {release.FILE}",
        "software": f"teacher-student {certificate.versions.get('teacher-student', __version__)}",
    }


def _labelled_images(this: Run, mode: Mode, release: AnyRelease) -> list[npt.NDArray[np.float32]]:
    """Return for each class the first public images that were released with its label; none if points may be records."""
    points = this.dataset.student_points
    if points.ndim != 4 or points.shape[1] not in (1, 3) or this.dataset.num_classes > _MOST_ROWS:
        return []
    labels = None if release.certificate.neighbours == "label_only" else mode.labels_of_points(release)
    if labels is None:
        return []
    return [points[np.flatnonzero(labels == label)[:_IMAGES]] for label in range(this.dataset.num_classes)]


def _public_settings(settings: RunSettings, release: AnyRelease) -> dict[str, Any]:
    """Return public settings by name; those of another kind of mechanism are left out."""
    cutoff, bins = _cutoff(release), settings.privacy.bins
    pays = {} if cutoff is None else {"cutoff": cutoff, "a paid non-answer is taught as": settings.student.unanswered}
    return {
        "teachers": f"each of about {settings.num_teachers:,} records" if settings.each_record else settings.num_teachers,
        "mechanism": release.certificate.mechanism,
        "epsilon": settings.privacy.epsilon,
        "delta": settings.privacy.delta,
        **pays,
        **({} if bins is None else {"bins": bins}),
        "all recorded releases on the same data": _total(release.certificate) if settings.budget.ledger else "not recorded",
        "queries": len(release.answered),
        "order of the queries": settings.queries.order,
        "answered": int(release.answered.sum()),
        "seed of weights and splits": settings.seed,
    }


def _total(certificate: Certificate) -> str:
    """Return what this release and the earlier ones on the same data cost, as far as its ledger knows."""
    earlier = len(certificate.composition)
    if not earlier:
        return "this is the first one"
    delta = math.fsum([certificate.delta, *(release["delta"] for release in certificate.composition)])
    return f"epsilon {certificate.total(delta):.4g}, delta {delta:.3g}, with {earlier} earlier release{'s' * (earlier > 1)}"


def _count(release: AnyRelease, mode: Mode) -> str:
    """Return how many queries were answered, in words; a query counts in each round that asks it."""
    rounds = f" in {mode.rounds} rounds" if mode.rounds > 1 else ""
    return f"{int(release.answered.sum()):,} of {len(release.answered):,} asked{rounds}"


def _tell(this: Run, mode: Mode, release: AnyRelease, evaluation: Evaluation, display: Display) -> None:
    """Print what was released and the student's figures on public data. Private figures are in files under `private/` alone."""
    folder, certificate = this.folder, release.certificate
    rows: dict[str, object] = {
        f"{mode.answers} released": _count(release, mode),
        "epsilon, delta": f"{certificate.epsilon:.4g}, {certificate.delta:.3g} ({certificate.neighbours})",
    }
    if certificate.composition:
        rows["on this data in all"] = _total(certificate)
    rows["time"] = f"{sum(display.seconds.values()):.0f} s"
    display.table(this.settings.name, rows)
    if evaluation.metrics:
        majority = {} if evaluation.majority is None else {"majority class": {"accuracy": evaluation.majority}}
        display.grid("on public evaluation data", {"student, private": evaluation.metrics, **majority})
    display.say(f"Publish as it is:  {folder.release}\nReport:            {folder.release / 'report.html'}")
    display.say(f"Keep private:      {folder.private}\n                   (its report.html compares with models without privacy)")
