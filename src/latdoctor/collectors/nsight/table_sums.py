"""Sums of one capture, from however many tables: of calls, kernels, copies and marked ranges."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from latdoctor.collectors.nsight import NAME, SIGNALS
from latdoctor.collectors.nsight import evidence as nsight_evidence
from latdoctor.collectors.nsight.printed_tables import PrintedTable, TableKind, TableRow
from latdoctor.collectors.nsight.sqlite_rows import plain_name
from latdoctor.collectors.torch_trace.event_names import CallKind, kind_of_call, kind_of_kernel
from latdoctor.evidence.model import AT_LEAST, Evidence, Gap, Origin, Reading, Subject
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean
from latdoctor.units import format_value

TINY = 10e-6  # as in a trace: a launch costs about 5 µs
_WAY = re.compile(r"\b(HtoD|DtoH)\b|(Host-to-Device)|(Device-to-Host)", re.IGNORECASE)
_API = re.compile(r"cu(?:da)?[A-Z]|hip[A-Z]|nvtx")  # calls of the operating system stand in a table of the same form
_TOP = 5
_LITTLE = 0.01  # less than this share of a whole is not listed


def copy_way(name: str) -> str:
    """`Memcpy HtoD` of `[CUDA memcpy Host-to-Device]`."""
    found = _WAY.search(name)
    if found is None:
        return "Memcpy other"
    return "Memcpy " + (found[1] or ("HtoD" if found[2] else "DtoH"))


class TableSums:
    """The sums of one capture, from however many tables."""

    def __init__(self, found: Iterable[PrintedTable], subject: str, artifact: str) -> None:
        self._subject, self._artifact = subject, artifact
        self._calls: list[TableRow] = []
        self._os_calls: list[TableRow] = []
        self._ranges: list[TableRow] = []
        self._kernels: list[TableRow] = []
        self._copies: list[TableRow] = []
        self._sizes: list[TableRow] = []
        for table in found:
            for entry in table.entries:
                self._place(table.kind, entry)

    def _place(self, kind: TableKind, entry: TableRow) -> None:
        is_copy = entry.name.startswith("[CUDA mem")
        if kind == TableKind.API or (kind == TableKind.NVPROF and entry.texts.get("type", "").lower() == "api calls"):
            (self._calls if _API.match(entry.name) else self._os_calls).append(entry)
        elif kind == TableKind.RANGES:
            self._ranges.append(entry)
        elif kind == TableKind.COPY_SIZES:
            self._sizes.append(entry)
        elif kind == TableKind.COPY_TIMES or (kind == TableKind.NVPROF and is_copy):
            self._copies.append(entry)
        elif kind in (TableKind.KERNELS, TableKind.NVPROF):
            self._kernels.append(entry)

    def evidence(self) -> Evidence:
        readings = (
            *self._of_calls(),
            *self._of_kernels(),
            *self._of_copies(),
            *self._per_kernel(),
            *self._of_ranges(),
            *self._shares("kernel.time_share", "kernel", self._kernels),
            *self._kinds(),
            *self._shares("call.time_share", "call", self._calls),
            *self._shares("os_call.time_share", "call", self._os_calls),
            *self._shares("range.time_share", "range", self._ranges),
        )
        known = {reading.signal for reading in readings}
        unseen = tuple(signal for signal in SIGNALS if signal not in known)
        reason = "the tables contain sums, not the times of single events"
        gap = Gap(
            NAME, reason, unseen, self._subject, nsight_evidence.RECORD, Origin(self._artifact), GapCode.UNSUPPORTED
        )
        return Evidence((Subject(self._subject),), readings, gaps=(gap,))

    def _reading(self, signal: str, value: float, place: str, note: str = "", bound: str = "") -> Reading:
        return Reading(signal, self._subject, value, Origin(self._artifact, place), note=note, bound=bound)

    def _shares(self, signal: str, label: str, entries: Sequence[TableRow]) -> Iterator[Reading]:
        """The largest parts of a table's time, each with its name as the label."""
        total = _total(entries)
        for entry in sorted(entries, key=lambda one: -one.numbers.get("total", 0.0))[:_TOP]:
            spent = entry.numbers.get("total", 0.0)
            if total > 0 and spent >= _LITTLE * total:
                place = Origin(
                    self._artifact, f"{entry.numbers.get('count', 0):.0f} times, {format_value(spent, 'time')}"
                )
                labels = ((label, clean(plain_name(entry.name), 120)),)
                yield Reading(signal, self._subject, spent / total, place, labels=labels)

    def _kinds(self) -> Iterator[Reading]:
        times: dict[str, float] = {}
        for entry in self._kernels:
            kind = kind_of_kernel(entry.name)
            times[kind] = times.get(kind, 0.0) + entry.numbers.get("total", 0.0)
        total = sum(times.values())
        for name, spent in sorted(times.items(), key=lambda pair: -pair[1]):
            if total > 0 and spent >= _LITTLE * total:
                place = Origin(self._artifact, f"{format_value(spent, 'time')}, by name")
                yield Reading("kernel.kind_share", self._subject, spent / total, place, labels=(("kind", name),))

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

    def _per_kernel(self) -> Iterator[Reading]:
        """Calls for each kernel, where both tables were printed."""
        kernels = _count(self._kernels)
        if kernels <= 0 or not self._calls:
            return
        kinds = [(kind_of_call(plain_name(entry.name)), entry) for entry in self._calls]
        waits = [entry for kind, entry in kinds if kind == CallKind.SYNCHRONISE]
        launches = [entry for kind, entry in kinds if kind == CallKind.LAUNCH]
        place = f"{_count(waits):.0f} calls for {kernels:.0f} kernels"
        yield self._reading("sync.count_per_kernel", _count(waits) / kernels, place)
        if launches:
            spent = format_value(_total(launches), "time")
            yield self._reading("launch.duration.mean", _total(launches) / max(1.0, _count(launches)), spent)
            yield self._reading(
                "launch.time_per_kernel", _total(launches) / kernels, f"{spent} for {kernels:.0f} kernels"
            )

        total = _total(self._calls)
        if total > 0:
            run = _total(self._kernels)
            place = f"{format_value(run, 'time')} of kernels, {format_value(total, 'time')} in calls"
            yield self._reading("kernel.time_over_calls", run / total, place)
            yield self._reading("launch.call_share", _total(launches) / total, place)

    def _of_ranges(self) -> Iterator[Reading]:
        """Kernels and calls against the marked range that took most time, where ranges lie within it."""
        marked = sorted(self._ranges, key=lambda one: -one.numbers.get("total", 0.0))
        outer = marked[0].numbers.get("total", 0.0) if len(marked) > 1 else 0.0
        if outer <= 0 or not self._kernels or not self._calls:
            return
        named = clean(plain_name(marked[0].name).removeprefix(":"), 120)
        for signal, spent in (
            ("range.kernel_share", _total(self._kernels)),
            ("range.outside_calls", max(0.0, outer - _total(self._calls))),
        ):
            place = Origin(self._artifact, f"{format_value(spent, 'time')} of {format_value(outer, 'time')}")
            yield Reading(signal, self._subject, spent / outer, place, labels=(("range", named),))

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
        sized = [(copy_way(entry.name).removeprefix("Memcpy "), entry.numbers.get("size")) for entry in self._sizes]
        known = [(way, size) for way, size in sized if size is not None and way in ("HtoD", "DtoH")]
        if not known:
            return
        total = sum(size for _, size in known)
        yield self._reading("copy.bytes", total, ", ".join(sorted({way for way, _ in known})))
        time = sum(e.numbers.get("total", 0.0) for e in self._copies if copy_way(e.name) != "Memcpy other")
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
