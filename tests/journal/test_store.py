"""What goes in comes out, in order, from any number of processes; what is no entry does not go in."""

from __future__ import annotations

import datetime
import hashlib
import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from latdoctor.errors import UsageError
from latdoctor.http.client import Secret
from latdoctor.journal import database, entry, store
from latdoctor.journal.entry import LARGEST_BODY, JournalError, now
from latdoctor.journal.store import Journal
from tests.journal.builders import files, indices, journal

APPENDING = Path(__file__).with_name("append_process.py")


class Listed(msgspec.Struct, array_like=True):
    stage: int


class Touched(msgspec.Struct):
    stage: int
    note: str = ""


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    made = Journal.opened(tmp_path / "state" / "journal.sqlite")
    entry = made.append("r1", "change.made", Touched(2, "Δ\n'\"\0"))
    assert Journal.reading(made.path).entries() == (entry,)
    assert msgspec.json.decode(entry.body, type=Touched) == Touched(2, "Δ\n'\"\0")
    assert (entry.seq, entry.run, entry.kind, entry.previous) == (1, "r1", "change.made", "0" * 64)


def test_entry_has_its_time(tmp_path: Path) -> None:
    before = now()
    entry = Journal.opened(tmp_path / "s" / "j").append("", "breaker.reset", {})
    assert before.at <= entry.at <= now().at
    assert before.monotonic <= entry.monotonic <= time.monotonic()
    assert entry.at[-1] == "Z"
    assert datetime.datetime.fromisoformat(entry.at).utcoffset() == datetime.timedelta(0)
    assert entry.boot == before.boot != ""


def test_digests_can_be_computed_by_anybody(tmp_path: Path) -> None:
    first, second = journal(tmp_path, 2).entries()
    at, boot = "2026-03-01T02:49:02.000250Z", "a-boot"
    rest = f'[2,"run-1","{at}",1002.25,"{boot}","change.made"]'
    body = '{"index":1,"stage":0,"why":"warm-up · Δ"}'
    assert second.previous == first.digest
    assert second.digest == hashlib.sha256(f"{first.digest}\n{rest}\n{body}".encode()).hexdigest()


def test_entries_of_a_run_and_of_kinds(tmp_path: Path) -> None:
    made = journal(tmp_path, 4)
    made.append("run-0", "run.closed", {"outcome": "verified"})
    assert indices(made.entries()) == [1, 2, 3, 4, 5]
    assert indices(made.entries("run-0")) == [1, 3, 5]
    assert indices(made.entries(kinds=("run.closed", "settled"))) == [5]
    assert indices(made.entries("run-1", {"run.closed"})) == []
    assert made.verify() == made.entries()[-1]


def test_more_entries_than_are_read_at_once(tmp_path: Path) -> None:
    made = journal(tmp_path, 2 * store.AT_ONCE + 1)
    assert indices(Journal.reading(made.path).entries()) == list(range(1, 2 * store.AT_ONCE + 2))


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    path = journal(tmp_path).path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o620)
    with pytest.raises(JournalError, match="chmod 600"):
        Journal.opened(path)
    path.chmod(0o600)
    path.parent.chmod(0o777)
    with pytest.raises(UsageError, match="chmod 700"):
        Journal.opened(path)


NO_JSON: Mapping[str, object] = {
    "of another type": {"token": Secret("hunter2")},
    "no text": {"a": "\ud800"},
    "raw bytes": {"a": msgspec.Raw(b'1}, "b": {')},
    "raw NaN": {"a": msgspec.Raw(b"NaN")},
    "a list": Listed(1),
    "too much": {"a": "x" * LARGEST_BODY},
    "too deep": {"a": msgspec.Raw(b"[" * 100_000 + b"]" * 100_000)},
}


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON.keys())
def test_what_is_no_json_object_is_not_journaled(tmp_path: Path, body: Mapping[str, object]) -> None:
    made = journal(tmp_path, 1)
    with pytest.raises(JournalError) as raised:
        made.append("r", "settled", body)
    assert "hunter2" not in str(raised.value)
    assert raised.value.next_step
    assert indices(made.entries()) == [1]


def test_the_largest_body_that_is_taken(tmp_path: Path) -> None:
    made = journal(tmp_path, 1)
    made.append("r", "settled", {"a": "x" * (LARGEST_BODY - len('{"a":""}'))})
    assert len(bytes(made.entries()[-1].body)) == LARGEST_BODY
    assert made.verify() is not None


def test_what_json_does_not_have_is_not_known(tmp_path: Path) -> None:
    made = journal(tmp_path, 0)
    entry = made.append("r", "before.measured", {"p99": float("nan"), "rate": float("inf"), "low": float("-inf")})
    assert bytes(entry.body) == b'{"low":null,"p99":null,"rate":null}'


@pytest.mark.parametrize(("run", "kind"), [("r" * 201, "k"), ("a\nb", "k"), ("\x1b[31m", "k"), ("r", "")])
def test_names_are_plain(tmp_path: Path, run: str, kind: str) -> None:
    with pytest.raises(JournalError):
        journal(tmp_path, 0).append(run, kind, {})


