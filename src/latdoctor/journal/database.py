"""The journal's file: SQLite, opened for one short act at a time.

Each act has a connection of its own: nothing stays open across a fork, a signal or a failure. SQLite rolls back by a
journal in DELETE mode and syncs with EXTRA: when a write returns, the file, and the folder from which the rollback
journal is gone, have been synced. It is not in WAL mode, in which even a reader writes files.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from latdoctor.journal import unfinished_write
from latdoctor.journal.entry import LARGEST_BODY, JournalError
from latdoctor.journal.state_dir import fsync_directory
from latdoctor.sanitize import clean

PATIENCE = 5.0  # seconds to wait for another process's lock on the database
APPLICATION = 0x4C617444  # "LatD", by which the file is known
VERSION = 1  # of the schema

T = TypeVar("T")

_FIRST_BYTES = b"SQLite format 3\0"
_VERSIONS = slice(18, 20)  # 1 with a rollback journal, 2 with a write-ahead log
_VERSION = slice(60, 64)
_APPLICATION = slice(68, 72)
_HEADER = 100  # bytes
_TRIES = 100  # readings that find a write under way, and then that it has ended

# With AUTOINCREMENT SQLite stores the highest number separately: a loss of the last entries is detected.
_TABLE = """CREATE TABLE entries(
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  run TEXT NOT NULL,
  at TEXT NOT NULL,
  monotonic REAL NOT NULL,
  boot TEXT NOT NULL,
  kind TEXT NOT NULL,
  body TEXT NOT NULL,
  previous TEXT NOT NULL,
  digest TEXT NOT NULL
)"""
_NO_UPDATE = """CREATE TRIGGER entries_stay BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"""
_NO_DELETE = """CREATE TRIGGER entries_remain BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"""
# INSERT OR REPLACE would remove a row without the trigger above: numbers must be consecutive.
_IN_ORDER = """CREATE TRIGGER entries_follow BEFORE INSERT ON entries
WHEN new.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM entries)
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"""
_STATEMENTS = (_TABLE, _NO_UPDATE, _NO_DELETE, _IN_ORDER)
_SCHEMA = {*_STATEMENTS, "CREATE TABLE sqlite_sequence(name,seq)"}

# The locks of POSIX belong to a process and go with the first closing of the file in any thread of it. So everything
# here runs in one thread at a time; reentrant, because a signal handler may interrupt it.
_ONE_THREAD = threading.RLock()

_MOVE_AWAY = "rename the file (mv) and save it for analysis; a new journal is created"


def create(path: Path) -> None:
    """Create the file (0600), its folder entry and its tables where missing. Raises JournalError."""
    with _explained(path), _ONE_THREAD:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            fsync_directory(path.parent)
        except FileExistsError:
            _must_be_guarded(path)
        _has_content(path)
        with closing(_connected(path, "rw")) as connection:
            connection.execute("BEGIN IMMEDIATE")
            if not _schema(connection) and connection.execute("PRAGMA application_id").fetchone() == (0,):
                for statement in (
                    *_STATEMENTS,
                    f"PRAGMA application_id={APPLICATION}",
                    f"PRAGMA user_version={VERSION}",
                ):
                    connection.execute(statement)
            _must_be_ours(connection, path)
            connection.execute("COMMIT")


@contextmanager
def transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection in a transaction that is on the disk when this ends, or is not at all. Raises JournalError."""
    with _explained(path), _ONE_THREAD:
        if not _has_content(path):
            raise JournalError("the journal is missing", where=str(path), next_step="find out which process removed it")
        # Closing without a commit rolls back; if even that fails, the next writer does it.
        with closing(_connected(path, "rw")) as connection:
            connection.execute("BEGIN IMMEDIATE")
            _must_be_ours(connection, path)
            yield connection
            connection.execute("COMMIT")


def read(path: Path, ask: Callable[[sqlite3.Connection], T], nothing: T) -> T:
    """Result of `ask`, or `nothing` where there is no journal yet. Writes nothing, not even a file beside it.

    Raises JournalError.
    """
    with _explained(path), _ONE_THREAD:
        for _ in range(_TRIES):
            if not _has_content(path):
                return nothing
            # SQLite would open a rollback journal that it finds, and as root change its owner.
            if unfinished_write.exists(path):
                image = unfinished_write.snapshot(path)
                if image is not None:
                    return _read_image(image, path, ask, nothing)
                continue
            try:
                with closing(_connected(path, "ro")) as connection:
                    _must_be_ours(connection, path)
                    return ask(connection)
            except sqlite3.OperationalError as error:  # a writer has been killed since the question above
                if getattr(error, "sqlite_errorname", "") != "SQLITE_READONLY_ROLLBACK":
                    raise
    raise JournalError("is written and repaired all the time", where=str(path), next_step="try again")


