"""Databases of nvprof (`nvprof -o FILE`), the profiler before Nsight Systems: the same activities in other tables.

Calls have numbers in place of names (CUpti_runtime_api_trace_cbid). Those that mean something here are known, and most
others; where a call is not, nothing is said of calls. What the driver's own interface was asked stands in a table of
its own, in which every call of the runtime stands again, so that it is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from latdoctor.collectors.nsight.sqlite_rows import (
    CorrelationIds,
    FailedCall,
    Row,
    SqliteExport,
    copy_name,
    event,
    in_batches,
)
from latdoctor.collectors.torch_trace.events import DamagedEvents, EventArgs, TraceEvent

STRINGS = "StringTable"
_KERNELS = ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL")
_CALLS, _COPIES, _FILLS = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("RUNTIME", "MEMCPY", "MEMSET"))

# The numbers from 1 on, from 123 on, and some later ones.
_FIRST = (
    "DriverGetVersion RuntimeGetVersion GetDeviceCount GetDeviceProperties ChooseDevice GetChannelDesc "
    "CreateChannelDesc ConfigureCall SetupArgument GetLastError PeekAtLastError GetErrorString Launch "
    "FuncSetCacheConfig FuncGetAttributes SetDevice GetDevice SetValidDevices SetDeviceFlags Malloc MallocPitch Free "
    "MallocArray FreeArray MallocHost FreeHost HostAlloc HostGetDevicePointer HostGetFlags MemGetInfo Memcpy Memcpy2D "
    "MemcpyToArray Memcpy2DToArray MemcpyFromArray Memcpy2DFromArray MemcpyArrayToArray Memcpy2DArrayToArray "
    "MemcpyToSymbol MemcpyFromSymbol MemcpyAsync MemcpyToArrayAsync MemcpyFromArrayAsync Memcpy2DAsync "
    "Memcpy2DToArrayAsync Memcpy2DFromArrayAsync MemcpyToSymbolAsync MemcpyFromSymbolAsync Memset Memset2D MemsetAsync "
    "Memset2DAsync GetSymbolAddress GetSymbolSize"
)
_SECOND = (
    "ThreadExit SetDoubleForDevice SetDoubleForHost ThreadSynchronize ThreadGetLimit ThreadSetLimit StreamCreate "
    "StreamDestroy StreamSynchronize StreamQuery EventCreate EventCreateWithFlags EventRecord EventDestroy "
    "EventSynchronize EventQuery EventElapsedTime Malloc3D Malloc3DArray Memset3D Memset3DAsync Memcpy3D Memcpy3DAsync "
    "ThreadSetCacheConfig StreamWaitEvent"
)
_LATER = {
    165: "DeviceSynchronize", 198: "StreamCreateWithFlags", 200: "DeviceGetAttribute", 203: "StreamGetPriority",
    205: "DeviceGetStreamPriorityRange", 210: "OccupancyMaxActiveBlocksPerMultiprocessor", 211: "LaunchKernel",
    251: "OccupancyMaxActiveBlocksPerMultiprocessorWithFlags", 273: "FuncSetAttribute", 317: "StreamIsCapturing",
    409: "StreamGetCaptureInfo_v2", 430: "LaunchKernelExC",
}  # fmt: skip
CALL_NAMES: Mapping[int, str] = {
    **{number: f"cuda{name}" for number, name in enumerate(_FIRST.split(), start=1)},
    **{number: f"cuda{name}" for number, name in enumerate(_SECOND.split(), start=123)},
    **{number: f"cuda{name}" for number, name in _LATER.items()},
}
# CUpti_ActivityMemcpyKind, CUpti_ActivityMemoryKind.
_WAYS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_MEMORIES = {1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array", 5: "Managed"}


def is_one(export: SqliteExport) -> bool:
    return STRINGS in export.tables or _KERNELS[0] in export.tables


def batches(export: SqliteExport, damage: DamagedEvents) -> Iterator[list[TraceEvent]]:
    """Every recorded activity, in batches. Raises SourceError where a table has more rows than are read."""
    link = CorrelationIds(with_process=False)  # nvprof profiles one process into one file
    for table in _KERNELS:
        if export.has(table, "start", "end"):
            rows = export.rows(table, ("start", "end", "deviceId", "correlationId"))
            yield from in_batches((_kernel(row, link) for row in rows), damage, table)
    if export.has(_FILLS, "start", "end"):
        rows = export.rows(_FILLS, ("start", "end", "deviceId"))
        yield from in_batches(
            (event("gpu_memset", "", row, EventArgs(device=_device(row))) for row in rows), damage, _FILLS
        )
    if export.has(_COPIES, "start", "end"):
        rows = export.rows(_COPIES, ("start", "end", "deviceId", "copyKind", "srcKind", "dstKind", "bytes"))
        yield from in_batches(map(_copy, rows), damage, _COPIES)
    if calls_are_known(export):
        rows = export.rows(_CALLS, ("start", "end", "cbid", "correlationId", "returnValue"))
        yield from in_batches((_call(row, link) for row in rows), damage, _CALLS)


def calls_are_known(export: SqliteExport) -> bool:
    """Whether each call's number has a name here."""
    if not export.has(_CALLS, "start", "end", "cbid"):
        return False
    return all(isinstance(number, int) and number in CALL_NAMES for (number,) in export.rows(_CALLS, ("cbid",)))


def failures(export: SqliteExport, limit: int) -> tuple[FailedCall, ...] | None:
    """The failed calls in the order of time, `limit` at most; None where calls or their return codes are not known."""
    if not calls_are_known(export) or not export.has(_CALLS, "returnValue"):
        return None
    found = [
        FailedCall(start, process if isinstance(process, int) else 0, CALL_NAMES[number], result)
        for start, process, number, result in export.rows(_CALLS, ("start", "processId", "cbid", "returnValue"))
        if isinstance(start, int) and isinstance(result, int) and result != 0 and isinstance(number, int)
    ]
    return tuple(sorted(found, key=lambda one: one.start)[:limit])


def _device(row: Row) -> int | None:
    return row[2] if isinstance(row[2], int) else None


def _kernel(row: Row, link: CorrelationIds) -> TraceEvent | None:
    return event("kernel", "", row, EventArgs(device=_device(row), correlation=link(row[3], None)))


def _copy(row: Row) -> TraceEvent | None:
    size = row[6]
    known = float(size) if isinstance(size, int | float) and size >= 0 else None
    return event("gpu_memcpy", copy_name(row[3:6], _WAYS, _MEMORIES), row, EventArgs(device=_device(row), bytes=known))


def _call(row: Row, link: CorrelationIds) -> TraceEvent | None:
    number, result = row[2], row[4]
    known = EventArgs(result=result if isinstance(result, int) else None, correlation=link(row[3], None))
    return event("cuda_runtime", CALL_NAMES.get(number, "") if isinstance(number, int) else "", row, known)
