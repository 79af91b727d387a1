"""A release is loaded as it was saved, overwrites nothing, and its certificate binds the files beside it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.aggregation import GradientSession
from teacher_student.aggregation.release import CERTIFICATE_FILE, bind_files
from teacher_student.app.command_line import dispatch
from teacher_student.mechanisms import SystemNoise
from teacher_student.pipeline.files import verify_folder


@pytest.fixture
def release() -> ts.Release:
    return ts.label(
        counts=[[4000, 0], [0, 0], [0, 4000]],
        num_classes=2,
        epsilon=1.0,
        delta=1e-5,
        num_teachers=4000,
        cutoff=1,
        noise=SystemNoise(),
    )


def test_it_comes_back_as_it_was(release: ts.Release, tmp_path: Path) -> None:
    release.save(tmp_path / "out")
    again = ts.Release.load(tmp_path / "out")
    assert again.labels.tolist() == release.labels.tolist() == [0, ts.ABSTAIN, ts.HALTED]
    assert again.answered.tolist() == [True, False, False]
    assert again.certificate == release.certificate
    assert again.certificate.verify() <= 1.0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [CERTIFICATE_FILE, ts.Release.FILE]


def test_the_table_is_plain(release: ts.Release, tmp_path: Path) -> None:
    release.save(tmp_path)
    assert (tmp_path / ts.Release.FILE).read_text().splitlines() == ["query,label,answered", "0,0,1", "1,-1,0", "2,-2,0"]


def test_query_ids_are_kept(tmp_path: Path) -> None:
    session = ts.LabelSession(num_classes=2, epsilon=1.0, delta=1e-5, num_teachers=90_000)
    session.answer(counts=[[4000, 0], [0, 4000]], query_ids=["a,b", 'say "x"\n'])
    session.release().save(tmp_path)
    assert ts.Release.load(tmp_path).queries == ("a,b", 'say "x"\n')


@pytest.mark.parametrize("name", [ts.Release.FILE, CERTIFICATE_FILE])
def test_nothing_is_overwritten(release: ts.Release, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ts.ArgumentError, match=f"^folder must hold no release yet, .* {name}; choose another one$"):
        release.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_folder_that_is_a_file_is_refused(release: ts.Release, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ts.ArgumentError, match=r"^folder must be a folder"):
        release.save(tmp_path / "out")


def test_labels_cannot_be_written_to(release: ts.Release) -> None:
    with pytest.raises(ValueError, match="read-only"):
        release.labels[0] = 1
    with pytest.raises(AttributeError):
        release.labels = np.zeros(3)  # type: ignore[misc]


@pytest.mark.parametrize(
    "table",
    [
        "",
        "query,label\n0,1\n",
        "query,label,answered\n0,one,1\n",
        "query,label,answered\n0,1,0\n",
        "query,label,answered\n0,-3,0\n",
        "\0",
    ],
)
def test_a_table_that_does_not_fit_is_refused(release: ts.Release, tmp_path: Path, table: str) -> None:
    release.save(tmp_path)
    (tmp_path / ts.Release.FILE).write_text(table)
    with pytest.raises(ts.ArgumentError):
        ts.Release.load(tmp_path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ts.ArgumentError, match=r"^folder must hold labels.csv and certificate.json, got .*: No such file"):
        ts.Release.load(tmp_path)


def test_a_certificate_that_claims_too_much_is_refused(release: ts.Release, tmp_path: Path) -> None:
    release.save(tmp_path)
    fields = json.loads((tmp_path / CERTIFICATE_FILE).read_text())
    (tmp_path / CERTIFICATE_FILE).write_text(json.dumps({**fields, "epsilon": 0.5}))
    with pytest.raises(ts.ArgumentError, match="epsilon must be at least"):
        ts.Release.load(tmp_path).certificate.verify()


def test_a_save_that_was_killed_between_its_files_is_completed(release: ts.Release, tmp_path: Path, monkeypatch) -> None:
    from teacher_student.aggregation import release as module

    whole = module._write_whole

    def killed_before_the_certificate(path: Path, text: str) -> None:
        if path.name == CERTIFICATE_FILE:
            raise KeyboardInterrupt
        whole(path, text)

    monkeypatch.setattr(module, "_write_whole", killed_before_the_certificate)
    with pytest.raises(KeyboardInterrupt):
        release.save(tmp_path)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == [ts.Release.FILE]
    for _ in range(2):
        release.save(tmp_path)
    assert ts.Release.load(tmp_path).labels.tolist() == release.labels.tolist()
    with pytest.raises(ts.ArgumentError, match=f"which has {ts.Release.FILE}"):
        ts.Release(release.labels[::-1], dataclasses.replace(release.certificate, files={})).save(tmp_path)


def write_labels(folder: Path, labels: list[int]) -> None:
    rows = [f"{position},{label},{int(label >= 0)}" for position, label in enumerate(labels)]
    (folder / ts.Release.FILE).write_text("\n".join(["query,label,answered", *rows]) + "\n")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, -1], "num_queries must be the certificate's, 3, got a table with 2"),
        ([0, -1, -2, -2], "num_queries must be the certificate's, 3, got a table with 4"),
        ([0, 1, -1], "answered must be the certificate's, 1, got a table with 2"),
        ([0, -1, -1], "paid must be the certificate's, 1, got a table that cost 2"),
        ([0, -2, -1], "labels must be -2 from the halt on, got an answer after it"),
        ([7, -1, -2], "labels must be below the certificate's num_classes, 2, got 7"),
    ],
)
def test_labels_that_are_not_the_certificates_are_refused(
    release: ts.Release, tmp_path: Path, labels: list[int], message: str
) -> None:
    release.save(tmp_path)
    write_labels(tmp_path, labels)
    with pytest.raises(ts.ArgumentError, match=f"^{message}"):
        ts.Release.load(tmp_path)


def test_more_abstentions_than_the_cutoff_are_refused_whatever_the_certificate_says(tmp_path: Path) -> None:
    """Sixty under a cutoff of fifty, the certificate's facts changed to match."""
    made = ts.label(counts=[[4000, 0]] * 70, num_classes=2, epsilon=1.0, delta=1e-5, num_teachers=90_000, cutoff=50)
    made.save(tmp_path)
    fields = json.loads((tmp_path / CERTIFICATE_FILE).read_text())
    fields["used"] |= {"paid": 60, "answered": 10}
    (tmp_path / CERTIFICATE_FILE).write_text(json.dumps(fields))
    write_labels(tmp_path, [-1] * 60 + [0] * 10)
    with pytest.raises(ts.ArgumentError, match="paid must be a whole number of at most the cutoff 50, got 60"):
        ts.Release.load(tmp_path)
    fields["used"] |= {"paid": 50}
    (tmp_path / CERTIFICATE_FILE).write_text(json.dumps(fields))
    with pytest.raises(ts.ArgumentError, match="paid must be the certificate's, 50, got a table that cost 60"):
        ts.Release.load(tmp_path)


