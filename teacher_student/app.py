"""The command line: verbs over Hydra configs. The only file that imports hydra."""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from teacher_student.arguments import ArgumentError, choice, true_or_false
from teacher_student.version import __version__

HELP = """teacher-student {version}: private models from sensitive records (PATE style)

  run        the whole way: records, shards, teachers, votes, labels, student
               teacher-student run experiment=adult privacy.epsilon=0.5
               teacher-student run -m privacy.epsilon=0.5,1,2      (a sweep)
  label      private labels from the predictions of any models
               teacher-student label predictions=votes.npy num_classes=10 privacy.epsilon=1 out=labels
  plan       what each mechanism could do:    teacher-student plan num_teachers=1000 num_queries=10000
  audit      attack a mechanism, or students: teacher-student audit mechanism=stability [target=student]
  verify     recompute a certificate:         teacher-student verify runs/adult/2026-01-31_12-00-00
  ledger     what was spent on which data:    teacher-student ledger runs/ledger.sqlite
  benchmark  measure this machine:            teacher-student benchmark --help

Each verb has examples: teacher-student run --help. Append --cfg job to a run to read its config without running it."""


def conf_folder() -> Path:
    """Return where the configs are: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def compose(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """Compose a config; a wrong override is an `ArgumentError` of one line."""
    try:
        with hydra.initialize_config_dir(version_base="1.3", config_dir=str(conf_folder())):
            return hydra.compose(config_name, list(overrides))
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # Hydra raises a bare ValueError for GROUP=null
        raise ArgumentError(_one_line(error, config_name, overrides)) from error


PLUGINS = {"joblib": "teacher-student[sweeps]", "submitit_slurm": "hydra-submitit-launcher", "ray": "hydra-ray-launcher"}
"""Launchers of sweeps that come in packages of their own."""

_NOT_PLAIN = ("defaults", "hydra", "mechanism")


def compose_whole(verb: str, overrides: Sequence[str]) -> DictConfig:
    """Compose the config of a verb whose settings are all there are: none may be taken away, none added but to a mechanism."""
    config = compose(verb, overrides)
    trees = (OmegaConf.to_container(part, resolve=False) for part in (OmegaConf.load(conf_folder() / f"{verb}.yaml"), config))
    wanted, given = ({key for key in _dotted(tree) if key.split(".")[0] not in _NOT_PLAIN} for tree in trees)
    for key in sorted(wanted - given):
        raise ArgumentError(f"{key} must be given, got a config without it")
    for key in sorted(given - wanted):
        raise ArgumentError(f"{key} is not a setting of {verb}; did you mean {difflib.get_close_matches(key, wanted, 1, 0)[0]}?")
    return config


def _one_line(error: Exception, config_name: str, overrides: Sequence[str]) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, OverrideParseException):
        return f"{error.override} is not an override: {text.split(' See ')[0]}"
    if isinstance(error, MissingConfigException) and error.options:
        return _no_such_option(str(error.missing_cfg_file), error.options)
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if "group override must be a string" in text and (conf_folder() / (key or ".")).is_dir():
            return _no_such_option(f"{key}/{value}", sorted(path.stem for path in (conf_folder() / key).glob("*.yaml")))
        if key and (f"'{key}'" in text or f"'{override}'" in text):
            if meant := _meant(key, _known_keys(config_name)):
                return f"{key} is not a setting, got {override!r}{meant}"
            if "Could not override" in text:
                return f"{key} is not a setting, got {override!r}; see teacher-student run --cfg job for those that are"
    return text


def _no_such_option(choice: str, options: Sequence[str]) -> str:
    group, _, name = choice.rpartition("/")
    if group == "hydra/launcher" and name in PLUGINS:
        return f"{choice} must be installed before it can be used: pip install {PLUGINS[name]}"
    return f"{group or 'an override'} must be one of {', '.join(options) or 'GROUP=NAME'}; got {name!r}{_meant(name, options)}"


def _meant(name: str, known: Sequence[str]) -> str:
    same = sorted((key for key in known if key.rpartition(".")[2] == name), key=lambda key: not key.startswith("privacy."))
    close = same or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close and close[0] != name else ""


def _known_keys(config_name: str) -> list[str]:
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(conf_folder())):
        tree = OmegaConf.to_container(hydra.compose(config_name), resolve=False)
    groups = [folder.name for folder in conf_folder().iterdir() if folder.is_dir()]
    return groups + list(_dotted(tree))


def _dotted(tree: Any, prefix: str = "") -> list[str]:
    if not isinstance(tree, dict):
        return [prefix]
    return [prefix] * bool(prefix) + [
        key for name, branch in tree.items() for key in _dotted(branch, f"{prefix}{'.' * bool(prefix)}{name}")
    ]


def run(arguments: Sequence[str]) -> int:
    """`teacher-student run`: the whole way, from private records to a student that may be published.

    Any setting of `conf/` is an override `name=value`; `-m` sweeps over lists of values, `--cfg job` shows the config only.

        teacher-student run
        teacher-student run experiment=adult privacy.epsilon=0.5 student=mlp
        teacher-student run experiment=blobs debug=fast run_folder=runs/first
        teacher-student run -m privacy.epsilon=0.5,1,2 seed=0,1
    """
    if not any(argument.split("=")[0] in ("--hydra-help", "--info", "--version") for argument in arguments):
        _check_flags(arguments)
        _check_overrides(arguments)
    sys.argv = ["teacher-student run", *arguments]
    hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name="run")(_run_one)()
    return 0


FLAGS = ("--cfg", "-c", "--resolve", "--package", "-p", "--run", "-r", "--multirun", "-m", "--hydra-help", "--info", "--version")
"""What Hydra understands beside overrides, as far as a run needs it."""


def _check_flags(arguments: Sequence[str]) -> None:
    for argument in arguments:
        if argument.startswith("-") and argument.split("=")[0] not in FLAGS:
            raise ArgumentError(f"a flag must be one of {', '.join(FLAGS)}; got {argument!r}{_meant(argument, FLAGS)}")


def _check_overrides(arguments: Sequence[str]) -> None:
    """Compose every config of a sweep before the first one runs, so that a slip in the last costs nothing."""
    overrides = [argument for argument in arguments if not argument.startswith("-") or "=" in argument]
    flags = [argument for argument in arguments if argument in ("-m", "--multirun")]
    if not flags:
        if "--cfg" in arguments or "-c" in arguments:
            overrides = [override for override in overrides if "=" in override]
        compose("run", overrides)
        return
    try:
        parsed = OverridesParser.create().parse_overrides(overrides)
    except HydraException as error:
        raise ArgumentError(_one_line(error, "run", overrides)) from error
    plain = [override.input_line or "" for override in parsed if not override.is_sweep_override()]
    for override in parsed:
        if override.is_sweep_override() and not override.is_hydra_override():
            for value in override.sweep_string_iterator():
                compose("run", [*plain, f"{override.get_key_element()}={value}"])
    compose("run", plain)


def _run_one(config: DictConfig) -> float | None:
    from teacher_student.monitoring.console import Display
    from teacher_student.pipeline import run as run_pipeline

    sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    folder = Path(HydraConfig.get().runtime.output_dir if sweep else config.run_folder)
    try:
        _check_complete(config)
        settings = settings_from_config(config)
        result = run_pipeline(settings, folder, Display(config.console))
    except (ArgumentError, HydraException, OmegaConfBaseException) as error:
        _complain(error)
        if sweep:
            return None  # the other runs of the sweep go on
        sys.exit(2)
    return None if result is None else result.accuracy


_WHERE_AND_HOW = ("run_folder", "console")
"""Settings that change nothing about what a run computes; a resumed run may have others."""


def settings_from_config(config: DictConfig) -> Any:
    """Build the settings of a run; every value is checked here, before anything is written."""
    from teacher_student.pipeline import BudgetSettings, CorrectionSettings, PrivacySettings, RunSettings
    from teacher_student.student import QuerySettings

    make = hydra.utils.instantiate
    try:
        mechanism = dict(config.mechanism)
        return RunSettings(
            name=config.name,
            seed=config.seed,
            data=_loader(config),
            num_teachers=config.teachers.number,
            training=make(config.teachers.training, _convert_="all"),
            learner=make(config.learner),
            privacy=PrivacySettings(mechanism=mechanism.pop("name", None), options=mechanism, **config.privacy),
            budget=BudgetSettings(**config.budget),
            student_network=make(config.student.network),
            student=make(config.student.settings),
            trainer=dict(make(config.trainer)),
            queries=QuerySettings(**config.queries),
            correction=CorrectionSettings(**config.correction),
            tensorboard=true_or_false("logger.tensorboard", config.logger.tensorboard),
            baselines=true_or_false("baselines", config.baselines),
            config=OmegaConf.to_yaml({name: part for name, part in config.items() if name not in _WHERE_AND_HOW}, resolve=True),
        )
    except HydraException as error:
        raise ArgumentError(_root_cause(error)) from error
    except (TypeError, OmegaConfBaseException) as error:
        raise ArgumentError(" ".join(str(error).split())) from error


SECTIONS = ("data", "teachers", "learner", "mechanism", "privacy", "queries", "budget", "student", "trainer", "logger")


def _check_complete(config: DictConfig) -> None:
    """Refuse a config from which a section or a value that must be given is missing, before it is read."""
    for name in SECTIONS:
        if not isinstance(config.get(name), DictConfig):
            raise ArgumentError(f"{name} must be a section of settings such as {name}.NAME=VALUE, got {config.get(name)!r}")
    if missing := sorted(OmegaConf.missing_keys(config)):
        raise ArgumentError(f"{missing[0]} must be given, got nothing; add {missing[0]}=VALUE")
    if not str(config.run_folder or ""):
        raise ArgumentError(f"run_folder must name a new folder, got {config.run_folder!r}")


def _loader(config: DictConfig) -> Any:
    """Return what loads the data when called; any data set can do without public points."""
    from teacher_student.data import load_label_private

    number = config.data.label_private
    options = config.copy()
    OmegaConf.set_struct(options, value=False)
    del options.data.label_private
    loader = hydra.utils.instantiate(options.data, _partial_=True)
    inspect.signature(loader.func).bind_partial(*loader.args, **loader.keywords)  # a TypeError now, not after the folder is made
    return loader if number is None else functools.partial(load_label_private, loader, number, config.seed)


def _root_cause(error: BaseException) -> str:
    """Hydra wraps what a constructor raised; the user wants the innermost line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())


