"""Half writes of every kind, taken back in memory: as SQLite itself takes them back on the disk."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.journal import unfinished_write
from latdoctor.journal.entry import JournalError
from latdoctor.journal.store import Journal
from tests.journal.builders import files, journal


def half_written(folder: Path, cache: int) -> Path:
    """A database with its rollback journal as they lie while a large transaction spills out of a small cache."""
    folder.mkdir()
    whole = folder / "whole"
    with closing(sqlite3.connect(whole, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t(a INTEGER PRIMARY KEY, b)")
        connection.executemany("INSERT INTO t(b) VALUES (?)", [(bytes([n % 251]) * 900,) for n in range(200)])
        connection.execute(f"PRAGMA cache_size={cache}")
        connection.execute("BEGIN")
        connection.execute("UPDATE t SET b = zeroblob(900) WHERE a % 3 = 0")
        connection.execute("DELETE FROM t WHERE a > 150")
        connection.execute("INSERT INTO t(b) SELECT zeroblob(3000) FROM t")
        half = folder / "half"
        shutil.copy(whole, half)
        shutil.copy(folder / "whole-journal", folder / "half-journal")
        connection.execute("ROLLBACK")
    return half


@pytest.mark.parametrize("cache", [1, 5, 20])
def test_roll_back_equals_sqlite(tmp_path: Path, cache: int) -> None:
    half = half_written(tmp_path / "d", cache)
    journal_of_it = half.with_name("half-journal").read_bytes()
    assert journal_of_it[:1] != b"\0"
    before = half.read_bytes()
    ours = unfinished_write.roll_back(before, journal_of_it)
    assert unfinished_write.snapshot(half) == ours != before
    with closing(sqlite3.connect(half)) as connection:  # SQLite takes it back here
        assert connection.execute("SELECT count(*), sum(a) FROM t").fetchone() == (200, 20100)
    assert half.read_bytes() == ours


@given(database=st.binary(max_size=3000), journal=st.binary(max_size=3000), sector=st.sampled_from([512, 4096, 7]))
def test_any_bytes_are_taken(database: bytes, journal: bytes, sector: int) -> None:
    header = bytes.fromhex("d9d505f920a163d7ffffffff00000000") + (9).to_bytes(4, "big") + sector.to_bytes(4, "big")
    for damaged in (journal, header + (512).to_bytes(4, "big") + journal):
        assert isinstance(unfinished_write.roll_back(database, damaged), bytes)


def test_a_journal_of_nonsense_beside_a_sound_file(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.path.with_name("journal.sqlite-journal").write_bytes(b"nonsense" * 100)
    before = files(tmp_path)
    assert len(Journal.reading(made.path).entries()) == 3
    assert files(tmp_path) == before
    assert made.append("r", "settled", {}).seq == 4


def test_what_is_too_large_to_copy_is_left_to_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = journal(tmp_path)
    made.path.with_name("journal.sqlite-journal").write_bytes(b"nonsense" * 100)
    monkeypatch.setattr(unfinished_write, "LARGEST", 1000)
    with pytest.raises(JournalError, match="latdoctor recover"):
        made.entries()
