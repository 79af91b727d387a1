"""The example `owners` with Flower's own code in one process: a grid hands messages to real ClientApps. Skipped without flwr."""

from __future__ import annotations

import contextlib
import copy
import importlib
import multiprocessing
import shutil
import signal
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.aggregation.ledger import Ledger

sys.path.append(str(Path(__file__).parents[1]))
from assassin import Assassin

flwr_app = pytest.importorskip("flwr.app", reason="the owners example's environment has flwr")

EXAMPLE = Path(__file__).parents[2] / "examples" / "owners"
OWNERS, POINTS, SERVERS = 5, 30, 12


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    from flwr.supercore.task_identity import TaskIdentity

    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    monkeypatch.setattr(TaskIdentity, "_node_id", 0)
    monkeypatch.setattr(TaskIdentity, "_task_id", 1)
    write_tables(tmp_path)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "owners"]:
        del sys.modules[name]


def module(name: str) -> Any:
    return importlib.import_module(f"owners.{name}")


def write_tables(folder: Path) -> None:
    generator = np.random.default_rng(0)
    np.save(folder / "points.npy", generator.normal(size=(POINTS, 4)).astype(np.float32))
    for owner in range(OWNERS):
        features = generator.normal(size=(80, 4)).astype(np.float32)
        np.savez(folder / f"table-{owner}.npz", features=features, labels=(features[:, 0] > 0).astype(int), ids=np.arange(80))


def config_of(folder: Path, **changes: Any) -> dict[str, Any]:
    config = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    given = {"folder": str(folder / "server"), "points": str(folder / "points.npy"), "ask": POINTS, "owners": OWNERS, "least": 4}
    return {**config, **given, "fit": "owners.model:fit_linear", "teachers": 4, "deadline": 0.1, **changes}


PLAIN = {"secure": False, "noise": "server", "teachers": 1}
COUNTS = {"secure": True, "noise": "server", "teachers": 1}
Tamper = Callable[[Any, Any], Any]


class LocalGrid:
    """Delivers messages to real ClientApps in this process. Owners may be away, and messages tampered with on the way."""

    def __init__(self, folder: Path, config: dict[str, Any], *, nodes: Iterable[int] = range(OWNERS)) -> None:
        from flwr.app import Context, RecordDict

        self.app, self.sent = module("client").app, []
        self.away: dict[int, int] = {}  # node -> how many messages it still answers
        self.before: Tamper = lambda message, node: message
        self.after: Tamper = lambda reply, node: [reply]
        self.contexts = {
            node: Context(
                run_id=1,
                node_id=node,
                node_config={"table": str(folder / f"table-{node}.npz"), "state": str(folder / f"state-{node}")},
                state=RecordDict(),
                run_config=config,
            )
            for node in nodes
        }

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        from flwr.app import Error, Message

        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            if self.away.get(node, 99) <= 0:
                continue
            self.away[node] = self.away.get(node, 99) - 1
            message.metadata.__dict__["_message_id"] = f"{len(self.sent)}"
            self.sent.append(message)
            given = self.before(copy.deepcopy(message), node)  # it goes through a network
            try:
                reply = self.app(given, self.contexts[node])
            except Exception as error:  # noqa: BLE001 - as a SuperNode does
                reply = Message(Error(code=0, reason=str(error)), reply_to=message)
            reply.metadata.__dict__["_message_id"] = f"reply {len(self.sent)}"
            replies += self.after(reply, node)
        return replies


def server_context(config: dict[str, Any]) -> Any:
    from flwr.app import Context, RecordDict

    return Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=config)


def run(grid: LocalGrid, config: dict[str, Any]) -> Any:
    module("server").main(grid, server_context(config))
    return ts.load_release(Path(config["folder"]) / config["name"] / "release")


def own_votes(folder: Path) -> Any:
    """The votes of all owners, computed here."""
    table, fit = module("table"), module("model").fit_linear
    points = table.read_points(str(folder / "points.npy"))
    return np.stack([fit(table.read_table(str(folder / f"table-{owner}.npz")))(points) for owner in range(OWNERS)], axis=1)


