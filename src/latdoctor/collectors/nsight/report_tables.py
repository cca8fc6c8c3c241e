"""What printed tables show: counts and sums of times. What needs the times of single events is a gap.

Tables of single events (`cuda_gpu_trace`, `cuda_api_trace`) are analysed as a trace.
"""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.collectors.nsight import NAME
from latdoctor.collectors.nsight import evidence as nsight_evidence
from latdoctor.collectors.nsight.evidence import Capture
from latdoctor.collectors.nsight.printed_tables import PrintedTable, TableKind, TableRow, printed
from latdoctor.collectors.nsight.sqlite_rows import plain_name
from latdoctor.collectors.nsight.table_sums import TableSums, copy_way
from latdoctor.collectors.torch_trace.events import DamagedEvents, EventArgs, TraceEvent
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin
from latdoctor.gap_code import GapCode

MAX_FILE = 128 << 20
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
        seen = TableSums(found.tables, subject, artifact.name).evidence()
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
        return TraceEvent("X", "gpu_memcpy", copy_way(entry.name) + memories, *times, device)
    return TraceEvent("X", "kernel", "", *times, device)
