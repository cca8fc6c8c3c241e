"""Journals for tests, and damage to their files."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from latdoctor.journal.entry import JournalEntry, Moment
from latdoctor.journal.store import Journal


class Clock:
    """A second goes by between two entries."""

    def __init__(self) -> None:
        self.seconds = 0

    def __call__(self) -> Moment:
        self.seconds += 1
        return Moment(f"2026-03-01T02:49:{self.seconds % 60:02d}.000250Z", 1000.25 + self.seconds, "a-boot")


def journal(folder: Path, entries: int = 3) -> Journal:
    made = Journal.opened(folder / "state" / "journal.sqlite", Clock())
    for number in range(entries):
        made.append(f"run-{number % 2}", "change.made", {"stage": 0, "index": number, "why": "warm-up · Δ"})
    return made


def changed(path: Path, *statements: str) -> None:
    """Does what the guards of the database forbid, and puts the guards back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        guards = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, sql in guards:
            connection.execute(sql)


def files(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Everything in `folder`: inode, moments of its last changes, content. To see that nothing was written."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        told = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (told.st_ino, told.st_mtime_ns, told.st_ctime_ns, content)
    return found


def indices(entries: tuple[JournalEntry, ...]) -> list[int]:
    return [entry.seq for entry in entries]