@pytest.mark.parametrize("mode", [PLAIN, COUNTS])
def test_what_the_session_is_asked_is_what_the_owners_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: dict[str, Any]
) -> None:
    config = config_of(tmp_path, **mode, mechanism="gnmax", epsilon=200.0, cutoff=POINTS)
    asked: list[Any] = []
    answer = module("answering").answer
    seen = lambda settings, votes=None, *, counts=None: asked.append((votes, counts)) or answer(settings, votes, counts=counts)  # noqa: E731
    monkeypatch.setattr(module("server"), "answer", seen)
    release = run(LocalGrid(tmp_path, config), config)
    ((votes, counts),) = asked
    if mode is PLAIN:
        assert (votes == own_votes(tmp_path)).all()
    else:
        assert (counts == ts.aggregation.count_votes(own_votes(tmp_path), 2)).all()
    assert (release.labels == (own_votes(tmp_path).mean(axis=1) > 0.5)).mean() > 0.6
    assert release.certificate.verify()


def test_nothing_that_leaves_an_owner_shows_its_counts(tmp_path: Path) -> None:
    """Masked vectors are far from the counts, differ in every run, and only their sum is small."""
    config = config_of(tmp_path, **COUNTS, mechanism="gnmax", epsilon=200.0, cutoff=POINTS)
    from flwr.common import bytes_to_ndarray
    from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key

    masked = []

    def look(reply: Any, node: int) -> Any:
        if reply.has_content() and RECORD_KEY_CONFIGS in reply.content.config_records:
            record = reply.content.config_records[RECORD_KEY_CONFIGS]
            masked.extend(bytes_to_ndarray(part) for part in record.get(Key.MASKED_PARAMETERS, [])[1:])
            assert all(not array for array in reply.content.array_records.values())
        return [reply]

    grid = LocalGrid(tmp_path, config)
    grid.after = look
    run(grid, config)
    assert len(masked) == OWNERS
    for vector in masked:
        assert vector.shape == (POINTS, 2)
        assert len(np.unique(vector)) == 2 * POINTS  # counts have two values; 60 uniform ones of 2^32 meet once in 2e6 runs
        assert vector.max() > 2**24


def test_noise_of_the_owners_end_to_end(tmp_path: Path) -> None:
    config = config_of(tmp_path, epsilon=100.0)
    release = run(LocalGrid(tmp_path, config), config)
    assert isinstance(release, ts.FractionRelease)
    assert release.certificate.verify()
    assert (release.labels == (own_votes(tmp_path).mean(axis=1) > 0.5)).mean() > 0.6
    assert "noise.json" in release.certificate.files
    again = LocalGrid(tmp_path, config)
    assert (run(again, config).codes == release.codes).all()
    assert not again.sent  # nobody was asked
    assert len(Ledger(tmp_path / "server" / "ledger.sqlite").entries("owners")) == 1


@pytest.mark.parametrize("mode", [{}, COUNTS])
@pytest.mark.parametrize("answers", [0, 1, 2, 3, 4])
def test_an_owner_that_is_lost_at_any_stage(tmp_path: Path, mode: dict[str, Any], answers: int) -> None:
    """One owner of five is lost after so many messages: the round goes on without it, or is repeated without it."""
    config = config_of(tmp_path, **mode, mechanism="gnmax", epsilon=200.0, cutoff=POINTS)
    grid = LocalGrid(tmp_path, config)
    grid.away = {2: answers}
    release = run(grid, config)
    assert release.certificate.verify()
    assert len(Ledger(tmp_path / "server" / "ledger.sqlite").entries("owners")) == 1


@pytest.mark.parametrize("mode", [PLAIN, COUNTS, {}])
@pytest.mark.parametrize("answers", [0, 1, 2, 3])
def test_too_few_owners_spend_nothing(tmp_path: Path, mode: dict[str, Any], answers: int) -> None:
    config = config_of(tmp_path, **mode, mechanism="gnmax", attempts=2)
    grid = LocalGrid(tmp_path, config)
    grid.away = dict.fromkeys(range(2), 0 if mode is PLAIN else answers)
    with pytest.raises(ts.ArgumentError, match="least must be"):
        module("server").main(grid, server_context(config))
    assert not list((tmp_path / "server").rglob("session.sqlite"))
    ledger = tmp_path / "server" / "ledger.sqlite"
    assert not ledger.exists() or not Ledger(ledger).entries()


