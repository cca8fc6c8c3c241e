"""A TraceSummary as Evidence: readings whose place names the part of the trace, and gaps for what it lacks.

No gap is written for what a trace of this kind never holds (return codes of calls) or where there was nothing to
measure (the bandwidth of no copy): such a signal simply has no reading.
"""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.collectors.torch_trace import readings
from latdoctor.collectors.torch_trace.readings import SHOWN, ReadingWriter
from latdoctor.collectors.torch_trace.summary import TraceSummary
from latdoctor.evidence.model import Evidence, Gap, Reading, Subject, Window
from latdoctor.gap_code import GapCode

_SPAN = ("gpu.busy_ratio", "kernel.gap.mean", "gap.share", "gap.longest")
_KERNELS = ("trace.kernels", "kernel.tiny_ratio", "kernel.duration.mean", *_SPAN)
_SYNCS = ("sync.time_share", "sync.idle_share", "sync.drain_share", "sync.count_per_kernel")
_COPY_CALLS = ("copy.call_share", "copy.call_wait_share")
_COPIES = ("copy.time_share", "copy.bytes", "copy.pageable_share", "copy.bandwidth")
_LAUNCHES = (
    "launch.count",
    "launch.api_share",
    "launch.duration.mean",
    "launch.time_per_kernel",
    "launch.first_duration",
)
_COMPILES = ("compile.trace_steady", "compile.trace_time_share", "code.loads_steady")
_STEADY = ("alloc.device_calls_steady", "alloc.device_rate", "alloc.device_time_share", *_COMPILES)
_WARM_UP = ("alloc.warmup_calls", "alloc.warmup_time", "start.context_init", "start.cold_time", "start.cold_share")
_CALLS = (*_LAUNCHES, *_SYNCS, *_STEADY, *_WARM_UP, *_COPY_CALLS, "gap.host_share")
_ALLOCATIONS = ("alloc.device_calls",)

_RECORD_GPU = (
    "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on the thread that serves, with CUPTI "
    "allowed to that user"
)
_RECORD_LONGER = "record 3 s of a process that has already served requests"
# The clock of a trace is unix time or counts from a base; anything else is not between these (2001 and 2096).
_UNIX = (1e9, 4e9)
_PARTS = (
    readings.kernels,
    readings.gaps,
    readings.launches,
    readings.delays,
    readings.steps,
    readings.allocations,
    readings.start,
    readings.syncs,
    readings.copies,
    readings.whose_time,
    readings.compiles,
    readings.failures,
)


def evidence(summary: TraceSummary, subject: str, artifact: str, base: float | None) -> Evidence:
    """What `summary` says of `subject` (`trace/NAME`); `base` is what its times count from, unix seconds."""
    writer = ReadingWriter(subject, artifact, _window(summary, base))
    found = [reading for part in (_shape, *_PARTS) for reading in part(summary, writer)]
    return Evidence(subjects=(Subject(subject),), readings=tuple(found), gaps=tuple(_gaps(summary, writer)))


def _window(summary: TraceSummary, base: float | None) -> Window:
    for start in (summary.first, summary.first + (base or 0.0)):
        if _UNIX[0] <= start <= _UNIX[1]:
            return Window(start, start + summary.span)
    return Window()


def _gaps(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Gap]:
    """One gap for each thing that keeps a group of signals from being seen."""
    lost: tuple[str, ...]
    if summary.kernels is None:
        lost = (*_KERNELS, *_CALLS, *(() if summary.copies else _COPIES), *(() if summary.calls else _ALLOCATIONS))
        yield writer.gap(f"cannot tell: {_why_no_kernels(summary)}", GapCode.ABSENT, lost, _RECORD_GPU)
    elif not summary.calls:
        lost = (*_CALLS, *_ALLOCATIONS)
        yield writer.gap(
            "cannot tell: the trace holds no calls of the CUDA or HIP API", GapCode.ABSENT, lost, _RECORD_GPU
        )
    elif summary.kernels.span <= summary.kernels.duration:
        lost = (*_SPAN, "launch.api_share", *_SYNCS[:3], *_COPY_CALLS, "gap.host_share")
        yield writer.gap(
            "cannot tell: one kernel alone has no span to compare with", GapCode.INSUFFICIENT, lost, _RECORD_LONGER
        )
    if summary.phases is not None and summary.phases.why_not:
        reason = f"cannot tell a steady state: {summary.phases.why_not}; all of it counts as warm-up"
        yield writer.gap(reason, GapCode.INSUFFICIENT, _STEADY, _RECORD_LONGER)
    elif summary.compiles is not None and not summary.compiles.recorded:
        reason = "cannot tell compilations: the trace holds no operators of the framework"
        yield writer.gap(reason, GapCode.ABSENT, _COMPILES[:2], _RECORD_GPU)
    if summary.copies is not None and summary.copies.host_device_count and summary.copies.host_device_bytes is None:
        yield writer.gap(
            "cannot tell: copies without their sizes", GapCode.ABSENT, ("copy.bytes", *_COPIES[2:]), _RECORD_LONGER
        )
    elif summary.copies is not None and summary.copies.host_device_count and summary.copies.pageable is None:
        yield writer.gap(
            "cannot tell: copies without the kind of host memory", GapCode.ABSENT, ("copy.pageable_share",), ""
        )
    if summary.clipped:
        reason = f"{summary.clipped} long calls and compilations more than are kept: the warm-up may last longer"
        yield writer.gap(reason, GapCode.TOO_LARGE, (), _RECORD_LONGER)
    if len(summary.devices) > 1:
        others = ", ".join(summary.devices[1 : SHOWN + 1])
        reason = f"device {summary.devices[0]}, which ran the most kernels, was judged; not device {others}"
        yield writer.gap(
            reason, GapCode.UNSUPPORTED, (), "record one process for each GPU, or look at the others by hand"
        )


def _why_no_kernels(summary: TraceSummary) -> str:
    if summary.range_mode:
        return "the trace was recorded in range-profiling mode, which keeps no single kernels"
    if summary.copies is not None:
        return "the trace holds copies or fills but no kernel"
    if summary.calls:
        return "the trace holds API calls but no GPU activity; the profiler was not given any"
    return "the trace holds no GPU activity, it shows the CPU only"


def _shape(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Reading]:
    seen = f"GPU work on device {', '.join(summary.devices[:SHOWN])}" if summary.devices else "no GPU events"
    yield writer.reading("trace.has_gpu", float(bool(summary.devices)), seen)
    yield writer.reading("trace.span", summary.span, "first event to the end of the last")
