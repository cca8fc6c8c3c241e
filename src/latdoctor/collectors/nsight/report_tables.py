"""What printed tables show: counts and sums of times. What needs the times of single events is a gap.

Tables of single events (`cuda_gpu_trace`, `cuda_api_trace`) are analysed as a trace.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from latdoctor.collectors.nsight import NAME, SIGNALS
from latdoctor.collectors.nsight import evidence as nsight_evidence
from latdoctor.collectors.nsight.evidence import Capture
from latdoctor.collectors.nsight.sqlite_rows import plain_name
from latdoctor.collectors.torch_trace.event_names import CallKind, kind_of_call
from latdoctor.collectors.torch_trace.events import DamagedEvents, EventArgs, TraceEvent
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import AT_LEAST, Evidence, Gap, Origin, Reading, Subject
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean
from latdoctor.units import format_value

MAX_ROWS = 2_000_000
_MAX_COLUMNS = 64
_UNIT = re.compile(r"\s*\(([A-Za-z%/]+)\)$")
_TIMES = {"ns": 1e-9, "us": 1e-6, "usec": 1e-6, "µs": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0}
# nvprof and nsys mean powers of two and of ten respectively; a few per cent of a size decide nothing here.
_SIZES = {"b": 1.0, "bytes": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")

# What a column is called here, by the names it has had.
_COLUMNS = {
    "total time": "total", "time(%)": "share", "time (%)": "share", "time%": "share", "num calls": "count",
    "calls": "count", "instances": "count", "count": "count", "operations": "count", "avg": "mean", "average": "mean",
    "min": "min", "minimum": "min", "max": "max", "maximum": "max", "name": "name", "operation": "name",
    "start": "start", "duration": "duration", "type": "type", "total": "size", "bytes": "bytes", "size": "bytes",
    "srcmemkd": "source", "srcmemtype": "source", "dstmemkd": "target", "dstmemtype": "target", "device": "device",
    "strm": "stream", "stream": "stream", "result": "result", "time": "total", "ctx": "context", "context": "context",
}  # fmt: skip
_NVPROF_ROWS = ("GPU activities", "API calls", "OpenACC")
_TIMED = frozenset({"total", "mean", "min", "max", "start", "duration"})


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: its texts, and its numbers in seconds, bytes or counts."""

    texts: Mapping[str, str]
    numbers: Mapping[str, float]

    @property
    def name(self) -> str:
        return self.texts.get("name", "")


class TableKind(StrEnum):
    """What a printed table lists: sums of `nsys stats`, single events of it, or a summary of nvprof."""

    API = "api"
    KERNELS = "kernels"
    COPY_TIMES = "copy-times"
    COPY_SIZES = "copy-sizes"
    GPU_TRACE = "gpu-trace"
    API_TRACE = "api-trace"
    NVPROF = "nvprof"


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """One table of a file."""

    kind: TableKind
    entries: tuple[TableRow, ...]


@dataclass(frozen=True, slots=True)
class PrintedTables:
    """The tables of a file. `cut` says how its last row was cut off; empty where it seems whole."""

    tables: tuple[PrintedTable, ...]
    cut: str = ""


def printed(text: str, where: str) -> PrintedTables:
    """Every table in `text`. Raises SourceError where it has too many rows."""
    found: list[PrintedTable] = []
    head: _TableHeader | None = None
    entries: list[TableRow] = []
    count = 0
    last: tuple[_TableHeader | None, Sequence[str]] = (None, ())  # a row that is none of a table does not speak of one
    for cells in _rows(text, where):
        if any(cells):
            last = head, cells
        begun = _head(cells)
        if begun is not None or not any(cells):
            if head is not None and entries:
                found.append(PrintedTable(head.kind, tuple(entries)))
                entries = []
            # nvprof leaves blank lines between its parts and repeats the head: a blank line ends a table of nsys only.
            head = begun if begun is not None else head if head is not None and head.kind == TableKind.NVPROF else None
            continue
        if head is None:
            continue
        if head.takes_units(cells):
            head = head.with_units(cells)
        elif (entry := head.entry(cells)) is not None:
            entries.append(entry)
            count += 1
            if count > MAX_ROWS:
                raise SourceError(
                    f"more than the {MAX_ROWS} rows that are read at most", where=where, code=GapCode.TOO_LARGE
                )
    if head is not None and entries:
        found.append(PrintedTable(head.kind, tuple(entries)))
    return PrintedTables(tuple(found), _cut(*last, text.rstrip().rpartition("\n")[2]))


