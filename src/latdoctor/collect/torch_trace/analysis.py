"""What a trace shows: pure analysis of its columns into a TraceSummary.

The GPU is one device: where a trace holds several, the one with the most kernels is judged, since figures over
several would average them. A fill (memset) occupies the GPU as a kernel does and counts as one where busy time is
meant; it is no kernel where kernels are counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from latdoctor.collect.torch_trace.api_calls import ALLOCATE, FREE, LAUNCH, OTHER, SYNCHRONISE, kind_of_call
from latdoctor.collect.torch_trace.columns import Columns, CopyLabel, Track
from latdoctor.collect.torch_trace.intervals import Intervals, joined, union
from latdoctor.collect.torch_trace.phases import Calls, Phases, phases
from latdoctor.collect.torch_trace.summary import (
    Allocations,
    ColdStart,
    Copies,
    Kernels,
    Launches,
    Syncs,
    TraceSummary,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from latdoctor.collect.torch_trace.intervals import Floats

    Mask = NDArray[np.bool_]

# A launch costs the host about 5 µs, so kernels shorter than 10 µs cannot hide the next launch.
TINY = 10e-6
FIRST_LAUNCHES = 100
_NAMED = 4
_INSTANT = 1e-6


def analyse(columns: Columns) -> TraceSummary:
    """Everything that one trace shows. Needs at least one timed event."""
    devices = _devices(columns)
    gpu = _gpu(columns, devices[0]) if devices else None
    calls = _calls(columns)
    ran = gpu is not None and len(gpu.starts) > 0
    found = _phases(columns, calls, gpu) if gpu is not None and ran and len(calls) else None
    return TraceSummary(
        span=(columns.last - columns.first) * 1e-6,
        first=columns.first * 1e-6,
        devices=devices,
        kernels=_kernels(gpu) if gpu is not None and ran else None,
        copies=_copies(columns, gpu) if gpu is not None else None,
        launches=_launches(calls, gpu) if gpu is not None and found else None,
        allocations=_allocations(calls, found) if found else None,
        start=_start(calls, found) if found else None,
        syncs=_syncs(calls, gpu) if gpu is not None and found else None,
        phases=found,
        calls=len(calls),
        device_calls=_by_name(calls, calls.are(ALLOCATE)),
        hip=any(name.startswith("hip") for name in calls.names),
        range_mode=columns.ranges > 0,
        results=columns.results,
        failures=columns.failures,
    )


@dataclass(frozen=True, slots=True)
class _Gpu:
    """The device judged, at work: its kernels one by one, `compute` with fills, `active` with copies as well."""

    device: str
    starts: Floats
    ends: Floats
    compute: Intervals
    active: Intervals

    @property
    def first(self) -> float:
        return float(self.starts.min())

    @property
    def last(self) -> float:
        return float(self.ends.max())

    @property
    def span(self) -> float:
        return self.last - self.first


def _devices(columns: Columns) -> tuple[str, ...]:
    """The devices that did any work, the one with the most kernels first."""
    counts: Counter[str] = Counter()
    for track, weight in ((columns.kernels, 1 << 32), (columns.fills, 1), (columns.copies, 1)):
        for label, name in enumerate(track.labels.listed):
            device = CopyLabel.parse(name).device if track is columns.copies else name
            counts[device] += weight * track.label.count(label)
    return tuple(device for device, _ in counts.most_common())


def _gpu(columns: Columns, device: str) -> _Gpu:
    own = _labelled(columns.kernels, lambda name: name == device)
    starts, ends = (times[own] for times in columns.kernels.times(columns.first))
    compute = joined(union(starts, ends), _union(columns.fills, columns.first, lambda name: name == device))
    copying = _union(columns.copies, columns.first, lambda name: CopyLabel.parse(name).device == device)
    return _Gpu(device, starts, ends, compute, joined(compute, copying))


def _labelled(track: Track, wanted: Callable[[str], bool]) -> Mask:
    """Which entries of `track` carry a label that is `wanted`."""
    import numpy as np

    picked = np.array([wanted(name) for name in track.labels.listed], dtype=bool)
    return picked[np.frombuffer(track.label, dtype=np.int32)] if len(track) else np.zeros(0, dtype=bool)


def _union(track: Track, origin: float, wanted: Callable[[str], bool]) -> Intervals:
    own = _labelled(track, wanted)
    starts, ends = track.times(origin)
    return union(starts[own], ends[own])


def _calls(columns: Columns) -> Calls:
    import numpy as np

    starts, ends = columns.calls.times(columns.first)
    names = tuple(columns.calls.labels.listed)
    label = np.frombuffer(columns.calls.label, dtype=np.int32)
    return Calls(starts, ends, label, names, tuple(kind_of_call(name) for name in names))


def _phases(columns: Columns, calls: Calls, gpu: _Gpu) -> Phases:
    steps = {
        name: ((start - columns.first) * 1e-6, (end - columns.first) * 1e-6)
        for name, (start, end) in columns.steps.items()
    }
    return phases(calls, gpu.starts, gpu.active, steps)


def _by_name(calls: Calls, chosen: Mask) -> Mapping[str, int]:
    import numpy as np

    counts = np.bincount(calls.label[chosen], minlength=len(calls.names))
    return {name: int(count) for name, count in sorted(zip(calls.names, counts, strict=True)) if count}


def _kernels(gpu: _Gpu) -> Kernels:
    durations = gpu.ends - gpu.starts
    count = len(durations)
    busy = gpu.compute.clipped(gpu.first, gpu.last).length
    return Kernels(
        count=count,
        busy=busy,
        span=gpu.span,
        tiny=int((durations < TINY).sum()),
        duration=float(durations.mean()),
        gap=(gpu.span - busy) / max(1, count - 1),
    )


def _launches(calls: Calls, gpu: _Gpu) -> Launches:
    import numpy as np

    chosen = calls.are(LAUNCH)
    order = np.argsort(calls.starts[chosen], kind="stable")[:FIRST_LAUNCHES]
    early = np.flatnonzero(chosen)[order]
    longest = int(early[np.argmax((calls.ends - calls.starts)[early])]) if len(early) else -1
    inside = union(calls.starts[chosen], calls.ends[chosen]).clipped(gpu.first, gpu.last)
    return Launches(
        by_name=_by_name(calls, chosen),
        count=int(chosen.sum()),
        api_share=inside.length / gpu.span if gpu.span else 0.0,
        first=float(calls.ends[longest] - calls.starts[longest]) if longest >= 0 else 0.0,
        first_name=calls.name(longest) if longest >= 0 else "",
    )


def _allocations(calls: Calls, found: Phases) -> Allocations:
    """Where nothing can be said about a steady state, everything is warm-up."""
    import numpy as np

    limit = np.inf if found.why_not else found.steady
    allocates = calls.are(ALLOCATE)
    handles = calls.are(ALLOCATE, FREE) & ~found.cold
    early = calls.starts < limit
    return Allocations(
        by_name=_by_name(calls, allocates),
        count=int(allocates.sum()),
        warmup_count=int((allocates & early).sum()),
        warmup_time=_time_in(calls, handles & early),
        steady_count=int((allocates & ~early).sum()),
        steady_time=_time_in(calls, handles & ~early),
    )


def _time_in(calls: Calls, chosen: Mask) -> float:
    """Time in which at least one of the chosen calls was under way."""
    return union(calls.starts[chosen], calls.ends[chosen]).length


def _start(calls: Calls, found: Phases) -> ColdStart:
    import numpy as np

    durations = calls.ends - calls.starts
    early = calls.starts < found.steady
    contexts = np.flatnonzero(calls.are(OTHER, FREE) & (found.cold | early))
    context = int(contexts[np.argmax(durations[contexts])]) if len(contexts) else -1
    cold = np.flatnonzero(found.cold)
    longest = cold[np.argsort(-durations[cold], kind="stable")][:_NAMED]
    # Allocations belong to the start only while it goes on; later ones may be a storm from the first request on.
    whole = len(cold) > 0 and found.why_not
    starting = calls.starts < (np.inf if whole else calls.ends[cold].max(initial=-np.inf))
    return ColdStart(
        context=float(durations[context]) if context >= 0 else 0.0,
        context_name=calls.name(context) if context >= 0 else "",
        time=_time_in(calls, found.cold | (calls.are(ALLOCATE, FREE) & starting)),
        longest=tuple((calls.name(int(i)), float(durations[i])) for i in longest),
    )


def _syncs(calls: Calls, gpu: _Gpu) -> Syncs:
    import numpy as np

    chosen = calls.are(SYNCHRONISE) & (calls.starts < gpu.last) & (calls.ends > gpu.first)
    waiting = union(calls.starts[chosen], calls.ends[chosen]).clipped(gpu.first, gpu.last)
    gaps = gpu.active.clipped(gpu.first, gpu.last).gaps
    # The host was still in the call when the GPU ran dry: it had launched nothing beyond what it waited for.
    touched = waiting.within(gaps.starts, np.minimum(gaps.ends, gaps.starts + _INSTANT)) > 0
    return Syncs(
        by_name=_by_name(calls, chosen),
        count=int(chosen.sum()),
        waiting=waiting.length,
        idle=waiting.length - gpu.active.shared_with(waiting),
        drained=float((gaps.ends - gaps.starts)[touched].sum()),
    )


def _copies(columns: Columns, gpu: _Gpu) -> Copies:
    import numpy as np

    track = columns.copies
    labels = [CopyLabel.parse(name) for name in track.labels.listed]
    own = _labelled(track, lambda name: CopyLabel.parse(name).device == gpu.device)
    label = np.frombuffer(track.label, dtype=np.int32)
    told = np.frombuffer(columns.copy_bytes, dtype=np.float64)
    durations = np.frombuffer(track.dur, dtype=np.float64) * 1e-6
    count: Counter[str] = Counter()
    size: dict[str, float] = defaultdict(float)
    pageable, time, memory_told = 0.0, 0.0, True
    for number, kind in enumerate(labels):
        these = own & (label == number)
        count[kind.direction] += int(these.sum())
        size[kind.direction] += float(told[these].sum())
        if kind.direction != "other" and these.any():
            time += float(durations[these].sum())
            pageable += float(told[these].sum()) if kind.memory == "pageable" else 0.0
            memory_told = memory_told and kind.memory != ""
    bytes_told = not np.isnan([size["HtoD"], size["DtoH"]]).any()
    return Copies(
        alone=gpu.active.length - gpu.compute.length,
        span=float(gpu.active.ends[-1] - gpu.active.starts[0]),
        count=dict(count),
        size=dict(size) if bytes_told else None,
        pageable=pageable if bytes_told and memory_told else None,
        time=time,
    )
