"""Nothing private gets out: a whole run whose private table carries canaries, and every byte of what may be published searched.

The search knows secrets by their bytes: as text in several precisions, as binary numbers of every usual width, in hexadecimal and
in base64. A second test needs no list of secrets: two runs on different records that release the same labels must publish
the same bytes, whatever else differed: records, their number, votes, gaps, thresholds, failures, durations.
"""

from __future__ import annotations

import base64
import csv
import functools
import json
import re
import shutil
import sqlite3
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from teacher_student.aggregation import session
from teacher_student.app import compose, settings_from_config
from teacher_student.mechanisms import SystemNoise, distance_to_instability
from teacher_student.pipeline import diagnostics, run, runner, stages

RECORDS, TEACHERS, QUERIES = 1733, 61, 240
WAGES, NOTE = (31337.71828, 27182.81845, 16180.33988), "zz-canary-note-5f1e"
THRESHOLD_NOISE = -70_707_007
"""Of the injected noise: the noisy threshold becomes a number that occurs nowhere else, and every query is answered."""
UNANSWERED = (11, 12, 77)
"""Queries whose injected noise is so large that they go unanswered."""
NUMBER = re.compile(rb"-?[0-9.,]+(e[-+]?[0-9]+)?")


class FixedNoise(SystemNoise):
    """Stands where the operating system's noise does, so that a run can be repeated and its secrets be recognised."""

    def discrete_gaussian(self, scale, size):
        return np.full(size, THRESHOLD_NOISE, dtype=np.int64)

    def two_geometrics(self, scale, size):
        noise = np.zeros(size, dtype=np.int64)
        noise[[query for query in UNANSWERED if query < size]] = 10**9
        return noise


def people(count, seed, *, clear=False):
    """Rows of (age, wage, job, verdict): age says the verdict, for nine in ten, and without a doubt where it is `clear`."""
    rng = np.random.default_rng(seed)
    verdicts = rng.integers(0, 2, count)
    said = verdicts if clear else verdicts ^ (rng.random(count) < 0.1)
    ages = np.clip(54 + (2 * said - 1) * rng.uniform(15 if clear else 2, 30, count), 18, 90)
    wages = rng.normal(5e4, 1e4, count)
    jobs = rng.choice(["cook", "judge"], count)
    return [
        [f"{age:.5f}", f"{wage:.5f}", job, ("no", "yes")[verdict]]
        for age, wage, job, verdict in zip(ages, wages, jobs, verdicts, strict=True)
    ]


def write_table(path, columns, rows):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([columns, *rows])


def write_tables(folder, records=RECORDS, seed=1):
    """Private, public and (private) evaluation tables; some private records carry canaries in every column that can."""
    folder.mkdir(parents=True, exist_ok=True)
    private = [
        [f"person-{seed}-{7_000_001 + 13 * row}", f"owner-{seed}-{row // 2}", *cells, "nothing"]
        for row, cells in enumerate(people(records, seed))
    ]
    for place, wage in enumerate(WAGES):
        private[5 + 100 * place][3] = repr(wage)
        private[7 + 100 * place][4] = "zz-canary-job-9c2d"
        private[9 + 100 * place][6] = NOTE
    write_table(folder / "secret-people.csv", ["person", "owner", "age", "wage", "job", "verdict", "note"], private)
    write_table(folder / "others.csv", ["age", "wage", "job"], [row[:3] for row in people(QUERIES, 2, clear=True)])
    write_table(folder / "secret-test.csv", ["age", "wage", "job", "verdict"], people(317, 3))
    return private


def settings(folder: Path, *overrides: str):
    base = f"""experiment=table name=mine data.path={folder}/secret-people.csv data.label=verdict data.id=person data.user=owner
        data.public={folder}/others.csv data.evaluation={folder}/secret-test.csv data.evaluation_public=false
        data.classes=[no,yes] data.ranges={{age:[18,90],wage:[0,100000]}} data.categories={{job:[cook,judge]}}
        teachers.number={TEACHERS} teachers.training.steps=60 teachers.training.learning_rate=0.3
        student.settings.epochs=8 privacy.epsilon=4 privacy.cutoff=50"""
    return settings_from_config(compose("run", [*base.split(), *overrides]))


