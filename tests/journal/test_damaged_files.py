"""Damaged journal files: entries are read as written, or an error says what does not fit."""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.journal.entry import JournalEntry, JournalError
from latdoctor.journal.store import Journal
from tests.journal.builders import changed, files, journal


def stored(entry: JournalEntry) -> bytes:
    """The values of an entry as they lie in its row."""
    texts = [entry.boot, entry.kind, bytes(entry.body).decode(), entry.previous, entry.digest]
    return f"{entry.run}{entry.at}".encode() + struct.pack(">d", entry.monotonic) + "".join(texts).encode()


def test_every_flipped_byte_of_every_entry_is_found(tmp_path: Path) -> None:
    made = journal(tmp_path)
    sound = made.path.read_bytes()
    reading = Journal.reading(made.path)
    for entry in made.entries():
        start = sound.index(stored(entry))
        for at in range(start, start + len(stored(entry))):
            made.path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << at % 8]) + sound[at + 1 :])
            with pytest.raises(JournalError, match=f"entry {entry.seq} does not fit"):
                reading.verify()


class Whole:
    """A journal, and what its file and its entries are while it is sound."""

    def __init__(self, folder: Path) -> None:
        self.path = journal(folder).path
        self.reading = Journal.reading(self.path)
        self.sound = self.path.read_bytes()
        self.entries = self.reading.entries()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"))


@settings(max_examples=200)
@given(data=st.data())
def test_flipped_bytes_anywhere_change_nothing_or_are_found(data: st.DataObject, whole: Whole) -> None:
    damaged = bytearray(whole.sound)
    for at in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[at] ^= data.draw(st.integers(1, 255))
    whole.path.write_bytes(damaged)
    before = files(whole.path.parent)
    try:
        assert whole.reading.entries() == whole.entries
    except JournalError as error:
        assert error.next_step  # noqa: PT017 - both are right
    assert files(whole.path.parent) == before


@settings(max_examples=60)
@given(length=st.integers(1, 5 * 4096))
def test_a_truncated_file_is_found(length: int, whole: Whole) -> None:
    whole.path.write_bytes(whole.sound[:length])
    if length >= len(whole.sound):
        assert whole.reading.entries() == whole.entries
        return
    for touch in (
        whole.reading.verify,
        whole.reading.entries,
        lambda: Journal.opened(whole.path).append("r", "settled", {}),
    ):
        with pytest.raises(JournalError):
            touch()


@settings(max_examples=60)
@given(content=st.binary(max_size=300), header=st.booleans())
def test_any_bytes_give_an_error(content: bytes, header: bool, whole: Whole) -> None:
    bytes_given = whole.sound[:100] * header + content
    whole.path.write_bytes(bytes_given)
    if not bytes_given:
        assert whole.reading.entries() == ()
        return
    with pytest.raises(JournalError):
        whole.reading.entries()
    with pytest.raises(JournalError):
        Journal.opened(whole.path)
    assert whole.path.read_bytes() == bytes_given


