"""Workers that die in power cuts, each starting from what the previous one had forced to disk: python power_cuts.py FOLDER KIND.

`durable.c` must be preloaded. A cut leaves every file as it was when it was last forced to disk, the worst that it may do; files
deleted since may be back. Answers that were handed out stay handed out. Prints a JSON list of faults.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from pathlib import Path

import teacher_student as ts
from teacher_student.aggregation import Ledger
from teacher_student.aggregation.database import FileDatabase

sys.path.append(str(Path(__file__).parent))
from labelling import GIVEN, before_random_instructions, edge, faults, live

ON_HAND_OUT, ELSEWHERE = 4, 3


def lazily(self: FileDatabase) -> sqlite3.Connection:
    """The broken twin of `FileDatabase._connect`: commits return before they are on disk."""
    connection = sqlite3.connect(self.path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")
    return connection


def cut(folder: Path, durable: Path, *, deleted_are_back: bool) -> None:
    """Reduce the files in `folder` to what was forced to disk; each keeps its inode."""
    for path in folder.iterdir():
        if path.name.endswith("-shm"):
            path.unlink()
        elif ".sqlite" in path.name:
            kept = durable / path.name
            path.write_bytes(kept.read_bytes() if kept.exists() else b"")
    for kept in (durable / "deleted").iterdir() if deleted_are_back else []:
        shutil.copy(kept, folder)


def main(folder: Path, kind: str) -> None:
    durable = Path(os.environ["DURABLE"])
    GIVEN["account"] = Ledger(folder / "ledger.sqlite").account("adult", epsilon=1.0, delta=1e-5)
    ts.LabelSession(**{**GIVEN, "account": None}).answer(counts=[edge()])
    if kind == "twin":
        FileDatabase._connect = lazily  # type: ignore[method-assign]
    deaths = [{"on_hand_out": True}] * ON_HAND_OUT + before_random_instructions(ELSEWHERE, seed=3)
    for number, death in enumerate(deaths):
        live(folder, number, **death)
        cut(folder, durable, deleted_are_back=number % 2 == 1)
        try:
            found = faults(folder)
        except ts.ArgumentError as refusal:
            found = [f"refused: {refusal}"]
        if found:
            break
    else:
        live(folder, len(deaths))
        found = faults(folder)
        if len(Ledger(folder / "ledger.sqlite").entries()) != 1:
            found.append("not charged once")
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