@pytest.mark.parametrize(
    ("mechanism", "given"),
    [
        *(("gnmax", {}), ("lnmax", {}), ("exponential", {}), ("gnmax", {"max_answers": 4})),
        *(("confident_gnmax", {"threshold": 3000}), ("stability_paper", {"cutoff": 2}), ("stability_redraw", {"cutoff": 2})),
    ],
)
def test_releases_of_every_mechanism_come_back(tmp_path: Path, mechanism: str, given: dict) -> None:
    votes = [[90_000, 0], [0, 0], [0, 90_000], [0, 0], [90_000, 0], [0, 0]]
    made = ts.label(counts=votes, num_classes=2, epsilon=1.0, delta=1e-5, num_teachers=90_000, mechanism=mechanism, **given)
    made.save(tmp_path)
    assert ts.Release.load(tmp_path).labels.tolist() == made.labels.tolist()


# Binding: `load` and `verify` notice any changed file.

GIVEN = {"num_teachers": 4000, "epsilon": 1.0, "delta": 1e-5}
CLEAR = np.array([[4000, 0], [0, 4000], [0, 0]])


def made(kind: str) -> ts.Release:
    if kind == "labels.csv":
        return ts.label(counts=CLEAR, num_classes=2, cutoff=50, **GIVEN)
    if kind == "fractions.csv":
        return ts.label_fractions(counts=CLEAR, num_classes=2, **GIVEN)
    if kind == "scores.csv":
        return ts.label_soft(np.full((3, 4000), 0.42), **GIVEN)
    if kind == "noisy_gradients.csv":
        with GradientSession(2, num_queries=3, norm=1.0, **GIVEN) as session:
            return session.ask_once(np.full((3, 2), 9_000_000))
    return ts.average_scores(np.full((3, 4000, 2), 0.5), norm=1.0, **GIVEN)


KINDS = ["labels.csv", "fractions.csv", "scores.csv", "noisy_scores.csv", "noisy_gradients.csv"]


def flip(table: Path) -> None:
    """Change answers without changing anything that the certificate counts."""
    head, *rows = table.read_text().splitlines()
    cells = [row.split(",") for row in rows]
    if table.name == "labels.csv":
        cells[0][1], cells[1][1] = cells[1][1], cells[0][1]
    elif table.name == "scores.csv":
        for row in cells:
            row[0] += "0"
    else:
        cells[0][2] = str(int(cells[0][2]) + 1)
    table.write_text("\n".join([head, *map(",".join, cells)]) + "\n")


def without_files(folder: Path) -> None:
    """Turn the certificate into one of version 0.1.0."""
    fields = json.loads((folder / "certificate.json").read_text())
    del fields["files"]
    (folder / "certificate.json").write_text(json.dumps(fields))


