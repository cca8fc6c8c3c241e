"""Databases of strangers: any bytes give a result or a typed error, and no schema costs for ever."""

from __future__ import annotations

import sqlite3
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.nsight import sqlite_rows
from latdoctor.errors import SourceError
from tests.collectors.nsight.synthetic_exports import SMALL, Export, parsed


def made(tmp_path: Path, script: str) -> Path:
    path = tmp_path / "made.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.commit()
    connection.close()
    return path


def refused(content: bytes | Path) -> SourceError:
    with pytest.raises(SourceError) as caught:
        parsed(content)
    assert caught.value.next_step
    return caught.value


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 0.9])
def test_a_cut_off_export_is_told(tmp_path: Path, share: float) -> None:
    path = Export().launched(4000).written(tmp_path / "a.sqlite", SMALL)
    content = path.read_bytes()
    assert "SQLite" in refused(content[: int(len(content) * share)]).what


def test_other_databases_are_no_exports(tmp_path: Path) -> None:
    assert "no Nsight Systems export" in refused(made(tmp_path, "CREATE TABLE t (a);")).what


def test_an_export_without_cuda_says_what_to_record(tmp_path: Path) -> None:
    assert "--trace=cuda" in refused(made(tmp_path, "CREATE TABLE StringIds (id, value);")).next_step


def test_tables_of_the_wrong_form_are_damage(tmp_path: Path) -> None:
    script = """CREATE TABLE StringIds (id, value);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('a', 'b', 0), (NULL, 5, 0), (1.5, 2.5, x'00');"""
    assert "3 rows are damaged" in refused(made(tmp_path, script)).what


def test_a_view_is_no_table(tmp_path: Path) -> None:
    """Whatever stands behind a view would be run."""
    script = """CREATE TABLE StringIds (id, value);
    CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(start) AS
      (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT start, start AS end, 0 AS deviceId FROM n;"""
    assert "no CUDA activity" in refused(made(tmp_path, script)).what


def test_a_generated_column_is_left_out(tmp_path: Path) -> None:
    script = """CREATE TABLE StringIds (id, value);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER GENERATED ALWAYS AS (start + 1), deviceId);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, deviceId) VALUES (1, 0);"""
    assert "no CUDA activity" in refused(made(tmp_path, script)).what


def test_the_work_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Export().launched(3000).written(tmp_path / "a.sqlite", SMALL)
    monkeypatch.setattr(sqlite_rows, "_STEPS", 100)
    monkeypatch.setattr(sqlite_rows, "_MOST_STEPS", 50)
    assert "too much work" in refused(path).what


def test_the_rows_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Export().launched(300).written(tmp_path / "a.sqlite", SMALL)
    monkeypatch.setattr(sqlite_rows, "MAX_ROWS", 299)
    assert "more than the 299 rows" in refused(path).what


def test_a_write_ahead_log_is_not_waited_for(tmp_path: Path) -> None:
    path = Export().launched(40).written(tmp_path / "a.sqlite", SMALL)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    before = sorted(tmp_path.iterdir())
    assert parsed(path).readings == parsed(path.read_bytes()).readings
    assert sorted(tmp_path.iterdir()) == before, "nothing is written beside somebody's evidence"


@cache
def small() -> bytes:
    made = Export().launched(40)
    made.copy(5, 9, 1, 64, 0, 2)
    with tempfile.TemporaryDirectory() as folder:
        return made.written(Path(folder) / "a.sqlite", SMALL).read_bytes()


@given(st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=20))
def test_damaged_bytes_give_a_result_or_an_error(damage: list[tuple[int, int]]) -> None:
    content = bytearray(small())
    for place, value in damage:
        content[16 + place % (len(content) - 16)] = value
    try:
        found = parsed(bytes(content))
    except SourceError:
        return
    assert found.readings or found.gaps


def test_a_damaged_schema_may_be_no_text() -> None:
    """SQLite quotes it in its message."""
    refused(small().replace(b"CREATE TABLE StringIds", b"CREATE TABLE \xffX\x01ringIds"))


@given(st.binary(max_size=400))
def test_any_bytes_after_the_magic_give_an_error(tail: bytes) -> None:
    with pytest.raises(SourceError):
        parsed(sqlite_rows.MAGIC + tail)
