"""A TraceSummary as Evidence: readings whose place tells a person what to look at, and gaps for what is not in it.

No gap is written for what a trace of this kind never holds (return codes of calls) or where there was nothing to
measure (the bandwidth of no copy): such a signal simply has no reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from latdoctor.collect.torch_trace.summary import TraceSummary
from latdoctor.evidence.model import Evidence, Gap, Labels, Origin, Reading, Subject, Value, Window
from latdoctor.units import format_value

NAME = "torch_trace"

_SPAN = ("gpu.busy_ratio", "kernel.gap.mean")
_KERNELS = ("trace.kernels", "kernel.tiny_ratio", "kernel.duration.mean", *_SPAN)
_SYNCS = ("sync.time_share", "sync.idle_share", "sync.drain_share", "sync.count_per_kernel")
_COPIES = ("copy.time_share", "copy.bytes", "copy.pageable_share", "copy.bandwidth")
_LAUNCHES = ("launch.count", "launch.api_share", "launch.first_duration")
_STEADY = ("alloc.device_calls_steady", "alloc.device_rate", "alloc.device_time_share")
_WARM_UP = ("alloc.warmup_calls", "alloc.warmup_time", "start.context_init", "start.cold_time", "start.cold_share")
_CALLS = (*_LAUNCHES, *_SYNCS, *_STEADY, *_WARM_UP)
_ALLOCATIONS = ("alloc.device_calls",)
SIGNALS = (
    "trace.has_gpu",
    "trace.span",
    *_KERNELS,
    *_CALLS,
    *_ALLOCATIONS,
    *_COPIES,
    "cuda.error_calls",
)

_RECORD_GPU = (
    "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on the thread that serves, with CUPTI "
    "allowed to that user"
)
_RECORD_LONGER = "record 3 s of a process that has already served requests"
_SHOWN = 4
# The clock of a trace is unix time or counts from a base; anything else is not between these (2001 and 2096).
_UNIX = (1e9, 4e9)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Makes readings and gaps of one trace."""

    subject: str
    artifact: str
    window: Window

    def reading(self, signal: str, value: Value, place: str, note: str = "", labels: Labels = ()) -> Reading:
        return Reading(signal, self.subject, value, Origin(self.artifact, place), self.window, labels, note)

    def gap(self, reason: str, signals: tuple[str, ...], next_step: str) -> Gap:
        return Gap(NAME, f"{self.subject}: {reason}", signals, self.subject, next_step, Origin(self.artifact))


def evidence(summary: TraceSummary, subject: str, artifact: str, base: float | None) -> Evidence:
    """What `summary` says of `subject` (`trace/NAME`); `base` is what its times count from, unix seconds."""
    writer = _Writer(subject, artifact, _window(summary, base))
    readings = (*_shape(summary, writer), *_kernels(summary, writer), *_launches(summary, writer))
    more = (*_allocations(summary, writer), *_start(summary, writer), *_syncs(summary, writer))
    last = (*_copies(summary, writer), *_failures(summary, writer))
    return Evidence(
        subjects=(Subject(subject),),
        readings=(*readings, *more, *last),
        gaps=tuple(_gaps(summary, writer)),
    )


def _window(summary: TraceSummary, base: float | None) -> Window:
    for start in (summary.first, summary.first + (base or 0.0)):
        if _UNIX[0] <= start <= _UNIX[1]:
            return Window(start, start + summary.span)
    return Window()