def label(arguments: Sequence[str]) -> int:
    """`teacher-student label`: private labels from a file of predictions or counts of any models.

    A row is a query; a column of predictions is a teacher (-1: it abstains), a column of counts is a class. The noise is drawn
    once: keep the folder.

        teacher-student label predictions=votes.npy num_classes=10 out=labels
        teacher-student label predictions=votes.npy num_classes=10 privacy.epsilon=2 privacy.cutoff=20 out=labels
        teacher-student label counts=counts.npy num_classes=10 num_teachers=1000 mechanism=gnmax out=labels
    """
    from teacher_student.pipeline import BudgetSettings, label_file

    config = compose_whole("label", arguments)
    mechanism = dict(config.mechanism)
    release = label_file(
        predictions=config.predictions,
        counts=config.counts,
        num_classes=config.num_classes,
        num_teachers=config.num_teachers,
        out=Path(config.out),
        mechanism=mechanism.pop("name", None),
        options=mechanism,
        budget=BudgetSettings(**config.budget),
        **config.privacy,
    )
    certificate = release.certificate
    print(
        f"{int(release.answered.sum())} of {len(release.labels)} queries answered at epsilon {certificate.epsilon:.4g}, "
        f"delta {certificate.delta:.3g}; written to {config.out}"
    )
    return 0