def test_a_missing_journal_reads_as_empty(tmp_path: Path) -> None:
    reading = Journal.reading(tmp_path / "nothing" / "journal.sqlite")
    assert reading.entries() == ()
    assert reading.verify() is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "nothing").mkdir()
    reading.path.touch()  # a writer was killed before it wrote anything
    assert reading.entries() == ()
    assert reading.path.stat().st_size == 0
    assert Journal.opened(reading.path).append("r", "settled", {}).seq == 1
    assert indices(reading.entries()) == [1]


def test_reading_writes_nothing(tmp_path: Path) -> None:
    path = journal(tmp_path).path
    before = files(tmp_path)
    reading = Journal.reading(path)
    assert len(reading.entries()) == 3
    reading.verify()
    with pytest.raises(JournalError, match="reading only"):
        reading.append("r", "settled", {})
    assert files(tmp_path) == before


def test_removed_journal_is_not_recreated(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.path.unlink()
    with pytest.raises(JournalError, match="journal is missing"):
        made.append("r", "settled", {})
    assert not made.path.exists()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET run = 'x' WHERE seq = 2",
        "UPDATE OR IGNORE entries SET run = 'x'",
        "DELETE FROM entries WHERE seq = 3",
        "INSERT OR REPLACE INTO entries SELECT 2, 'x', at, monotonic, boot, kind, body, previous, digest FROM entries",
        "INSERT INTO entries SELECT 9, run, at, monotonic, boot, kind, body, previous, digest FROM entries LIMIT 1",
        "INSERT INTO entries SELECT NULL, run, at, monotonic, boot, kind, body, previous, digest FROM entries LIMIT 1",
    ],
)
def test_the_database_itself_only_appends(tmp_path: Path, statement: str) -> None:
    made = journal(tmp_path)
    before = made.entries()
    with (
        closing(sqlite3.connect(made.path, isolation_level=None)) as other,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        other.execute(statement)
    assert made.entries() == before


def test_processes_that_append_at_once_make_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.sqlite"
    several = [
        subprocess.Popen([sys.executable, APPENDING, path, "12", f"run-{number}"], stdout=subprocess.PIPE, text=True)
        for number in range(5)
    ]
    reading = Journal.reading(path)
    lengths = [0]
    while any(process.poll() is None for process in several):
        lengths.append(len(reading.entries()))  # always whole, while they write
    assert lengths == sorted(lengths)
    acknowledged = [[int(line) for line in process.communicate()[0].splitlines()] for process in several]
    assert [process.returncode for process in several] == [0] * 5
    assert indices(reading.entries()) == list(range(1, 61))
    for number, said in enumerate(acknowledged):
        assert indices(reading.entries(f"run-{number}")) == said


def test_wait_for_a_locked_database_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = journal(tmp_path)
    assert database.PATIENCE <= 5.0
    monkeypatch.setattr(database, "PATIENCE", 0.01)
    with closing(sqlite3.connect(made.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # it is about to write: reading goes on
        with pytest.raises(JournalError, match="has locked the journal"):
            made.append("r", "settled", {})
        assert len(made.entries()) == 3
        other.execute("COMMIT")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(JournalError, match="try again"):
            made.entries()
    assert made.append("r", "settled", {}).seq == 4


def test_a_reader_lets_writers_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = journal(tmp_path)
    monkeypatch.setattr(store, "AT_ONCE", 1)
    monkeypatch.setattr(database, "PATIENCE", 0.0)
    appended: list[int] = []
    whole = entry.chain_error

    def between(*of: object) -> str:
        if len(appended) < 2:
            appended.append(made.append("r", "settled", {}).seq)
        return whole(*of)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "chain_error", between)
    assert indices(Journal.reading(made.path).entries()) == [1, 2, 3, 4, 5]


def test_a_fork_may_append_too(tmp_path: Path) -> None:
    made = journal(tmp_path)
    child = os.fork()
    if child == 0:
        try:
            made.append("child", "settled", {})
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    made.append("parent", "settled", {})
    assert [entry.run for entry in made.entries()][3:] == ["child", "parent"]


def test_several_entries_are_journaled_together_or_not_at_all(tmp_path: Path) -> None:
    made = journal(tmp_path, 1)
    entries = made.append_all([("a", "k", {"n": 1}), ("b", "k", {"n": 2})])
    assert indices(entries) == [2, 3]
    assert made.entries()[1:] == entries
    with pytest.raises(JournalError, match="more than"):
        made.append_all([("a", "k", {"n": 3}), ("a", "k", {"n": "x" * LARGEST_BODY})])
    with pytest.raises(JournalError, match="no kind"):
        made.append_all([("a", "k", {"n": 3}), ("a", "", {})])
    assert indices(made.entries()) == [1, 2, 3]
    assert made.append_all([]) == ()


def test_incremental_reading_returns_new_entries(tmp_path: Path) -> None:
    made = journal(tmp_path)
    assert made.after(None) == made.entries()
    last = made.entries()[-1]
    assert made.after(last) == ()
    more = made.append("r", "k", {})
    assert made.after(last) == (more,)


def test_incremental_reading_detects_another_journal(tmp_path: Path) -> None:
    made = journal(tmp_path / "one", 3)
    last = made.entries()[-1]
    with pytest.raises(JournalError, match="does not fit"):
        journal(tmp_path / "shorter", 2).after(last)
    another = Journal.opened(tmp_path / "another" / "journal.sqlite")
    another.append_all([("r", "k", {"n": n}) for n in range(5)])
    with pytest.raises(JournalError, match="does not fit"):
        another.after(last)
