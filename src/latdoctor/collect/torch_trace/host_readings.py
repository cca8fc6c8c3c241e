"""Readings of what the host did: allocations, the start of the process, waits, compilations, failed calls."""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.collect.torch_trace.summary import TraceSummary
from latdoctor.collect.torch_trace.writer import Writer, listed, shown
from latdoctor.evidence.model import Reading


def allocations(summary: TraceSummary, writer: Writer) -> Iterator[Reading]:
    found, when = summary.allocations, summary.phases
    if not summary.calls:
        return
    place = listed(summary.device_calls) or "no allocation call"
    if found is None or when is None:
        yield writer.reading("alloc.device_calls", float(sum(summary.device_calls.values())), place)
        return
    split = f"{found.warmup_count} of {found.count} in the warm-up"
    yield writer.reading("alloc.device_calls", float(found.count), place, split)
    ends = f"the whole trace is warm-up: {when.why_not}" if when.why_not else f"until {shown(when.steady)}; {when.rule}"
    early = f"{split}; {ends}"
    yield writer.reading("alloc.warmup_calls", float(found.warmup_count), place, early)
    yield writer.reading("alloc.warmup_time", found.warmup_time, place, early)
    if when.why_not:
        return
    late = f"in the last {shown(when.seconds)}; {when.rule}"
    yield writer.reading("alloc.device_calls_steady", float(found.steady_count), place, late)
    yield writer.reading("alloc.device_rate", found.steady_count / when.seconds, place, late)
    yield writer.reading("alloc.device_time_share", found.steady_time / when.seconds, place, late)


def start(summary: TraceSummary, writer: Writer) -> Iterator[Reading]:
    found = summary.start
    if found is None:
        return
    named = ", ".join(f"{name} {shown(duration)}" for name, duration in found.longest)
    context = f"{found.context_name} {shown(found.context)}" if found.context_name else "no such call"
    yield writer.reading("start.context_init", found.context, context, f"long first calls: {named}" if named else "")
    place = named or "no long first call"
    yield writer.reading("start.cold_time", found.time, place)
    if summary.span > 0:
        yield writer.reading("start.cold_share", found.time / summary.span, f"{place}; of {shown(summary.span)}")


def syncs(summary: TraceSummary, writer: Writer) -> Iterator[Reading]:
    found, kernels = summary.syncs, summary.kernels
    if found is None or kernels is None:
        return
    place = listed(found.by_name) or "no blocking call"
    yield writer.reading("sync.count_per_kernel", found.count / kernels.count, f"{place}; {kernels.count} kernels")
    if kernels.span <= kernels.duration:
        return
    of = f"of {shown(kernels.span)}"
    yield writer.reading("sync.time_share", found.waiting / kernels.span, f"{place}; {shown(found.waiting)} {of}")
    idle = f"{place}; GPU idle for {shown(found.idle)} {of} meanwhile"
    yield writer.reading("sync.idle_share", found.idle / kernels.span, idle)
    dry = f"{place}; GPU idle for {shown(found.drained)} {of} after it ran dry"
    yield writer.reading("sync.drain_share", found.drained / kernels.span, dry)


def compiles(summary: TraceSummary, writer: Writer) -> Iterator[Reading]:
    found, when = summary.compiles, summary.phases
    if found is None or when is None or when.why_not:
        return
    if found.told:
        place = f"{found.steady_count} of {found.count} after the warm-up" if found.count else "no compilation"
        yield writer.reading("compile.trace_steady", float(found.steady_count), place, when.rule)
        yield writer.reading("compile.trace_time_share", found.steady_time / when.seconds, place, when.rule)
    loads = listed(found.loads) or "no call that loads code"
    yield writer.reading("code.loads_steady", float(sum(found.loads.values())), loads, when.rule)


def failures(summary: TraceSummary, writer: Writer) -> Iterator[Reading]:
    if summary.results and not summary.hip:
        place = listed(summary.failures) or f"{summary.results} return codes, all of them success"
        yield writer.reading("cuda.error_calls", float(sum(summary.failures.values())), place)
