"""Kill -9 while labelling, and look: nothing is answered twice, the cutoff holds, the secret threshold stays.

A worker process answers named queries on the edge (answered every second time, so that fresh noise would show), writes down what
it was handed, as a user would publish it, and at last asks for everything again. It is killed before a chosen line or a random
instruction of the package, or from outside at a random moment after a random number of its answers, again and again, on one state
file. `faults` then compares what was handed out with what is recorded. A worker that hands answers out before they are committed
is found out by the same check.
"""

from __future__ import annotations

import collections
import functools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.aggregation import Ledger
from teacher_student.aggregation import session as session_module
from teacher_student.mechanisms import State
from teacher_student.privacy import calibrate

from ..assassin import Assassin

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

CUTOFF, QUERIES = 50, 120
GIVEN: dict[str, Any] = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "cutoff": CUTOFF}
ROOM = str(Path(session_module.__file__).parent)
PACKAGE = str(Path(ts.__file__).parent)
LIVES = 5
"""Workers that are killed on one state file, before one goes to the end."""


@functools.cache
def edge() -> list[int]:
    chosen = calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=CUTOFF)
    return [2 * (chosen.threshold + round(1.68 * chosen.query_scale) + 1), 0]


class CarelessSession(ts.LabelSession):
    """The broken twin: hands answers out, and then commits."""

    hand_out: Callable[[list[str], list[int]], None]

    def _answer(self, entry: Any, counts: Any, names: Any) -> Any:
        labels = super()._answer(entry, counts, names)
        self.hand_out(names, labels.tolist())
        return labels


