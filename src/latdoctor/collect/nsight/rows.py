"""From the rows of an export to the events that the analysis of traces reads, and what else its tables tell.

Times are nanoseconds in the tables and microseconds in events. Names of the API carry the version of their interface
(`cudaMalloc_v3020`); it is taken off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from latdoctor.collect.nsight.database import Export, Row
from latdoctor.collect.torch_trace.events import Args, Damage, Event
from latdoctor.text import clean

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
class Failure:
    """A call that returned an error: when (ns), of which process, its name, and its code."""

    start: int
    process: int
    call: str
    code: int


def batches(export: Export, damage: Damage) -> Iterator[list[Event]]:
    """Every recorded activity, in batches. A launched CUDA graph counts as one kernel: its own are not recorded."""
    link = Links(told=export.has(KERNEL, "globalPid") and export.has(CALL, "globalTid"))
    launched = ("start", "end", "deviceId", "correlationId", "globalPid")
    readers: tuple[tuple[str, tuple[str, ...], Callable[[Row], Event | None]], ...] = (
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


def in_batches(events: Iterable[Event | None], damage: Damage, table: str) -> Iterator[list[Event]]:
    """`events` of a table in batches; those that are none are damage."""
    batch: list[Event] = []
    for one in events:
        if one is None:
            damage.add(f"a row of {table} has no whole numbers as its times")
            continue
        batch.append(one)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch


def call_names(export: Export) -> Mapping[int, str]:
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


def event(category: str, name: str, row: Row, args: Args) -> Event | None:
    """The activity that `row` begins to tell with its start and end (ns); None where these are no whole numbers."""
    span = _span(row)
    return None if span is None else Event("X", category, name, *span, args)


def _device(row: Row) -> int | None:
    return row[2] if isinstance(row[2], int) else None


class Links:
    """Numbers by which a call and what it put on the GPU belong together: ids are those of one process each."""

    def __init__(self, told: bool) -> None:
        self._told = told  # are the processes?
        self._processes: dict[int, int] = {}

    def __call__(self, number: object, process: object) -> int | None:
        if not isinstance(number, int) or not 0 < number < 1 << 32:
            return None
        own = process >> 24 & 0xFFFFFF if self._told and isinstance(process, int) else 0
        order = self._processes.setdefault(own, len(self._processes))
        return order << 32 | number if order < _MOST_PROCESSES else None


def _kernel(row: Row, link: Links) -> Event | None:
    return event("kernel", "", row, Args(device=_device(row), correlation=link(row[3], row[4])))


def _fill(row: Row) -> Event | None:
    return event("gpu_memset", "", row, Args(device=_device(row)))


def _copy(row: Row) -> Event | None:
    """Named as Kineto names copies, so that one reader understands both."""
    size = row[6]
    told = float(size) if isinstance(size, int | float) and size >= 0 else None
    return event("gpu_memcpy", copy_name(row[3:6], _WAYS, _MEMORIES), row, Args(device=_device(row), bytes=told))


def copy_name(told: Row, ways: Mapping[int, str], memories: Mapping[int, str]) -> str:
    """`Memcpy HtoD (Pageable -> Device)`, from the numbers of the direction and of both memories."""
    kind, *ends = told
    way = ways.get(kind, "other") if isinstance(kind, int) else "other"
    source, target = (memories.get(end, "") if isinstance(end, int) else "" for end in ends)
    return f"Memcpy {way}" + (f" ({source} -> {target})" if source and target else "")


def _call(row: Row, names: Mapping[int, str], link: Links) -> Event | None:
    number, result = row[2], row[3]
    name = names.get(number, "") if isinstance(number, int) else ""
    told = Args(result=result if isinstance(result, int) else None, correlation=link(row[4], row[5]))
    return event("cuda_runtime", name, row, told)


def failures(export: Export, limit: int) -> tuple[Failure, ...] | None:
    """The failed calls in the order of time, `limit` at most; None where the export does not tell return codes."""
    if not export.has(CALL, "start", "returnValue", "nameId"):
        return None
    names = call_names(export)
    found: list[Failure] = []
    told = 0
    for start, thread, number, result in export.rows(CALL, ("start", "globalTid", "nameId", "returnValue")):
        if not isinstance(result, int):
            continue
        told += 1
        if result != 0 and isinstance(start, int):
            process = thread >> 24 & 0xFFFFFF if isinstance(thread, int) else 0
            name = names.get(number, "a call") if isinstance(number, int) else "a call"
            found.append(Failure(start, process, name, result))
    return tuple(sorted(found, key=lambda one: one.start)[:limit]) if told else None


def overheads(export: Export) -> Mapping[int, float] | None:
    """Seconds spent in each kind of overhead; None where there is no such table."""
    if not export.has(OVERHEAD, "start", "end", "overheadType"):
        return None
    spent: dict[int, float] = {}
    for start, end, kind in export.rows(OVERHEAD, ("start", "end", "overheadType")):
        if isinstance(start, int) and isinstance(end, int) and isinstance(kind, int) and 0 <= end - start < _FURTHEST:
            spent[kind] = spent.get(kind, 0.0) + (end - start) * 1e-9
    return spent


def count(export: Export, table: str) -> int:
    """How many rows `table` has; 0 where it is absent."""
    return sum(1 for _ in export.rows(table, ("start",))) if table in export.tables else 0


def capture_settings(export: Export) -> Mapping[str, str]:
    """How the capture was set up (META_DATA_CAPTURE), as far as it is told."""
    if not export.has("META_DATA_CAPTURE", "name", "value"):
        return {}
    rows = export.rows("META_DATA_CAPTURE", ("name", "value"), limit=2000)
    return {name: value for name, value in rows if isinstance(name, str) and isinstance(value, str)}


def began(export: Export) -> float | None:
    """When the capture began, unix seconds: what the times of its rows count from."""
    table = "TARGET_INFO_SESSION_START_TIME"
    if export.has(table, "utcEpochNs"):
        for (moment,) in export.rows(table, ("utcEpochNs",), limit=1):
            return moment * 1e-9 if isinstance(moment, int) and 0 < moment < 1 << 63 else None
    return None


def gpu_names(export: Export) -> tuple[str, ...]:
    """The GPUs of the machine. Many exports have no table of them and tell them as JSON among the environment."""
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
        told = json.loads(text)
    except (ValueError, RecursionError):
        return
    listed = told.get("Gpus") if isinstance(told, dict) else None
    for gpu in listed if isinstance(listed, list) else []:
        if isinstance(gpu, dict) and isinstance(gpu.get("Name"), str):
            yield clean(gpu["Name"], 100)
