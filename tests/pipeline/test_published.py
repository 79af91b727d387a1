"""A published student takes rows as people have them: the bits that the run judged it by, from its release folder alone."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from teacher_student.app import compose, dispatch, settings_from_config
from teacher_student.arguments import ArgumentError
from teacher_student.data import adult, load_digits
from teacher_student.data.adult import AdultEncoding
from teacher_student.pipeline import load_student, run, stages
from teacher_student.pipeline.folder import RunFolder
from teacher_student.pipeline.published import save_student
from teacher_student.student import predict_probabilities
from teacher_student.student.evaluation import evaluate
from teacher_student.teachers import MLP

from ..adult_rows import original_rows
from ..pictures import report_little

FAST = ["baselines=false", "logger=none", "console=quiet", "privacy.epsilon=8", "student.settings.epochs=3"]


def people(count, seed, *, odd=True):
    """Rows of (person, age, hours, job, pays), some cells missing or odd."""
    rng = np.random.default_rng(seed)
    ages, hours, jobs = rng.integers(18, 90, count), rng.normal(38, 9, count), rng.choice(["cook", "judge", "1"], count)
    pays = np.where(ages + 30 * (jobs == "judge") + rng.normal(0, 4, count) > 65, "yes", "no")
    rows = [
        [f"p{row}", int(age), f"{hour:.1f}", str(job), str(pay)]
        for row, (age, hour, job, pay) in enumerate(zip(ages, hours, jobs, pays, strict=True))
    ]
    for row, place, cell in ((3, 1, ""), (4, 2, "NA"), (5, 3, ""), (6, 3, "astronaut"), (7, 1, "300")) * odd:
        rows[row][place] = cell
    return rows


def write(path, columns, rows):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([columns, *rows])


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A finished run on an own table, its dataset, and the folder of its tables."""
    folder = tmp_path_factory.mktemp("own")
    write(folder / "people.csv", ["person", "age", "hours", "job", "pays"], people(2500, 0))
    write(folder / "others.csv", ["hours", "age", "job"], [[row[2], row[1], row[3]] for row in people(300, 1, odd=False)])
    write(folder / "judged.csv", ["age", "pays", "hours", "job"], [[row[1], row[4], *row[2:4]] for row in people(200, 2)])
    own = [f"data.path={folder}/people.csv", "data.label=pays", "data.id=person", f"data.public={folder}/others.csv"]
    own += [f"data.evaluation={folder}/judged.csv", "data.evaluation_public=true", "teachers.number=200", "privacy.cutoff=50"]
    settings = settings_from_config(compose("run", ["experiment=table", *own, *FAST]))
    with pytest.MonkeyPatch.context() as patch:
        report_little(patch)
        return run(settings, folder / "mine"), settings.data(), folder


@pytest.fixture
def alone(mine, tmp_path):
    """The release folder alone, copied elsewhere."""
    return shutil.copytree(mine[0].folder.release, tmp_path / "copied")


def test_raw_rows_get_the_bits_of_the_runs_own_evaluation(mine, alone):
    result, dataset, folder = mine
    theirs = load_student(alone).predict_proba(folder / "judged.csv")
    ours = predict_probabilities(result.student.publishable, dataset.evaluation_features)
    assert theirs.tobytes() == ours.tobytes()
    assert evaluate(theirs, dataset.evaluation_labels) == result.metrics
    assert load_student(alone).predict(folder / "judged.csv").tolist() == [dataset.class_names[best] for best in ours.argmax(1)]


def test_every_form_of_the_same_rows_gets_the_same_bits(mine, alone):
    pandas = pytest.importorskip("pandas")
    _, dataset, folder = mine
    student = load_student(alone)
    frame = pandas.read_csv(folder / "judged.csv")  # numbers beside gaps as floats, gaps as NaN
    wanted = student.predict_proba(folder / "judged.csv").tobytes()
    for rows in (frame, frame.to_dict("records"), frame.to_dict("list"), dataset.evaluation_features):
        assert student.predict_proba(rows).tobytes() == wanted


