"""The verbs beside `run`. Heavy rooms are imported by the verb that needs them."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from teacher_student.app.composing import compose_whole
from teacher_student.arguments import ArgumentError, PrivacyWarning, choice


def label(arguments: Sequence[str]) -> int:
    """`teacher-student label`: private labels from a file of predictions or counts of any models.

    A row is a query; a column of predictions is a teacher (-1: it abstains), a column of counts is a class. The number of
    teachers must be given, so that a transposed table is noticed. The mechanism, and how many queries it answers, follow from
    public sizes unless you name them. The noise is drawn once: keep the folder.

        teacher-student label predictions=votes.npy num_teachers=1000 num_classes=10 out=labels
        teacher-student label predictions=votes.npy num_teachers=1000 num_classes=10 privacy.epsilon=2 out=labels
        teacher-student label counts=counts.npy num_classes=10 num_teachers=1000 mechanism=gnmax out=labels
    """
    from teacher_student.pipeline import label_file

    config = compose_whole("label", arguments)
    with _warnings_in_one_line():
        release = label_file(**_of_files(config))
    if chosen := release.certificate.used.get("chosen"):
        print(f"mechanism=auto took {chosen}")
    print(f"{_answered(release)}; written to {config.out}")
    return 0


def select(arguments: Sequence[str]) -> int:
    """`teacher-student select`: the labels of the best of several candidates, such as teachers with other hyper-parameters.

    Runs a private session on a random candidate, several times, and releases the best run alone. epsilon and delta cover all
    runs and the choice. The best run has most labels right by truth=FILE (public classes, -1 where unknown), or without it most
    answers. The time that it takes tells how many runs there were: keep that to yourself.

        teacher-student select predictions=[small.npy,large.npy] num_teachers=1000 num_classes=10 truth=known.npy out=best
        teacher-student select counts=[a.npy,b.npy] num_teachers=1000 num_classes=10 privacy.epsilon=2 repetitions=10 out=best
    """
    from teacher_student.pipeline import select_file

    config = compose_whole("select", arguments)
    with _warnings_in_one_line():
        candidate, release = select_file(**_of_files(config), truth=config.truth, repetitions=config.repetitions)
    names = config.counts if config.predictions is None else config.predictions
    name = names if isinstance(names, str) else names[candidate]
    print(f"candidate {candidate + 1}, {name}: {_answered(release)} for all runs and the choice; written to {config.out}")
    return 0


def _of_files(config: DictConfig) -> dict[str, Any]:
    """Return the arguments that `label_file` and `select_file` share."""
    from teacher_student.pipeline import BudgetSettings

    return {
        **{name: config[name] for name in ("predictions", "counts", "num_classes", "num_teachers")},
        **_mechanism(config),
        **config.privacy,
        "out": Path(config.out),
        "budget": BudgetSettings(**config.budget),
    }


def _mechanism(config: DictConfig) -> dict[str, Any]:
    options = dict(config.mechanism)
    return {"mechanism": options.pop("name", None), "options": options}


def _answered(release: Any) -> str:
    certificate = release.certificate
    return (
        f"{int(release.answered.sum())} of {len(release.labels)} queries answered at epsilon {certificate.epsilon:.4g}, "
        f"delta {certificate.delta:.3g}"
    )


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print each `PrivacyWarning` as one line, at once; others are shown as usual."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", PrivacyWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, PrivacyWarning):
                print(f"Warning: {message}", file=sys.stderr, flush=True)
            else:
                usual(message, category, *place, **more)

        warnings.showwarning = show
        yield


def predict(arguments: Sequence[str]) -> int:
    """`teacher-student predict RUN table=FILE out=FILE.csv [id=COLUMN]`: a published student's classes for raw rows.

    RUN is a run's folder, its release/, or a copy of that. The table has the columns that the teachers learned from; further
    columns are ignored. A .npy array holds images, or other features as they are.

        teacher-student predict runs/first table=people.csv out=predictions.csv
        teacher-student predict release table=people.parquet id=person out=predictions.csv
        teacher-student predict runs/digits table=images.npy out=predictions.csv
    """
    from teacher_student.pipeline import predict_file

    folders = [argument for argument in arguments if "=" not in argument and not argument.startswith("-")]
    config = compose_whole("predict", [argument for argument in arguments if argument not in folders])
    if len(folders) != 1:
        raise ArgumentError(f"predict must be given one run or release folder, got {len(folders)}")
    print(predict_file(folders[0], table=config.table, out=config.out, id=config.id))
    return 0


def plan(arguments: Sequence[str]) -> int:
    """`teacher-student plan`: what each mechanism could answer, from public sizes, or on votes of a public stand-in.

    teacher-student plan
    teacher-student plan num_teachers=250 num_queries=5000 num_classes=10
    teacher-student plan privacy.epsilon=2 privacy.delta=1e-6
    teacher-student plan standin=[votes_250.npy,votes_1000.npy] truth=labels.npy num_queries=10000
    teacher-student plan records=60000 num_queries=9000 num_classes=10
    """
    from teacher_student.planning import plan_records
    from teacher_student.planning.preflight import weak_guarantee
    from teacher_student.planning.report import plan as make_plan

    config = compose_whole("plan", arguments)
    if config.standin is not None:
        found = _plan_on_standins(config)
    elif config.records is not None:
        found = plan_records(
            config.records,
            config.num_queries,
            config.num_classes,
            config.privacy.epsilon,
            config.privacy.delta,
            queries=config.queries.total,
            votes=config.learner.votes,
            agreement=config.agreement,
            neighbours=config.neighbours,
            wrong=config.wrong,
        )
    else:
        sizes = {name: config[name] for name in ("num_teachers", "num_queries", "num_classes", "failure")}
        found = make_plan(epsilon=config.privacy.epsilon, delta=config.privacy.delta, **sizes)
    for text in weak_guarantee(**config.privacy):
        print(f"Warning: {text}\n")
    print(found)
    return 0


def _plan_on_standins(config: DictConfig) -> Any:
    from teacher_student.pipeline.files import read_table
    from teacher_student.planning.search import choose

    names = [config.standin] if isinstance(config.standin, str) else list(config.standin)
    truth = None if config.truth is None else read_table(config.truth)
    budget = {"epsilon": config.privacy.epsilon, "delta": config.privacy.delta}
    return choose([read_table(name) for name in names], num_queries=config.num_queries, truth=truth, wrong=config.wrong, **budget)


def verify(arguments: Sequence[str]) -> int:
    """`teacher-student verify`: recompute epsilon and delta of a run or a release; exit 0 only if the certificate is true.

    Needs the recorded parameters alone: no data, no votes.

        teacher-student verify runs/first
        teacher-student verify labels
    """
    from teacher_student.pipeline import verify_folder

    if len(arguments) != 1:
        raise ArgumentError(f"verify must be given one run or release folder, got {len(arguments)}")
    print(verify_folder(Path(arguments[0])))
    return 0


def ledger(arguments: Sequence[str]) -> int:
    """`teacher-student ledger [FILE] [--json]`: every session that was charged to each dataset, and what they cost together.

    For the owner of the data. Costs and totals may be published, as in certificates; names and times should not be. Noisy
    thresholds, votes, links and fingerprints are not shown (see `teacher_student.aggregation.ledger`).

        teacher-student ledger
        teacher-student ledger runs/ledger.sqlite --json
        teacher-student ledger runs/ledger.sqlite composed=true
    """
    from teacher_student.aggregation import Ledger
    from teacher_student.aggregation.ledger import statements, to_json

    files = [argument for argument in arguments if "=" not in argument and not argument.startswith("-")]
    if len(files) > 1:
        raise ArgumentError(f"ledger must be given one file, got {len(files)}")
    given = [argument for argument in arguments if argument not in files]
    config = compose_whole("ledger", ["json=true" if argument == "--json" else argument for argument in given])
    path = files[0] if files else config.ledger
    accounts = statements(Ledger.existing(path or ""), config.dataset)
    if config.json:
        print(to_json(accounts, composed=config.composed))
    else:
        print("\n\n".join(account.to_text(composed=config.composed) for account in accounts) or f"{path}: no sessions yet")
    return 0


def audit(arguments: Sequence[str]) -> int:
    """`teacher-student audit`: attack a mechanism or its students; exit 0 only if every verdict is as expected.

    teacher-student audit mechanism=stability
    teacher-student audit mechanism=gnmax privacy.epsilon=2 trials=20000
    teacher-student audit target=student mechanism=stability console=plain
    """
    from teacher_student.monitoring.console import Display

    config = compose_whole("audit", arguments)
    attack = choice("target", config.target, ("mechanism", "student"))
    display = Display(config.console)
    with display.stage("audit", 100) as advance:
        report = (_attack_student if attack == "student" else _attack_mechanism)(
            config, lambda done, total, what: advance(100 * done // total, what)
        )
    print(report)
    return 0 if report.passed else 1


def _attack_mechanism(config: DictConfig, progress: Callable[[int, int, str], None]) -> Any:
    from teacher_student.auditing import audit as run_audit

    chosen = _mechanism(config)
    return run_audit(chosen["mechanism"], **chosen["options"], **config.privacy, trials=config.trials, progress=progress)


def _attack_student(config: DictConfig, progress: Callable[[int, int, str], None]) -> Any:
    from teacher_student.pipeline import attack_student

    chosen, privacy = _mechanism(config), dict(config.privacy)
    sizes = {name: config[name] for name in ("worlds", "num_teachers", "error")}
    if (bins := privacy.pop("bins")) is not None:
        raise ArgumentError(f"privacy.bins must be null where target is student, got {bins}; hard labels are attacked")
    return attack_student(chosen["mechanism"], **chosen["options"], **privacy, **sizes, progress=progress)


def benchmark(arguments: Sequence[str]) -> int:
    """`teacher-student benchmark`: this machine against the usual ways, as ratios; minutes to hours.

    teacher-student benchmark --only mechanisms --samples 3
    teacher-student benchmark --only teachers --networks logistic-784-sgd --teachers 250
    """
    try:
        from research.benchmarks.command import main as measure
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("research"):
            raise
        raise ArgumentError(
            "benchmark must be run in a checkout, got an installed wheel, which has no benchmarks; get the repository or the "
            "source distribution of teacher-student, and there run: uv run teacher-student benchmark"
        ) from error
    return measure(arguments)
