"""The ledger: every session is entered once, totals compose, and what exceeds a budget is refused before any noise."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.aggregation import Ledger
from teacher_student.aggregation.ledger import check_ahead
from teacher_student.mechanisms import GeneratorNoise, SystemNoise
from teacher_student.privacy import Composition, calibrate

GOOD = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "num_teachers": 4000}
VOTES = [[4000, 0], [0, 4000]]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def test_every_release_is_an_entry_and_totals_compose(ledger: Ledger) -> None:
    account = ledger.account("adult", epsilon=5.0, delta=1e-4)
    first = ts.label(counts=VOTES, account=account, cutoff=50, **GOOD)
    second = ts.label(counts=VOTES, account=account, mechanism="stability_redraw", **GOOD)
    assert [entry.parameters.mechanism for entry in ledger.entries("adult")] == ["stability", "stability_redraw"]
    assert ledger.entries("mnist") == []
    assert first.certificate.composition == ()
    (earlier,) = second.certificate.composition
    assert earlier["parameters"] == first.certificate.parameters.to_dict()
    assert ledger.total("adult", 1e-4) == ledger.total("adult", 2e-5) == second.certificate.total(2e-5) == 2.0
    assert ledger.total("adult", 1.9e-5) == math.inf
    assert ledger.total("mnist", 1e-4) == 0
    assert account.spent == pytest.approx(0.4)
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
    with pytest.raises(OSError, match=r"killed here"):
        ts.LabelSession(noise=Failing(), **given)
    assert len(ledger.entries()) == 1
    assert ts.LabelSession(**given).answer(counts=VOTES).tolist() == [0, 1]
    assert len(ledger.entries()) == 1


def test_a_new_file_in_the_place_of_a_deleted_session_is_a_new_session(ledger: Ledger, tmp_path: Path) -> None:
    given = {"account": ledger.account("adult", epsilon=1.1, delta=2e-5), "state": tmp_path / "s.sqlite", **GOOD}
    ts.LabelSession(**given)
    for path in tmp_path.glob("s.sqlite*"):
        path.unlink()
    with pytest.raises(ts.ArgumentError, match=r"budget must cover"):
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
    ts.label(counts=VOTES, account=ledger.account("adult", epsilon=5.0, delta=1e-4), cutoff=50, **GOOD)
    (entry,) = json.loads(ledger.to_json())
    assert (entry["dataset"], entry["neighbours"], entry["epsilon"]) == ("adult", "add_remove", 1.0)
    assert entry["parameters"]["mechanism"] == "stability"


def test_certificates_tell_nothing_of_the_data_or_of_when(ledger: Ledger) -> None:
    """A certificate is public; names of data sets and sessions, and times, are for the data holder alone."""
    account = ledger.account("secret-name-of-the-data", epsilon=5.0, delta=1e-4)
    for _ in range(2):
        ts.label(counts=VOTES, account=account, **GOOD)
    third = ts.label(counts=VOTES, account=account, **GOOD).certificate
    assert [entry["ordinal"] for entry in third.composition] == [0, 1]
    for entry in third.composition:
        assert set(entry) == {"ordinal", "mechanism", "neighbours", "epsilon", "delta", "parameters"}
    for entry in ledger.entries():
        for secret in (entry.dataset, entry.session, entry.time):
            assert secret not in third.to_json()
    assert third.verify() <= 1.0


# What an entry covers.


class Killed(SystemNoise):
    """Dies on the first draw: the entry is in the ledger, the state file is empty."""

    def discrete_gaussian(self, scale, size):
        raise OSError("killed here")

    def discrete_laplace(self, scale, size):
        raise OSError("killed here")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"epsilon": 1.0}, "epsilon"),
        ({"delta": 1e-5}, "delta"),
        ({"cutoff": 9}, "parameters"),
        ({"mechanism": "stability_redraw"}, "parameters"),
        ({"neighbours": "replace_one"}, "neighbours"),
    ],
)
def test_the_entry_of_a_cheap_session_covers_no_other(ledger: Ledger, tmp_path: Path, changes: dict, name: str) -> None:
    account = ledger.account("adult", epsilon=5.0, delta=1e-4)
    cheap = {"num_classes": 2, "epsilon": 0.2, "delta": 1e-6, "cutoff": 5, "num_teachers": 4000}
    cheap |= {"account": account, "state": tmp_path / "s.sqlite"}
    with pytest.raises(OSError, match=r"killed here"):
        ts.LabelSession(noise=Killed(), **cheap)
    with pytest.raises(ts.ArgumentError, match=rf"^{name} must be what the session was entered with in the ledger"):
        ts.LabelSession(**{**cheap, **changes})
    assert len(ledger.entries()) == 1
    ts.LabelSession(**cheap)
    assert len(ledger.entries()) == 1


def test_an_entry_covers_no_other_data(ledger: Ledger, tmp_path: Path) -> None:
    given = {"state": tmp_path / "s.sqlite", **GOOD}
    ts.LabelSession(account=ledger.account("adult", epsilon=1.0, delta=1e-5), **given)
    with pytest.raises(ts.ArgumentError, match=r"^dataset must be what the session was entered with in the ledger, 'adult'"):
        ts.LabelSession(account=ledger.account("mnist", epsilon=1.0, delta=1e-5), **given)


def test_a_session_that_gets_an_account_later_is_charged_then(ledger: Ledger, tmp_path: Path) -> None:
    given = {"state": tmp_path / "s.sqlite", **GOOD}
    ts.LabelSession(**given).answer(counts=VOTES)
    with pytest.raises(ts.ArgumentError, match=r"^budget must cover all sessions"):
        ts.LabelSession(account=ledger.account("small", epsilon=0.5, delta=1e-5), **given)
    account = ledger.account("adult", epsilon=1.5, delta=1e-4)
    for _ in range(2):
        assert ts.LabelSession(account=account, **given).answer(counts=VOTES).tolist() == [0, 1]
    assert [entry.epsilon for entry in ledger.entries("adult")] == [1.0]
    with pytest.raises(ts.ArgumentError, match=r"^budget must cover all sessions"):
        ts.label(counts=VOTES, account=account, **GOOD)


def test_a_claim_below_the_cost_of_its_parameters_is_not_entered(ledger: Ledger) -> None:
    parameters = calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=50)
    account = ledger.account("adult", epsilon=5.0, delta=1e-4)
    for epsilon, delta in ((0.9, 1e-5), (1.0, 9e-6), (math.nan, 1e-5)):
        with pytest.raises(ts.ArgumentError, match=r"^epsilon must be at least"):
            account.pay("a", parameters, neighbours="add_remove", epsilon=epsilon, delta=delta)
    assert ledger.entries() == []


def test_sessions_on_one_dataset_are_under_one_relation(ledger: Ledger) -> None:
    account = ledger.account("adult", epsilon=5.0, delta=1e-4)
    ts.label(counts=VOTES, account=account, **GOOD)
    with pytest.raises(ts.ArgumentError, match=r"^neighbours must be those of all sessions on 'adult', 'add_remove'"):
        ts.label(counts=VOTES, account=account, neighbours="label_only", **GOOD)


# Budgets are fixed beforehand, and so is how sessions are added up.


def test_a_budget_is_fixed_when_the_account_is_opened(ledger: Ledger) -> None:
    ledger.account("adult", epsilon=1.0, delta=1e-5)
    assert ledger.account("adult", epsilon=1.0, delta=1e-5).budget.name == "basic"
    for changes in ({"epsilon": 2.0}, {"delta": 1e-4}, {"filter": "renyi"}):
        (name,) = changes
        with pytest.raises(ts.ArgumentError, match=rf"^{name} must be what the account of 'adult' was opened with"):
            ledger.account("adult", **{"epsilon": 1.0, "delta": 1e-5, **changes})
    with pytest.raises(ts.ArgumentError, match=r"^filter must be one of basic, gaussian, renyi"):
        ledger.account("mnist", epsilon=1.0, delta=1e-5, filter="sum")


def test_the_least_bound_over_what_has_gathered_admits_nothing_more(ledger: Ledger) -> None:
    """By `Composition` two sessions cost less than the budget, but that rule is not a filter, so the ledger does not use it."""
    account = ledger.account("adult", epsilon=1.5, delta=1e-4)
    first = ts.label(counts=VOTES, account=account, **GOOD)
    parameters = first.certificate.parameters
    assert Composition().add(parameters, 2).epsilon(1e-4) < 1.5
    with pytest.raises(ts.ArgumentError, match=r"^budget must cover all sessions"):
        ts.label(counts=VOTES, account=account, **GOOD)


@pytest.mark.parametrize(("filter_name", "sessions"), [("basic", 10), ("renyi", 35), ("gaussian", 45)])
def test_many_small_sessions_are_admitted_by_a_sharper_filter(ledger: Ledger, filter_name: str, sessions: int) -> None:
    account = ledger.account("adult", epsilon=2.0, delta=1e-5, filter=filter_name)
    parameters = calibrate("gnmax", epsilon=0.2, delta=1e-6, num_queries=10)
    admitted = 0
    with contextlib.suppress(ts.ArgumentError):
        for number in range(200):
            account.pay(str(number), parameters, neighbours="add_remove", epsilon=0.2, delta=1e-6)
            admitted += 1
    assert sessions <= admitted < 200
    assert Composition().add(parameters, admitted).epsilon(1e-5) <= 2.0
    assert account.spent <= 1


# Recorded without a limit.


def test_without_a_budget_sessions_are_recorded_and_never_refused(ledger: Ledger) -> None:
    account = ledger.account("adult")
    for _ in range(3):
        release = ts.label(counts=VOTES, account=account, **GOOD)
    assert (account.budget, account.spent) == (None, 0)
    assert ledger.total("adult", 3e-5) == release.certificate.total(3e-5) == 3.0
    assert ledger.datasets() == ["adult"]


def test_a_budget_given_later_counts_what_was_recorded(ledger: Ledger) -> None:
    recording = ledger.account("adult")
    ts.label(counts=VOTES, account=recording, **GOOD)
    with pytest.raises(ts.ArgumentError, match=r"^filter must be basic for 'adult', whose sessions began without a budget"):
        ledger.account("adult", epsilon=2.0, delta=1e-4, filter="renyi")
    assert ledger.account("adult", epsilon=2.0, delta=1e-4).spent == 0.5
    ts.label(counts=VOTES, account=recording, **GOOD)
    for account in (recording, ledger.account("adult"), ledger.account("adult", epsilon=2.0, delta=1e-4)):
        with pytest.raises(ts.ArgumentError, match=r"^budget must cover all sessions"):  # however it was opened
            ts.label(counts=VOTES, account=account, **GOOD)
    with pytest.raises(ts.ArgumentError, match=r"^epsilon must be what the account of 'adult' was opened with, 2.0, got 9.0"):
        ledger.account("adult", epsilon=9.0, delta=1e-4)


@pytest.mark.parametrize(
    ("bad", "name"), [({"epsilon": 1.0}, "delta"), ({"delta": 1e-5}, "epsilon"), ({"filter": "renyi"}, "filter")]
)
def test_half_a_budget_is_refused(ledger: Ledger, bad: dict, name: str) -> None:
    with pytest.raises(ts.ArgumentError, match=rf"^{name} must be"):
        ledger.account("adult", **bad)
    assert ledger.datasets() == []


def test_looking_ahead_refuses_as_the_account_would_and_writes_nothing(tmp_path: Path) -> None:
    parameters = calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=50)
    path, cost = tmp_path / "l.sqlite", {"neighbours": "add_remove", "epsilon": 1.0, "delta": 1e-5}

    def ahead(dataset: str, *budget: object, **changes: object) -> None:
        check_ahead(path, dataset, parameters, **{**cost, **changes}, budget=budget or (None, None, "basic"))

    for _ in range(2):
        ahead("adult", 1.0, 1e-5, "basic")
        with pytest.raises(ts.ArgumentError, match=r"^budget must cover all sessions"):
            ahead("adult", 0.5, 1e-5, "basic")
        with pytest.raises(ts.ArgumentError, match=r"^epsilon must be at least"):
            ahead("adult", epsilon=0.9)
        assert not path.exists()
    Ledger(path).account("adult", epsilon=1.5, delta=1e-4).pay("a", parameters, **cost)
    for budget in ((), (1.5, 1e-4, "basic")):
        with pytest.raises(ts.ArgumentError, match=r"^budget must cover all sessions"):
            ahead("adult", *budget)
    with pytest.raises(ts.ArgumentError, match=r"^epsilon must be what the account"):
        ahead("adult", 2.0, 1e-4, "basic")
    ahead("mnist", 1.0, 1e-5, "basic")
    assert (Ledger(path).datasets(), len(Ledger(path).entries())) == (["adult"], 1)


def test_records_under_another_name_are_recognised_for_the_data_holder_alone(ledger: Ledger) -> None:
    key = ledger.fingerprint_key()
    assert ledger.fingerprint_key() == key != Ledger(ledger._database.path.with_name("other")).fingerprint_key()
    adult, alias = ledger.account("adult"), ledger.account("alias")
    assert adult.recognise(["one", "two"]) == adult.recognise(["one", "two"]) == ()
    assert alias.recognise(["three"]) == ()
    assert alias.recognise(["two", "four"]) == ("adult",)
    ts.label(counts=VOTES, account=adult, **GOOD)
    certificate = ts.label(counts=VOTES, account=alias, **GOOD).certificate  # nothing is refused for it
    for text in (certificate.to_json(), ledger.to_json()):
        assert not any(secret in text for secret in ("two", "four", key.hex()))


# Rolled back.


def restore(saved: Path, folder: Path) -> None:
    """Write the saved files over the originals, which keep their inodes."""
    for path in folder.glob("s.sqlite*"):
        if not (saved / path.name).exists():
            path.unlink()
    for path in saved.iterdir():
        shutil.copyfile(path, folder / path.name)


@pytest.mark.parametrize("with_account", [True, False])
def test_state_and_witness_put_back_together_are_noticed_where_there_is_an_account(
    ledger: Ledger, tmp_path: Path, with_account: bool
) -> None:
    given = {"state": tmp_path / "s.sqlite", **GOOD}
    if with_account:
        given["account"] = ledger.account("adult", epsilon=1.0, delta=1e-5)
    ts.LabelSession(**given).answer(counts=VOTES)
    (tmp_path / "saved").mkdir()
    for path in tmp_path.glob("s.sqlite*"):
        shutil.copyfile(path, tmp_path / "saved" / path.name)
    ts.LabelSession(**given).answer(counts=[[2000, 2000]] * 3)
    restore(tmp_path / "saved", tmp_path)
    if with_account:
        with pytest.raises(
            ts.ArgumentError, match=r"^state must hold every answer that was handed out, got a file that was rolled"
        ):
            ts.LabelSession(**given)
    else:  # the witness alone cannot detect this (see `rollback`)
        assert ts.LabelSession(**given).remaining_cutoff == 50


def test_soft_sessions_pay_too(ledger: Ledger, tmp_path: Path) -> None:
    account = ledger.account("adult", epsilon=10.0, delta=1e-4)
    given = {"epsilon": 8.0, "delta": 1e-5, "bins": 4, "cutoff": 5, "num_teachers": 400, "account": account}
    scores = np.full((2, 400), 0.4)
    ts.label_soft(scores, state=tmp_path / "s.sqlite", **given)
    soft = ts.label_soft(scores, state=tmp_path / "s.sqlite", **given)
    assert [entry.parameters for entry in ledger.entries("adult")] == [soft.certificate.parameters]
    with pytest.raises(ts.ArgumentError, match=r"^budget must cover all sessions"):
        ts.SoftLabelSession(**given)


def test_parameters_that_cost_more_than_the_claim_start_no_session(monkeypatch) -> None:
    from teacher_student.aggregation.session import Session
    from teacher_student.aggregation.votes import Votes

    honest = calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=50)
    for law in ("discrete_laplace", "discrete_gaussian", "two_geometrics"):
        monkeypatch.setattr(SystemNoise, law, lambda *given: pytest.fail("noise was drawn"))
    for twin in (dataclasses.replace(honest, cutoff=51), dataclasses.replace(honest, threshold=20)):
        with pytest.raises(ts.ArgumentError, match=r"^epsilon must be at least"):
            Session(twin, Votes(2, 4000), ts.Release, epsilon=1.0, delta=1e-5)