def _gaps(summary: TraceSummary, writer: _Writer) -> Iterator[Gap]:
    """One gap for each thing that keeps a group of signals from being seen."""
    lost: tuple[str, ...]
    if summary.kernels is None:
        lost = (*_KERNELS, *_CALLS, *(() if summary.copies else _COPIES), *(() if summary.calls else _ALLOCATIONS))
        yield writer.gap(f"cannot tell: {_why_no_kernels(summary)}", lost, _RECORD_GPU)
    elif not summary.calls:
        lost = (*_CALLS, *_ALLOCATIONS)
        yield writer.gap("cannot tell: the trace holds no calls of the CUDA or HIP API", lost, _RECORD_GPU)
    elif summary.kernels.span <= summary.kernels.duration:
        lost = (*_SPAN, "launch.api_share", *_SYNCS[:3])
        yield writer.gap("cannot tell: one kernel alone has no span to compare with", lost, _RECORD_LONGER)
    if summary.phases is not None and summary.phases.why_not:
        reason = f"cannot tell a steady state: {summary.phases.why_not}; all of it counts as warm-up"
        yield writer.gap(reason, _STEADY, _RECORD_LONGER)
    if summary.copies is not None and summary.copies.host_device_count and summary.copies.size is None:
        yield writer.gap("cannot tell: copies without their sizes", ("copy.bytes", *_COPIES[2:]), _RECORD_LONGER)
    elif summary.copies is not None and summary.copies.host_device_count and summary.copies.pageable is None:
        yield writer.gap("cannot tell: copies without the kind of host memory", ("copy.pageable_share",), "")
    if len(summary.devices) > 1:
        others = ", ".join(summary.devices[1 : _SHOWN + 1])
        reason = f"device {summary.devices[0]}, which ran the most kernels, was judged; not device {others}"
        yield writer.gap(reason, (), "record one process for each GPU, or look at the others by hand")


def _why_no_kernels(summary: TraceSummary) -> str:
    if summary.range_mode:
        return "the trace was recorded in range-profiling mode, which keeps no single kernels"
    if summary.copies is not None:
        return "the trace holds copies or fills but no kernel"
    if summary.calls:
        return "the trace holds API calls but no GPU activity; the profiler was not given any"
    return "the trace holds no GPU activity, it shows the CPU only"


def _shape(summary: TraceSummary, writer: _Writer) -> Iterator[Reading]:
    seen = f"GPU work on device {', '.join(summary.devices[:_SHOWN])}" if summary.devices else "no GPU events"
    yield writer.reading("trace.has_gpu", float(bool(summary.devices)), seen)
    yield writer.reading("trace.span", summary.span, "first event to the end of the last")


def _kernels(summary: TraceSummary, writer: _Writer) -> Iterator[Reading]:
    found = summary.kernels
    if found is None:
        return
    several = len(summary.devices) > 1
    note = f"device {summary.devices[0]} of {len(summary.devices)}, the one with the most kernels" if several else ""
    place = f"{found.count} kernel{'' if found.count == 1 else 's'}"
    if summary.launches is not None:
        place += f"; {listed(summary.launches.by_name)}"
    yield writer.reading("trace.kernels", float(found.count), place, note)
    yield writer.reading("kernel.tiny_ratio", found.tiny / found.count, f"{found.tiny} of {place}", note)
    yield writer.reading("kernel.duration.mean", found.duration, place, note)
    if found.span <= found.duration:
        return
    busy = f"{place}; busy {_time(found.busy)} of {_time(found.span)}"
    yield writer.reading("gpu.busy_ratio", found.busy / found.span, busy, note)
    yield writer.reading("kernel.gap.mean", found.gap, busy, note)


def _launches(summary: TraceSummary, writer: _Writer) -> Iterator[Reading]:
    found = summary.launches
    if found is None or summary.kernels is None:
        return
    place = listed(found.by_name) or "no launch call"
    graphs = sum(count for name, count in found.by_name.items() if "GraphLaunch" in name)
    note = f"{graphs} of them launch a graph of many kernels" if graphs else ""
    yield writer.reading("launch.count", float(found.count), place, note)
    if summary.kernels.span > summary.kernels.duration:
        yield writer.reading("launch.api_share", found.api_share, place, note)
    if found.count:
        first = f"{found.first_name}, {_time(found.first)}"
        yield writer.reading("launch.first_duration", found.first, first, "the longest of the first 100 launches")


def _allocations(summary: TraceSummary, writer: _Writer) -> Iterator[Reading]:
    found, when = summary.allocations, summary.phases
    if not summary.calls:
        return
    place = listed(summary.device_calls) or "no allocation call"
    if found is None or when is None:
        yield writer.reading("alloc.device_calls", float(sum(summary.device_calls.values())), place)
        return
    split = f"{found.warmup_count} of {found.count} in the warm-up"
    yield writer.reading("alloc.device_calls", float(found.count), place, split)
    ends = f"the whole trace is warm-up: {when.why_not}" if when.why_not else f"until {_time(when.steady)}; {when.rule}"
    early = f"{split}; {ends}"
    yield writer.reading("alloc.warmup_calls", float(found.warmup_count), place, early)
    yield writer.reading("alloc.warmup_time", found.warmup_time, place, early)
    if when.why_not:
        return
    late = f"in the last {_time(when.seconds)}; {when.rule}"
    yield writer.reading("alloc.device_calls_steady", float(found.steady_count), place, late)
    yield writer.reading("alloc.device_rate", found.steady_count / when.seconds, place, late)
    yield writer.reading("alloc.device_time_share", found.steady_time / when.seconds, place, late)


