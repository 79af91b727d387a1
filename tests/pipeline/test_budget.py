"""Runs and labels pay from the private data's account: refused early, charged once, and said in the certificate."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from teacher_student import ArgumentError
from teacher_student.aggregation import Ledger
from teacher_student.app import compose, dispatch, settings_from_config
from teacher_student.data import fingerprint_records
from teacher_student.monitoring.console import Display
from teacher_student.pipeline import BudgetSettings, RunResult, RunSettings, modes, run, stages, verify_folder
from teacher_student.pipeline.folder import open_run

from ..pictures import report_little

pytestmark = pytest.mark.usefixtures("no_pictures")

FAST = [
    "experiment=blobs",
    "data.num_private=2500",
    "data.num_public=150",
    "teachers.number=250",
    "student.settings.epochs=2",
    "baselines=false",
    "logger=none",
]
LIMIT = ("budget.epsilon=3.0", "budget.delta=1e-4")


def settings(ledger: Path, *overrides: str) -> RunSettings:
    return settings_from_config(compose("run", [*FAST, f"budget.ledger={ledger}", *overrides]))


class Runs(NamedTuple):
    ledger: Path
    folder: Path
    first: RunResult
    second: RunResult
    said: str
    noted: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    """Two runs on an account that they exhaust, the first one killed half-way, and the start of a third under another name."""
    folder = tmp_path_factory.mktemp("runs")
    ledger = folder / "ledgers" / "ledger.sqlite"

    def kill(*arguments, **keywords):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "teach_student", kill)
        with pytest.raises(KeyboardInterrupt):
            run(settings(ledger, *LIMIT), folder / "first")
    with pytest.MonkeyPatch.context() as patch:
        report_little(patch)
        first = run(settings(ledger, *LIMIT), folder / "first")
        second = run(settings(ledger, "privacy.epsilon=1.0"), folder / "second")
    display = Display("plain")
    with pytest.MonkeyPatch.context() as patch, display.console.capture() as said:
        patch.setattr(stages, "train", kill)
        with pytest.raises(KeyboardInterrupt):
            run(settings(ledger, "budget.dataset=alias"), folder / "third", display)
    noted = (folder / "third" / "private" / "notes.txt").read_text()
    return Runs(ledger, folder, first, second, " ".join(said.get().split()), noted)


def test_runs_on_the_same_data_are_recorded_once_each_and_say_so(runs: Runs) -> None:
    assert stat.S_IMODE(runs.ledger.stat().st_mode) == 0o600
    assert [(entry.dataset, entry.epsilon) for entry in Ledger(runs.ledger).entries()] == [
        ("gaussian_blobs", 2.0),
        ("gaussian_blobs", 1.0),
    ]
    assert runs.first.release.certificate.composition == ()
    certificate = runs.second.release.certificate
    assert [earlier["epsilon"] for earlier in certificate.composition] == [2.0]
    assert certificate.total(2e-5) == 3.0
    assert "epsilon 3, delta 2e-05, with 1 earlier release<" in (runs.second.folder.release / "report.html").read_text()
    assert "recomputed epsilon" in verify_folder(runs.second.folder.path)


def test_what_exceeds_the_budget_is_refused_before_any_teacher(runs: Runs, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(stages, "train", lambda *given: pytest.fail("a teacher was trained"))
    for given in (LIMIT, ()):  # a limit cannot be left out
        with pytest.raises(ArgumentError, match=r"^budget must cover all sessions on the data, epsilon 3 at delta 0.0001"):
            run(settings(runs.ledger, *given), tmp_path / "run")
    with pytest.raises(ArgumentError, match=r"^epsilon must be what the account of 'gaussian_blobs' was opened with, 3.0, got 9"):
        run(settings(runs.ledger, "budget.epsilon=9.0", "budget.delta=1e-4"), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_budget_that_never_fits_makes_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"^budget must cover"):
        run(settings(tmp_path / "l.sqlite", "budget.epsilon=0.5", "budget.delta=1e-4"), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_the_same_records_under_another_name_are_pointed_out_to_the_keeper_alone(runs: Runs) -> None:
    """And nothing was charged for that run: it was killed before any label was asked for."""
    assert "The records of 'alias' were charged as 'gaussian_blobs' too" in runs.noted
    assert "charged as" not in runs.said
    assert Ledger(runs.ledger).entries("alias") == []
    key = Ledger(runs.ledger).fingerprint_key()
    secrets = [*fingerprint_records(settings(runs.ledger).data(), key), key.hex(), "alias"]
    for file in (path for path in runs.second.folder.release.rglob("*") if path.is_file()):
        assert not any(secret.encode() in file.read_bytes() for secret in secrets)


def test_a_new_ledger_is_said_with_its_place(runs: Runs, tmp_path: Path, monkeypatch) -> None:
    """Started in another folder, a run would not know what was spent; its keeper is told once for each ledger."""
    monkeypatch.chdir(tmp_path)
    assert f"A new ledger: {tmp_path}/runs/l.sqlite. " in BudgetSettings(ledger="runs/l.sqlite").news()
    BudgetSettings(ledger="runs/l.sqlite").open("people")
    assert BudgetSettings(ledger="runs/l.sqlite").news() == BudgetSettings().news() == ""
    assert "A new ledger" not in runs.said


def test_the_ledger_is_listed_and_exported(runs: Runs, capsys) -> None:
    session = Ledger(runs.ledger).entries()[0].session
    assert dispatch(["ledger", str(runs.ledger)]) == 0
    listed = capsys.readouterr().out
    for text in ("gaussian_blobs (add_remove): 2 sessions, together epsilon 3, delta 2e-05", "100 % spent", "stability", session):
        assert text in listed
    assert dispatch(["ledger", f"ledger={runs.ledger}", "dataset=gaussian_blobs", "composed=true", "--json"]) == 0
    exported = capsys.readouterr().out
    (account,) = json.loads(exported)["accounts"]
    assert (account["sessions"], account["epsilon"], account["delta"], account["spent"]) == (2, 3.0, 2e-5, 1.0)
    assert 2.0 < account["epsilon_if_fixed_beforehand"] <= 3.0
    assert account["budget"] == {"epsilon": 3.0, "delta": 1e-4, "filter": "basic"}
    assert account["entries"][0]["parameters"] == runs.first.release.certificate.parameters.to_dict()
    assert set(account["entries"][0]) == {"session", "dataset", "neighbours", "epsilon", "delta", "parameters", "time"}
    with Ledger(runs.ledger).transaction() as connection:
        secrets = [link for (link,) in connection.execute("SELECT link FROM links")]
        secrets += [one for (one,) in connection.execute("SELECT fingerprint FROM fingerprints")]
        secrets += [key.hex() for (key,) in connection.execute("SELECT key FROM secret")]
    assert len(secrets) == 7
    assert not any(secret in text for secret in secrets for text in (listed, exported))
    assert dispatch(["ledger", str(runs.ledger), "dataset=mnist"]) == 2
    assert "dataset must be one that the ledger knows ('gaussian_blobs'), got 'mnist'" in capsys.readouterr().err


def test_soft_runs_pay_too(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "l.sqlite", "privacy.bins=10", "privacy.epsilon=8.0", "data.num_classes=2")
    dataset, account = chosen.data(), BudgetSettings(ledger=str(tmp_path / "l.sqlite")).open("blobs")
    scores = np.full((len(dataset.public_features), 250), 0.45, dtype=np.float32)
    one = stages.Run(chosen, dataset, open_run(tmp_path / "run", ""))
    modes.SoftLabels(chosen, dataset.public_sizes).release_labels(one, scores, lambda *_: None, account)
    assert [entry.epsilon for entry in Ledger(tmp_path / "l.sqlite").entries("blobs")] == [8.0]


def test_label_pays_from_an_account(tmp_path: Path, capsys) -> None:
    ledger = tmp_path / "l.sqlite"
    np.save(tmp_path / "votes.npy", np.array([[4000, 0], [0, 4000]]))
    given = [
        f"counts={tmp_path / 'votes.npy'}",
        "num_classes=2",
        "num_teachers=4000",
        f"budget.ledger={ledger}",
        "budget.dataset=people",
    ]
    assert dispatch(["label", *given, "budget.epsilon=1.5", "budget.delta=1e-4", f"out={tmp_path / 'one'}"]) == 0
    assert dispatch(["label", *given, f"out={tmp_path / 'two'}"]) == 2
    assert capsys.readouterr().err.startswith("teacher-student: budget must cover all sessions on the data, epsilon 1.5")
    assert not (tmp_path / "two").exists()
    assert [entry.dataset for entry in Ledger(ledger).entries()] == ["people"]


def test_the_check_looks_at_what_the_session_will_cost() -> None:
    """Both come from the same calibration: what is checked before the training is what is charged after it."""
    chosen = settings_from_config(compose("run", FAST))
    mode = modes.HardLabels(chosen, chosen.data().public_sizes)
    with mode.open_session() as session:
        assert mode.check().parameters == session.mechanism.parameters
