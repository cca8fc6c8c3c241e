"""Readings of what the GPU did: kernels, the gaps between them, launches, copies, steps, and whose time it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from latdoctor.collectors.torch_trace import NAME
from latdoctor.collectors.torch_trace.summary import CopySummary, KernelTotals, LayerTime, TraceSummary
from latdoctor.evidence.model import Gap, Labels, Origin, Reading, Value, Window
from latdoctor.gap_code import GapCode
from latdoctor.units import format_value

SHOWN = 4  # names in one place


class ReadingWriter(Struct, frozen=True):
    """Makes readings and gaps of one trace."""

    subject: str
    artifact: str
    window: Window

    def reading(self, signal: str, value: Value, place: str, note: str = "", labels: Labels = ()) -> Reading:
        return Reading(signal, self.subject, value, Origin(self.artifact, place), self.window, labels, note)

    def gap(self, reason: str, code: GapCode, signals: tuple[str, ...], next_step: str) -> Gap:
        return Gap(NAME, reason, signals, self.subject, next_step, Origin(self.artifact), code)


def listed(counts: Mapping[str, int]) -> str:
    """`22 cuLaunchKernel, 38 cudaLaunchKernel*`: names that begin like another are counted with it."""
    stems: dict[str, list[str]] = {}
    for name in sorted(counts):
        stem = next((known for known in stems if name.startswith(known)), name)
        stems.setdefault(stem, []).append(name)
    parts = [
        (sum(counts[name] for name in names), f"{stem}*" if len(names) > 1 else stem) for stem, names in stems.items()
    ]
    shown = [f"{count} {stem}" for count, stem in parts[:SHOWN]]
    return ", ".join([*shown, f"{len(parts) - SHOWN} more names"] if len(parts) > SHOWN else shown)


def shown(seconds: float) -> str:
    return format_value(seconds, "time")


_TOP = 5
# Less than this share of a whole is not listed.
_LITTLE = 0.01


def kernels(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Reading]:
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
    busy = f"{place}; busy {shown(found.busy)} of {shown(found.span)}"
    yield writer.reading("gpu.busy_ratio", found.busy / found.span, busy, note)
    yield writer.reading("kernel.gap.mean", found.gap, busy, note)


def gaps(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Reading]:
    """The GPU with nothing to do, and what the host was in meanwhile."""
    found, ran = summary.gaps, summary.kernels
    if found is None or ran is None or ran.span <= ran.duration:
        return
    place = f"{found.count} gap{'' if found.count == 1 else 's'}; {shown(found.length)} of {shown(ran.span)}"
    yield writer.reading("gap.share", found.length / ran.span, place)
    yield writer.reading("gap.longest", found.longest, place)
    note = "calls of several threads may lie in one gap"
    for kind, time in found.by_host.items():
        where = f"{shown(time)} of {shown(found.length)} idle"
        yield writer.reading("gap.host_share", time / ran.span, where, note, (("host", kind),))


def launches(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Reading]:
    found = summary.launches
    if found is None or summary.kernels is None:
        return
    place = listed(found.by_name) or "no launch call"
    graphs = sum(count for name, count in found.by_name.items() if "GraphLaunch" in name)
    note = f"{graphs} of them launch a graph of many kernels" if graphs else ""
    yield writer.reading("launch.count", float(found.count), place, note)
    if summary.kernels.span > summary.kernels.duration:
        yield writer.reading("launch.api_share", found.api_share, place, note)
    yield writer.reading("launch.time_per_kernel", found.per_kernel, place, note)
    if found.count:
        yield writer.reading("launch.duration.mean", found.duration, place, note)
        first = f"{found.first_name}, {shown(found.first)}"
        yield writer.reading("launch.first_duration", found.first, first, "the longest of the first 100 launches")


def copies(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Reading]:
    found, ran = summary.copies, summary.kernels
    if found is None:
        return
    place = ", ".join(f"{way.count} {name}" for name, way in sorted(found.ways.items()) if way.count) or "no copy"
    if found.span > 0:
        yield writer.reading("copy.time_share", found.alone / found.span, f"{place}; {shown(found.alone)} alone")
    if found.inside is not None and found.waiting is not None and ran is not None and ran.span > ran.duration:
        spent = f"{shown(found.inside)} in copy calls, kernels ran for {shown(found.waiting)} of it"
        yield writer.reading("copy.call_share", found.inside / ran.span, spent)
        yield writer.reading("copy.call_wait_share", found.waiting / ran.span, spent, "such a call waits for kernels")
    yield from _by_way(found, writer)
    total = found.host_device_bytes
    if total is None:
        return
    yield writer.reading("copy.bytes", total, place)
    if total > 0 and found.pageable is not None:
        where = f"{place}; {format_value(found.pageable, 'bytes')} of {format_value(total, 'bytes')}"
        yield writer.reading("copy.pageable_share", found.pageable / total, where)
    if found.host_device_time > 0:
        yield writer.reading(
            "copy.bandwidth", total / found.host_device_time, f"{place}; {shown(found.host_device_time)}"
        )


def _by_way(found: CopySummary, writer: ReadingWriter) -> Iterator[Reading]:
    for name, way in sorted(found.ways.items()):
        labels, place = (("kind", name),), f"{way.count} {name} in {shown(way.time)}"
        if way.size is not None:
            yield writer.reading("copy.bytes", way.size, place, labels=labels)
            if way.time > 0:
                yield writer.reading("copy.bandwidth", way.size / way.time, place, labels=labels)


def steps(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Reading]:
    found = summary.steps
    if found is None or not found.count or summary.kernels is None:
        return
    place = f"{found.kernels} kernels in {found.count} steps, {shown(found.time)}"
    graphs = summary.launches is not None and any("GraphLaunch" in name for name in summary.launches.by_name)
    note = "kernels of graphs included" if graphs else ""
    yield writer.reading("trace.steps", float(found.count), place)
    yield writer.reading("kernel.per_step", found.kernels / found.count, place, note)
    yield writer.reading("step.duration.mean", found.time / found.count, place)


def delays(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Reading]:
    """From launch to kernel, where the GPU was idle and where it was not."""
    found = summary.delays
    if found is None:
        return
    behind = found.launches - found.idle
    place = f"{found.idle} of {found.launches} launches found the GPU without work"
    yield writer.reading("launch.queued_share", behind / found.launches, place)
    if found.median is not None:
        yield writer.reading("launch.delay.median", found.median, place)
    if found.p99 is not None:
        yield writer.reading("launch.delay.p99", found.p99, place)
    if found.wait is not None:
        note = "they wait for the work before them"
        yield writer.reading("launch.queue_wait.median", found.wait, f"{behind} of {found.launches} launches", note)


def whose_time(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Reading]:
    """The largest parts of the kernels' time: by kernel, by what kernels do, by operators and layers."""
    ran = summary.kernels
    if ran is not None and ran.total > 0:
        yield from _by_kernel(ran, writer)
        for top in summary.owners.operators[:_TOP]:
            if top.gpu >= _LITTLE * ran.total:
                place = f"{top.calls} calls, {shown(top.gpu)} of kernels"
                labels = (("operator", top.name),)
                yield writer.reading("operator.gpu_share", top.gpu / ran.total, place, labels=labels)
        yield from _by_layer(summary.owners.layers, ran.total, writer)
    for top in sorted(summary.owners.operators, key=lambda one: -one.host)[:_TOP]:
        place = f"{top.calls} calls, what they call included"
        yield writer.reading("operator.host_time", top.host, place, labels=(("operator", top.name),))
    for name, count, time in summary.layers[:_TOP]:
        place = f"{count} calls, inner layers included"
        yield writer.reading("layer.host_time", time, place, labels=(("layer", name),))