def plan(arguments: Sequence[str]) -> int:
    """`teacher-student plan`: what each mechanism could answer, from public sizes, or on votes of a public stand-in.

    teacher-student plan
    teacher-student plan num_teachers=250 num_queries=5000 num_classes=10
    teacher-student plan privacy.epsilon=2 privacy.delta=1e-6
    teacher-student plan standin=[votes_250.npy,votes_1000.npy] truth=labels.npy num_queries=10000
    """
    from teacher_student.privacy.planner import plan as make_plan

    config = compose_whole("plan", arguments)
    if config.standin is not None:
        return _plan_on_standins(config)
    sizes = {name: config[name] for name in ("num_teachers", "num_queries", "num_classes", "failure")}
    print(make_plan(epsilon=config.privacy.epsilon, delta=config.privacy.delta, **sizes))
    return 0


def _plan_on_standins(config: DictConfig) -> int:
    from teacher_student.pipeline.files import read_table
    from teacher_student.privacy.joint_choice import choose

    names = [config.standin] if isinstance(config.standin, str) else list(config.standin)
    truth = None if config.truth is None else read_table(config.truth)
    budget = {"epsilon": config.privacy.epsilon, "delta": config.privacy.delta}
    print(choose([read_table(name) for name in names], num_queries=config.num_queries, truth=truth, wrong=config.wrong, **budget))
    return 0


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

    For the keeper. Costs and totals may be published, as certificates have them; names and times had better not; noisy
    thresholds, votes, links and fingerprints are not shown at all (see `teacher_student.aggregation.statement`).

        teacher-student ledger
        teacher-student ledger runs/ledger.sqlite --json
        teacher-student ledger runs/ledger.sqlite composed=true
    """
    from teacher_student.aggregation import Ledger
    from teacher_student.aggregation.statement import statements, to_json

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
    """`teacher-student audit`: attack a mechanism or its students; exit 0 only if every verdict is as it must be.

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

    mechanism = dict(config.mechanism)
    return run_audit(mechanism.pop("name", None), **mechanism, **config.privacy, trials=config.trials, progress=progress)