@pytest.fixture(scope="module", autouse=True)
def fixed():
    """Noise and the shards' key by injection, so that nothing is left to chance; what is public is computed once."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(session, "SystemNoise", FixedNoise)
        patches.setattr(stages, "shard_dataset", functools.partial(stages.shard_dataset, key=bytes(range(100, 132))))
        patches.setattr(diagnostics, "STEPS", 200)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One run with canaries, and the secrets that it has."""
    folder = tmp_path_factory.mktemp("canaries")
    rows = write_tables(folder / "data")
    result = run(settings(folder / "data"), folder / "run")
    return result, dict(secrets(result, rows, folder / "data"))


def texts(value: float) -> set[str]:
    """The ways to print a number with at least five significant digits."""
    printed = {repr(float(value)), *(f"{value:.{digits}{kind}}" for digits in range(4, 18) for kind in "eg")}
    printed |= {f"{value:{comma}.{digits}f}" for digits in range(11) for comma in ("", ",")}
    return {text for text in printed if len(re.sub(r"^[0.,]+|e.*|[^0-9]", "", text)) >= 5}


def forms(secret: object) -> Iterator[bytes]:
    """The bytes that a secret may hide behind: text, number, bytes, or a row of numbers."""
    if isinstance(secret, str | bytes):
        plain = [secret.encode() if isinstance(secret, str) else secret]
    elif isinstance(secret, list):
        plain = [np.array(secret, dtype=kind).tobytes() for kind in ("<f4", "<f8", "<i8", "<i4", "<i2", "u1")]
        plain += [sep.join(map(str, secret)).encode() for sep in (",", ", ", " ", "\n", "\t", ";")]
    elif isinstance(secret, int):
        plain = [struct.pack("<q", secret), struct.pack("<d", secret), str(secret).encode(), f"{secret:,}".encode()]
        plain += [struct.pack("<i", secret), struct.pack("<f", secret)] * (abs(secret) > 2**16)
    else:
        plain = [struct.pack("<d", secret), struct.pack("<f", secret), *(text.encode() for text in texts(secret))]
    for form in plain:
        yield form
        if len(form) >= 4 and not NUMBER.fullmatch(form):
            yield form.hex().encode()
            yield from (in_base64(form, shift) for shift in range(3))


def in_base64(form: bytes, shift: int) -> bytes:
    """The characters of base64 that say `form` when it begins `shift` bytes after a multiple of three, and nothing else."""
    encoded = base64.b64encode(b"\0" * shift + form).rstrip(b"=")
    return encoded[(0, 2, 3)[shift] : len(encoded) - ((shift + len(form)) % 3 > 0)]


def occurs(form: bytes, content: bytes) -> bool:
    """Whether the bytes occur; a number in text only where no further digit belongs to it."""
    if form not in content:
        return False
    if not NUMBER.fullmatch(form):
        return True
    return re.search(rb"(?<![0-9.])" + re.escape(form) + rb"(?![0-9])", content) is not None


def views(path: Path) -> Iterator[bytes]:
    """A file's name and its bytes, and what TensorBoard and safetensors read in them."""
    yield path.name.encode()
    yield path.read_bytes()
    if "tfevents" in path.name:
        events = EventAccumulator(str(path)).Reload()
        yield repr([(tag, events.Scalars(tag)) for tag in events.Tags()["scalars"]]).encode()
    if path.suffix == ".safetensors":
        yield repr({name: array.tolist() for name, array in load_file(path).items()}).encode()


def found(folder: Path, known: dict[str, object]) -> list[tuple[str, str]]:
    """The files below `folder` with the secrets that are in them."""
    contents = {path.name: list(views(path)) for path in sorted(folder.rglob("*")) if path.is_file()}
    return [
        (file, name)
        for name, secret in known.items()
        for form in set(forms(secret))
        for file, seen in contents.items()
        if any(occurs(form, view) for view in seen)
    ]