def _cut(head: _TableHeader | None, cells: Sequence[str], line: str) -> str:
    """What the last row of a file, `line`, lacks of a row of its table: copied while it was written, or not whole."""
    if head is None or not cells or head.takes_units(cells):
        return ""
    first = cells[0].strip("\"'")
    is_row = bool(_NUMBER.fullmatch(first)) or any(kind.startswith(first) for kind in _NVPROF_ROWS if first)
    if is_row and len(cells) < len(head.columns):
        return f"has {len(cells)} of {len(head.columns)} cells"
    return "ends within quotes" if is_row and line.count('"') % 2 else ""


def _rows(text: str, where: str) -> Iterator[list[str]]:
    """Cells of every line; a quote that is never closed must not swallow the rest of the file."""
    for line in text.splitlines():
        if line.startswith("=="):  # what nvprof says of itself: ==PID== …
            continue
        try:
            cells = next(csv.reader([line], skipinitialspace=True), [])
        except csv.Error as error:
            raise SourceError(f"is no table: {error}", where=where) from error
        yield [cell.strip() for cell in cells]


@dataclass(frozen=True, slots=True)
class _TableHeader:
    kind: TableKind
    columns: tuple[str, ...]  # our names, empty for columns that are not used
    units: tuple[str, ...]

    def takes_units(self, cells: Sequence[str]) -> bool:
        """Is this the row of units below nvprof's head?"""
        known = [cell.lower() in {*_TIMES, *_SIZES, "%", ""} or "/" in cell for cell in cells]
        return len(cells) > 1 and all(known) and any(cells)

    def with_units(self, cells: Sequence[str]) -> _TableHeader:
        known = (*cells, *([""] * len(self.columns)))[: len(self.columns)]
        return _TableHeader(self.kind, self.columns, tuple(unit.lower() for unit in known))

    def entry(self, cells: Sequence[str]) -> TableRow | None:
        """None for a line that is no row of this table."""
        if len(cells) < len(self.columns):
            return None
        texts: dict[str, str] = {}
        numbers: dict[str, float] = {}
        # A kernel's name holds commas that some versions do not quote: what is too much belongs to it, the last one.
        kept = [*cells[: len(self.columns) - 1], ",".join(cells[len(self.columns) - 1 :])]
        for column, unit, cell in zip(self.columns, self.units, kept, strict=True):
            if column:
                texts[column] = clean(cell, 400)
                value = _value(cell, column, unit)
                if value is not None:
                    numbers[column] = value
        timed = {"total", "duration", "size"} & numbers.keys()
        return TableRow(texts, numbers) if timed and texts.get("name") else None


def _value(cell: str, column: str, unit: str) -> float | None:
    if not _NUMBER.fullmatch(cell):
        return None
    value = float(cell.replace(",", ""))
    if column in _TIMED:
        return value * _TIMES.get(unit, 1e-9)
    if column in ("size", "bytes"):
        return value * _SIZES.get(unit, 1.0)
    return value


def _head(cells: Sequence[str]) -> _TableHeader | None:
    """The head of a table, where these cells are one."""
    if not 3 <= len(cells) <= _MAX_COLUMNS:
        return None
    parted = [_parted(cell) for cell in cells]
    columns = tuple(_COLUMNS.get(name, "") for name, _ in parted)
    kind = _kind({name for name, _ in parted}, set(columns))
    return _TableHeader(kind, columns, tuple(unit for _, unit in parted)) if kind else None


def _parted(cell: str) -> tuple[str, str]:
    lower = cell.lower()
    found = _UNIT.search(lower)
    if found is None or found[1] == "%":
        return lower, ""
    return lower[: found.start()], found[1]


def _kind(names: set[str], columns: set[str]) -> TableKind | None:
    if "name" not in columns:
        return None
    if {"type", "total", "share"} <= columns:
        return TableKind.NVPROF
    if {"start", "duration"} <= columns:
        if "result" in columns:
            return TableKind.API_TRACE
        return TableKind.GPU_TRACE if {"stream", "device"} & columns else None
    if "size" in columns and "operation" in names:
        return TableKind.COPY_SIZES
    if "total" not in columns or "count" not in columns:
        return None
    if "operation" in names:
        return TableKind.COPY_TIMES
    if "instances" in names:
        return TableKind.KERNELS
    return TableKind.API if {"num calls", "calls"} & names else None