def test_lost_while_unmasking_the_budget_of_noisy_sums_is_gone_and_nothing_is_asked_again(tmp_path: Path) -> None:
    config = config_of(tmp_path, attempts=2)
    grid = LocalGrid(tmp_path, config)
    grid.away = {0: 4, 1: 4}  # greeting, setup, keys, masked vector
    with pytest.raises(ts.ArgumentError, match="name must be a new one"):
        module("server").main(grid, server_context(config))
    assert len(Ledger(tmp_path / "server" / "ledger.sqlite").entries("owners")) == 1
    back = LocalGrid(tmp_path, config)
    with pytest.raises(ts.ArgumentError, match="name must be a new one"):
        module("server").main(back, server_context(config))
    assert not back.sent


def test_an_owner_unmasks_noisy_sums_once(tmp_path: Path) -> None:
    """A server that has lost its mark, or never had one, gets no second sum of the same counts."""
    config = config_of(tmp_path)
    run(LocalGrid(tmp_path, config), config)
    elsewhere = {**config, "folder": str(tmp_path / "another server"), "attempts": 1}
    with pytest.raises(ts.ArgumentError):
        module("server").main(LocalGrid(tmp_path, elsewhere), server_context(elsewhere))
    assert not list((tmp_path / "another server").rglob("release"))


def test_an_owner_keeps_its_own_budget(tmp_path: Path) -> None:
    config = config_of(tmp_path, **PLAIN, mechanism="gnmax", cutoff=POINTS)
    grid = LocalGrid(tmp_path, config)
    for context in grid.contexts.values():
        context.node_config |= {"budget-epsilon": 1.5, "budget-delta": 1e-4}
    run(grid, config)
    run(grid, config)
    assert len(Ledger(tmp_path / "state-0" / "ledger.sqlite").entries("table")) == 1
    second, said = {**config, "name": "second"}, []
    for context in grid.contexts.values():
        context.run_config = second
    grid.after = lambda reply, node: said.append(reply.has_error() and reply.error.reason) or [reply]
    run(grid, second)
    assert all("budget" in str(reason) for reason in said)


def spoil(change: Callable[[Any, list[int]], None], stage: str) -> Tamper:
    from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key

    def tamper(message: Any, node: int) -> Any:
        record = message.content.config_records.get(RECORD_KEY_CONFIGS)
        if record is not None and record.get(Key.STAGE) == stage:
            change(record, list(range(OWNERS)))
        return message

    return tamper


MALICIOUS = {
    "a lower threshold": ("setup", lambda record, nodes: record.update({"threshold": 2}), "parameters"),
    "another range": ("setup", lambda record, nodes: record.update({"target_range": 2**20}), "parameters"),
    "too few owners": ("setup", lambda record, nodes: record.update({"sample_num": 3, "share_num": 3}), "owners of a sum"),
    "both secrets of an owner": ("unmask", lambda record, nodes: record.update({"dead_nids": nodes[:1]}), "different owners"),
    "few active owners": ("unmask", lambda record, nodes: record.update({"active_nids": nodes[:2]}), "different owners"),
    "one owner many times": ("unmask", lambda record, nodes: record.update({"active_nids": nodes[:1] * 5}), "different owners"),
}


@pytest.mark.parametrize("kind", MALICIOUS)
def test_what_a_malicious_server_sends_is_refused_by_the_owners(tmp_path: Path, kind: str) -> None:
    stage, change, says = MALICIOUS[kind]
    config, said = config_of(tmp_path, **COUNTS, attempts=1), []
    grid = LocalGrid(tmp_path, config)
    grid.before = spoil(change, stage)
    grid.after = lambda reply, node: said.append(reply.has_error() and reply.error.reason) or [reply]
    with pytest.raises(ts.ArgumentError, match="no sum was seen"):
        module("server").main(grid, server_context(config))
    assert any(says in str(reason) for reason in said)


