"""An Nsight Systems export (`nsys export --type sqlite`), read as what it is: a database of a stranger.

Its schema varies with the version, tables exist only where something was recorded, and columns come and go. So every
table and column is looked up before it is asked for, nothing but plain tables is read, and the work is bounded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from latdoctor.errors import SourceError
from latdoctor.text import clean

MAGIC = b"SQLite format 3\x00"
MAX_ROWS = 5_000_000  # of one table
MAX_FILE = 4 << 30
_LONGEST = 1 << 20  # bytes of one value
_STEPS = 100_000  # of SQLite's machine, between two counts
# What reading five million rows of each table takes many times over; a hostile schema ends here.
_MOST_STEPS = 40_000
_VERSIONS = slice(18, 20)  # of the header: 2 says that a write-ahead log lies beside the file
_MAX_TABLES = 2000

# What SQLite says of a damaged schema quotes it, and Python then fails to decode the message.
_ERRORS = (sqlite3.Error, OverflowError, UnicodeDecodeError)

EXPORT_AGAIN = "export the report again: nsys export --type sqlite REPORT.nsys-rep"

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Export:
    """An open export: its plain tables with their columns."""

    connection: sqlite3.Connection
    tables: Mapping[str, frozenset[str]]
    where: str

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is such a table, with all of these columns."""
        return table in self.tables and self.tables[table].issuperset(columns)

    def rows(self, table: str, columns: Sequence[str], limit: int = 0) -> Iterator[Row]:
        """The first `limit` rows of `table` in their order, or all; None for a column that it does not have.

        Raises SourceError where they cannot be read, or all are asked for and there are more than MAX_ROWS.
        """
        known = self.tables.get(table, frozenset())
        asked = ", ".join(f'"{column}"' if column in known else "NULL" for column in columns)
        try:
            # `table` and `columns` are names of this package, and each was found in the schema.
            found = self.connection.execute(f'SELECT {asked} FROM "{table}" LIMIT {limit or MAX_ROWS + 1}')  # noqa: S608
            for number, row in enumerate(found):
                if number == MAX_ROWS:
                    raise _too_many(table, self.where)
                yield row
        except _ERRORS as error:
            raise _damaged(self.where, error) from error


@contextmanager
def opened(content: bytes | Path, where: str) -> Iterator[Export]:
    """The export in a file or in memory, closed afterwards. Raises SourceError."""
    try:
        connection = _connected(content, where)
    except (*_ERRORS, OSError) as error:
        raise _damaged(where, error) from error
    with closing(connection):
        try:
            _bound(connection)
            yield Export(connection, _tables(connection), where)
        except _ERRORS as error:
            raise _damaged(where, error) from error


def _connected(content: bytes | Path, where: str) -> sqlite3.Connection:
    if isinstance(content, Path):
        if content.stat().st_size > MAX_FILE:
            raise SourceError(f"more than the {MAX_FILE >> 30} GiB that are read at most", where=where)
        # Immutable: no lock, no journal and no index is written beside somebody's evidence.
        return sqlite3.connect(f"{content.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    connection = sqlite3.connect(":memory:")
    held = bytearray(content)
    if len(held) > _VERSIONS.stop:
        held[_VERSIONS] = b"\x01\x01"  # a database in memory has no log beside it
    connection.deserialize(bytes(held))
    return connection


def _bound(connection: sqlite3.Connection) -> None:
    """Bounds what one file can cost."""
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    counts = 0

    def tick() -> bool:
        nonlocal counts
        counts += 1
        return counts > _MOST_STEPS

    connection.set_progress_handler(tick, _STEPS)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")


def _tables(connection: sqlite3.Connection) -> Mapping[str, frozenset[str]]:
    """Plain tables only: views, virtual tables and what hides behind them are no part of an export."""
    listed = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' LIMIT ?", (_MAX_TABLES,)
    ).fetchall()
    plain = [
        name
        for name, sql in listed
        if isinstance(name, str) and isinstance(sql, str) and not sql.lstrip().upper().startswith("CREATE VIRTUAL")
    ]
    columns: dict[str, frozenset[str]] = {}
    for table in plain:
        # A generated column is an expression of the schema's author: it is left out (its kind, hidden, is not 0).
        told = connection.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (table,))
        columns[table] = frozenset(str(name) for name, hidden in told if hidden == 0)
    return columns


def _too_many(table: str, where: str) -> SourceError:
    return SourceError(
        f"{table} has more than the {MAX_ROWS} rows that are read at most",
        where=where,
        next_step="record a shorter time: 3 s under load are enough",
    )


def _damaged(where: str, error: Exception) -> SourceError:
    said = "it asks for too much work" if "interrupted" in str(error) else clean(str(error), 200)
    return SourceError(f"cannot be read as an SQLite database: {said}", where=where, next_step=EXPORT_AGAIN)
