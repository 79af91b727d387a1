"""The example `owners` with real processes on the loopback interface: TLS, node authentication, kills. Skipped without flwr."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.aggregation.ledger import Ledger

pytest.importorskip("flwr.app", reason="the owners example's environment has flwr")
pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "owners"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("owners_processes", EXAMPLE / "processes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def config(folder: Path, **changes: object) -> str:
    given = {"folder": f'"{folder}/server"', "owners": 3, "least": 2, "ask": 40, "teachers": 2, "epsilon": 8.0, "deadline": 90.0}
    return " ".join(f"{name}={value}" for name, value in {**given, **changes}.items())


def entries(folder: Path) -> int:
    ledger = folder / "server" / "ledger.sqlite"
    return len(Ledger(ledger).entries("owners")) if ledger.exists() else 0


def test_processes_with_tls_and_authentication(tmp_path: Path) -> None:
    """Votes, counts and noise of the owners; a question asked again gets no new noise; a stranger is kept out."""
    processes = script()
    with processes.federation(tmp_path, 3) as running:
        plain = {"secure": "false", "noise": '"server"', "teachers": 1, "mechanism": '"gnmax"', "cutoff": 40, "name": '"votes"'}
        log = running.run(config(tmp_path, **plain))
        assert "labels for 40 of 40 points" in log
        log = running.run(config(tmp_path, **{**plain, "secure": "true", "name": '"counts"'}))
        assert "labels for 40 of 40 points" in log
        log = running.run(config(tmp_path, name='"noisy"'))
        assert "noisy shares of votes for" in log
        before = ts.load_release(tmp_path / "server" / "noisy" / "release").codes
        running.run(config(tmp_path, name='"noisy"'))
        assert (ts.load_release(tmp_path / "server" / "noisy" / "release").codes == before).all()
        assert entries(tmp_path) == 3
        processes.make_key(tmp_path / "keys" / "stranger")
        running.ports["stranger"] = processes.free_port()
        trust = ["--root-certificates", str(tmp_path / "keys" / "ca.crt"), "--superlink", f"127.0.0.1:{running.port}"]
        key = ["--auth-supernode-private-key", str(tmp_path / "keys" / "stranger")]
        address = ["--host", "127.0.0.1", "--port", str(running.ports["stranger"])]
        running.start("stranger", "flower-supernode", *trust, *key, *address, "--max-retries", "1")
        running.processes["stranger"].wait(120)
        text = (tmp_path / "logs" / "stranger.log").read_text()
        assert "Failed to activate SuperNode" in text
    for name in ("server.key", "owner-0"):
        assert (tmp_path / "keys" / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("seed", range(2))
def test_owners_and_server_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    """A SuperNode and, later, the SuperLink with the ServerApp are killed; both come back. One answer, one entry."""
    processes, generator = script(), np.random.default_rng(seed)
    given = config(tmp_path, noise='"server"', teachers=1, mechanism='"gnmax"', cutoff=40)
    said: list[str] = []

    def run() -> None:
        try:
            said.append(running.run(given, limit=240))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            said.append(f"failed: {error}")

    with processes.federation(tmp_path, 3) as running:
        caller = threading.Thread(target=run)
        caller.start()
        time.sleep(float(generator.uniform(1, 20)))
        running.stop("owner-2", kill=True)
        time.sleep(float(generator.uniform(0, 20)))
        running.stop("superlink", kill=True)
        release = tmp_path / "server" / "first" / "release"
        seen = (release / "certificate.json").exists() and ts.load_release(release)
        spent = entries(tmp_path)
        assert spent <= 1
        running.start_link()
        running.start_owner(2)
        caller.join()
        said.clear()
        run()
    now = ts.load_release(release)
    assert now.certificate.verify()
    assert entries(tmp_path) == 1
    if seen:
        assert seen.certificate.to_json() == now.certificate.to_json()