def secrets(result, rows, data) -> Iterator[tuple[str, object]]:
    """What must stay private, by name: records, shards, teachers, votes, the session's state, figures of private models."""
    private = result.folder.private
    for number in (5, 7, 9, 105, 205, 1700):
        yield f"id of record {number}", rows[number][0]
        yield f"owner of record {number}", rows[number][1]
        yield f"age of record {number}", float(rows[number][2])
        yield f"wage of record {number}", float(rows[number][3])
        yield f"encoded wage of record {number}", float(np.float32(float(rows[number][3]) / 1e5))
    yield from {"job": "zz-canary-job-9c2d", "note": NOTE, "number of records": len(rows)}.items()
    yield from {"path": str(data / "secret-people.csv"), "file": "secret-people", "evaluation file": "secret-test"}.items()
    manifest = json.loads((private / "shards.json").read_text())
    for name in ("key", "fingerprint"):
        yield f"shards' {name} in hexadecimal", manifest[name]
        yield f"shards' {name}", bytes.fromhex(manifest[name])
    weights = np.concatenate([array.ravel() for array in load_file(next((private / "teachers").glob("*.safetensors"))).values()])
    for place in range(0, len(weights) - 3, 97):
        yield f"teachers' weights from {place}", weights[place : place + 3].astype("<f4").tobytes()
    counts = np.load(private / "votes" / "counts.npy").astype(np.int64)
    gaps = np.abs(counts[:, 0] - counts[:, 1])
    for name, table in (
        ("votes", counts),
        ("first class", counts[:, 0]),
        ("gaps", gaps),
        ("distances", distance_to_instability(counts)[1]),
    ):
        flat = table.ravel().tolist()
        rows = {f"{name} from {place}": flat[place : place + 6] for place in range(0, len(flat) - 6, 6)}
        yield from ((place, row) for place, row in rows.items() if len(set(row)) >= 4)
        yield f"mean of {name}", float(np.mean(table)) + 0.0
    with sqlite3.connect(private / "session.sqlite") as connection:
        (state,) = connection.execute("SELECT state FROM batches ORDER BY number DESC").fetchone()
    yield "noisy threshold", json.loads(state)["noisy_threshold"]
    yield "the session's state", state
    for model, figures in {**result.private_figures, "student": result.metrics}.items():
        yield from ((f"{figure} of the {model}", value) for figure, value in figures.items() if value != 1)


def test_release_and_config_hold_nothing_private(finished):
    result, known = finished
    assert len(known) > 100
    assert found(result.folder.release, known) == []
    config = result.folder.path / "config.yaml"
    in_config = {name for name, secret in known.items() if any(occurs(form, config.read_bytes()) for form in forms(secret))}
    assert in_config == {"path", "file", "evaluation file"}  # as the user gave them; config.yaml is not in release/


def test_the_scan_sees_every_secret_where_it_is(finished):
    """Power: all secrets but those that are only computed are found in the data or under private/."""
    result, known = finished
    files = [path for path in result.folder.private.rglob("*") if path.is_file()]
    content = b"".join(path.read_bytes() for path in [*files, result.folder.path.parent / "data" / "secret-people.csv"])
    for name, secret in known.items():
        if name.split()[0] in ("id", "owner", "age", "wage", "job", "note", "shards'", "teachers'", "noisy", "the"):
            assert any(occurs(form, content) for form in forms(secret)), name


