"""The whole run: private records in, publishable student out."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import AnyRelease, bind_files
from teacher_student.arguments import ArgumentError
from teacher_student.data import PublicSizes, Shards
from teacher_student.data.public_sizes import check_neighbours
from teacher_student.monitoring.console import Display
from teacher_student.monitoring.report import ReleasedFacts, write_report
from teacher_student.monitoring.tensorboard import write_released_events
from teacher_student.pipeline import stages
from teacher_student.pipeline.diagnostics import NOTES, diagnose, write_notes
from teacher_student.pipeline.evaluation import NO_EVALUATION, Evaluation, evaluate
from teacher_student.pipeline.folder import SESSION, RunFolder, open_run, resumable, shared_run, whole
from teacher_student.pipeline.launch import together
from teacher_student.pipeline.modes import mode_for, with_known_noise
from teacher_student.pipeline.ranks import Ranks, digest
from teacher_student.pipeline.settings import Estimator, RunSettings
from teacher_student.pipeline.stages import Run, Teachers
from teacher_student.pipeline.student_files import save_student
from teacher_student.planning.preflight import few_answers, mostly_noise, suggestion, weak_guarantee
from teacher_student.privacy import Certificate, Parameters
from teacher_student.student import Student
from teacher_student.student.label_noise import known_noise
from teacher_student.teachers.trainer import quiet


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a run made.

    Attributes:
        folder: of the run.
        release: labels or scores, and certificate.
        student: in evaluation mode.
        evaluation: the student's figures on the evaluation set; not to be published unless `evaluation.public`.
        private_figures: for each model that saw private records without noise, its figures. Not to be published.
    """

    folder: RunFolder
    release: AnyRelease
    student: Student
    evaluation: Evaluation
    private_figures: dict[str, dict[str, float]]

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
        """The student's accuracy, what a sweep compares."""
        return self.metrics.get("accuracy")


class Asked(NamedTuple):
    """What the teachers were asked and said. Private."""

    run: Run
    account: Account | None
    shards: Shards
    votes: npt.NDArray[Any]
    teachers: Teachers


def run(settings: RunSettings, path: Path, display: Display | None = None) -> RunResult | None:
    """Run the pipeline in the folder `path`; resume if it was interrupted.

    Returns:
        What the run made; None in every process but the first, where torchrun or Slurm has started several.

    Raises:
        ArgumentError: bad settings or data, before anything is written or drawn; or nothing was answered, after the release.
        StoppedRunError: a full disk or a damaged file; started again in the same folder, the run continues.
    """
    display = display or Display("quiet")
    with quiet(), resumable(path):
        with together(settings.trainer, functools.partial(_help, settings, path)) as ranks:
            asked = ask_teachers(settings, path, display if ranks.first else Display("quiet"), ranks)
        return None if asked is None else _teach(asked, display)


def _help(settings: RunSettings, path: Path, ranks: Ranks) -> None:
    """Entry point of a process that the first one started."""
    display = Display("quiet")
    with quiet():
        ask_teachers(settings, path, display, ranks)


def ask_teachers(settings: RunSettings, path: Path, display: Display, ranks: Ranks) -> Asked | None:
    """From the records to the votes: the part that ranks share. Only the first has all the votes; the others get None."""
    ranks.agree("config", settings.config)
    if ranks.several and isinstance(settings.learner, Estimator):
        raise ArgumentError(
            "trainer must be cpu for estimators as teachers: learner.num_workers gives them processes of their own"
        )
    mode = mode_for(settings)
    if ranks.several and not mode.several_processes:
        raise ArgumentError(f"trainer must have one device for mechanism={settings.privacy.mechanism}, got several processes")
    if ranks.several and settings.boosting.rounds:
        raise ArgumentError(f"boosting.rounds must be 0 for several processes, got {settings.boosting.rounds}; use one device")
    with display.stage("data") as advance:
        with ranks.in_turn():
            dataset = settings.data()
            sizes = dataset.public_sizes
            if ranks.first:
                parameters = check(settings, sizes)
                _check_budget(settings, sizes, parameters, path)
        ranks.agree("public points", digest(dataset.public_features) if ranks.several else "")
        columns = f" of {len(sizes.feature_names):,} columns" if sizes.feature_names else ""
        advance(1, f"{sizes.num_points:,} public points{columns}")
    if ranks.first:
        _warn(settings, sizes, parameters, display)
    path = Path(ranks.from_first(str(path.absolute()))) if ranks.several else path
    with display.stage("shards") as advance:
        with ranks.in_turn():
            folder = open_run(path, settings.config) if ranks.first else shared_run(path)
            account = _open_account(settings, sizes, display) if ranks.first else None
            this = Run(settings, dataset, folder)
            shards = stages.make_shards(this)
            if ranks.first:
                write_notes(this, account)
        advance(1, f"{settings.num_teachers:,} shards, every record in exactly one")
    display.say(f"Private notes on the data: {folder.private / NOTES}")
    with display.stage("teachers", settings.num_teachers) as advance:
        teachers = stages.train(this, shards, advance, ranks)
    with display.stage("votes", sizes.num_points) as advance:
        votes = mode.collect_votes(this, teachers, advance, ranks)
        advance(sizes.num_points, f"on {sizes.num_points:,} public points")
    return Asked(this, account, shards, votes, teachers) if ranks.first else None