@pytest.mark.parametrize("kind", KINDS)
def test_changed_answers_are_refused(kind: str, tmp_path: Path, capsys) -> None:
    """Flipping all labels changes no count of answers or payments; `verify` once accepted that."""
    release = made(kind)
    release.save(tmp_path)
    assert release.certificate.files == {kind: hashlib.sha256((tmp_path / kind).read_bytes()).hexdigest()}
    assert ts.load_release(tmp_path).certificate == release.certificate
    assert release.certificate.verify(tmp_path) <= 1.0
    assert dispatch(["verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"; unchanged: {kind}")
    flip(tmp_path / kind)
    assert dispatch(["verify", str(tmp_path)]) == 2
    assert f"{kind} must be the file that its certificate binds" in capsys.readouterr().err
    for refused in (ts.load_release, type(release).load, verify_folder, release.certificate.verify):
        with pytest.raises(ts.ArgumentError, match=f"^{kind} must be the file that its certificate binds"):
            refused(tmp_path)
    without_files(tmp_path)  # an old certificate binds nothing, so nothing is noticed
    assert dispatch(["verify", str(tmp_path)]) == 0
    assert "Notice: the certificate was made before certificates bound their files" in capsys.readouterr().out


def test_a_student_is_bound_once_the_folder_is_finished(tmp_path: Path, capsys) -> None:
    made("labels.csv").save(tmp_path)
    student, description = tmp_path / "student.safetensors", tmp_path / "student.yaml"
    student.write_bytes(b"weights")
    description.write_text("network: MLP\n")
    with pytest.raises(
        ts.ArgumentError, match=r"^folder must hold a student that its certificate binds, got .*which it does not"
    ):
        verify_folder(tmp_path)
    bind_files(tmp_path)
    once = (tmp_path / "certificate.json").read_bytes()
    bind_files(tmp_path)
    assert (tmp_path / "certificate.json").read_bytes() == once
    assert not list(tmp_path.glob(".*"))
    assert set(ts.load_release(tmp_path).certificate.files) == {"labels.csv", "student.safetensors", "student.yaml"}
    assert dispatch(["verify", str(tmp_path)]) == 0
    (tmp_path / "NOTES.txt").write_text("mine")
    assert "Notice: not bound by the certificate: NOTES.txt" in verify_folder(tmp_path)
    student.write_bytes(b"others")
    for refused in (verify_folder, ts.load_release):
        with pytest.raises(ts.ArgumentError, match=r"^student\.safetensors must be the file that its certificate binds"):
            refused(tmp_path)
    student.unlink()
    with pytest.raises(ts.ArgumentError, match=r"^folder must hold student\.safetensors, which its certificate binds"):
        verify_folder(tmp_path)
    assert ts.load_release(tmp_path).labels.tolist() == [0, 1, ts.ABSTAIN]  # the answers alone may be copied
    student.write_bytes(b"trained again by a run that was resumed")
    bind_files(tmp_path)
    assert "unchanged: NOTES.txt, labels.csv, student.safetensors, student.yaml" in verify_folder(tmp_path)


def test_changed_answers_are_not_bound_again(tmp_path: Path) -> None:
    made("labels.csv").save(tmp_path)
    flip(tmp_path / "labels.csv")
    with pytest.raises(ts.ArgumentError, match=r"^labels\.csv must be the file that its certificate binds"):
        bind_files(tmp_path)


def test_other_answers_do_not_take_a_certificate(tmp_path: Path) -> None:
    release = made("labels.csv")
    with pytest.raises(ts.ArgumentError, match=r"^labels must be those that the certificate binds"):
        ts.Release([1, 0, ts.ABSTAIN], release.certificate)
    release.save(tmp_path)
    bind_files(tmp_path)
    again = ts.load_release(tmp_path)
    again.save(tmp_path / "copy")
    assert set(ts.load_release(tmp_path / "copy").certificate.files) == {"labels.csv"}


@pytest.mark.parametrize(
    "files",
    [*({name: "0" * 64} for name in ("../x", "a/b", "", ".x")), {"x": "0" * 63}, {"x": 7}, {"x": "0" * 64 + "\n"}, 7],
)
def test_names_that_lead_elsewhere_and_odd_digests_are_refused(files: object) -> None:
    with pytest.raises(ts.ArgumentError, match=r"^files must"):
        dataclasses.replace(made("labels.csv").certificate, files=files)


def test_a_release_has_a_one_line_repr() -> None:
    release = made("labels.csv")
    certificate = "Certificate(stability, epsilon=1, delta=1e-05, add_remove; 0 earlier releases, binds labels.csv)"
    assert repr(release) == f"Release(2 of 3 answered; {certificate})"
    many = ts.label(counts=np.repeat(CLEAR, 400, axis=0), num_classes=2, cutoff=50, **GIVEN)
    assert len(repr(many)) < 200
