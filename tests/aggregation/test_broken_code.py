"""Broken twins made by changing one line of the code itself; the test named with each must then fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATABASE, STORE, ROLLBACK = "database.py", "store.py", "rollback.py"
KILLS, ONLINE, SESSION = "test_kills.py", "test_online.py", "test_session.py"
RECORDED = "SELECT query_id, label FROM queries WHERE "
BROKEN = {
    "two processes both write": (DATABASE, '"BEGIN IMMEDIATE"', '"BEGIN"', KILLS, "share_one_budget"),
    "nothing is committed": (DATABASE, 'execute("COMMIT")', 'execute("ROLLBACK")', KILLS, "as_soon_as"),
    "a forked copy spends again": (DATABASE, "if os.getpid() != self._process:", "if False:", SESSION, "forked_copy"),
    "a full disk is not noticed": (
        DATABASE,
        "            raise self._refusal(error) from error\n\n    def _connect",
        "            return\n\n    def _connect",
        ONLINE,
        "full_disk",
    ),
    "a copy is taken for the original": (ROLLBACK, "if inode != self._inode():", "if False:", SESSION, "s_own"),
    "a file may be rolled back": (
        ROLLBACK,
        "if newest is not None and not _has_link",
        "if False and not _has_link",
        SESSION,
        "s_own",
    ),
    "what was handed out is not witnessed": (STORE, "guard.confirm(head.number, head.link)", "pass", SESSION, "s_own"),
    "a changed answer is not noticed": (STORE, "if link != _link(", "if False and link != _link(", SESSION, "s_own"),
    "a name asked again is drawn again": (
        STORE,
        "        return found\n\n    def record",
        "        return {}\n\n    def record",
        SESSION,
        "again",
    ),
    "a clock decides what is recorded": (
        STORE,
        RECORDED,
        RECORDED + "(SELECT max(time) FROM batches) <= CURRENT_TIMESTAMP AND ",
        ONLINE,
        "clocks_that_jump",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_broken_code_is_found_out(tmp_path: Path, name: str) -> None:
    file, sound, broken, tests, chosen = BROKEN[name]
    for part in ("teacher_student", "conf", "tests"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / "teacher_student" / "aggregation" / file
    text = path.read_text(encoding="utf-8")
    assert text.count(sound) == 1
    path.write_text(text.replace(sound, broken), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", f"tests/aggregation/{tests}", "-k", chosen]
    surroundings = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout[-1000:]
    assert "1 failed" in done.stdout or "failures" in done.stdout, done.stdout[-1000:]
