"""Your own table from the command line: a private model in one command, and one clear line for each thing that may be wrong."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from teacher_student.app import dispatch
from teacher_student.privacy import Certificate

pytestmark = pytest.mark.usefixtures("no_pictures")


def write(path: Path, columns: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([columns, *rows])


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """people.csv (private, with ids), others.csv (public, unlabeled), test.csv (labelled, public)."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)

    def people(count: int) -> list[list[object]]:
        ages, jobs = rng.integers(18, 90, count), rng.choice(["cook", "judge"], count)
        pays = [
            "yes" if age + 30 * (job == "judge") + rng.normal(0, 4) > 65 else "no" for age, job in zip(ages, jobs, strict=True)
        ]
        return [[int(age), str(job), pay] for age, job, pay in zip(ages, jobs, pays, strict=True)]

    columns = ["person", "age", "job", "pays"]
    write(tmp_path / "people.csv", columns, [[f"p{number}", *row] for number, row in enumerate(people(3000))])
    write(tmp_path / "others.csv", columns[1:3], [row[:2] for row in people(300)])
    write(tmp_path / "test.csv", columns[1:], people(300))
    return tmp_path


OWN = """experiment=table name=mine run_folder=mine console=quiet baselines=false
    data.path=people.csv data.label=pays data.id=person data.public=others.csv data.evaluation=test.csv
    data.evaluation_public=true teachers.number=200 student.settings.epochs=10 privacy.epsilon=4 privacy.cutoff=50""".split()  # noqa: SIM905 - reads like the command


def run(*overrides: str) -> int | str | None:
    try:
        return dispatch(["run", *OWN, *overrides])
    except SystemExit as stop:
        return stop.code


def test_own_table_becomes_a_private_model(tables):
    assert run() == 0
    assert dispatch(["verify", "mine"]) == 0
    labels = np.loadtxt(tables / "mine" / "release" / "labels.csv", delimiter=",", skiprows=1, usecols=1)
    assert (labels >= 0).sum() > 20


def test_what_is_left_open_is_chosen_from_public_sizes_and_what_is_named_wins(tables, capsys):
    assert run("privacy.cutoff=null", "privacy.population=3000", "boosting.rounds=1", "console=plain") == 0
    shown = capsys.readouterr().out
    assert "mechanism=auto took noisy_scores" in shown
    assert "about 3,000 records, 300 public points and epsilon 4" in shown
    certificate = Certificate.from_json((tables / "mine" / "release" / "certificate.json").read_text())
    assert certificate.used["chosen"].startswith("noisy_scores")
    assert (certificate.mechanism, certificate.used["num_teachers"], certificate.used["rounds"]) == ("noisy_scores", 200, 2)
    assert dispatch(["verify", "mine"]) == 0
    (tables / "mine" / "private" / "finished.json").unlink()
    assert (
        run("privacy.cutoff=null", "privacy.population=3000", "boosting.rounds=1") == 0
    )  # an unfinished run has the same config
    assert run("privacy.cutoff=null", "learner=mlp", "run_folder=other", "console=plain") == 0  # no recipe: the planner alone
    assert "mechanism=auto took exponential, ends after" in capsys.readouterr().out


def test_without_a_public_table_labels_alone_are_private(tables):
    assert run("data.public=null", "data/view=labels_only", "data.view.number=200") == 0
    assert '"neighbours": "label_only"' in (tables / "mine" / "release" / "certificate.json").read_text()


def test_without_ids_the_guarantee_is_replace_one(tables):
    assert run("data.id=null") == 0
    assert '"neighbours": "replace_one"' in (tables / "mine" / "release" / "certificate.json").read_text()


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["data.label=pay"], "data.label must be a column of people.csv, got 'pay', which is missing from the columns"),
        (["data.label=pay"], "did you mean 'pays'?"),
        (["data.id=passport"], "data.id must be a column of people.csv, got 'passport', which is missing from"),
        (["data.lable=pay"], "data.lable is not a setting, got 'data.lable=pay'; did you mean data.label?"),
        (["data.path=nobody.csv"], "data.path must be a readable table, got nobody.csv"),
        (["data.path=noise.csv"], "data.path must be a readable table, got noise.csv"),
        (["data.public=people.csv"], "data.public must be another file than the private one, got the same file, people.csv"),
        (
            ["data.evaluation=people.csv"],
            "data.evaluation must be another file than the private one, got the same file, people.csv",
        ),
        (["data.public=copy.csv"], "data.public must hold other records than the private file, got a copy of it, copy.csv"),
        (
            ["data.evaluation_public=null"],
            "data.evaluation_public must be true or false for data that is evaluated, got nothing",
        ),
        (["data.public=null"], "data.public must be a table to be labelled, got None; the view labels_only queries"),
        (["data.ranges={age:[5]}"], "data.ranges of age must be two numbers"),
        (["data.classes=yes"], "data.classes must be the public list of labels"),
        (
            ["data.public=null", "data/view=labels_only", "data.view.number=3000"],
            "data.view.number must be an integer from 1 to 2999, got 3000",
        ),
        (["teachers.training.steps=0"], "teachers.training.steps must be a positive integer, got 0"),
        (["student.settings.epochs=-1"], "student.settings.epochs must be"),
        (
            ["data.evaluation=odd.csv", "data.classes=[no,yes]"],
            "data.evaluation must have one of the classes no, yes in column 'pays', got 'never' in record 1",
        ),
        (["teachers.number=99999999"], "teachers.number must be an integer from 1 to 10000000, got 99999999"),
        (["data.id=null", "privacy.neighbours=add_remove"], "privacy.neighbours"),
    ],
)
def test_what_may_be_wrong_is_one_line_and_nothing_is_written(tables, capsys, overrides, says):
    (tables / "noise.csv").write_bytes(bytes(range(128, 256)) * 10)
    write(tables / "odd.csv", ["age", "job", "pays"], [[30, "cook", "never"]])
    (tables / "copy.csv").write_bytes((tables / "people.csv").read_bytes())
    assert run(*overrides) == 2
    complaint = capsys.readouterr().err.strip()
    assert says in complaint
    assert len(complaint.splitlines()) == 1
    assert not (tables / "mine").exists()
