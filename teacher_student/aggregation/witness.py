"""A second file that notices when a session's state file is not the one that it was.

A state file that is restored from a backup, replaced, or copied beside the original would spend the same budget twice, under the
same secret threshold. The state file is a chain of batches, each link the hash of all before it; the witness remembers which file
it belongs to and the newest link whose answers may have been handed out. A state file that lacks this link is refused.

Order of writing: witness (made), state file (made), then for every batch: state file, witness, and only then the answers. Killed
in between, the witness is behind the state file and never ahead of it. Both files together can be rolled back unnoticed only if
they keep their inodes (a snapshot of a whole disk): a ledger on another disk is the remedy.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from pathlib import Path

from teacher_student.aggregation.database import FileDatabase
from teacher_student.arguments import ArgumentError

_REMEDY = "go on with the original, or start a new session with a budget of its own"


class Witness:
    """The witness of the state file at `path`, kept in `PATH.witness`.

    Args:
        path: the state file; made if neither it nor its witness exists.

    Attributes:
        session: a name that no other session has, written down before anything else of the session.

    Raises:
        ArgumentError: the state file has content but no witness, or is not the file that the witness knows.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        beside = f"{Path(path).absolute()}.witness"
        if _has_content(Path(path)) and not _has_content(Path(beside)):
            raise ArgumentError(f"state must be a session's file with its witness beside it, got {path} alone; {_REMEDY}")
        self.state_file = FileDatabase("state", path)
        self._database = FileDatabase("state", beside)
        with self._database.transaction() as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS witness (session TEXT NOT NULL, inode TEXT NOT NULL, number INTEGER, link TEXT)"
            )
            if not connection.execute("SELECT 1 FROM witness").fetchone():
                connection.execute("INSERT INTO witness (session, inode) VALUES (?, ?)", [str(uuid.uuid4()), self._inode()])
            (self.session,) = connection.execute("SELECT session FROM witness").fetchone()

    def check(self, state: sqlite3.Connection) -> int | None:
        """Refuse a state file, open as `state`, that lacks the newest link handed out; return that link's number."""
        with self._database.transaction() as connection:
            inode, number, link = connection.execute("SELECT inode, number, link FROM witness").fetchone()
        if inode != self._inode():
            raise ArgumentError(f"state must be the session's own file, got {self.state_file.path}, a copy; {_REMEDY}")
        if number is not None and not _has_link(state, number, link):
            raise ArgumentError(
                f"state must hold every answer that was handed out, got {self.state_file.path}, rolled back; {_REMEDY}"
            )
        return None if number is None else int(number)

    def confirm(self, number: int, link: str) -> None:
        """Remember the newest link; called between the commit of its batch and the return of its answers."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE witness SET number = ?, link = ? WHERE number IS NULL OR number < ?", [number, link, number]
            )

    def _inode(self) -> str:
        return str(self.state_file.path.stat().st_ino)


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except (OSError, ValueError):
        return False


def _has_link(state: sqlite3.Connection, number: int, link: str) -> bool:
    tables = state.execute("SELECT 1 FROM sqlite_master WHERE name = 'batches'").fetchone()
    return bool(tables) and state.execute("SELECT link FROM batches WHERE number = ?", [number]).fetchone() == (link,)