def _attack_student(config: DictConfig, progress: Callable[[int, int, str], None]) -> Any:
    from teacher_student.pipeline import attack_student

    mechanism, sizes = dict(config.mechanism), {name: config[name] for name in ("worlds", "num_teachers", "error")}
    privacy = dict(config.privacy)
    if (bins := privacy.pop("bins")) is not None:
        raise ArgumentError(f"privacy.bins must be null where target is student, got {bins}; hard labels are attacked")
    return attack_student(mechanism.pop("name", None), **mechanism, **privacy, **sizes, progress=progress)


def benchmark(arguments: Sequence[str]) -> int:
    """`teacher-student benchmark`: this machine against the usual ways, as ratios; minutes to hours.

    teacher-student benchmark --only mechanisms --samples 3
    teacher-student benchmark --only teachers --networks logistic-784-sgd --teachers 250
    """
    from teacher_student.benchmarks.command import main as measure

    return measure(arguments)


VERBS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": run,
    "label": label,
    "plan": plan,
    "audit": audit,
    "verify": verify,
    "ledger": ledger,
    "benchmark": benchmark,
}


def main() -> None:
    """Entry point of the `teacher-student` command."""
    sys.exit(dispatch(sys.argv[1:]))


def dispatch(arguments: Sequence[str]) -> int:
    """Run one verb; bad input is one line on standard error and exit code 2."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP.format(version=__version__))
        return 0
    if arguments[0] == "--version":
        print(__version__)
        return 0
    verb, *rest = arguments
    try:
        if verb not in VERBS:
            raise ArgumentError(f"the verb must be one of {', '.join(VERBS)}; got {verb!r}{_meant(verb, list(VERBS))}")
        if verb != "benchmark" and ("--help" in rest or "-h" in rest):
            print(inspect.getdoc(VERBS[verb]))
            return 0
        return VERBS[verb](rest)
    except (ArgumentError, OmegaConfBaseException, HydraException) as error:
        _complain(error)
        return 2


def _complain(error: Exception) -> None:
    print("teacher-student: " + " ".join(str(error).split()), file=sys.stderr)


if __name__ == "__main__":
    main()