def _teach(asked: Asked, display: Display) -> RunResult:
    """From the votes to the student: all that one process does once. The release is complete before the diagnostics begin."""
    this, account, shards, votes, teachers = asked
    settings, folder, mode = this.settings, this.folder, mode_for(this.settings)
    student, evaluation = None, NO_EVALUATION
    with folder.releasing():
        with display.stage("labels", settings.queries.asked(len(votes))) as advance:
            release = mode.release_labels(this, votes, advance, account)
            advance(len(release.answered), _count(release, settings))
        if release.answered.any():
            with display.stage("student", settings.student.epochs) as advance:
                student = mode.teach(this, release, advance)
        with display.stage("report") as advance:
            if student is not None:
                _save_student(this, student)
                evaluation = evaluate(student.publishable, this.dataset) if this.dataset.evaluation_public else NO_EVALUATION
            _write_report(this, release, student, evaluation)
            advance(1, str(folder.release / "report.html"))
    with display.stage("diagnostics") as advance:
        network = None if student is None else student.publishable
        found = diagnose(this, shards, votes, teachers, network, evaluation)
        advance(1, f"private: {folder.private / 'report.html'}")
    if student is None:
        raise ArgumentError(_no_answer(this, release))
    folder.finish({"metrics": found.evaluation.metrics, "private_figures": found.figures, "seconds": display.seconds})
    _tell(this, release, evaluation, display)
    return RunResult(folder, release, student, found.evaluation, found.figures)


def check(settings: RunSettings, sizes: PublicSizes) -> Parameters:
    """Refuse what could only fail later, such as an infeasible budget, before a folder is made; return what the run costs.

    It knows settings and public sizes alone. The number of records is private: there may be more teachers than records, and those
    without records abstain.
    """
    privacy = settings.privacy
    if privacy.neighbours is not None and privacy.neighbours != sizes.neighbours:
        _check_relation(privacy.neighbours, sizes)
    settings.queries.asked(sizes.num_points)
    mode, rounds = mode_for(settings), settings.boosting.rounds
    if rounds and mode.option is None:
        raise ArgumentError(
            f"boosting.rounds must be 0 for mechanism={privacy.mechanism}, got {rounds}; only noisy sums have rounds"
        )
    parameters = mode.check(settings, sizes)
    known_noise(with_known_noise(settings, parameters).student.label_noise, sizes.num_classes)
    stages.check_teachers(sizes, settings)
    return parameters


def _check_budget(settings: RunSettings, sizes: PublicSizes, parameters: Parameters, path: Path) -> None:
    """Refuse what the account would refuse once the teachers are trained; a run that has a session was charged or will be."""
    if not (path / "private" / SESSION).exists():
        settings.budget.check(
            settings.budget.dataset or sizes.name,
            parameters,
            neighbours=settings.privacy.neighbours or sizes.neighbours,
            epsilon=settings.privacy.epsilon,
            delta=settings.privacy.delta,
        )


def _warn(settings: RunSettings, sizes: PublicSizes, parameters: Parameters, display: Display) -> None:
    """Show what public numbers say against this run, before anything is trained or spent."""
    privacy = settings.privacy
    texts = weak_guarantee(privacy.epsilon, privacy.delta, privacy.population)
    if (request := mode_for(settings).request(settings, sizes)) is not None:
        texts += [*mostly_noise(parameters, request), *few_answers(parameters, request)]
    for text in texts:
        display.say(f"Warning: {text} To stop here (Ctrl-C) spends nothing.")


def _open_account(settings: RunSettings, sizes: PublicSizes, display: Display) -> Account | None:
    if note := settings.budget.news():
        display.say(note)
    return settings.budget.open(settings.budget.dataset or sizes.name)


