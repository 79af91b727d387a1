"""Power cuts: what was handed out is on disk, even if only what was forced to disk is left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMPILER = shutil.which("cc")
HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(
    COMPILER is None or not sys.platform.startswith("linux"), reason="needs a C compiler, and Linux's way to preload a library"
)


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("durable") / "durable.so"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-O1", "-o", library, HERE / "durable.c", "-ldl"], check=True)
    return library


@pytest.mark.parametrize("kind", ["session", "twin"])
def test_after_a_power_cut_every_answer_that_was_handed_out_is_recorded(preloaded: Path, tmp_path: Path, kind: str) -> None:
    """Seven cuts, four of them on hand-out. The twin's commits do not wait for the disk."""
    state, durable = tmp_path / "state", tmp_path / "durable"
    state.mkdir()
    (durable / "deleted").mkdir(parents=True)
    surroundings = {**os.environ, "LD_PRELOAD": str(preloaded), "DURABLE": str(durable)}
    command = [sys.executable, str(HERE / "power_cuts.py"), str(state), kind]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert bool(json.loads(done.stdout)) == (kind == "twin"), done.stdout[:500]
