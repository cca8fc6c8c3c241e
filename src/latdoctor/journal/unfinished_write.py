"""Reads a database with an unfinished write, by SQLite's rollback journal, without writing to disk.

A killed writer leaves a rollback journal, which the next writer applies. A reader must not write, and SQLite then
refuses to read. So the rollback is applied to a copy in memory, whether the writer is dead or still active, following
https://www.sqlite.org/fileformat2.html, section 3 "The Rollback Journal".
"""

from __future__ import annotations

import struct
from pathlib import Path

from latdoctor.journal.entry import JournalError

LARGEST = 1 << 30  # bytes that are copied into memory at most

_MAGIC = bytes.fromhex("d9d505f920a163d7")
_HEADER = struct.Struct(">8sIIIII")  # magic, records, nonce, pages before the write, bytes of a sector, of a page
_TO_THE_END = 0xFFFFFFFF  # as many records as there are
_NUMBER = struct.Struct(">I")
_LOCKED = 1 << 30  # the page with this byte is for locks, never content
_SPARSE = 200  # every so many bytes one counts for the checksum


def exists(path: Path) -> bool:
    """Whether a write to the database at `path` has started and not ended."""
    return _journal(path).exists()


def snapshot(path: Path) -> bytes | None:
    """Content of the database at `path` before the unfinished write. None if that has just ended or continued.

    Raises OSError, and JournalError where it is too large to be copied.
    """
    journal = _journal(path)
    before = _content(journal)
    database = _content(path)
    # A journal that is identical before and after (each has its own nonce) belongs to the database read in between. A
    # page is saved in it before that page is overwritten, and a rollback writes exactly these pages and then removes
    # it, so the progress of either does not matter.
    if before is None or database is None or _content(journal) != before:
        return None
    return roll_back(database, before)


def roll_back(database: bytes, journal: bytes) -> bytes:
    """`database` with the pages of `journal` restored and at its old length; unchanged where no page is complete."""
    pages = bytearray(database)
    start = size = sector = length = 0
    while start + _HEADER.size <= len(journal):
        magic, records, nonce, pages_before, sector_field, size_field = _HEADER.unpack_from(journal, start)
        if magic != _MAGIC:
            break
        if start == 0:  # only the first header counts for sizes and for the length
            size, sector, length = size_field, sector_field, pages_before
            if not (_is_size(size, 512) and _is_size(sector, 32)):
                return database
        at = start + sector
        if records == _TO_THE_END:
            records = (len(journal) - at) // (size + 8)
        for _ in range(records):
            if not _restore_page(pages, journal, at, size, nonce, length):
                return bytes(pages[: length * size])
            at += size + 8
        start = -(-at // sector) * sector
    return bytes(pages[: length * size]) if size else database


def _restore_page(pages: bytearray, journal: bytes, at: int, size: int, nonce: int, length: int) -> bool:
    """Restore the page of the record at `at`, if it existed before the write; False for an incomplete record."""
    if at + size + 8 > len(journal):
        return False
    (number,) = _NUMBER.unpack_from(journal, at)
    content = journal[at + 4 : at + 4 + size]
    (expected,) = _NUMBER.unpack_from(journal, at + 4 + size)
    checksum = (nonce + sum(content[size - _SPARSE : 0 : -_SPARSE])) & 0xFFFFFFFF
    if number == 0 or number == _LOCKED // size + 1 or checksum != expected:
        return False
    if number <= length:
        if len(pages) < number * size:
            pages.extend(bytes(number * size - len(pages)))
        pages[(number - 1) * size : number * size] = content
    return True


def _is_size(value: int, least: int) -> bool:
    return least <= value <= 65_536 and value & (value - 1) == 0


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")


def _content(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            found = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    if len(found) > LARGEST:
        raise JournalError(
            "a write was not finished, and it is too large to be read without writing",
            where=str(path),
            next_step="latdoctor recover",
        )
    return found
