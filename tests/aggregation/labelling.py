"""A worker that labels and dies, and a check of what it left behind: shared by the tests of kills and of power cuts.

A worker process answers named queries on the edge (answered every second time, so that fresh noise would show), writes down what
it was handed, as a user would publish it, and at last asks for everything again. It is killed before a chosen line or a random
instruction of the package, or from outside at a random moment after a random number of its answers. `faults` then compares what
was handed out with what is recorded.
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

import teacher_student as ts
from teacher_student.aggregation import session as session_module
from teacher_student.mechanisms import State
from teacher_student.privacy import calibrate

sys.path.append(str(Path(__file__).parents[1]))
from assassin import Assassin

CUTOFF, QUERIES = 50, 120
GIVEN: dict[str, Any] = {"num_classes": 2, "epsilon": 1.0, "delta": 1e-5, "cutoff": CUTOFF, "num_teachers": 4000}
ROOM = str(Path(session_module.__file__).parent)
PACKAGE = str(Path(ts.__file__).parent)


@functools.cache
def edge() -> list[int]:
    chosen = calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=CUTOFF)
    return [2 * (chosen.threshold + round(1.68 * chosen.query_scale) + 1), 0]


class CarelessSession(ts.LabelSession):
    """The broken twin: hands out answers before it commits them."""

    hand_out: Callable[[list[str], list[int]], None]

    def _answer(self, stored: Any, votes: Any, names: Any, form: str) -> Any:
        labels = super()._answer(stored, votes, names, form)
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
    """A process that answers queries; unless a death is given it runs to its end.

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
    """Run one worker, and say when it died."""
    worker = Worker(*given, **death)
    if killed_after:
        worker.kill(*killed_after)
    return worker.end()


def faults(folder: Path) -> list[str]:
    """Return all inconsistencies between the answers handed out, the answers recorded, and the budget."""
    session, found = ts.LabelSession(state=folder / "s.sqlite", **GIVEN), []
    release = session.release()
    with session._store.transaction() as stored:
        state = State.from_dict(stored.state)
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


def before_random_instructions(count: int, seed: int) -> list[dict[str, Any]]:
    """After 0 to 12 batches, then within the next two (of about 3,000 instructions each) or, at 0, while the session opens."""
    generator, deaths = np.random.default_rng(seed), []
    for armed_after in generator.integers(0, 13, count).tolist():
        number = int(generator.integers(0, 6_000 if armed_after else 20_000))
        deaths.append({"assassin": Assassin(PACKAGE, "opcode", number), "armed_after": armed_after})
    return deaths
