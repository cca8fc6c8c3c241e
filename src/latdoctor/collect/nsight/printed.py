"""What printed tables show. Sums tell how many and how long, not when: what hangs on times of single events is a gap.

Tables of single events (`cuda_gpu_trace`, `cuda_api_trace`) are analysed as a trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from latdoctor.collect.nsight import evidence as nsight_evidence
from latdoctor.collect.nsight import tables
from latdoctor.collect.nsight.evidence import NAME, Capture
from latdoctor.collect.nsight.rows import plain_name
from latdoctor.collect.nsight.tables import Entry, Table
from latdoctor.collect.torch_trace import api_calls
from latdoctor.collect.torch_trace.events import Args, Damage, Event
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import AT_LEAST, Evidence, Gap, Origin, Reading, Subject
from latdoctor.units import format_value

MAX_FILE = 128 << 20
TINY = 10e-6  # as in a trace: a launch costs about 5 µs
_WAY = re.compile(r"\b(HtoD|DtoH)\b|(Host-to-Device)|(Device-to-Host)", re.IGNORECASE)
_HOW = "give tables of nsys stats --format csv --report cuda_api_sum,cuda_gpu_kern_sum, or the SQLite export itself"


def parse(artifact: Artifact) -> Evidence:
    """What the tables in `artifact` show. Raises SourceError where there is none."""
    text = artifact.read(MAX_FILE).decode("utf-8", "replace")
    found = tables.printed(text, artifact.source)
    if not found.tables:
        raise SourceError("holds no table of nsys stats or nvprof", where=artifact.source, next_step=_HOW)
    subject = f"trace/{artifact.group}"
    events = [table for table in found.tables if table.kind in ("gpu-trace", "api-trace")]
    if any(table.kind == "gpu-trace" for table in events):
        seen = _as_trace(events, subject, artifact)
    else:
        seen = _Sums(found.tables, subject, artifact.name).evidence()
    if not found.cut:
        return seen
    reason = f"{subject}: its last row {found.cut}: the file is cut off, and what stood behind is missing in every sum"
    gap = Gap(NAME, reason, (), subject, "copy it again, or print the tables anew", Origin(artifact.name))
    return Evidence.merge([seen, Evidence(gaps=(gap,))])


def _as_trace(found: Sequence[Table], subject: str, artifact: Artifact) -> Evidence:
    from latdoctor.collect.torch_trace.analysis import analyse
    from latdoctor.collect.torch_trace.columns import Columns

    with Columns(Damage()) as columns:
        for table in found:
            columns.add(event for entry in table.entries if (event := _event(table.kind, entry)) is not None)
        if not columns.counts.timed:
            raise SourceError("its tables hold no event with a time", where=artifact.source, next_step=_HOW)
        return nsight_evidence.evidence(analyse(columns), Capture(), subject, artifact.name)


def _event(kind: str, entry: Entry) -> Event | None:
    start, duration = entry.numbers.get("start"), entry.numbers.get("duration")
    if start is None or duration is None:
        return None
    times = (start * 1e6, duration * 1e6)
    if kind == "api-trace":
        return Event("X", "cuda_runtime", plain_name(entry.name), *times)
    device = Args(device=entry.texts.get("device", ""), bytes=entry.numbers.get("bytes"))
    lower = entry.name.lower()
    if "memset" in lower and lower.startswith("["):
        return Event("X", "gpu_memset", "", *times, device)
    if "memcpy" in lower and lower.startswith("["):
        memories = f" ({entry.texts.get('source', '')} -> {entry.texts.get('target', '')})"
        return Event("X", "gpu_memcpy", _way(entry.name) + memories, *times, device)
    return Event("X", "kernel", "", *times, device)


def _way(name: str) -> str:
    found = _WAY.search(name)
    if found is None:
        return "Memcpy other"
    return "Memcpy " + (found[1] or ("HtoD" if found[2] else "DtoH"))


class _Sums:
    """The sums of one capture, from however many tables."""

    def __init__(self, found: Iterable[Table], subject: str, artifact: str) -> None:
        self._subject, self._artifact = subject, artifact
        self._calls: list[Entry] = []
        self._kernels: list[Entry] = []
        self._copies: list[Entry] = []
        self._sizes: list[Entry] = []
        for table in found:
            for entry in table.entries:
                self._place(table.kind, entry)

    def _place(self, kind: str, entry: Entry) -> None:
        is_copy = entry.name.startswith("[CUDA mem")
        if kind == "api" or (kind == "nvprof" and entry.texts.get("type", "").lower() == "api calls"):
            self._calls.append(entry)
        elif kind == "copy-sizes":
            self._sizes.append(entry)
        elif kind == "copy-times" or (kind == "nvprof" and is_copy):
            self._copies.append(entry)
        elif kind in ("kernels", "nvprof"):
            self._kernels.append(entry)

    def evidence(self) -> Evidence:
        readings = (*self._of_calls(), *self._of_kernels(), *self._of_copies())
        told = {reading.signal for reading in readings}
        unseen = tuple(signal for signal in nsight_evidence.SIGNALS if signal not in told)
        reason = f"{self._subject}: cannot tell: the tables hold sums, not the times of single events"
        gap = Gap(NAME, reason, unseen, self._subject, nsight_evidence.RECORD, Origin(self._artifact))
        return Evidence((Subject(self._subject),), readings, gaps=(gap,))

    def _reading(self, signal: str, value: float, place: str, note: str = "", bound: str = "") -> Reading:
        return Reading(signal, self._subject, value, Origin(self._artifact, place), note=note, bound=bound)

    def _of_calls(self) -> Iterator[Reading]:
        if not self._calls:
            return
        kinds = [(api_calls.kind_of_call(plain_name(entry.name)), entry) for entry in self._calls]
        launches = [entry for kind, entry in kinds if kind == api_calls.LAUNCH]
        takes = [entry for kind, entry in kinds if kind == api_calls.ALLOCATE]
        handles = [entry for kind, entry in kinds if kind in (api_calls.ALLOCATE, api_calls.FREE)]
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
        told = [(way, size) for way, size in sized if size is not None and way in ("HtoD", "DtoH")]
        if not told:
            return
        total = sum(size for _, size in told)
        yield self._reading("copy.bytes", total, ", ".join(sorted({way for way, _ in told})))
        time = sum(e.numbers.get("total", 0.0) for e in self._copies if _way(e.name) != "Memcpy other")
        if time > 0:
            yield self._reading("copy.bandwidth", total / time, f"{format_value(time, 'time')} of copies")


def _count(entries: Iterable[Entry]) -> float:
    return sum(entry.numbers.get("count", 0.0) for entry in entries)


def _total(entries: Iterable[Entry]) -> float:
    return sum(entry.numbers.get("total", 0.0) for entry in entries)


def _listed(entries: Sequence[Entry], nothing: str) -> str:
    shown = [f"{entry.numbers.get('count', 0):.0f} {plain_name(entry.name)}" for entry in entries[:4]]
    more = [f"{len(entries) - 4} more names"] if len(entries) > 4 else []
    return ", ".join([*shown, *more]) or nothing
