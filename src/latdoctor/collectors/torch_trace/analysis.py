"""What a trace shows: pure analysis of its columns into a TraceSummary.

The GPU is one device: where a trace holds several, the one with the most kernels is judged, since figures over
several would average them. A fill (memset) occupies the GPU as a kernel does and counts as one where busy time is
meant; it is no kernel where kernels are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack

import msgspec
import numpy as np
from msgspec import structs

from latdoctor.collectors.torch_trace.event_names import CallKind
from latdoctor.collectors.torch_trace.event_store import CopyCounts, CopyLabel, DeviceWork, TraceStore
from latdoctor.collectors.torch_trace.host_calls import HostCallSweep, LaunchDelaySweep
from latdoctor.collectors.torch_trace.intervals import union
from latdoctor.collectors.torch_trace.operator_layers import TOP, owners, time_by_kind
from latdoctor.collectors.torch_trace.parallel import ChildProcess
from latdoctor.collectors.torch_trace.phases import LongCall, TracePhases, phases
from latdoctor.collectors.torch_trace.summary import (
    AllocationCalls,
    ColdStart,
    CompileActivity,
    CopySummary,
    CopyTotals,
    GpuTimeOwners,
    IdleGaps,
    KernelTotals,
    LaunchCalls,
    MarkedSteps,
    SyncCalls,
    TraceSummary,
)
from latdoctor.collectors.torch_trace.sweep import IdleSweep, KernelStartTimes, KernelSweep, busy_in, views

# A launch costs the host about 5 µs, so kernels shorter than 10 µs cannot hide the next launch.
TINY = 10e-6
_NAMED = 4
_OWNERS = msgspec.msgpack.Decoder(GpuTimeOwners)


def analyse(columns: TraceStore, *, beside: bool = False) -> TraceSummary:
    """Everything that one trace shows. Needs at least one timed event.

    With `beside` a second process finds out whose the GPU's time was, while this one does the rest.
    """
    devices = _devices(columns.counts.devices)
    number = columns.device_names.number(devices[0]) if devices else -1
    with ExitStack() as opened:
        other = _started(lambda: msgspec.msgpack.encode(owners(columns, number)), opened) if beside else None
        found = _analysed(columns, devices, number)
        answer = other.answer() if other else None
        whose = owners(columns, number) if answer is None else _OWNERS.decode(answer)
    return structs.replace(found, owners=whose)


def _started(work: Callable[[], bytes], opened: ExitStack) -> ChildProcess | None:
    try:
        return opened.enter_context(ChildProcess(work))
    except OSError:  # no room or no process for it: this one does all
        return None


def _analysed(columns: TraceStore, devices: tuple[str, ...], number: int) -> TraceSummary:
    """All but whose the GPU's time was."""
    counts = columns.counts
    device = counts.devices[devices[0]] if devices else DeviceWork()
    ran = device.kernels.count > 0
    found = _phases(columns, device, number) if ran and counts.called.count else None
    first, last = _seconds(columns, device.kernels.first), _seconds(columns, device.kernels.last)
    gpu = KernelSweep(max(1, len(columns.kernel_names.listed)), first, last, TINY, _bounds(columns))
    host = HostCallSweep(tuple(columns.call_names.listed), found, first, last)
    idle, delays = IdleSweep(first, last), LaunchDelaySweep()
    for view in views(columns):
        own = view.work_of(number)
        compute, active = gpu.take(view, own)
        waiting = host.take(view, compute, active)
        if found:
            delays.take(own, host.launches)
        if ran:
            host.take_idle(idle.take(view, active, waiting))
    return TraceSummary(
        span=(counts.span.last - counts.span.first) * 1e-6,
        first=counts.span.first * 1e-6,
        devices=devices,
        kernels=_kernels(gpu, columns) if ran else None,
        gaps=_gaps(idle, host, found) if ran else None,
        copies=_copies(counts.copies, device, devices[0], gpu, host, found) if devices else None,
        launches=_launches(host, gpu) if found else None,
        allocations=_allocations(host, found) if found else None,
        start=_start(host, found) if found else None,
        syncs=_syncs(host, idle) if found else None,
        steps=_steps(columns, gpu) if ran else None,
        compiles=_compiles(columns, host, found) if found else None,
        delays=delays.found() if found else None,
        owners=GpuTimeOwners((), ()),
        layers=_layers(counts.layers),
        phases=found,
        calls=counts.called.count,
        device_calls=host.by_name(CallKind.ALLOCATE),
        hip=any(name.startswith("hip") for name in columns.call_names.listed),
        range_mode=counts.ranges > 0,
        results=counts.results,
        failures=counts.failures,
        clipped=counts.clipped,
    )


def _seconds(columns: TraceStore, time: float) -> float:
    return (time - columns.counts.span.first) * 1e-6


def _devices(found: Mapping[str, DeviceWork]) -> tuple[str, ...]:
    """The devices that did any work, the one with the most kernels first."""
    return tuple(sorted(found, key=lambda name: (-found[name].kernels.count, -found[name].work.count)))


def _phases(columns: TraceStore, device: DeviceWork, number: int) -> TracePhases:
    called, work = columns.counts.called, device.work
    active = (_seconds(columns, min(called.first, work.first)), _seconds(columns, max(called.last, work.last)))
    calls = sorted(columns.counts.long_calls)
    return phases(
        active,
        KernelStartTimes(columns, number, device.kernels.count),
        tuple(LongCall(_seconds(columns, start), _seconds(columns, end), name) for start, end, name in calls),
        lambda starts, ends: busy_in(columns, number, starts, ends),
        {n: (_seconds(columns, start), _seconds(columns, end)) for n, (start, end) in columns.counts.steps.items()},
    )