def work(folder: Path, seed: int, told: int, kind: type, assassin: Assassin | None, armed_after: int, on_hand_out: bool) -> None:
    """Answer all queries in random batches, some of them again, and append 'name label' to the file of what was handed out.

    `told` is a pipe to the killer: a dot for each batch that was handed out, a bar when all are.
    """
    generator, handed = np.random.default_rng(seed), os.open(folder / "handed", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    position, batches = len(handed_out(folder)), 0

    def hand_out(names: list[str], labels: list[int]) -> None:
        os.write(handed, "".join(f"{name} {label}\n" for name, label in zip(names, labels, strict=True)).encode())
        os.write(told, b".")
        if on_hand_out:
            os.kill(os.getpid(), signal.SIGKILL)

    def ask(names: list[str]) -> None:
        nonlocal batches
        if batches == armed_after:
            sys.settrace(assassin)
        batches += 1
        labels = session.answer(counts=[edge()] * len(names), query_ids=names).tolist()
        if kind is ts.LabelSession:
            hand_out(names, labels)

    if not armed_after:
        sys.settrace(assassin)
    session = kind(state=folder / "s.sqlite", **GIVEN)
    session.hand_out = hand_out
    while position < QUERIES:
        size = int(generator.integers(1, 6))
        ask([str(name) for name in range(max(0, position - 2), min(position + size, QUERIES))])
        position += size
    os.write(told, b"|")
    ask([str(name) for name in range(QUERIES)])


def handed_out(folder: Path) -> dict[str, set[int]]:
    """Return the labels that were ever handed out under each name."""
    path, labels = folder / "handed", collections.defaultdict(set)
    for line in path.read_text().splitlines() if path.exists() else []:
        name, label = line.split()
        labels[name].add(int(label))
    return labels


class Worker:
    """A process that works; without a death given it lives to its end.

    Args:
        folder: of the session.
        seed: of its batches.
        kind: of session.
        assassin: kills it from inside.
        armed_after: so many batches.
        on_hand_out: it dies as soon as it was handed answers.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        kind: type = ts.LabelSession,
        *,
        assassin: Assassin | None = None,
        armed_after: int = 0,
        on_hand_out: bool = False,
    ) -> None:
        self._told, told = os.pipe()
        self._said, self._start = b"", time.perf_counter()
        given = (folder, seed, told, kind, assassin, armed_after, on_hand_out)
        self._process = multiprocessing.get_context("fork").Process(target=work, args=given)
        self._process.start()
        os.close(told)

    def kill(self, batches: int, share: float) -> None:
        """Kill it from outside after so many batches, and then so many times the mean life of a batch."""
        while len(self._said) < batches and (said := os.read(self._told, 1)):
            self._said += said
        time.sleep(share * (time.perf_counter() - self._start) / (batches + 1))
        self._process.kill()

    def end(self) -> str:
        """Wait for it, and say when it died."""
        self._process.join()
        assert self._process.exitcode in {0, -signal.SIGKILL}
        while said := os.read(self._told, 4096):
            self._said += said
        os.close(self._told)
        if self._process.exitcode == 0:
            return "lived"
        return "after" if b"|" in self._said else "amid" if self._said else "before"


def live(*given: Any, killed_after: tuple[int, float] | None = None, **death: Any) -> str:
    """Let one worker live, and say when it died."""
    worker = Worker(*given, **death)
    if killed_after:
        worker.kill(*killed_after)
    return worker.end()


def faults(folder: Path) -> list[str]:
    """Everything that is wrong with what was handed out, what is recorded, and what is left of the budget."""
    session, found = ts.LabelSession(state=folder / "s.sqlite", **GIVEN), []
    release = session.release()
    with session._store.entry() as entry:
        state = State.from_dict(entry.state)
    names = release.queries or ()
    recorded = dict(zip(names, release.labels.tolist(), strict=True))
    if len(recorded) != len(names):
        found.append("a query is recorded twice")
    for name, labels in handed_out(folder).items():
        if labels != {recorded.get(name)}:
            found.append(f"query {name} was answered {labels}, recorded is {recorded.get(name)}")
    abstained = int(np.count_nonzero(release.labels == ts.ABSTAIN))
    if abstained > CUTOFF or abstained != state.paid:
        found.append(f"{abstained} abstentions, {state.paid} paid, cutoff {CUTOFF}")
    threshold = folder / "threshold"
    if not threshold.exists():
        threshold.write_text(str(state.noisy_threshold))
    if threshold.read_text() != str(state.noisy_threshold):
        found.append("another noisy threshold")
    return found


def unhanded(folder: Path) -> bool:
    """Whether answers are recorded that nobody was handed: the worker died between the commit and the return."""
    with ts.LabelSession(state=folder / "s.sqlite", **GIVEN) as session:
        return len(session.release().labels) > len(handed_out(folder))


Toll = collections.Counter[str]


def kill_one_by_one(folder: Path, deaths: list[dict[str, Any]], kind: type = ts.LabelSession) -> tuple[list[str], Toll]:
    """Let workers on one session die one after the other, each in its way; let the last one finish; return faults and toll."""
    found, toll = [], Toll()
    for number, death in enumerate(deaths):
        when = live(folder, number, kind, **death)
        found += faults(folder)
        toll[when] += 1
        toll["unhanded"] += when != "lived" and unhanded(folder)
    assert live(folder, len(deaths), kind) == "lived"
    return found + faults(folder), toll


def kill_on_many(folder: Path, deaths: list[dict[str, Any]], kind: type = ts.LabelSession) -> tuple[list[str], Toll]:
    """Likewise, on a new session after every few deaths."""
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


def before_random_instructions(count: int, seed: int) -> list[dict[str, Any]]:
    """After 0 to 12 batches, then within the next two (of about 3,000 instructions each) or, at 0, while the session opens."""
    generator, deaths = np.random.default_rng(seed), []
    for armed_after in generator.integers(0, 13, count).tolist():
        number = int(generator.integers(0, 6_000 if armed_after else 20_000))
        deaths.append({"assassin": Assassin(PACKAGE, "opcode", number), "armed_after": armed_after})
    return deaths


def at_random_moments(count: int, seed: int) -> list[dict[str, Any]]:
    """After 0 to 12 batches of the about 40, within the time of the next two."""
    generator = np.random.default_rng(seed)
    return [{"killed_after": (int(generator.integers(0, 13)), float(generator.uniform(0, 2)))} for _ in range(count)]


@pytest.fixture(autouse=True)
def warm() -> None:
    """Load and calibrate before forking, so that workers spend their lives answering."""
    ts.LabelSession(**GIVEN).answer(counts=[edge()])


WAYS = {"at random moments": at_random_moments, "before random instructions": before_random_instructions}


@pytest.mark.parametrize("how", WAYS)
def test_killed_at_random(tmp_path: Path, how: str) -> None:
    found, toll = kill_on_many(tmp_path, WAYS[how](15, seed=1))
    assert found == []
    assert toll["amid"] >= 7


def test_killed_before_any_line(tmp_path: Path) -> None:
    """Lines of opening and of the first answers are reached in turn."""
    assert kill_one_by_one(tmp_path, before_lines(0, 420, 20))[0] == []


def test_killed_before_any_line_with_an_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is never ahead of the state file: no session is taken for one that was rolled back, and it is charged once."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    monkeypatch.setitem(GIVEN, "account", ledger.account("adult", epsilon=1.0, delta=1e-5))
    assert kill_one_by_one(tmp_path, before_lines(0, 600, 30))[0] == []
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("kind", [ts.LabelSession, CarelessSession])
def test_a_twin_that_answers_before_it_commits_is_found_out(tmp_path: Path, kind: type) -> None:
    """Killed on handing out, 30 times: the twin gives one query 30 answers, all alike with probability 2^-29."""
    found, _ = kill_one_by_one(tmp_path, [{"on_hand_out": True}] * 30, kind)
    assert bool(found) == (kind is CarelessSession)


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