def _read_image(image: bytes, path: Path, ask: Callable[[sqlite3.Connection], T], nothing: T) -> T:
    if not image:
        return nothing
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(image)
        _bound(connection)
        _must_be_ours(connection, path)
        return ask(connection)


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=PATIENCE, isolation_level=None
    )
    try:
        _bound(connection)
        if mode == "rw":
            connection.execute("PRAGMA synchronous=EXTRA")
            connection.execute("PRAGMA journal_mode=DELETE")
    except BaseException:
        connection.close()
        raise
    return connection


def _bound(connection: sqlite3.Connection) -> None:
    """Limits against a manipulated file."""
    # Invalid UTF-8 becomes surrogates, which no valid entry has.
    connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * LARGEST_BODY)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    connection.execute("PRAGMA temp_store=MEMORY")


def _schema(connection: sqlite3.Connection) -> set[object]:
    return {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master LIMIT 100").fetchall()}


def _must_be_ours(connection: sqlite3.Connection, path: Path) -> None:
    if _schema(connection) != _SCHEMA:
        raise JournalError(
            "its tables and their guards are not those of a journal: they were changed or removed",
            where=str(path),
            next_step=_MOVE_AWAY,
        )


def _must_be_guarded(path: Path) -> None:
    if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise JournalError(
            "other users can write to it, so its content is not trusted",
            where=str(path),
            next_step=f"if you trust its content: chmod 600 {path}",
        )


def _has_content(path: Path) -> bool:
    """Whether there is something in it, and then it is a journal of ours. Raises JournalError, OSError."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise JournalError("is no file", where=str(path), next_step="name another folder in LATDOCTOR_STATE")
        with path.open("rb") as file:
            header = file.read(_HEADER)
    except FileNotFoundError:
        return False
    if not header:
        return False
    is_ours = header.startswith(_FIRST_BYTES) and header[_APPLICATION] == APPLICATION.to_bytes(4, "big")
    if len(header) < _HEADER or not is_ours:
        raise JournalError("is no journal of latdoctor, or a damaged one", where=str(path), next_step=_MOVE_AWAY)
    version = int.from_bytes(header[_VERSION], "big")
    if version > VERSION:
        raise JournalError(
            f"was written by a later latdoctor: version {version}, and this one knows {VERSION}",
            where=str(path),
            next_step="update latdoctor",
        )
    if version != VERSION or header[_VERSIONS] != b"\x01\x01":
        raise JournalError("was changed by another program", where=str(path), next_step=_MOVE_AWAY)
    return True


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Convert errors of SQLite and the system to a JournalError with a next step."""
    try:
        yield
    except OSError as error:
        raise JournalError(
            f"the journal cannot be used: {error.strerror or error}", where=str(path), next_step=_WRITABLE
        ) from error
    # SQLite's message on a damaged file may quote it, and Python then fails to decode the message.
    except (sqlite3.Error, UnicodeError, OverflowError, ValueError) as error:
        name = getattr(error, "sqlite_errorname", "")
        what, next_step = next(
            (explanation for begin, explanation in _EXPLANATIONS.items() if name.startswith(begin)),
            ("the journal cannot be used", _MOVE_AWAY),
        )
        raise JournalError(f"{what} ({clean(str(error), 200)})", where=str(path), next_step=next_step) from error


_WRITABLE = "see that the folder and the file are yours and writable, or name another folder in LATDOCTOR_STATE"
_EXPLANATIONS = {
    "SQLITE_BUSY": ("another process has locked the journal", "try again; `fuser` on the file shows the process"),
    "SQLITE_LOCKED": ("another process has locked the journal", "try again; `fuser` on the file shows the process"),
    "SQLITE_FULL": ("nothing was journaled, for the disk is full", "free space on that disk"),
    "SQLITE_IOERR": ("a disk error prevents journaling", "check the disk (dmesg) and its free space"),
    "SQLITE_READONLY": ("the journal cannot be written", _WRITABLE),
    "SQLITE_CANTOPEN": ("the journal cannot be opened", _WRITABLE),
    "SQLITE_PERM": ("the journal cannot be opened", _WRITABLE),
    "SQLITE_AUTH": ("the journal cannot be opened", _WRITABLE),
    "SQLITE_CORRUPT": ("the journal is damaged", _MOVE_AWAY),
    "SQLITE_NOTADB": ("the journal is damaged", _MOVE_AWAY),
    "SQLITE_CONSTRAINT": ("the journal takes entries at its end only, and this is none", "verify the journal"),
}