MAX_FILE = 128 << 20
TINY = 10e-6  # as in a trace: a launch costs about 5 µs
_WAY = re.compile(r"\b(HtoD|DtoH)\b|(Host-to-Device)|(Device-to-Host)", re.IGNORECASE)
_HOW = "give tables of nsys stats --format csv --report cuda_api_sum,cuda_gpu_kern_sum, or the SQLite export itself"


def parse(artifact: Artifact) -> Evidence:
    """What the tables in `artifact` show. Raises SourceError where there is none."""
    text = artifact.read(MAX_FILE).decode("utf-8", "replace")
    found = printed(text, artifact.source)
    if not found.tables:
        raise SourceError(
            "holds no table of nsys stats or nvprof", where=artifact.source, next_step=_HOW, code=GapCode.UNSUPPORTED
        )
    subject = f"trace/{artifact.group}"
    events = [table for table in found.tables if table.kind in (TableKind.GPU_TRACE, TableKind.API_TRACE)]
    if any(table.kind == TableKind.GPU_TRACE for table in events):
        seen = _as_trace(events, subject, artifact)
    else:
        seen = _Sums(found.tables, subject, artifact.name).evidence()
    if not found.cut:
        return seen
    reason = f"its last row {found.cut}: the file is cut off, and what stood behind is missing in every sum"
    gap = Gap(
        NAME, reason, (), subject, "copy it again, or print the tables anew", Origin(artifact.name), GapCode.UNREADABLE
    )
    return Evidence.merge([seen, Evidence(gaps=(gap,))])


def _as_trace(found: Sequence[PrintedTable], subject: str, artifact: Artifact) -> Evidence:
    from latdoctor.collectors.torch_trace.analysis import analyse
    from latdoctor.collectors.torch_trace.event_store import TraceStore

    with TraceStore(DamagedEvents()) as columns:
        for table in found:
            columns.add(event for entry in table.entries if (event := _event(table.kind, entry)) is not None)
        if not columns.counts.timed:
            raise SourceError(
                "its tables hold no event with a time", where=artifact.source, next_step=_HOW, code=GapCode.EMPTY
            )
        return nsight_evidence.evidence(analyse(columns), Capture(), subject, artifact.name)


def _event(kind: TableKind, entry: TableRow) -> TraceEvent | None:
    start, duration = entry.numbers.get("start"), entry.numbers.get("duration")
    if start is None or duration is None:
        return None
    times = (start * 1e6, duration * 1e6)
    if kind == TableKind.API_TRACE:
        return TraceEvent("X", "cuda_runtime", plain_name(entry.name), *times)
    device = EventArgs(device=entry.texts.get("device", ""), bytes=entry.numbers.get("bytes"))
    lower = entry.name.lower()
    if "memset" in lower and lower.startswith("["):
        return TraceEvent("X", "gpu_memset", "", *times, device)
    if "memcpy" in lower and lower.startswith("["):
        memories = f" ({entry.texts.get('source', '')} -> {entry.texts.get('target', '')})"
        return TraceEvent("X", "gpu_memcpy", _way(entry.name) + memories, *times, device)
    return TraceEvent("X", "kernel", "", *times, device)


def _way(name: str) -> str:
    found = _WAY.search(name)
    if found is None:
        return "Memcpy other"
    return "Memcpy " + (found[1] or ("HtoD" if found[2] else "DtoH"))