def _check_relation(neighbours: str, sizes: PublicSizes) -> None:
    """Refuse a relation that the data does not support, such as any but label_only where private features are the queries."""
    if sizes.neighbours == "label_only":
        raise ArgumentError(f"privacy.neighbours must be label_only for {sizes.name}, got {neighbours}: its features are public")
    try:
        check_neighbours(neighbours, has_ids=sizes.has_ids, ids_name_labels=sizes.ids_name_labels)
    except ArgumentError as error:
        raise ArgumentError(f"privacy.{error}") from error


def _no_answer(this: Run, release: AnyRelease) -> str:
    """Say that there is nothing to learn from, what has been spent, and what would answer more, from public sizes."""
    settings, folder = this.settings, this.folder
    certificate, asked = release.certificate, len(release.answered)
    advice = ""
    if (request := mode_for(settings).request(settings, this.sizes)) is not None:
        better = suggestion(certificate.parameters, request)
        advice = f" What would help a run on other records: {better}"
    return (
        f"{mode_for(settings).answers} must hold at least one answer for a student, got none of {asked:,}; epsilon "
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


def _write_report(this: Run, release: AnyRelease, student: Student | None, evaluation: Evaluation) -> None:
    """Write the publishable report, for people and for TensorBoard; without a student if there is none."""
    settings, folder = this.settings, this.folder
    facts = ReleasedFacts(
        name=settings.name,
        settings=_public_settings(settings, release),
        choices=settings.choices,
        certificate=json.loads(release.certificate.to_json()),
        answers=mode_for(settings).answers,
        file=release.FILE,
        cutoff=_cutoff(release),
        class_names=this.dataset.class_names,
        curve=student.losses if student else (),
        metrics=evaluation.metrics,
        majority=evaluation.majority,
        confusion=evaluation.confusion,
        **mode_for(settings).facts(release, settings, this.sizes.num_classes),
    )
    with whole(folder.release / "report.html") as draft:
        write_report(draft, facts)
    if settings.tensorboard:
        write_released_events(folder.release / "tensorboard", facts)
    bind_files(folder.release)  # nothing in release/ is written after this


def _cutoff(release: AnyRelease) -> int | None:
    """The cutoff in use, which the planner may have chosen; None for mechanisms without one."""
    return release.certificate.parameters.to_dict().get("cutoff")


def _public_settings(settings: RunSettings, release: AnyRelease) -> dict[str, Any]:
    return {
        "teachers": settings.num_teachers,
        "mechanism": settings.privacy.mechanism,
        "epsilon": settings.privacy.epsilon,
        "delta": settings.privacy.delta,
        "cutoff": _cutoff(release) or "none",
        "bins": settings.privacy.bins or "none: hard labels",
        "all recorded releases on the same data": _together(release.certificate) if settings.budget.ledger else "not recorded",
        "queries": len(release.answered),
        "order of the queries": settings.queries.order,
        "answered": int(release.answered.sum()),
        "a paid non-answer is taught as": settings.student.unanswered,
        "seed of weights and splits": settings.seed,
    }


def _together(certificate: Certificate) -> str:
    """What this release and the earlier ones on the same data cost, as far as its ledger knows."""
    earlier = len(certificate.composition)
    if not earlier:
        return "this is the first one"
    delta = math.fsum([certificate.delta, *(release["delta"] for release in certificate.composition)])
    return f"epsilon {certificate.total(delta):.4g}, delta {delta:.3g}, with {earlier} earlier release{'s' * (earlier > 1)}"


def _count(release: AnyRelease, settings: RunSettings) -> str:
    """How many queries were answered, in words; a query counts in each round that asks it."""
    rounds = f" in {1 + settings.boosting.rounds} rounds" if settings.boosting.rounds else ""
    return f"{int(release.answered.sum()):,} of {len(release.answered):,} asked{rounds}"


def _tell(this: Run, release: AnyRelease, evaluation: Evaluation, display: Display) -> None:
    """Print what was released and the student's figures on public data. Private figures are in files under `private/` alone."""
    settings, folder, certificate = this.settings, this.folder, release.certificate
    rows: dict[str, object] = {
        f"{mode_for(settings).answers} released": _count(release, settings),
        "epsilon, delta": f"{certificate.epsilon:.4g}, {certificate.delta:.3g} ({certificate.neighbours})",
    }
    if certificate.composition:
        rows["on this data in all"] = _together(certificate)
    rows |= {f"student {name}": f"{value:.4f}" for name, value in evaluation.metrics.items()}
    if evaluation.majority is not None:
        rows["majority class"] = f"accuracy {evaluation.majority:.4f}"
    rows["time"] = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in display.seconds.items())
    display.table(settings.name, rows)
    private = f"{folder.private}  (report.html compares with models without privacy)"
    display.say(f"Publish as it is:  {folder.release}\nKeep private:      {private}")