def test_an_encoding_that_is_off_by_a_little_is_told_apart(mine, alone):
    """Power of the two tests above: ranges wider by one year give other bits."""
    _, dataset, folder = mine
    description = yaml.safe_load((alone / "student.yaml").read_text())
    description["encoding"]["ranges"]["age"][1] += 1
    (alone / "student.yaml").write_text(yaml.safe_dump(description, sort_keys=False))
    assert not np.array_equal(load_student(alone).encode(folder / "judged.csv"), dataset.evaluation_features)


def test_the_verb_works_from_the_release_folder_alone(mine, alone, monkeypatch, capsys):
    _, dataset, folder = mine
    shutil.copy(folder / "people.csv", alone.parent / "people.csv")
    monkeypatch.chdir(alone.parent)
    for out in ("one.csv", "two.csv"):
        assert dispatch(["predict", "copied", "table=people.csv", "id=person", f"out={out}"]) == 0
    assert (alone.parent / "one.csv").read_bytes() == (alone.parent / "two.csv").read_bytes()
    rows = [line.split(",") for line in Path("one.csv").read_text().splitlines()]
    assert rows[0] == ["person", "prediction", "probability=no", "probability=yes"]
    assert [row[0] for row in rows[1:]] == dataset.private_ids.tolist()
    probabilities = load_student("copied").predict_proba("people.csv")
    assert [row[2:] for row in rows[1:]] == [[f"{value:.6f}" for value in each] for each in probabilities.tolist()]
    assert [row[1] for row in rows[1:]] == [("no", "yes")[best] for best in probabilities.argmax(1)]
    printed = capsys.readouterr().out
    assert "hours: 1 cell is no number, taken as the middle of " in printed
    assert "2,500 predictions (" in printed