def test_without_the_guard_flower_gives_both_secrets_of_an_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: Flower's client alone answers such a server. If this fails, Flower has learned to refuse it."""
    monkeypatch.setattr(module("guard"), "guard", lambda message, context, call_next: call_next(message, context))
    stage, change, _ = MALICIOUS["both secrets of an owner"]
    config, shares = config_of(tmp_path, **COUNTS, attempts=1), []
    grid = LocalGrid(tmp_path, config)
    grid.before = spoil(change, stage)

    def look(reply: Any, node: int) -> Any:
        record = reply.content.config_records.get("secaggplus_configs") if reply.has_content() else None
        shares.extend(record["nids"] if record is not None and "nids" in record else [])
        return [reply]

    grid.after = look
    with pytest.raises(ts.ArgumentError, match="no sum was seen"):  # the server's own code stumbles over such shares
        run(grid, config)
    assert shares.count(0) == 2 * OWNERS


def points_of(folder: Path) -> Any:
    return module("table").read_points(str(folder / "points.npy"))


def test_an_owner_with_its_own_least_and_its_own_points(tmp_path: Path) -> None:
    config, said = config_of(tmp_path, **COUNTS, attempts=1, send_points=False), []
    grid = LocalGrid(tmp_path, config)
    grid.after = lambda reply, node: said.append(reply.has_error() and reply.error.reason) or [reply]
    with pytest.raises(ts.ArgumentError, match="no sum was seen"):
        module("server").main(grid, server_context(config))
    assert any("hash alone" in str(reason) for reason in said)
    for context in grid.contexts.values():
        context.node_config |= {"points": str(tmp_path / "points.npy")}
    run(grid, config)
    strict = LocalGrid(tmp_path, {**config, "name": "strict"})
    for context in strict.contexts.values():
        context.node_config |= {"points": str(tmp_path / "points.npy"), "least": 5}
    with pytest.raises(ts.ArgumentError, match="no sum was seen"):
        module("server").main(strict, server_context({**config, "name": "strict"}))


def test_hostile_votes_abstain_and_other_owners_keep_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.app import ArrayRecord, RecordDict

    config = config_of(tmp_path, **PLAIN, mechanism="gnmax", epsilon=200.0, cutoff=POINTS)
    asked: list[Any] = []
    answer = module("answering").answer
    monkeypatch.setattr(module("server"), "answer", lambda settings, votes: asked.append(votes) or answer(settings, votes))

    def tamper(reply: Any, node: int) -> Any:
        if node == 0:
            reply.content = RecordDict({"votes": ArrayRecord([np.full(POINTS, 7)])})
        if node == 1:
            reply.content = RecordDict()
        return [reply, reply] if node == 2 else [reply]  # delivered twice, but the same message

    grid = LocalGrid(tmp_path, config)
    grid.after = tamper
    run(grid, config)
    expected = own_votes(tmp_path)
    expected[:, :2] = ts.ABSTAIN
    assert (asked[0] == expected).all()


def test_masks_are_the_same_on_both_sides_and_spread_evenly() -> None:
    mask = module("masks").mask
    assert (mask(b"a" * 44, 2**32, [(1,), (500, 2)])[1] == mask(b"a" * 44, 2**32, [(1,), (500, 2)])[1]).all()
    drawn = mask(b"b" * 32, 2**32, [(4096,)])[0]
    assert 0 <= drawn.min() < 2**24 < 2**32 - 2**24 < drawn.max() < 2**32
    assert abs(drawn.mean() / 2**31 - 1) < 0.06  # 6.6 standard errors, and one fixed seed
    folded = (bytes(32), b"abcd" * 8)  # Flower folds both into a seed of 0
    assert (mask(folded[0], 2**32, [(50,)])[0] != mask(folded[1], 2**32, [(50,)])[0]).any()
    with pytest.raises(ValueError, match="modulus"):
        mask(b"a" * 32, 2**16, [(1,)])