def _kernels(gpu: KernelSweep, columns: TraceStore) -> KernelTotals:
    span = gpu.last - gpu.first
    times = dict(zip(columns.kernel_names.listed, gpu.by_name.tolist(), strict=False))
    counts = dict(zip(columns.kernel_names.listed, gpu.counts_by_name.tolist(), strict=False))
    longest = sorted(times, key=lambda name: -times[name])[:TOP]
    return KernelTotals(
        count=gpu.count,
        busy=gpu.busy,
        span=span,
        tiny=gpu.tiny,
        duration=gpu.duration / gpu.count,
        total=gpu.duration,
        gap=(span - gpu.busy) / max(1, gpu.count - 1),
        longest=tuple((name, counts[name], times[name]) for name in longest if counts[name]),
        by_kind=time_by_kind({name: time for name, time in times.items() if counts[name]}),
    )


def _gaps(idle: IdleSweep, host: HostCallSweep, found: TracePhases | None) -> IdleGaps:
    return IdleGaps(idle.length, idle.longest, idle.count, {**host.idle} if found else {})


def _launches(host: HostCallSweep, gpu: KernelSweep) -> LaunchCalls:
    by_name = host.by_name(CallKind.LAUNCH)
    count, span = sum(by_name.values()), gpu.last - gpu.first
    return LaunchCalls(
        by_name=by_name,
        count=count,
        api_share=host.inside["launch"] / span if span else 0.0,
        duration=host.launch_time / count if count else 0.0,
        per_kernel=host.launch_time / gpu.count,
        first=host.longest_launch.duration,
        first_name=host.longest_launch.name,
    )


def _allocations(host: HostCallSweep, found: TracePhases) -> AllocationCalls:
    """Where nothing can be said about a steady state, everything is warm-up."""
    by_name = host.by_name(CallKind.ALLOCATE)
    count = sum(by_name.values())
    steady = 0 if found.why_not else sum(host.by_name(CallKind.ALLOCATE, steady=True).values())
    return AllocationCalls(
        by_name=by_name,
        count=count,
        warmup_count=count - steady,
        warmup_time=host.warm_up.length,
        steady_count=steady,
        steady_time=host.steady.length,
    )


def _start(host: HostCallSweep, found: TracePhases) -> ColdStart:
    longest = sorted(found.cold, key=lambda call: -call.duration)[:_NAMED]
    return ColdStart(
        context=host.context.duration,
        context_name=host.context.name,
        time=host.start.length,
        longest=tuple((call.name, call.duration) for call in longest),
    )


def _syncs(host: HostCallSweep, idle: IdleSweep) -> SyncCalls:
    by_name, waiting = host.synchronised(), host.inside["synchronise"]
    return SyncCalls(by_name, sum(by_name.values()), waiting, max(0.0, waiting - host.sync_busy), idle.drained)


def _copies(
    copied_by_label: Mapping[str, CopyCounts],
    device: DeviceWork,
    name: str,
    gpu: KernelSweep,
    host: HostCallSweep,
    found: TracePhases | None,
) -> CopySummary:
    ways: dict[str, CopyTotals] = {}
    pageable: float | None = 0.0
    for text, copied in copied_by_label.items():
        label = CopyLabel.parse(text)
        if label.device != name:
            continue
        known = ways.get(label.direction, CopyTotals(0, 0.0, 0.0))
        size = None if known.size is None or copied.bytes is None else known.size + copied.bytes
        ways[label.direction] = CopyTotals(known.count + copied.count, size, known.time + copied.time * 1e-6)
        if label.direction in {"HtoD", "DtoH"}:
            unknown = pageable is None or label.memory == "" or copied.bytes is None
            pageable = None if unknown else (pageable or 0.0) + (copied.bytes or 0.0) * (label.memory == "pageable")
    return CopySummary(
        alone=gpu.active.length - gpu.compute.length,
        span=(device.work.last - device.work.first) * 1e-6,
        ways=ways,
        pageable=pageable,
        inside=host.inside["copy"] if found else None,
        waiting=host.copy_waits if found else None,
    )


def _bounds(columns: TraceStore) -> tuple[float, float]:
    """From the first marked step's start to the last one's end; an empty interval where none was marked."""
    steps = columns.counts.steps.values()
    first, last = min((start for start, _ in steps), default=0.0), max((end for _, end in steps), default=0.0)
    return _seconds(columns, first), _seconds(columns, last)


def _steps(columns: TraceStore, gpu: KernelSweep) -> MarkedSteps | None:
    steps = columns.counts.steps
    spent = sum(end - start for start, end in steps.values()) * 1e-6
    return MarkedSteps(len(steps), gpu.in_steps, spent) if steps else None


def _compiles(columns: TraceStore, host: HostCallSweep, found: TracePhases) -> CompileActivity:
    """What was compiled or loaded while the service was in its stride; compilations lie inside one another."""
    table = np.array(columns.counts.compiles, np.float64).reshape(-1, 2)
    times = (table - columns.counts.span.first) * 1e-6
    whole = union(times[:, 0], times[:, 1])
    late = whole.starts >= found.steady
    return CompileActivity(
        recorded=bool(len(columns.operators) or columns.counts.compiles),
        count=len(whole.starts),
        steady_count=int(late.sum()),
        steady_time=float((whole.ends - whole.starts)[late].sum()),
        loads=host.by_name(CallKind.LOAD, steady=True),
    )


def _layers(found: Mapping[str, tuple[int, float]]) -> tuple[tuple[str, int, float], ...]:
    longest = sorted(found, key=lambda name: -found[name][1])[:TOP]
    return tuple((name, found[name][0], found[name][1] * 1e-6) for name in longest)
