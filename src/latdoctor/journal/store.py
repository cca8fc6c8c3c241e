"""The journal: entries are appended, synced to disk before any further action, and chained by digests."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Raw, Struct

from latdoctor.journal import database
from latdoctor.journal.entry import (
    JournalEntry,
    JournalError,
    Moment,
    chain_error,
    digest_of,
    encode_body,
    next_entry,
    now,
)
from latdoctor.journal.state_dir import ensure_private

__all__ = ["Journal", "JournalError"]

AT_ONCE = 100  # entries read before a writer is let in between

_COLUMNS = "seq, run, at, monotonic, boot, kind, body, previous, digest"
_TYPES = (int, str, str, float, str, str, str, str, str)
_UNREADABLE = "something in it has another type than it was written with, or is no text"

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal in the file `path`. Any number of processes and threads may use it at once."""

    path: Path
    writes: bool
    clock: Callable[[], Moment] = now

    @classmethod
    def opened(cls, path: Path, clock: Callable[[], Moment] = now) -> Journal:
        """Open for appending; the file and its folder are created where missing. Raises JournalError, UsageError."""
        ensure_private(path.parent)
        database.create(path)
        return cls(path, True, clock)

    @classmethod
    def reading(cls, path: Path) -> Journal:
        """For reading alone: nothing is ever written, and a file that is not there reads as empty."""
        return cls(path, False)

    def append(self, run: str, kind: str, body: Struct | Mapping[str, object]) -> JournalEntry:
        """Journals `body`; when this returns it is on the disk. Raises JournalError: then it is whole or not at all.

        Waits `database.PATIENCE` seconds at most for other processes.
        """
        return self.append_all([(run, kind, body)])[0]

    def append_all(self, bodies: Sequence[tuple[str, str, Struct | Mapping[str, object]]]) -> tuple[JournalEntry, ...]:
        """The same for several, each with its run and kind: all of them are journaled, or none."""
        if not self.writes:
            raise JournalError("is open for reading only", where=str(self.path), next_step="open it for appending")
        encoded = [(run, kind, encode_body(body)) for run, kind, body in bodies]
        entries: list[JournalEntry] = []
        with database.transaction(self.path) as connection:
            before = self._last(connection)
            for run, kind, body in encoded:
                before = next_entry(before, run, kind, body, self.clock())
                values = (before.seq, before.run, before.at, before.monotonic, before.boot, before.kind, body.decode())
                connection.execute(
                    f"INSERT INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our own names
                    (*values, before.previous, before.digest),
                )
                entries.append(before)
        return tuple(entries)

    def entries(self, run: str = "", kinds: Container[str] = ()) -> tuple[JournalEntry, ...]:
        """All entries in their order, or those of `run`, or of `kinds`. Raises JournalError as `verify` does."""
        return tuple(
            entry for entry in self._proven() if (not run or entry.run == run) and (not kinds or entry.kind in kinds)
        )

    def after(self, last: JournalEntry | None) -> tuple[JournalEntry, ...]:
        """Entries after `last`, each verified to follow the one before it.

        For incremental reading: entries are verified once. Raises JournalError as `verify` does, also where `last` is
        from another journal.
        """
        return tuple(self._proven(last))

    def verify(self) -> JournalEntry | None:
        """The last entry, after verifying the chain from the first on; None where there is none.

        Raises JournalError with the first entry that does not fit. A complete replacement of the file is detected only
        by comparison with a last entry stored elsewhere.
        """
        head = None
        for entry in self._proven():
            head = entry
        return head

    def _proven(self, before: JournalEntry | None = None) -> Iterator[JournalEntry]:
        """Every entry behind `before`, each proven to follow the one before it."""
        # Read first: entries appended during the loop can only add to these.
        highest = database.read(self.path, _highest, 0)
        for row in self._rows(before.seq if before else 0):
            entry = _entry(row)
            reason = chain_error(entry, before) if entry else _UNREADABLE
            if entry is None or reason:
                raise self._broken(before, reason)
            yield entry
            before = entry
        if highest > (before.seq if before else 0):
            raise self._broken(before, f"it is missing, and so are all up to {highest}")
        if before and before.seq > database.read(self.path, _highest, 0):
            raise self._broken(before, "the count of all entries was changed")

    def _rows(self, last: int) -> Iterator[Row]:
        start = last
        while True:
            try:
                rows: list[Row] = database.read(self.path, partial(_after, last), [])
            except JournalError as error:
                if last == start:
                    raise
                what = f"{error.what}; it could be read up to entry {last}"
                raise JournalError(what, where=error.where, next_step=error.next_step) from error
            if not rows:
                return
            yield from rows
            last = rows[-1][0]

    def _last(self, connection: sqlite3.Connection) -> JournalEntry | None:
        """The entry to follow: it is the last that there ever was, and in itself whole."""
        row = connection.execute(f"SELECT {_COLUMNS} FROM entries ORDER BY seq DESC LIMIT 1").fetchone()  # noqa: S608
        last = _entry(row) if row else None
        highest = _highest(connection)
        if last is None and (row or highest):
            raise self._broken(None, _UNREADABLE if row else f"it is missing, and so are all up to {highest}")
        if last and (last.seq != highest or last.digest != digest_of(last)):
            raise self._broken(last, "the one before it is not the last that was journaled, or was changed")
        return last

    def _broken(self, before: JournalEntry | None, reason: str) -> JournalError:
        number = before.seq + 1 if before else 1
        return JournalError(
            f"entry {number} does not fit: {reason}",
            where=str(self.path),
            next_step="the journal was damaged or changed: rename it (mv), and a new one is created; "
            "check unfinished runs by hand",
        )


def _highest(connection: sqlite3.Connection) -> int:
    """The highest number that any entry ever had, as SQLite itself remembers it."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
    return row[0] if row and isinstance(row[0], int) else 0


def _after(last: int, connection: sqlite3.Connection) -> list[Row]:
    """The next rows after number `last`; one at a time before one that is damaged. Raises sqlite3.Error at that."""
    query = f"SELECT {_COLUMNS} FROM entries WHERE seq > ? ORDER BY seq LIMIT ?"  # noqa: S608 - our own names
    try:
        return connection.execute(query, (last, AT_ONCE)).fetchall()
    except sqlite3.OperationalError:  # of the disk or another process, and no damage
        raise
    except sqlite3.DatabaseError:
        return connection.execute(query, (last, 1)).fetchall()


def _entry(row: Row) -> JournalEntry | None:
    """The entry in `row`; None where a value has a type or encoding that no entry has."""
    if tuple(type(value) for value in row) != _TYPES:
        return None
    seq, run, at, monotonic, boot, kind, body, previous, digest = row
    try:
        "".join((run, at, boot, kind, previous, digest)).encode()
        return JournalEntry(seq, run, at, monotonic, boot, kind, Raw(body.encode()), previous, digest)
    except UnicodeEncodeError:  # it was no UTF-8
        return None