class _Sums:
    """The sums of one capture, from however many tables."""

    def __init__(self, found: Iterable[PrintedTable], subject: str, artifact: str) -> None:
        self._subject, self._artifact = subject, artifact
        self._calls: list[TableRow] = []
        self._kernels: list[TableRow] = []
        self._copies: list[TableRow] = []
        self._sizes: list[TableRow] = []
        for table in found:
            for entry in table.entries:
                self._place(table.kind, entry)

    def _place(self, kind: TableKind, entry: TableRow) -> None:
        is_copy = entry.name.startswith("[CUDA mem")
        if kind == TableKind.API or (kind == TableKind.NVPROF and entry.texts.get("type", "").lower() == "api calls"):
            self._calls.append(entry)
        elif kind == TableKind.COPY_SIZES:
            self._sizes.append(entry)
        elif kind == TableKind.COPY_TIMES or (kind == TableKind.NVPROF and is_copy):
            self._copies.append(entry)
        elif kind in (TableKind.KERNELS, TableKind.NVPROF):
            self._kernels.append(entry)

    def evidence(self) -> Evidence:
        readings = (*self._of_calls(), *self._of_kernels(), *self._of_copies())
        known = {reading.signal for reading in readings}
        unseen = tuple(signal for signal in SIGNALS if signal not in known)
        reason = "the tables contain sums, not the times of single events"
        gap = Gap(
            NAME, reason, unseen, self._subject, nsight_evidence.RECORD, Origin(self._artifact), GapCode.UNSUPPORTED
        )
        return Evidence((Subject(self._subject),), readings, gaps=(gap,))

    def _reading(self, signal: str, value: float, place: str, note: str = "", bound: str = "") -> Reading:
        return Reading(signal, self._subject, value, Origin(self._artifact, place), note=note, bound=bound)

    def _of_calls(self) -> Iterator[Reading]:
        if not self._calls:
            return
        kinds = [(kind_of_call(plain_name(entry.name)), entry) for entry in self._calls]
        launches = [entry for kind, entry in kinds if kind == CallKind.LAUNCH]
        takes = [entry for kind, entry in kinds if kind == CallKind.ALLOCATE]
        handles = [entry for kind, entry in kinds if kind in (CallKind.ALLOCATE, CallKind.FREE)]
        yield self._reading("launch.count", _count(launches), _listed(launches, "no launch call"))
        whole = "start and warm-up are among them" if takes else ""
        yield self._reading("alloc.device_calls", _count(takes), _listed(takes, "no allocation call"), whole)
        total, spent = _total(self._calls), _total(handles)
        if total > 0:
            shown = f"{format_value(spent, 'time')} of {format_value(total, 'time')} in all calls"
            yield self._reading("alloc.api_share", spent / total, shown, "of the whole capture, its start included")

    def _of_kernels(self) -> Iterator[Reading]:
        count, total = _count(self._kernels), _total(self._kernels)
        yield self._reading("trace.has_gpu", float(bool(self._kernels or self._copies)), f"{len(self._kernels)} names")
        if count <= 0:
            return
        place = f"{count:.0f} kernels of {len(self._kernels)} names"
        yield self._reading("trace.kernels", count, place)
        yield self._reading("kernel.duration.mean", total / count, place)
        short = [entry for entry in self._kernels if entry.numbers.get("max", 1.0) < TINY]
        mixed = [e for e in self._kernels if e not in short and e.numbers.get("min", 0.0) < TINY]
        note = f"{len(mixed)} further names have some below 10 µs" if mixed else ""
        tiny = _count(short) / count
        yield self._reading("kernel.tiny_ratio", tiny, place, note, AT_LEAST if mixed else "")

    def _of_copies(self) -> Iterator[Reading]:
        sized = [(_way(entry.name).removeprefix("Memcpy "), entry.numbers.get("size")) for entry in self._sizes]
        known = [(way, size) for way, size in sized if size is not None and way in ("HtoD", "DtoH")]
        if not known:
            return
        total = sum(size for _, size in known)
        yield self._reading("copy.bytes", total, ", ".join(sorted({way for way, _ in known})))
        time = sum(e.numbers.get("total", 0.0) for e in self._copies if _way(e.name) != "Memcpy other")
        if time > 0:
            yield self._reading("copy.bandwidth", total / time, f"{format_value(time, 'time')} of copies")


def _count(entries: Iterable[TableRow]) -> float:
    return sum(entry.numbers.get("count", 0.0) for entry in entries)


def _total(entries: Iterable[TableRow]) -> float:
    return sum(entry.numbers.get("total", 0.0) for entry in entries)


def _listed(entries: Sequence[TableRow], nothing: str) -> str:
    shown = [f"{entry.numbers.get('count', 0):.0f} {plain_name(entry.name)}" for entry in entries[:4]]
    more = [f"{len(entries) - 4} more names"] if len(entries) > 4 else []
    return ", ".join([*shown, *more]) or nothing
