"""The tables that nsys stats and nvprof print: which columns they have had, and their rows in seconds and bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from latdoctor.collectors.nsight.table_rows import rows
from latdoctor.errors import SourceError
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

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
    "range": "name",
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
    RANGES = "ranges"  # of NVTX
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
    for cells in rows(text, where):
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
    if "range" in names and {"total", "count"} <= columns:
        return TableKind.RANGES
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