class LineCounter:
    """A trace function that counts the lines that an `Assassin` of the same folder could choose from."""

    def __init__(self, folder: str) -> None:
        self.folder, self.count = folder, 0

    def __call__(self, frame: Any, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(self.folder):
            return None
        self.count += event == "line"
        return self


def serve(folder: Path, config: dict[str, Any], tracer: Any, said: Any) -> None:
    """A server's life: one run of the app, which may end at any line. The owners' files stay."""
    grid = LocalGrid(folder, config)
    sys.settrace(tracer)
    try:
        run(grid, config)
    except ts.ArgumentError as error:
        said.send(str(error))
    else:
        said.send("finished")


def live(*given: Any) -> str:
    """Run one server in a process of its own; return what it said, or that it was killed."""
    hear, say = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=serve, args=(*given, say))
    process.start()
    say.close()
    said = "killed"
    with contextlib.suppress(EOFError):
        said = hear.recv()
    process.join()
    assert process.exitcode == (-signal.SIGKILL if said == "killed" else 0)
    return said


@pytest.mark.slow
@pytest.mark.parametrize("mode", [PLAIN, COUNTS, {}], ids=["votes", "counts", "noise of the owners"])
def test_a_server_killed_at_any_line_answers_nothing_twice_and_gets_no_budget_back(tmp_path: Path, mode: dict[str, Any]) -> None:
    """Twelve servers, each killed before random lines of the example or the package, up to three times, and started again."""
    generator, root = np.random.default_rng(0), str(EXAMPLE.parents[1])
    given = {**mode, "mechanism": "gnmax", "cutoff": POINTS, "deadline": 5.0}
    whole, counter = {**config_of(tmp_path, **given), "folder": str(tmp_path / "whole")}, LineCounter(root)
    run(LocalGrid(tmp_path, whole), whole)  # imports what the servers need
    again = {**whole, "folder": str(tmp_path / "whole again"), "name": "second"}
    sys.settrace(counter)
    run(LocalGrid(tmp_path, again), again)
    sys.settrace(None)
    ends = []
    for place in range(SERVERS):
        for owner in range(OWNERS):
            (tmp_path / f"state-{owner}" / "unmaskings.json").unlink(missing_ok=True)
        config = {**config_of(tmp_path, **given), "folder": str(tmp_path / f"server-{place}")}
        release = Path(config["folder"]) / "first" / "release"
        published: set[str] = set()
        for life in range(4):
            tracer = Assassin(root, "line", int(generator.integers(0, counter.count))) if life < 3 else None
            said = live(tmp_path, config, tracer)
            ledger = Path(config["folder"]) / "ledger.sqlite"
            assert not ledger.exists() or len(Ledger(ledger).entries("owners")) <= 1
            if (release / "certificate.json").exists():
                published.add(next(path for path in release.glob("*.csv")).read_text())
            if said != "killed":
                break
        assert len(published) <= 1
        spent = len(Ledger(ledger).entries("owners"))
        if said == "finished":
            assert (len(published), spent) == (1, 1)
            assert ts.load_release(release).certificate.verify()
        elif mode == COUNTS:  # killed three times between unmasking and session: the owners unmask no fourth time
            assert "no sum was seen" in said
            assert (published, spent) == (set(), 0)
        else:  # its noisy sums may have been seen
            assert "name must be a new one" in said
            assert (mode, published, spent) == ({}, set(), 1)
        ends.append(said)
    assert ends.count("finished") > SERVERS // 3


def test_a_twin_that_asks_again_after_a_kill_is_found_out(tmp_path: Path) -> None:
    """Without the owners' and the server's marks, a second run of noisy sums would publish other noise for the same counts."""
    config = config_of(tmp_path)
    first = run(LocalGrid(tmp_path, config), config).codes.tolist()
    shutil.rmtree(tmp_path / "server")  # a server that forgets
    for owner in range(OWNERS):
        (tmp_path / f"state-{owner}" / "unmaskings.json").unlink()  # and owners that forget
    assert run(LocalGrid(tmp_path, config), config).codes.tolist() != first
