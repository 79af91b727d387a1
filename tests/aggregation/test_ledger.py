"""The ledger: every session is entered once, totals compose, and what exceeds a budget is refused before any noise."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.aggregation import Ledger
from teacher_student.mechanisms import GeneratorNoise, SystemNoise
from teacher_student.privacy import Composition

GOOD = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5}
VOTES = [[4000, 0], [0, 4000]]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def test_every_release_is_an_entry_and_totals_compose(ledger: Ledger) -> None:
    account = ledger.account("adult", epsilon=5.0, delta=1e-4)
    first = ts.label(counts=VOTES, account=account, **GOOD)
    second = ts.label(counts=VOTES, account=account, mechanism="stability_redraw", **GOOD)
    assert [entry.parameters.mechanism for entry in ledger.entries("adult")] == ["stability", "stability_redraw"]
    assert ledger.entries("mnist") == []
    assert first.certificate.composition == ()
    (earlier,) = second.certificate.composition
    assert earlier["parameters"] == first.certificate.parameters.to_dict()
    both = Composition().add(first.certificate.parameters).add(second.certificate.parameters)
    assert ledger.total("adult", 1e-4) == both.epsilon(1e-4)
    assert ledger.total("mnist", 1e-4) == 0
    assert ts.Certificate.from_json(second.certificate.to_json()).composition == second.certificate.composition


def test_what_exceeds_the_budget_is_refused_before_any_noise(ledger: Ledger, tmp_path: Path, monkeypatch) -> None:
    account = ledger.account("adult", epsilon=1.2, delta=2e-5)
    ts.label(counts=VOTES, account=account, **GOOD)

    def untouched(self, scale, size):
        raise AssertionError("noise was drawn")

    for law in ("discrete_laplace", "discrete_gaussian", "two_geometrics"):
        monkeypatch.setattr(SystemNoise, law, untouched)
    with pytest.raises(ts.ArgumentError, match=r"^budget must cover all sessions on the data, epsilon 1.2 at delta 2e-05"):
        ts.LabelSession(account=account, state=tmp_path / "s.sqlite", **GOOD)
    assert len(ledger.entries()) == 1
    monkeypatch.undo()
    other = ledger.account("mnist", epsilon=1.2, delta=2e-5)  # another dataset is another account
    assert ts.LabelSession(account=other, state=tmp_path / "s.sqlite", **GOOD).answer(counts=VOTES).tolist() == [0, 1]


def test_a_reopened_session_is_entered_once(ledger: Ledger, tmp_path: Path) -> None:
    given = {"account": ledger.account("adult", epsilon=1.0, delta=1e-5), "state": tmp_path / "s.sqlite", **GOOD}
    for _ in range(3):
        ts.LabelSession(**given).answer(counts=VOTES)
    assert len(ledger.entries()) == 1


def test_a_session_killed_after_its_entry_finds_it_again(ledger: Ledger, tmp_path: Path) -> None:
    class Failing(SystemNoise):
        def discrete_gaussian(self, scale, size):
            raise OSError("killed here")

    given = {"account": ledger.account("adult", epsilon=1.0, delta=1e-5), "state": tmp_path / "s.sqlite", **GOOD}
    with pytest.raises(OSError, match="killed here"):
        ts.LabelSession(noise=Failing(), **given)
    assert len(ledger.entries()) == 1
    assert ts.LabelSession(**given).answer(counts=VOTES).tolist() == [0, 1]
    assert len(ledger.entries()) == 1


def test_a_new_file_in_the_place_of_a_deleted_session_is_a_new_session(ledger: Ledger, tmp_path: Path) -> None:
    given = {"account": ledger.account("adult", epsilon=1.1, delta=2e-5), "state": tmp_path / "s.sqlite", **GOOD}
    ts.LabelSession(**given)
    for path in tmp_path.glob("s.sqlite*"):
        path.unlink()
    with pytest.raises(ts.ArgumentError, match="budget must cover"):
        ts.LabelSession(**given)


def test_sessions_that_race_for_the_last_of_a_budget_do_not_all_get_it(ledger: Ledger) -> None:
    account, opened = ledger.account("adult", epsilon=1.2, delta=2e-5), []

    def open_one() -> None:
        with contextlib.suppress(ts.ArgumentError):
            opened.append(ts.LabelSession(account=account, **GOOD))

    threads = [threading.Thread(target=open_one) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == len(ledger.entries()) == 1


def test_injected_noise_pays_from_no_account(ledger: Ledger) -> None:
    account = ledger.account("adult", epsilon=5.0, delta=1e-4)
    with pytest.raises(ts.ArgumentError, match=r"^noise must be the operating system's"):
        ts.LabelSession(account=account, noise=GeneratorNoise(np.random.default_rng(0)), **GOOD)
    with pytest.raises(ts.ArgumentError, match=r"^account must be an account of a ledger"):
        ts.LabelSession(account="adult", **GOOD)


@pytest.mark.parametrize("bad", [{"dataset": ""}, {"dataset": 7}, {"epsilon": 0}, {"delta": 1}])
def test_bad_accounts_are_refused(ledger: Ledger, bad: dict) -> None:
    with pytest.raises(ts.ArgumentError, match=next(iter(bad))):
        ledger.account(**{"dataset": "adult", "epsilon": 1.0, "delta": 1e-5, **bad})


def test_it_exports_json(ledger: Ledger) -> None:
    ts.label(counts=VOTES, account=ledger.account("adult", epsilon=5.0, delta=1e-4), **GOOD)
    (entry,) = json.loads(ledger.to_json())
    assert (entry["dataset"], entry["neighbours"], entry["epsilon"]) == ("adult", "add_remove", 1.0)
    assert entry["parameters"]["mechanism"] == "stability"


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    Ledger(tmp_path / "l.sqlite")
    with sqlite3.connect(tmp_path / "l.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ts.ArgumentError, match="got version 99"):
        Ledger(tmp_path / "l.sqlite")


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "l.sqlite").write_text("no database at all\n" * 300)
    with pytest.raises(ts.ArgumentError, match=r"^ledger must be a file of its own that can be written"):
        Ledger(tmp_path / "l.sqlite")
