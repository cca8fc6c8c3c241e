"""From the rows of an export to the events that the analysis of traces reads, and the other contents of its tables.

Times are nanoseconds in the tables and microseconds in events. Names of the API carry the version of their interface
(`cudaMalloc_v3020`); it is taken off.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from latdoctor.collectors.torch_trace.events import DamagedEvents, EventArgs, TraceEvent
from latdoctor.errors import SourceError
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

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
class SqliteExport:
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
def opened(content: bytes | Path, where: str) -> Iterator[SqliteExport]:
    """The export in a file or in memory, closed afterwards. Raises SourceError."""
    try:
        connection = _connected(content, where)
    except (*_ERRORS, OSError) as error:
        raise _damaged(where, error) from error
    with closing(connection):
        try:
            _bound(connection)
            yield SqliteExport(connection, _tables(connection), where)
        except _ERRORS as error:
            raise _damaged(where, error) from error


def _connected(content: bytes | Path, where: str) -> sqlite3.Connection:
    if isinstance(content, Path):
        if content.stat().st_size > MAX_FILE:
            raise SourceError(
                f"more than the {MAX_FILE >> 30} GiB that are read at most", where=where, code=GapCode.TOO_LARGE
            )
        # Immutable: no lock, no journal and no index is written beside the user's file.
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
        known = connection.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (table,))
        columns[table] = frozenset(str(name) for name, hidden in known if hidden == 0)
    return columns


def _too_many(table: str, where: str) -> SourceError:
    return SourceError(
        f"{table} has more than the {MAX_ROWS} rows that are read at most",
        where=where,
        next_step="record a shorter time: 3 s under load are enough",
        code=GapCode.TOO_LARGE,
    )


def _damaged(where: str, error: Exception) -> SourceError:
    interrupted = isinstance(error, sqlite3.Error) and error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT
    said = "it asks for too much work" if interrupted else clean(str(error), 200)
    return SourceError(f"cannot be read as an SQLite database: {said}", where=where, next_step=EXPORT_AGAIN)


KERNEL, GRAPH = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
COPY, FILL = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
CALL, OVERHEAD = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_OVERHEAD"
STRINGS = "StringIds"
ACTIVITIES = (KERNEL, GRAPH, COPY, FILL, CALL)

# The enumerations of CUPTI: CUpti_ActivityMemcpyKind, CUpti_ActivityMemoryKind, CUpti_ActivityOverheadKind.
_WAYS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH"}
_MEMORIES = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
JIT, MODULES, FUNCTIONS, BUFFER_FULL = 2, 6, 7, 8

_VERSION = re.compile(r"_v\d+(?:_ptsz|_ptds)?$")
_BATCH = 4096
_MAX_NAMES = 65_536
_FURTHEST = 10**18
_MOST_PROCESSES = 1 << 20


def plain_name(name: str) -> str:
    """`cudaMalloc_v3020` → `cudaMalloc`."""
    return _VERSION.sub("", name)


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that returned an error: when (ns), of which process, its name, and its code."""

    start: int
    process: int
    call: str
    code: int


def batches(export: SqliteExport, damage: DamagedEvents) -> Iterator[list[TraceEvent]]:
    """Every recorded activity, in batches. A launched CUDA graph counts as one kernel: its own are not recorded."""
    link = CorrelationIds(with_process=export.has(KERNEL, "globalPid") and export.has(CALL, "globalTid"))
    launched = ("start", "end", "deviceId", "correlationId", "globalPid")
    readers: tuple[tuple[str, tuple[str, ...], Callable[[Row], TraceEvent | None]], ...] = (
        (KERNEL, launched, partial(_kernel, link=link)),
        (GRAPH, launched, partial(_kernel, link=link)),
        (FILL, ("start", "end", "deviceId"), _fill),
        (COPY, ("start", "end", "deviceId", "copyKind", "srcKind", "dstKind", "bytes"), _copy),
    )
    for table, columns, read in readers:
        if export.has(table, "start", "end"):
            yield from in_batches(map(read, export.rows(table, columns)), damage, table)
    if export.has(CALL, "start", "end", "nameId"):
        names = call_names(export)
        rows = export.rows(CALL, ("start", "end", "nameId", "returnValue", "correlationId", "globalTid"))
        yield from in_batches((_call(row, names, link) for row in rows), damage, CALL)


def in_batches(events: Iterable[TraceEvent | None], damage: DamagedEvents, table: str) -> Iterator[list[TraceEvent]]:
    """`events` of a table in batches; those that are none are damage."""
    batch: list[TraceEvent] = []
    for one in events:
        if one is None:
            damage.add(f"a row of {table} has no whole numbers as its times")
            continue
        batch.append(one)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch


def call_names(export: SqliteExport) -> Mapping[int, str]:
    """The names of API calls by their number; other strings (there may be millions) are passed over."""
    if not export.has(STRINGS, "id", "value"):
        return {}
    found: dict[int, str] = {}
    for number, value in export.rows(STRINGS, ("id", "value")):
        if isinstance(number, int) and isinstance(value, str) and value.startswith("cu") and len(value) < 200:
            found[number] = plain_name(value)
            if len(found) >= _MAX_NAMES:
                break
    return found


def _span(row: Row) -> tuple[float, float] | None:
    start, end = row[0], row[1]
    if not (isinstance(start, int) and isinstance(end, int)) or not -_FURTHEST < start < _FURTHEST:
        return None
    return start / 1000, (end - start) / 1000


