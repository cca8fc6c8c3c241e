"""A copy of a profiler's SQLite database without private data.

Such exports hold far more than activities: the environment of the process, its command line and output, names of
machines and users. So the copy is made anew, table by table: numbers are kept, texts only where the readers take names
from, and these are redacted as every other text is. All other texts are blanked. As nothing but these values is
written, free pages, indexes, triggers and views of the given file hold nothing over.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from latdoctor.evidence.redaction.redactor import Redactor

MAGIC = b"SQLite format 3\x00"
MAX_FILE = 4 << 30  # bytes; no reader takes more
BLANKED = "texts of databases"  # what they are counted as

# The columns that names are read from (collect/nsight): of calls, ranges and GPUs.
NAMES: Mapping[str, frozenset[str]] = {
    "StringIds": frozenset({"value"}),
    "NVTX_EVENTS": frozenset({"text"}),
    "TARGET_INFO_GPU": frozenset({"name"}),
}
# Many exports name the GPUs only here, as JSON in the row of this name, among the environment.
_ENVIRONMENT, _OF_GPUS = "TARGET_INFO_SYSTEM_ENV", "GpuInfo"

_LONGEST = 64 << 20  # bytes of one value that is kept
_STEPS = 100_000  # of SQLite's machine, between two counts
_MOST_STEPS = 40_000
_MAX_TABLES = 2000
_SPARE_PAGES = 1000
_REMEMBERED = 1 << 14  # texts

_T = TypeVar("_T")

# Not ours to raise: a damaged schema, a text that cannot be decoded in an error's message, a full disk.
_ERRORS = (sqlite3.Error, OverflowError, UnicodeDecodeError)


def is_database(content: bytes | Path) -> bool:
    """Whether it is a file that begins as SQLite's do. Raises OSError. What is in memory is no database here."""
    if isinstance(content, bytes):
        return False
    with content.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def copied(given: Path, target: Path, redactor: Redactor) -> bool:
    """Writes the copy to `target`; false, and nothing stands there, where `given` is damaged or asks for too much.

    Raises OSError where `given` cannot be read.
    """
    if given.stat().st_size > MAX_FILE:
        return False
    stopped = _Stopped()
    try:
        with closing(sqlite3.connect(target, isolation_level=None, uri=True)) as made:
            _bound(made, stopped)
            # Immutable: no lock, no journal and no index is written beside the evidence.
            made.execute("ATTACH ? AS given", (f"{given.resolve().as_uri()}?mode=ro&immutable=1",))
            _limit_size(made)
            _Copy(made, redactor, stopped).write()
    except _ERRORS:
        target.unlink(missing_ok=True)
        if stopped.by is not None:
            raise stopped.by from None
        return False
    return True


class _Stopped:
    """Ctrl-C within what SQLite calls, which would make a mere error of it."""

    def __init__(self) -> None:
        self.by: KeyboardInterrupt | None = None

    def heard(self, work: Callable[..., _T]) -> Callable[..., _T]:
        """`work`, with Ctrl-C noted that comes meanwhile."""

        def heard(*given: bytes) -> _T:
            try:
                return work(*given)
            except KeyboardInterrupt as stopped:
                self.by = stopped
                raise

        return heard


def _bound(made: sqlite3.Connection, stopped: _Stopped) -> None:
    """Limits the cost of one file; no other process sees the copy before it is complete."""
    made.execute("PRAGMA journal_mode = OFF")
    made.execute("PRAGMA synchronous = OFF")
    made.execute("PRAGMA trusted_schema = OFF")
    made.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    counts = 0

    def tick() -> bool:
        nonlocal counts
        counts += 1
        return counts > _MOST_STEPS

    made.set_progress_handler(stopped.heard(tick), _STEPS)


def _limit_size(made: sqlite3.Connection) -> None:
    """Pages of a damaged file may be shared by tables, or point back: the copy must not grow without an end."""
    (pages,) = made.execute("PRAGMA given.page_count").fetchone()
    (size,) = made.execute("PRAGMA given.page_size").fetchone()
    (own,) = made.execute("PRAGMA main.page_size").fetchone()
    made.execute(f"PRAGMA main.max_page_count = {2 * int(pages) * int(size) // int(own) + _SPARE_PAGES}")


class _Copy:
    """The tables of `given` written anew into `main`."""

    def __init__(self, made: sqlite3.Connection, redactor: Redactor, stopped: _Stopped) -> None:
        self._made, self._redactor = made, redactor
        made.create_function("blanked", 0, stopped.heard(self._blanked))
        made.create_function("redacted", 1, stopped.heard(lru_cache(_REMEMBERED)(self._redacted)))
        made.create_function("gpus", 1, stopped.heard(self._gpus))

    def write(self) -> None:
        listed = self._made.execute(
            "SELECT name, sql FROM given.sqlite_master WHERE type = 'table' ORDER BY rowid LIMIT ?", (_MAX_TABLES,)
        ).fetchall()
        self._made.execute("BEGIN")
        for name, sql in listed:
            own = isinstance(name, str) and name.lower().startswith("sqlite_")  # SQLite's, which it makes itself
            virtual = not isinstance(sql, str) or sql.lstrip().upper().startswith("CREATE VIRTUAL")
            if not own and not virtual:
                self._table(name)
        self._made.execute("COMMIT")

    def _table(self, table: str) -> None:
        # A generated column is an expression of the schema's author: it is left out (its kind, hidden, is not 0).
        known = self._made.execute("SELECT name, hidden FROM pragma_table_xinfo(?, 'given')", (table,))
        columns = [str(name) for name, hidden in known.fetchall() if hidden == 0]
        if not columns:
            return
        listed = ", ".join(_quoted(column) for column in columns)
        values = ", ".join(_value(table, column, columns) for column in columns)
        # Without types: every value keeps its own, and no constraint refuses a blank.
        self._made.execute(f"CREATE TABLE main.{_quoted(table)} ({listed})")
        # Names are quoted, and each was found in the schema.
        self._made.execute(f"INSERT INTO main.{_quoted(table)} SELECT {values} FROM given.{_quoted(table)}")  # noqa: S608

    def _blanked(self) -> str:
        self._redactor.counts[BLANKED] += 1
        return ""

    def _redacted(self, raw: bytes) -> str:
        return self._redactor.text(raw.decode("utf-8", "replace"))

    def _gpus(self, raw: bytes) -> str:
        """The names of the GPUs, without their other properties."""
        try:
            known = json.loads(raw)
        except (ValueError, RecursionError):
            return self._blanked()
        gpus = known.get("Gpus") if isinstance(known, dict) else None
        named = [gpu.get("Name") for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
        return json.dumps({"Gpus": [{"Name": self._redactor.text(name)} for name in named if isinstance(name, str)]})


def _value(table: str, column: str, columns: list[str]) -> str:
    """The expression of what is kept of a column."""
    name = _quoted(column)
    if column in NAMES.get(table, ()):
        text = f"redacted(CAST({name} AS BLOB))"
    elif table == _ENVIRONMENT and column == "value" and "name" in columns:
        text = f"CASE WHEN \"name\" = '{_OF_GPUS}' THEN gpus(CAST({name} AS BLOB)) ELSE blanked() END"
    elif table == _ENVIRONMENT and column == "name":
        text = f"CASE WHEN {name} = '{_OF_GPUS}' THEN {name} ELSE blanked() END"
    else:
        text = "blanked()"
    return f"CASE typeof({name}) WHEN 'text' THEN {text} WHEN 'blob' THEN blanked() ELSE {name} END"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
