"""Kill -9 while labelling, repeatedly on one state file, and check it (see `labelling`): nothing is answered twice, the cutoff
holds, the secret threshold stays. A worker that hands answers out before they are committed is found out by the same check.
"""

from __future__ import annotations

import collections
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.aggregation import Ledger

from ..assassin import Assassin
from .labelling import (
    GIVEN,
    QUERIES,
    ROOM,
    CarelessSession,
    Worker,
    before_random_instructions,
    edge,
    faults,
    handed_out,
    live,
)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

LIVES = 5
"""Workers killed on one state file before one runs to its end."""


def unhanded(folder: Path) -> bool:
    """Whether answers are recorded that were not handed out: the worker died between the commit and the return."""
    with ts.LabelSession(state=folder / "s.sqlite", **GIVEN) as session:
        return len(session.release().labels) > len(handed_out(folder))


Toll = collections.Counter[str]


def kill_one_by_one(folder: Path, deaths: list[dict[str, Any]], kind: type = ts.LabelSession) -> tuple[list[str], Toll]:
    """Kill workers on one session one after the other, let the last one finish, and return faults and toll."""
    found, toll = [], Toll()
    for number, death in enumerate(deaths):
        when = live(folder, number, kind, **death)
        found += faults(folder)
        toll[when] += 1
        toll["unhanded"] += when != "lived" and unhanded(folder)
    assert live(folder, len(deaths), kind) == "lived"
    return found + faults(folder), toll


def kill_on_many(folder: Path, deaths: list[dict[str, Any]], kind: type = ts.LabelSession) -> tuple[list[str], Toll]:
    """The same, on a new session after every few deaths."""
    found, toll = [], Toll()
    for start in range(0, len(deaths), LIVES):
        place = folder / str(start)
        place.mkdir(parents=True)
        more, died = kill_one_by_one(place, deaths[start : start + LIVES], kind)
        found += more
        toll += died
    return found, toll


def told(toll: Toll, how: str) -> str:
    killed = toll["before"] + toll["amid"] + toll["after"]
    return (
        f"\n{killed} kills {how}: {toll['before']} before the worker's first answer, {toll['amid']} amid its answers, "
        f"{toll['after']} after all were answered, {toll['unhanded']} of them between the commit of answers and their return; "
        f"double answers 0, cutoff exceeded 0, other thresholds 0"  # else the test has failed
    )


def before_lines(*lines: int) -> list[dict[str, Any]]:
    return [{"assassin": Assassin(ROOM, "line", line)} for line in range(*lines)]


def at_random_moments(count: int, seed: int) -> list[dict[str, Any]]:
    """After 0 to 12 of about 40 batches, within the time of the next two."""
    generator = np.random.default_rng(seed)
    return [{"killed_after": (int(generator.integers(0, 13)), float(generator.uniform(0, 2)))} for _ in range(count)]


@pytest.fixture(autouse=True)
def warm() -> None:
    """Load and calibrate before forking, so that workers spend their time answering."""
    ts.LabelSession(**GIVEN).answer(counts=[edge()])


WAYS = {"at random moments": at_random_moments, "before random instructions": before_random_instructions}


@pytest.mark.parametrize("how", WAYS)
def test_killed_at_random(tmp_path: Path, how: str) -> None:
    found, toll = kill_on_many(tmp_path, WAYS[how](LIVES, seed=1))
    assert found == []
    assert toll["amid"] >= 2


def test_killed_before_any_line(tmp_path: Path) -> None:
    """Lines of opening and of the first answers are reached in turn; the slow suite has every line."""
    assert kill_one_by_one(tmp_path, before_lines(0, 420, 42))[0] == []


def test_killed_before_any_line_with_an_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is never ahead of the state file: no session is taken for one that was rolled back, and it is charged once."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    monkeypatch.setitem(GIVEN, "account", ledger.account("adult", epsilon=1.0, delta=1e-5))
    assert kill_one_by_one(tmp_path, before_lines(0, 600, 60))[0] == []
    assert len(ledger.entries()) == 1


def test_a_session_that_dies_as_soon_as_it_has_answered_is_sound(tmp_path: Path) -> None:
    assert kill_one_by_one(tmp_path, [{"on_hand_out": True}] * 6)[0] == []


def test_a_twin_that_answers_before_it_commits_is_found_out(tmp_path: Path) -> None:
    """What the twin hands out before its first commit is not recorded."""
    live(tmp_path, 0, CarelessSession, on_hand_out=True)
    assert faults(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("how", WAYS)
def test_killed_at_random_hundreds_of_times(tmp_path: Path, how: str) -> None:
    """At least 300 kills in each way, most of them while the worker is answering; the twin is found out by the same deaths."""
    found, toll = kill_on_many(tmp_path / "sound", WAYS[how](400, seed=2))
    assert found == []
    print(told(toll, how))
    assert toll["before"] + toll["amid"] + toll["after"] >= 300
    assert toll["amid"] >= 200
    assert kill_on_many(tmp_path / "twin", WAYS[how](400, seed=2)[:100], CarelessSession)[0]


@pytest.mark.slow
def test_killed_before_every_line(tmp_path: Path) -> None:
    toll = Toll()
    for start in range(5):
        (tmp_path / str(start)).mkdir()
        found, died = kill_one_by_one(tmp_path / str(start), before_lines(start, 900, 5))
        assert found == []
        toll += died
    print(told(toll, "before each of the first 900 lines"))


def test_processes_on_one_file_share_one_budget(tmp_path: Path) -> None:
    """Four workers ask the same names at once: one answer for each name, one budget."""
    workers = [Worker(tmp_path, seed) for seed in range(4)]
    assert [worker.end() for worker in workers] == ["lived"] * 4
    assert faults(tmp_path) == []
    assert len(ts.LabelSession(state=tmp_path / "s.sqlite", **GIVEN).release().labels) == QUERIES