def _start(summary: TraceSummary, writer: _Writer) -> Iterator[Reading]:
    found = summary.start
    if found is None:
        return
    named = ", ".join(f"{name} {_time(duration)}" for name, duration in found.longest)
    context = f"{found.context_name} {_time(found.context)}" if found.context_name else "no such call"
    yield writer.reading("start.context_init", found.context, context, f"long first calls: {named}" if named else "")
    place = named or "no long first call"
    yield writer.reading("start.cold_time", found.time, place)
    if summary.span > 0:
        yield writer.reading("start.cold_share", found.time / summary.span, f"{place}; of {_time(summary.span)}")


def _syncs(summary: TraceSummary, writer: _Writer) -> Iterator[Reading]:
    found, kernels = summary.syncs, summary.kernels
    if found is None or kernels is None:
        return
    place = listed(found.by_name) or "no blocking call"
    yield writer.reading("sync.count_per_kernel", found.count / kernels.count, f"{place}; {kernels.count} kernels")
    if kernels.span <= kernels.duration:
        return
    of = f"of {_time(kernels.span)}"
    yield writer.reading("sync.time_share", found.waiting / kernels.span, f"{place}; {_time(found.waiting)} {of}")
    idle = f"{place}; GPU idle for {_time(found.idle)} {of} meanwhile"
    yield writer.reading("sync.idle_share", found.idle / kernels.span, idle)
    dry = f"{place}; GPU idle for {_time(found.drained)} {of} after it ran dry"
    yield writer.reading("sync.drain_share", found.drained / kernels.span, dry)


def _copies(summary: TraceSummary, writer: _Writer) -> Iterator[Reading]:
    found = summary.copies
    if found is None:
        return
    place = ", ".join(f"{count} {way}" for way, count in sorted(found.count.items()) if count) or "no copy"
    if found.span > 0:
        yield writer.reading("copy.time_share", found.alone / found.span, f"{place}; {_time(found.alone)} alone")
    total = found.host_device_bytes
    if total is None or found.size is None:
        return
    yield writer.reading("copy.bytes", total, place)
    for way in ("HtoD", "DtoH"):
        if found.count.get(way):
            yield writer.reading("copy.bytes", found.size[way], f"{found.count[way]} {way}", labels=(("kind", way),))
    if total > 0 and found.pageable is not None:
        shown = f"{place}; {format_value(found.pageable, 'bytes')} of {format_value(total, 'bytes')}"
        yield writer.reading("copy.pageable_share", found.pageable / total, shown)
    if found.time > 0:
        yield writer.reading("copy.bandwidth", total / found.time, f"{place}; {_time(found.time)}")


def _failures(summary: TraceSummary, writer: _Writer) -> Iterator[Reading]:
    if summary.results and not summary.hip:
        place = listed(summary.failures) or f"{summary.results} return codes, all of them success"
        yield writer.reading("cuda.error_calls", float(sum(summary.failures.values())), place)


def listed(counts: Mapping[str, int]) -> str:
    """`22 cuLaunchKernel, 38 cudaLaunchKernel*`: names that begin like another are counted with it."""
    stems: dict[str, list[str]] = {}
    for name in sorted(counts):
        stem = next((known for known in stems if name.startswith(known)), name)
        stems.setdefault(stem, []).append(name)
    parts = [
        (sum(counts[name] for name in names), f"{stem}*" if len(names) > 1 else stem) for stem, names in stems.items()
    ]
    shown = [f"{count} {stem}" for count, stem in parts[:_SHOWN]]
    return ", ".join([*shown, f"{len(parts) - _SHOWN} more names"] if len(parts) > _SHOWN else shown)


def _time(seconds: float) -> str:
    return format_value(seconds, "time")
