"""The command line: help in ten lines, one line and exit code 2 for every mistake, nothing half-written."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import shlex
import subprocess
import sys

import numpy as np
import pytest
import yaml

from research.benchmarks.command import read
from research.benchmarks.teachers import CASES
from teacher_student import ArgumentError
from teacher_student.aggregation import Ledger, Release, private_selection
from teacher_student.app import VERBS, compose, conf_folder, dispatch, settings_from_config
from teacher_student.app.composing import PLUGINS, check_flags
from teacher_student.app.running import FLAGS, check_overrides
from teacher_student.app.settings import check_complete

pytestmark = pytest.mark.usefixtures("no_pictures")

FAST = [
    "experiment=blobs",
    "data.num_private=1200",
    "data.num_public=200",
    "teachers.number=60",
    "baselines=false",
    "console=quiet",
]


def test_without_arguments_it_says_what_it_can_do(capsys):
    assert dispatch([]) == 0
    printed = capsys.readouterr().out
    for verb in ("run", "label", "select", "predict", "plan", "audit", "verify", "ledger", "benchmark"):
        assert f"  {verb}" in printed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fly"], "the verb must be one of"),
        (["run", "privacy.epslon=1"], "did you mean privacy.epsilon?"),
        (["run", "experiment=nowhere"], "nowhere"),
        (["run", "privacy.epsilon=-1"], "privacy.epsilon must be a number above 0, got -1"),
        (["run", "privacy.delta=2"], "privacy.delta must lie strictly between 0 and 1, got 2"),
        (["run", "privacy.cutoff=0"], "privacy.cutoff must be a positive integer, got 0"),
        (["run", "teachers.number=0"], "teachers.number must be an integer from 1 to 10000000, got 0"),
        (["run", "teachers.number=99999999"], "teachers.number must be an integer from 1 to 10000000, got 99999999"),
        (["run", "student.settings.unanswered=guess"], "unanswered must be one of"),
        (["run", "mechanism=magic"], "magic"),
        (["run", "privacy.epsilon=[1"], "privacy.epsilon"),
        (["run", "-m", "privacy.epsilon=1,2", "teachers.nmber=5"], "teachers.nmber"),
        (["label"], "num_classes and out must be given, got nothing; add num_classes=VALUE out=VALUE"),
        (["label", "predictions=v.npy", "num_classes=2"], "out must be given, got nothing; add out=VALUE"),
        (["run", "--epsilon", "1"], "did you mean privacy.epsilon=1?"),
        (["run", "--privacy.delta=1e-6"], "did you mean privacy.delta=1e-6?"),
        (["label", "--num-classes", "3"], "did you mean num_classes=3?"),
        (["plan", "--teachers"], "settings must be written NAME=VALUE, got '--teachers'"),
        (["run", "-m", "experiment=blobs", "privacy.epsilon=1,2", "seed=1,-1"], "seed must be an integer of at least 0, got -1"),
        (["run", "-m", "experiment=table", "data.label=a,b"], "data.path must be given"),
        (["label", "num_classes=2", "out=x"], "predictions or counts must name a file"),
        (["label", "predictions=missing.npy", "num_classes=2", "out=x"], "missing.npy"),
        (["verify", "nowhere"], "certificate.json"),
        (["verify"], "verify must be given one"),
        (["predict", "table=x.csv", "out=y.csv"], "predict must be given one run or release folder, got 0"),
        (["predict", "nowhere", "out=y.csv"], "table must be given, got nothing; add table=VALUE"),
        (["predict", "nowhere", "x.csv", "out=y.csv"], "table must be given"),
        (["predict", "nowhere", "x.csv", "table=x.csv", "out=y.csv"], "predict must be given one run or release folder, got 2"),
        (["predict", "nowhere", "--table", "x.csv"], "settings must be written NAME=VALUE, got '--table'; did you mean table="),
        (["predict", "nowhere", "table=x.csv", "out=y.csv"], "got nowhere, which has no student.yaml"),
        (["predict", "nowhere", "tabel=x.csv"], "did you mean table?"),
        (["plan", "num_teachers=0"], "num_teachers must be a positive integer, got 0"),
        (["audit", "mechanism=magic"], "magic"),
        (["rnu"], "did you mean run?"),
        (
            ["run", "learner=mpl"],
            "one of adult, boosting, cnn, gradients, logistic, mlp, nearest, resnet, sklearn; got 'mpl'; did you mean mlp?",
        ),
        (["run", "experiment=adlt"], "did you mean adult?"),
        (["run", "teachers=300"], "teachers must be one of adult, images, small; got '300'"),
        (["run", "--mutlirun"], "did you mean --multirun?"),
        (["run", "~name"], "run_folder must refer to existing settings: Interpolation key 'name' not found"),
        (["run", "data=table"], "data.label and data.path must be given, got nothing; add data.label=VALUE data.path=VALUE"),
        (["run", "privacy=1"], "privacy must be a section of settings"),
        (["run", "~privacy"], "privacy"),
        (["run", "baselines=maybe"], "baselines must be true or false, got 'maybe'"),
        (["run", "run_folder="], "run_folder must name a new folder"),
        (["run", "+data.nonsense=1"], "nonsense"),
        (["run", "-m", "launcher=ray", "seed=1,2"], "hydra-ray-launcher"),
        (["run", "budget.epsilon=1", "budget.delta=1e-4"], "budget.ledger must be a file where budget.epsilon is given"),
        (["run", "budget.ledger=l", "budget.epsilon=1"], "budget.delta must lie strictly between 0 and 1, got None"),
        (["run", "budget.ledger=l", "budget.epsilon=0.5", "budget.delta=1e-4"], "budget must cover all sessions on the data"),
        (["run", "budget.ledger=l", "budget.filter=sum"], "budget.filter must be one of"),
        (["label", "counts=x.npy", "num_classes=2", "out=x", "budget.ledger=l"], "budget.dataset must be a public name"),
        (["ledger"], "ledger must be the file of a ledger"),
        (["ledger", "nowhere.sqlite"], "nowhere.sqlite, which does not exist"),
        (["ledger", "a", "b"], "ledger must be given one file, got 2"),
        (["ledger", "jsn=true"], "did you mean json?"),
    ],
)
def test_a_slip_is_one_line_and_exit_code_two(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        code = dispatch(arguments)
    except SystemExit as stop:  # inside Hydra's job
        code = stop.code
    complaint = capsys.readouterr().err
    assert code == 2, complaint
    assert says in complaint
    assert len(complaint.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_module_speaks_only_where_it_is_the_program(capsys):
    importlib.import_module("teacher_student.app.__main__")
    assert capsys.readouterr() == ("", "")
    done = subprocess.run([sys.executable, "-m", "teacher_student.app", "--help"], capture_output=True, text=True, check=False)
    assert dispatch(["--help"]) == 0
    assert (done.returncode, done.stdout, done.stderr) == (0, *capsys.readouterr())


def test_the_command_itself_ends_with_code_two(tmp_path):
    command = [sys.executable, "-c", "from teacher_student.app import main; main()", "run", "privacy.epslon=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        done.stderr == "teacher-student: privacy.epslon is not a setting, got 'privacy.epslon=1'; did you mean privacy.epsilon?\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_settings_of_privacy_are_refused_before_torch_is_imported():
    code = (
        "import sys\nfrom teacher_student.app import dispatch\n"
        "try:\n    dispatch(['run', 'privacy.epsilon=-1'])\n"
        "finally:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[-1]) == (2, "False")
    assert done.stderr.startswith("teacher-student: privacy.epsilon must be a number above 0")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Lightning says it, after the import of torch")
def test_a_gpu_that_is_not_there_is_refused_before_anything_else(monkeypatch):
    check_complete(compose("run", []))
    monkeypatch.setattr("teacher_student.app.settings._GPU_FILES", ("/dev/null",))
    check_complete(compose("run", ["trainer=gpu"]))
    monkeypatch.setattr("teacher_student.app.settings._GPU_FILES", ("/dev/no such device*",))
    with pytest.raises(ArgumentError, match="use trainer=cpu"):
        check_complete(compose("run", ["trainer=gpu"]))


@pytest.mark.parametrize(
    ("made", "says"), [(True, "to continue, run teacher-student run "), (False, "before anything was written")]
)
def test_an_interrupted_run_says_in_one_line_how_to_go_on(made, says, tmp_path, monkeypatch, capsys):
    def interrupted(_, folder, __):
        if made:
            folder.mkdir()
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            if made:
                sys.exit(1)  # as Lightning does
            raise

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("teacher_student.pipeline.runner.run", interrupted)
    with pytest.raises(SystemExit) as stop:
        dispatch(["run", *FAST, "name=two words", "run_folder=first try"])
    assert stop.value.code == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    if made:
        command = shlex.split(line.partition("to continue, run ")[2])
        assert command == ["teacher-student", "run", *FAST, "name=two words", "run_folder=first try"]


def test_a_run_and_its_verification(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert dispatch(["run", *FAST, "privacy.epsilon=8", "run_folder=here"]) == 0
    assert dispatch(["verify", "here"]) == 0
    assert "recomputed epsilon" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]


def test_a_sweep_makes_a_folder_for_each_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = [
        "console=plain",
        "run_folder=sweep",
        "privacy.epsilon=1,3",
        "student.settings.epochs=2",
        "budget.ledger=kept/ledger.sqlite",
    ]
    assert dispatch(["run", "-m", *FAST, *given]) == 0
    assert [entry.epsilon for entry in Ledger("kept/ledger.sqlite").entries()] == [1.0, 3.0]
    printed = capsys.readouterr().out
    assert printed.index("run 0 of the sweep: ") < printed.index("privacy.epsilon=1") < printed.index("run 1 of the sweep: ")
    assert {"0", "1"} <= {path.name for path in (tmp_path / "sweep").iterdir()}
    for number in "01":
        assert dispatch(["verify", f"sweep/{number}"]) == 0


@pytest.mark.parametrize("name", ["votes.npy", "votes.csv"])
def test_an_empty_file_of_votes_is_refused_in_one_line(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).touch()
    assert dispatch(["label", f"predictions={name}", "num_classes=2", "out=labels"]) == 2
    assert "file must be a readable .npy or .csv table" in capsys.readouterr().err


def test_label_writes_a_release_that_verifies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    predictions = (np.random.default_rng(0).random((50, 400)) < 0.02).astype(np.int64)
    np.save("votes.npy", predictions)
    given = ["label", "predictions=votes.npy", "num_classes=2", "privacy.epsilon=1"]
    assert dispatch([*given, "out=labels"]) == 2
    assert "num_teachers must be given: predictions has shape (50, 400); is 400 the number" in capsys.readouterr().err
    given.append("num_teachers=400")
    assert dispatch([*given, "out=labels"]) == 0
    assert dispatch(["verify", "labels"]) == 0
    assert dispatch([*given, "out=labels"]) == 2
    assert "out must be a new folder" in capsys.readouterr().err
    assert dispatch([*given, "privacy.hyperparameters=tuned", "out=others"]) == 2
    assert "hyperparameters must be one of fixed, public_surrogate" in capsys.readouterr().err
    assert dispatch([*given, "privacy.hyperparameters=public_surrogate", "out=others"]) == 0
    chosen = [Release.load(folder).certificate.used["hyperparameters"] for folder in ("labels", "others")]
    assert chosen == ["fixed", "public_surrogate"]


def test_public_numbers_that_protect_nobody_are_warned_of(tmp_path, monkeypatch, capsys):
    """The texts themselves are in tests/planning/test_preflight.py."""
    monkeypatch.chdir(tmp_path)
    weak = ["privacy.epsilon=12", "privacy.delta=0.01", "privacy.population=10000"]
    np.save("votes.npy", np.zeros((50, 400), dtype=np.int64))
    assert dispatch(["label", "predictions=votes.npy", "num_teachers=400", "num_classes=2", "out=labels", *weak]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" is above")[0] for line in lines] == ["Warning: epsilon 12", "Warning: delta 0.01"]
    assert dispatch(["plan", "num_teachers=50", "num_queries=20", *weak]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("Warning: ")] == lines
    assert dispatch(["plan", "num_teachers=50", "num_queries=20", "privacy.population=few"]) == 2
    assert "population must be a positive integer, got 'few'" in capsys.readouterr().err


def test_select_releases_the_better_candidate_and_its_whole_cost(tmp_path, monkeypatch, capsys):
    """There are 41 runs: the poor candidate alone is drawn with probability 2^-41."""
    monkeypatch.chdir(tmp_path)
    truth = np.arange(40) % 2
    good = np.where(truth[:, None] == 1, [[0, 3000]], [[3000, 0]])
    np.save("poor.npy", good[:, ::-1])
    np.save("good.npy", good)
    np.save("truth.npy", np.where(np.arange(40) < 30, truth, -1))
    left = iter([True] * 40 + [False])
    monkeypatch.setattr(private_selection, "another_run", lambda _: next(left))
    given = ["select", "counts=[poor.npy,good.npy]", "num_classes=2", "privacy.epsilon=2", "privacy.cutoff=5", "repetitions=40"]
    assert dispatch([*given, "truth=truth.npy", "out=best"]) == 2
    assert "num_teachers must be given" in capsys.readouterr().err
    given.append("num_teachers=3000")
    assert dispatch([*given, "truth=truth.npy", "out=best"]) == 0
    assert capsys.readouterr().out.startswith(
        "candidate 2, good.npy: 40 of 40 queries answered at epsilon 2, delta 1e-05 for all"
    )
    release = Release.load("best")
    assert release.labels.tolist() == truth.tolist()
    assert release.certificate.used["candidate"] == 1
    assert release.certificate.mechanism == "private_selection"
    assert dispatch(["verify", "best"]) == 0
    assert dispatch([*given, "truth=truth.npy", "out=best"]) == 2
    assert "out must be a new folder" in capsys.readouterr().err
    for more, message in [
        (["mechanism=gnmax", "privacy.cutoff=null"], "truth must name a file of public classes for mechanism=gnmax"),
        (["truth=poor.npy"], "truth must hold a class for each of 40 queries, -1 where unknown, got 80"),
        (["counts=null"], "predictions or counts must name files"),
        (["counts=[]"], "predictions or counts must name one file or more"),
        (["repetitions=1"], "repetitions must be"),
    ]:
        assert dispatch([*given, "out=other", *more]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "other").exists()


def examples(verb: str) -> list[list[str]]:
    lines = (line.strip() for line in inspect.getdoc(VERBS[verb]).splitlines())
    return [shlex.split(line)[2:] for line in lines if line.startswith(f"teacher-student {verb}")]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_helps_with_examples(verb, capsys):
    with contextlib.suppress(SystemExit):  # argparse, for the benchmark
        assert dispatch([verb, "--help"]) == 0
    printed = capsys.readouterr().out
    assert f"teacher-student {verb}" in printed
    assert len(examples(verb)) >= 2


def test_the_examples_of_run_compose():
    for arguments in examples("run"):
        check_flags(arguments, "run", FLAGS)
        check_overrides(arguments)
        for override in (argument for argument in arguments if "," not in argument and argument != "-m"):
            settings_from_config(compose("run", [override]))


def test_the_examples_of_label_and_verify_work(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for number, arguments in enumerate(examples("label")):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        np.save("votes.npy", np.where(rng.random((30, 1000)) < 0.02, 1, 0))
        np.save("counts.npy", np.tile([900] + [10] * 9, (30, 1)))
        assert dispatch(["label", *arguments]) == 0
    assert dispatch(["verify", *examples("verify")[-1]]) == 0


def test_the_other_examples_are_understood():
    for verb in ("plan", "audit", "select"):
        for arguments in examples(verb):
            compose(verb, arguments)
    for arguments in examples("benchmark"):
        networks = read(arguments).networks or []
        assert set(networks) <= set(CASES)


def test_a_benchmark_without_a_checkout_says_where_to_get_it(monkeypatch, capsys):
    for name in ("research", "research.benchmarks", "research.benchmarks.command"):
        monkeypatch.setitem(sys.modules, name, None)
    assert dispatch(["benchmark", "--only", "mechanisms"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("teacher-student: benchmark must be run in a checkout")


def test_a_missing_launcher_says_what_to_install():
    for path in (conf_folder() / "launcher").glob("*.yaml"):
        plugin = yaml.safe_load(path.read_text())["defaults"][0]["override /hydra/launcher"]
        assert plugin in PLUGINS
        assert PLUGINS[plugin] in path.read_text()


def test_config_can_be_read_without_running(tmp_path):
    command = [sys.executable, "-c", "import sys; from teacher_student.app import main; main()", "run", "--cfg", "job"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "privacy:" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "depth"), [([], None), (["learner.estimator.max_depth=5"], 5)])
def test_another_estimator_does_not_inherit_the_trees_depth(words, depth):
    target = "learner.estimator._target_=sklearn.tree.ExtraTreeClassifier"
    config = compose("run", ["learner=sklearn", target, *words])
    assert config.learner.estimator.get("max_depth") == depth
    assert compose("run", ["learner=sklearn"]).learner.estimator.max_depth == 3