WRONG = {
    "a missing column": (
        ["table=narrow.csv"],
        "table must have a column 'hours', got the columns age, hour, job; did you mean 'hour'?",
    ),
    "no such id": (["table=people.csv", "id=passport"], "id must be a column of table, got 'passport', which is missing"),
    "no such table": (["table=nobody.csv"], "table must be a readable table"),
    "another kind of file": (["table=student.yaml"], "table must end in .csv, .tsv or .parquet"),
    "an out that is there": (["table=people.csv", "out=people.csv"], "out must be a new .csv file"),
    "an out nowhere": (["table=people.csv", "out=no/p.csv"], "out must be a new .csv file in a folder that is there"),
    "an array of another shape": (
        ["table=wide.npy"],
        "table must hold numbers in rows of shape (5,), got float64 of shape (3, 7)",
    ),
    "a pickled array": (["table=pickled.npy"], "table must be a readable .npy array"),
    "an array with NaN": (["table=nan.npy"], "table must hold finite numbers"),
    "an id for an array": (["table=nan.npy", "id=person"], "id must be null for a table without named columns"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_may_be_wrong_is_one_line_and_nothing_is_written(mine, alone, monkeypatch, capsys, case):
    overrides, says = WRONG[case]
    monkeypatch.chdir(alone)
    shutil.copy(mine[2] / "people.csv", "people.csv")
    write(alone / "narrow.csv", ["age", "hour", "job"], [[30, 40, "cook"]])
    np.save("wide.npy", np.zeros((3, 7)))
    np.save("nan.npy", np.full((3, 5), np.nan))
    np.save("pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    before = sorted(path.name for path in alone.iterdir())
    assert dispatch(["predict", ".", *({"out": "out=p.csv"} | {one.split("=")[0]: one for one in overrides}).values()]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint
    assert len(complaint.strip().splitlines()) == 1
    assert sorted(path.name for path in alone.iterdir()) == before


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (("encoding", "kind"), "pickle"),
        (("encoding", "ranges", "age"), [5, 5]),
        (("encoding", "categories", "job"), ["cook"]),
        (("encoding",), ["table"]),
        (("input_shape",), [99]),
        (("class_names",), ["no"]),
    ],
    ids=str,
)
def test_a_description_that_does_not_fit_is_refused(alone, part, value):
    description = yaml.safe_load((alone / "student.yaml").read_text())
    inner = description
    for name in part[:-1]:
        inner = inner[name]
    inner[part[-1]] = value
    (alone / "student.yaml").write_text(yaml.safe_dump(description, sort_keys=False))
    with pytest.raises(ArgumentError, match="folder must hold a student of a known network"):
        load_student(alone)


def test_a_folder_without_a_student_is_said_once(tmp_path):
    with pytest.raises(ArgumentError) as caught:
        load_student(tmp_path / "nowhere")
    assert (
        str(caught.value)
        == f"folder must be a run or its release/ with a student, got {tmp_path}/nowhere, which has no student.yaml"
    )


def untrained(folder, *overrides):
    """A student's files as a run writes them, without the run; the student and its dataset."""
    settings = settings_from_config(compose("run", [*overrides, *FAST]))
    dataset = settings.data()
    network = stages.Run(settings, dataset, RunFolder(folder)).student_network()
    save_student(
        folder,
        network,
        settings.student_network,
        shape=dataset.student_points.shape[1:],
        class_names=dataset.class_names,
        feature_names=dataset.student_feature_names,
        encoding=dataset.student_encoding,
    )
    return network, dataset


def test_a_projected_student_takes_raw_rows_of_adult(tmp_path):
    network, dataset = untrained(tmp_path, "experiment=adult_fractions", "student=mlp")
    assert (tmp_path / "encoding.safetensors").stat().st_mode & 0o777 == 0o644
    table = adult.read_table()
    rows = original_rows(table[:50], AdultEncoding())
    ours = predict_probabilities(network, dataset.private_features[:50])
    assert np.ptp(ours[:, 0]) > 0.01  # an untrained logistic regression says the same of everybody
    assert load_student(tmp_path).predict_proba(rows).tobytes() == ours.tobytes()
    del rows["occupation"]
    with pytest.raises(ArgumentError, match="table must have a column 'occupation'"):
        load_student(tmp_path).predict(rows)


SEEN = (
    "data/view=encoder",
    "data.view.encoder={_target_: teacher_student.data.digit_network.DigitNetwork, _partial_: true}",
)


@pytest.mark.parametrize(
    "options",
    [
        ["data/view=none"],
        ["data.view.components=9"],
        pytest.param(SEEN, marks=pytest.mark.slow),
        pytest.param([*SEEN, "data.view.components=9"], marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_images_come_as_arrays_of_the_data_sets_shape(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    network, dataset = untrained(tmp_path, "experiment=digits", *options)
    ours = predict_probabilities(network, dataset.evaluation_features)
    assert np.ptp(ours[:, 0]) > 1e-3
    np.save("images.npy", load_digits().evaluation_features)
    assert load_student(".").predict_proba(np.load("images.npy")).tobytes() == ours.tobytes()
    assert dispatch(["predict", ".", "table=images.npy", "out=p.csv"]) == 0
    lines = Path("p.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines[1:3]] == [["1", str(ours[0].argmax())], ["2", str(ours[1].argmax())]]
    with pytest.raises(ArgumentError, match=r"^table must be an array with rows of shape \(1, 8, 8\): they have no named"):
        load_student(".").predict([{"pixel": 1}])


def test_another_frozen_network_is_handed_over(tmp_path, monkeypatch, capsys):
    """What a file may not call comes from whoever loads the student; the file has its numbers."""
    monkeypatch.chdir(tmp_path)
    seen = "data.view.encoder={_target_: teacher_student.teachers.MLP, num_features: 64, num_classes: 12}"
    network, dataset = untrained(tmp_path, "experiment=digits", "data/view=encoder", seen, "data.view.components=9")
    ours = predict_probabilities(network, dataset.evaluation_features)
    images = load_digits().evaluation_features
    assert load_student(".", encoder=MLP(64, 12)).predict_proba(images).tobytes() == ours.tobytes()
    np.save("images.npy", images)
    assert dispatch(["predict", ".", "table=images.npy", "out=p.csv"]) == 2
    assert "encoder must be given to load_student, a MLP" in capsys.readouterr().err
    for other in (MLP(64, 12, hidden=()), MLP(64, 13)):
        with pytest.raises(ArgumentError, match="folder must hold a student of a known network"):
            load_student(".", encoder=other)


def test_columns_of_numbers_go_by_their_names(tmp_path):
    network, dataset = untrained(tmp_path, "experiment=blobs")
    rows = [{"x2": float(second), "x1": float(first)} for first, second in dataset.evaluation_features]
    ours = predict_probabilities(network, dataset.evaluation_features)
    assert load_student(tmp_path).predict_proba(rows).tobytes() == ours.tobytes()
