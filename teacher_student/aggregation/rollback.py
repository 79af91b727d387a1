"""Guards that detect when a session's state file was rolled back, replaced or copied.

A state file that is restored from a backup, replaced, or copied beside the original would spend the same budget twice, under the
same secret threshold. The state file is a chain of batches; each link is a hash of the batch and of the previous link. A guard
remembers the newest link whose answers may have been handed out. A state file without this link is refused.

Order of writing: the guard's file is created, then the state file; for every batch the state file is written, then the guard's
file, and only then are answers handed out. If the process is killed in between, the guard is behind the state file, never ahead.

**What it cannot detect.** `WitnessFile` lies beside the state file. If *both* are restored and the state file keeps its inode,
nothing is noticed: by restoring a snapshot of the disk, or by copying two saved files over the originals (`cp` keeps the inode of
the file that it overwrites). The witness guards against mishaps with one file only. A session with an account has a second guard,
the ledger (`ledger.LedgerGuard`); then all three files would have to be restored together. Keep the ledger elsewhere, and out of
the backup that covers the sessions.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from abc import ABC, abstractmethod
from pathlib import Path

from teacher_student.aggregation.database import FileDatabase
from teacher_student.arguments import ArgumentError, file_path

_REMEDY = "continue with the original, or start a new session with its own budget"


class RollbackGuard(ABC):
    """Remembers the newest link of a state file's chain, outside of that file."""

    @abstractmethod
    def newest(self) -> tuple[int, str] | None:
        """Return number and link of the newest batch whose answers may have been handed out, or None."""

    @abstractmethod
    def confirm(self, number: int, link: str) -> None:
        """Store the newest link. Called after its batch is committed and before its answers are returned."""

    def check(self, state: sqlite3.Connection) -> int | None:
        """Refuse a state file, open as `state`, without the newest link handed out; return that link's number, or None."""
        newest = self.newest()
        if newest is not None and not _has_link(state, *newest):
            raise ArgumentError(f"state must hold every answer that was handed out, got a file that was rolled back; {_REMEDY}")
        return None if newest is None else newest[0]


class WitnessFile(RollbackGuard):
    """The guard of the state file at `path`, kept in `PATH.witness`. It also remembers which file it belongs to.

    Args:
        path: the state file; created if neither it nor its witness exists.

    Attributes:
        session: unique name of the session, written before anything else of the session.

    Raises:
        ArgumentError: the state file has content but no witness, or is not the file that the witness was made for.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        beside = f"{file_path('state', path).absolute()}.witness"
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

    def newest(self) -> tuple[int, str] | None:
        """Return the newest link handed out; refuse a state file that this witness was not made for."""
        with self._database.transaction() as connection:
            inode, number, link = connection.execute("SELECT inode, number, link FROM witness").fetchone()
        if inode != self._inode():
            raise ArgumentError(f"state must be the session's own file, got {self.state_file.path}, a copy; {_REMEDY}")
        return None if number is None else (int(number), str(link))

    def confirm(self, number: int, link: str) -> None:
        """Store the newest link."""
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