def _by_kernel(ran: KernelTotals, writer: ReadingWriter) -> Iterator[Reading]:
    for name, count, time in ran.longest[:_TOP]:
        if time >= _LITTLE * ran.total:
            place = f"{count} times, {shown(time)}"
            yield writer.reading("kernel.time_share", time / ran.total, place, labels=(("kernel", name),))
    for kind, time in sorted(ran.by_kind.items(), key=lambda pair: -pair[1]):
        if time >= _LITTLE * ran.total:
            share = time / ran.total
            yield writer.reading("kernel.kind_share", share, f"{shown(time)}, by name", labels=(("kind", kind),))


def _by_layer(layers: Sequence[LayerTime], total: float, writer: ReadingWriter) -> Iterator[Reading]:
    """Layers, and the operators in each of them that matter."""
    for layer in layers[:_TOP]:
        if layer.gpu < _LITTLE * total:
            continue
        labels, place = (("layer", layer.name),), f"{shown(layer.gpu)} of kernels"
        yield writer.reading("layer.gpu_share", layer.gpu / total, place, labels=labels)
        for operator, time in layer.operators[:_TOP]:
            if time >= _LITTLE * total:
                both = (*labels, ("operator", operator))
                yield writer.reading("layer.operator_share", time / total, f"{shown(time)} of kernels", labels=both)


def allocations(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Reading]:
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


def start(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Reading]:
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


def syncs(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Reading]:
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


def compiles(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Reading]:
    found, when = summary.compiles, summary.phases
    if found is None or when is None or when.why_not:
        return
    if found.recorded:
        place = f"{found.steady_count} of {found.count} after the warm-up" if found.count else "no compilation"
        yield writer.reading("compile.trace_steady", float(found.steady_count), place, when.rule)
        yield writer.reading("compile.trace_time_share", found.steady_time / when.seconds, place, when.rule)
    loads = listed(found.loads) or "no call that loads code"
    yield writer.reading("code.loads_steady", float(sum(found.loads.values())), loads, when.rule)


def failures(summary: TraceSummary, writer: ReadingWriter) -> Iterator[Reading]:
    if summary.results and not summary.hip:
        place = listed(summary.failures) or f"{summary.results} return codes, all of them success"
        yield writer.reading("cuda.error_calls", float(sum(summary.failures.values())), place)