LEAKS = {
    "a canary in the report": lambda release, known: _append(release / "report.html", f"<p>{WAGES[0]:.2f}</p>"),
    "a canary in base64": lambda release, known: _append(
        release / "report.html", base64.b64encode(f"a {NOTE} b".encode()).decode()
    ),
    "an encoded canary among the weights": lambda release, known: _add_weight(release, WAGES[1] / 1e5),
    "vote counts beside the labels": lambda release, known: _append(
        release / "labels.csv", str(next(row for name, row in known.items() if name.startswith("votes from")))
    ),
    "a gap's mean in the certificate": lambda release, known: _append(
        release / "certificate.json", f"{known['mean of gaps']:.4f}"
    ),
    "the number of records": lambda release, known: _append(release / "student.yaml", f"records: {RECORDS:,}"),
    "a figure of the non-private model": lambda release, known: _append(
        release / "report.html", f"{known['brier score of the non-private model']:.5f}"
    ),
    "the noisy threshold": lambda release, known: _append(release / "certificate.json", str(known["noisy threshold"])),
    "a vote table as a file": lambda release, known: shutil.copy(release.parent / "votes.npy", release / "extra.npy"),
    "a teacher's loss in the events": lambda release, known: _log(release, known["AUC of the non-private model"]),
}


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text + "\n")


def _add_weight(release: Path, value: float) -> None:
    weights = load_file(release / "student.safetensors")
    save_file({**weights, "extra": np.array([0.5, value], dtype=np.float32)}, release / "student.safetensors")


def _log(release: Path, value: float) -> None:
    curves = stages.TimelessCurves(release / "tensorboard")
    curves.log_metrics({"teachers": value}, 1)
    curves.finalize("success")


@pytest.mark.parametrize("leak", LEAKS)
def test_a_release_with_one_secret_is_caught(leak, finished, tmp_path):
    result, known = finished
    shutil.copytree(result.folder.release, tmp_path / "release")
    shutil.copy(result.folder.votes / "counts.npy", tmp_path / "votes.npy")
    LEAKS[leak](tmp_path / "release", known)
    assert found(tmp_path / "release", known)


def test_private_is_closed_and_secrets_are_for_the_owner(finished):
    folder = finished[0].folder
    assert stat.S_IMODE(folder.private.stat().st_mode) == 0o700
    closed = [folder.private / name for name in ("shards.json", "session.sqlite")]
    for path in [*closed, *(folder.private / "teachers").glob("*.safetensors")]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for path in folder.release.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o133 == (0o111 if path.is_dir() else 0), path
        assert not path.is_symlink()


def published(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Names, bytes, modes and times of all that may be published."""
    paths = [folder, *sorted(folder.rglob("*"))]
    return {
        str(path.relative_to(folder)): (
            path.read_bytes() if path.is_file() else b"",
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in paths
    }


def differing(one: Path, other: Path) -> list[str]:
    """What two releases have not in common."""
    mine, theirs = published(one), published(other)
    return sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))


def other_people(folder: Path, *overrides: str):
    """A run on 40 more records, all of them others, in other shards."""
    write_tables(folder, RECORDS + 40, seed=8)
    return run(settings(folder, *overrides), folder / "run")


def test_what_is_published_depends_on_the_released_labels_alone(finished, tmp_path):
    """Other people, other votes, another duration: the same labels, so the same bytes, modes and times."""
    one, other = finished[0], other_people(tmp_path)
    votes = [np.load(result.folder.votes / "counts.npy") for result in (one, other)]
    assert not np.array_equal(*votes)
    assert one.private_figures != other.private_figures
    assert set(one.release.labels.tolist()) == {-1, 0, 1}
    assert differing(one.folder.release, other.folder.release) == []


@pytest.mark.slow
def test_soft_labels_likewise(tmp_path):
    write_tables(tmp_path / "one")
    one = run(settings(tmp_path / "one", "privacy.bins=3"), tmp_path / "one" / "run")
    other = other_people(tmp_path / "other", "privacy.bins=3")
    assert not np.array_equal(*(np.load(result.folder.votes / "scores.npy") for result in (one, other)))
    assert differing(one.folder.release, other.folder.release) == []


def test_a_run_that_publishes_what_no_list_of_secrets_names_is_told_apart(finished, tmp_path, monkeypatch):
    whole = runner._public_settings
    monkeypatch.setattr(runner, "_public_settings", lambda *given: {**whole(*given), "digest": RECORDS % 17})
    other = other_people(tmp_path, "baselines=false")
    assert differing(finished[0].folder.release, other.folder.release) == ["certificate.json", "report.html"]  # which it binds