def event(category: str, name: str, row: Row, args: EventArgs) -> TraceEvent | None:
    """The activity of `row`, from its start and end (ns); None where these are no whole numbers."""
    span = _span(row)
    return None if span is None else TraceEvent("X", category, name, *span, args)


def _device(row: Row) -> int | None:
    return row[2] if isinstance(row[2], int) else None


class CorrelationIds:
    """Numbers by which a call and what it put on the GPU belong together: ids are those of one process each."""

    def __init__(self, with_process: bool) -> None:
        self._with_process = with_process  # the rows name their processes
        self._processes: dict[int, int] = {}

    def __call__(self, number: object, process: object) -> int | None:
        if not isinstance(number, int) or not 0 < number < 1 << 32:
            return None
        own = process >> 24 & 0xFFFFFF if self._with_process and isinstance(process, int) else 0
        order = self._processes.setdefault(own, len(self._processes))
        return order << 32 | number if order < _MOST_PROCESSES else None


def _kernel(row: Row, link: CorrelationIds) -> TraceEvent | None:
    return event("kernel", "", row, EventArgs(device=_device(row), correlation=link(row[3], row[4])))


def _fill(row: Row) -> TraceEvent | None:
    return event("gpu_memset", "", row, EventArgs(device=_device(row)))


def _copy(row: Row) -> TraceEvent | None:
    """Named as Kineto names copies, so that one reader understands both."""
    size = row[6]
    known = float(size) if isinstance(size, int | float) and size >= 0 else None
    return event("gpu_memcpy", copy_name(row[3:6], _WAYS, _MEMORIES), row, EventArgs(device=_device(row), bytes=known))


def copy_name(numbers: Row, ways: Mapping[int, str], memories: Mapping[int, str]) -> str:
    """`Memcpy HtoD (Pageable -> Device)`, from the numbers of the direction and of both memories."""
    kind, *ends = numbers
    way = ways.get(kind, "other") if isinstance(kind, int) else "other"
    source, target = (memories.get(end, "") if isinstance(end, int) else "" for end in ends)
    return f"Memcpy {way}" + (f" ({source} -> {target})" if source and target else "")


def _call(row: Row, names: Mapping[int, str], link: CorrelationIds) -> TraceEvent | None:
    number, result = row[2], row[3]
    name = names.get(number, "") if isinstance(number, int) else ""
    known = EventArgs(result=result if isinstance(result, int) else None, correlation=link(row[4], row[5]))
    return event("cuda_runtime", name, row, known)


def failures(export: SqliteExport, limit: int) -> tuple[FailedCall, ...] | None:
    """The failed calls in the order of time, `limit` at most; None if the export has no return codes."""
    if not export.has(CALL, "start", "returnValue", "nameId"):
        return None
    names = call_names(export)
    found: list[FailedCall] = []
    known = 0
    for start, thread, number, result in export.rows(CALL, ("start", "globalTid", "nameId", "returnValue")):
        if not isinstance(result, int):
            continue
        known += 1
        if result != 0 and isinstance(start, int):
            process = thread >> 24 & 0xFFFFFF if isinstance(thread, int) else 0
            name = names.get(number, "a call") if isinstance(number, int) else "a call"
            found.append(FailedCall(start, process, name, result))
    return tuple(sorted(found, key=lambda one: one.start)[:limit]) if known else None


def overheads(export: SqliteExport) -> Mapping[int, float] | None:
    """Seconds spent in each kind of overhead; None where there is no such table."""
    if not export.has(OVERHEAD, "start", "end", "overheadType"):
        return None
    spent: dict[int, float] = {}
    for start, end, kind in export.rows(OVERHEAD, ("start", "end", "overheadType")):
        if isinstance(start, int) and isinstance(end, int) and isinstance(kind, int) and 0 <= end - start < _FURTHEST:
            spent[kind] = spent.get(kind, 0.0) + (end - start) * 1e-9
    return spent


def count(export: SqliteExport, table: str) -> int:
    """How many rows `table` has; 0 where it is absent."""
    return sum(1 for _ in export.rows(table, ("start",))) if table in export.tables else 0


def began(export: SqliteExport) -> float | None:
    """When the capture began, unix seconds: what the times of its rows count from."""
    table = "TARGET_INFO_SESSION_START_TIME"
    if export.has(table, "utcEpochNs"):
        for (moment,) in export.rows(table, ("utcEpochNs",), limit=1):
            return moment * 1e-9 if isinstance(moment, int) and 0 < moment < 1 << 63 else None
    return None


def gpu_names(export: SqliteExport) -> tuple[str, ...]:
    """The GPUs of the machine. Many exports have no table of them, but JSON among the environment."""
    if export.has("TARGET_INFO_GPU", "name"):
        rows = export.rows("TARGET_INFO_GPU", ("name",), limit=64)
        return tuple(clean(name, 100) for (name,) in rows if isinstance(name, str) and name)
    table = "TARGET_INFO_SYSTEM_ENV"
    if export.has(table, "name", "value"):
        for name, value in export.rows(table, ("name", "value"), limit=10_000):
            if name == "GpuInfo" and isinstance(value, str):
                return tuple(_names_in(value))
    return ()


def _names_in(text: str) -> Iterator[str]:
    """The names in `{"Gpus":[{"Name":"NVIDIA …"}]}`; a sandbox leaves only `{}`."""
    try:
        known = json.loads(text)
    except (ValueError, RecursionError):
        return
    listed = known.get("Gpus") if isinstance(known, dict) else None
    for gpu in listed if isinstance(listed, list) else []:
        if isinstance(gpu, dict) and isinstance(gpu.get("Name"), str):
            yield clean(gpu["Name"], 100)