COPY = (
    "INSERT INTO entries SELECT {}, run, at, monotonic, boot, kind, body, previous, digest FROM entries WHERE seq = {}"
)
REWRITTEN = {
    "a removed entry": (["DELETE FROM entries WHERE seq = 2"], "entry 2 does not fit: 3 is in its place"),
    "the first removed": (["DELETE FROM entries WHERE seq = 1"], "entry 1 does not fit"),
    "the last removed": (["DELETE FROM entries WHERE seq = 3"], "entry 3 does not fit: it is missing"),
    "all removed": (["DELETE FROM entries"], "entry 1 does not fit: it is missing"),
    "removed and closed up": (
        ["DELETE FROM entries WHERE seq = 2", "UPDATE entries SET seq = 2 WHERE seq = 3"],
        "entry 2 does not fit: it follows another",
    ),
    "exchanged": (
        [
            "UPDATE entries SET seq = 9 WHERE seq = 2",
            "UPDATE entries SET seq = 2 WHERE seq = 3",
            "UPDATE entries SET seq = 3 WHERE seq = 9",
        ],
        "entry 2 does not fit",
    ),
    "put in between": (
        ["UPDATE entries SET seq = 4 WHERE seq = 3", COPY.format(3, 2)],
        "entry 3 does not fit: it follows another",
    ),
    "put at the end": ([COPY.format(4, 3)], "entry 4 does not fit"),
    "another body": (["UPDATE entries SET body = '{}' WHERE seq = 3"], "entry 3 does not fit: its digest"),
    "another type": (["UPDATE entries SET body = CAST(body AS BLOB) WHERE seq = 2"], "entry 2 does not fit"),
    "no text": (["UPDATE entries SET run = CAST(x'ff' AS TEXT) WHERE seq = 2"], "entry 2 does not fit"),
    "too large": (["UPDATE entries SET run = zeroblob(9000000) WHERE seq = 2"], "read up to entry 1"),
}


@pytest.mark.parametrize(("statements", "said"), REWRITTEN.values(), ids=REWRITTEN.keys())
def test_a_rewritten_history_is_found(tmp_path: Path, statements: list[str], said: str) -> None:
    made = journal(tmp_path)
    changed(made.path, *statements)
    with pytest.raises(JournalError, match=said):
        made.verify()
    with pytest.raises(JournalError, match=said):
        made.entries("run-0")


@pytest.mark.parametrize("which", ["the last removed", "all removed", "another body", "put at the end"])
def test_nothing_is_appended_to_an_end_that_does_not_fit(tmp_path: Path, which: str) -> None:
    made = journal(tmp_path)
    changed(made.path, *REWRITTEN[which][0])
    with pytest.raises(JournalError, match="does not fit"):
        made.append("r", "settled", {})


def executed(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def foreign(path: Path) -> None:
    path.unlink()
    executed(path, "CREATE TABLE entries(seq)", "INSERT INTO entries VALUES (1)")


def replaced_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replaced_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


SPOILED: dict[str, tuple[Callable[[Path], None], str]] = {
    "another program's database": (foreign, "no journal of latdoctor"),
    "a folder": (replaced_by_a_folder, "is no file"),
    "a pipe": (replaced_by_a_pipe, "is no file"),
    "a text": (lambda path: path.write_text("hello " * 100) and None, "no journal of latdoctor"),
    "of a later version": (lambda path: executed(path, "PRAGMA user_version=2"), "update latdoctor"),
    "of no version": (lambda path: executed(path, "PRAGMA user_version=0"), "another program"),
    "with a log beside it": (lambda path: executed(path, "PRAGMA journal_mode=WAL"), "another program"),
    "without a guard": (lambda path: executed(path, "DROP TRIGGER entries_stay"), "guards"),
    "with another table": (lambda path: executed(path, "CREATE TABLE more(a)"), "guards"),
    "without a table": (lambda path: executed(path, "DROP TABLE entries"), "guards"),
}


@pytest.mark.parametrize(("spoil", "said"), SPOILED.values(), ids=SPOILED.keys())
def test_what_is_no_journal_is_refused_and_stays(tmp_path: Path, spoil: Callable[[Path], None], said: str) -> None:
    made = journal(tmp_path)
    spoil(made.path)
    before = {path: None if path.is_fifo() else files(path) for path in made.path.parent.iterdir()}
    for touch in (
        Journal.reading(made.path).entries,
        Journal.reading(made.path).verify,
        lambda: made.append("r", "settled", {}),
        lambda: Journal.opened(made.path),
    ):
        with pytest.raises(JournalError, match=said) as raised:
            touch()
        assert raised.value.next_step
        assert str(made.path) in str(raised.value)
    assert {path: None if path.is_fifo() else files(path) for path in made.path.parent.iterdir()} == before
