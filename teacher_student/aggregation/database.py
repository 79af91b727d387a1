"""SQLite for sessions and ledgers: one writer at a time, data on disk when a transaction ends, files of mode 0600.

Each transaction on a file opens and closes its own connection, so that no connection survives a fork (SQLite's locks do not).
While one is open, no other thread of the process can fork.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from teacher_student.arguments import ArgumentError, file_path

_Migrations = tuple[tuple[str, ...], ...]

_WAIT = 600.0
"""Seconds to wait for another process that has the file locked."""

_open_transactions = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_open_transactions.acquire,
        after_in_parent=_open_transactions.release,
        after_in_child=_open_transactions.release,
    )


@dataclasses.dataclass(frozen=True)
class Schema:
    """The tables of one kind of file, in every version.

    Attributes:
        name: name of the argument by which users pass such a file, for messages.
        owner: owner of the file, for messages: "a ledger's".
        mark: SQLite's application id of such files.
        table: a table that every version has.
        unmarked: the last version whose files do not carry the mark.
        migrations: entry n holds the statements that upgrade a file from version n to n + 1.
    """

    name: str
    owner: str
    mark: int
    table: str
    unmarked: int
    migrations: _Migrations

    def bring_up(self, connection: sqlite3.Connection) -> int:
        """Upgrade a file, within its transaction, to the newest version; return the version that it had, 0 for an empty file.

        Raises:
            ArgumentError: the file belongs to another program, or has a newer version than this program knows.
        """
        version, mark = (int(connection.execute(f"PRAGMA {field}").fetchone()[0]) for field in ("user_version", "application_id"))
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        ours = self.table in tables and mark == (self.mark if version > self.unmarked else 0)
        if (version or tables or mark) and not (version > 0 and ours):
            raise ArgumentError(f"{self.name} must be {self.owner} file, got a file of another kind")
        newest = len(self.migrations)
        if version > newest:
            raise ArgumentError(
                f"{self.name} must be {self.owner} file of version {newest} or older, got version {version}; upgrade"
            )
        if version < newest:
            for statement in (statement for step in self.migrations[version:] for statement in step):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self.mark}")
            connection.execute(f"PRAGMA user_version = {newest}")
        return version


class Database(ABC):
    """Runs transactions, one at a time."""

    @abstractmethod
    def transaction(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Open a transaction: committed when the block ends, rolled back if the block raises."""

    def close(self) -> None:  # noqa: B027 - most hold nothing between transactions
        """Release what is held between transactions."""


class MemoryDatabase(Database):
    """A database in memory. Refused in a forked child, where it would be a second copy of the same budget."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._finalizer = weakref.finalize(self, self._connection.close)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction under the session's lock."""
        if os.getpid() != self._process:
            raise ArgumentError(
                "session must be used in the process that created it, got a forked copy; keep its state in a file"
            )
        if not self._finalizer.alive:
            raise ArgumentError("session must be open, got one that was closed")
        with self._lock, _begun(self._connection):
            yield self._connection

    def close(self) -> None:
        """Close the connection; everything stored is lost."""
        with self._lock:
            self._finalizer()


class FileDatabase(Database):
    """A database in a file, with a write-ahead log; every commit is forced to disk before it returns.

    Args:
        name: name of the argument by which the file was passed, for messages.
        path: the file; created with mode 0600 if it does not exist. Its folder must exist.

    Raises:
        ArgumentError: here and in `transaction`, if the file cannot be read or written, is not a database, or the disk is full.
    """

    def __init__(self, name: str, path: str | os.PathLike[str]) -> None:
        self._name = name
        self.path = file_path(name, path).absolute()
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self.path.chmod(0o600)
            _sync_folder(self.path.parent)
        except (OSError, ValueError) as error:
            raise self._refusal(getattr(error, "strerror", None) or error) from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that excludes the writers of all processes."""
        try:
            with _open_transactions, contextlib.closing(self._connect()) as connection, _begun(connection):
                yield connection
        except sqlite3.Error as error:
            raise self._refusal(error) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(f"{self.path.as_uri()}?mode=rw", uri=True, timeout=_WAIT, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _refusal(self, reason: object) -> ArgumentError:
        return ArgumentError(f"{self._name} must be a file of its own that can be written, got {self.path}: {reason}")


@contextlib.contextmanager
def _begun(connection: sqlite3.Connection) -> Iterator[None]:
    """Take the write lock; commit when the block ends, roll back on any failure."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _sync_folder(folder: Path) -> None:
    """Force a new file's directory entry to disk, where the operating system can."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
