"""The events of a trace as rows and counts: only what the analysis needs, and no more memory for a longer trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import lru_cache
from math import inf, nan
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

import msgspec
import numpy as np

from latdoctor.collectors.torch_trace import event_names
from latdoctor.collectors.torch_trace.disk_spill import NO_KEY, Spool
from latdoctor.collectors.torch_trace.event_names import HostMark
from latdoctor.collectors.torch_trace.events import DamagedEvents, EventArgs, TraceEvent
from latdoctor.collectors.torch_trace.name_table import (
    FURTHER,
    MAX_NAMES,
    HostMarkCache,
    MarkedNameTable,
    NameTable,
    layer_class,
)
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    from latdoctor.collectors.torch_trace.disk_spill import Numbers
    from latdoctor.collectors.torch_trace.intervals import Floats


_MAX_STEPS = 100_000


class TimeExtent(msgspec.Struct):
    """How much there is of something, and from when to when (µs)."""

    count: int = 0
    first: float = inf
    last: float = -inf

    def take(self, count: int, first: float, last: float) -> None:
        self.count += count
        self.first, self.last = min(self.first, first), max(self.last, last)


class DeviceWork(msgspec.Struct):
    kernels: TimeExtent = msgspec.field(default_factory=TimeExtent)
    work: TimeExtent = msgspec.field(default_factory=TimeExtent)  # kernels, fills and copies


class CopyCounts(msgspec.Struct):
    """Copies of one kind: how many, their bytes (NaN if one has no size), the sum of their times (µs)."""

    count: int = 0
    bytes: float | None = 0.0
    time: float = 0.0

    def take(self, count: int, size: float | None, time: float) -> None:
        self.count += count
        self.bytes = None if self.bytes is None or size is None else self.bytes + size
        self.time += time


class TraceCounts(msgspec.Struct):
    """Everything of a trace that is not a row. By name, so that the parts of two processes can be added up."""

    timed: int = 0
    span: TimeExtent = msgspec.field(default_factory=TimeExtent)  # of all timed events
    called: TimeExtent = msgspec.field(default_factory=TimeExtent)  # of the calls
    ranges: int = 0  # events of the range profiler, which records no single kernels
    results: int = 0  # calls with a return code
    failures: dict[str, int] = {}  # "cudaMemcpyAsync: 700" → calls
    steps: dict[str, tuple[float, float]] = {}  # ProfilerStep#N → start, end (µs)
    devices: dict[str, DeviceWork] = {}
    copies: dict[str, CopyCounts] = {}  # by CopyLabel
    layers: dict[str, tuple[int, float]] = {}  # nn.Module → calls, time (µs)
    compiles: list[tuple[float, float]] = []  # start, end (µs)
    long_calls: list[tuple[float, float, str]] = []  # start, end (µs), name
    clipped: int = 0  # long calls and compilations that were not kept

    def merge(self, other: TraceCounts) -> None:
        """Adds what the same trace holds further on."""
        self.timed, self.ranges = self.timed + other.timed, self.ranges + other.ranges
        self.results, self.clipped = self.results + other.results, self.clipped + other.clipped
        for own, further in ((self.span, other.span), (self.called, other.called)):
            own.take(further.count, further.first, further.last)
        for call, count in other.failures.items():
            self.note_failure(call, count)
        for name, bounds in other.steps.items():
            self.note_step(name, *bounds)
        for name, (count, time) in other.layers.items():
            self.note_layer(name, count, time)
        for device, seen in other.devices.items():
            known = self.devices.setdefault(device, DeviceWork())
            known.kernels.take(seen.kernels.count, seen.kernels.first, seen.kernels.last)
            known.work.take(seen.work.count, seen.work.first, seen.work.last)
        for label, copied in other.copies.items():
            self.copies.setdefault(label, CopyCounts()).take(copied.count, copied.bytes, copied.time)
        self.compiles += other.compiles
        self.long_calls += other.long_calls

    def note_failure(self, call: str, count: int = 1) -> None:
        """Count a failed call, as `cudaMemcpyAsync: 700`."""
        if call not in self.failures and len(self.failures) >= MAX_NAMES:
            call = FURTHER
        self.failures[call] = self.failures.get(call, 0) + count

    def note_step(self, name: str, start: float, end: float) -> None:
        if len(self.steps) < _MAX_STEPS:
            self.steps.setdefault(clean(name, 120), (start, end))

    def note_layer(self, name: str, count: int, time: float) -> None:
        if name not in self.layers and len(self.layers) >= MAX_NAMES:
            name = FURTHER
        known = self.layers.get(name, (0, 0.0))
        self.layers[name] = (known[0] + count, known[1] + time)


class CopyLabel(msgspec.Struct, frozen=True):
    """The label of a copy: its device, its direction, and the host memory (empty if unknown)."""

    device: str
    direction: str
    memory: str

    def __str__(self) -> str:
        return f"{self.direction}/{self.memory}/{self.device}"

    @classmethod
    def parse(cls, text: str) -> CopyLabel:
        direction, _, rest = text.partition("/")
        memory, _, device = rest.partition("/")
        return cls(device, direction, memory)


_MAX_MARKED = 100_000
_LARGEST_COPY = float(1 << 60)  # bytes: a size above that is not one
_MAX_DEVICES = 64
_LONGEST = 1e15  # µs; a longer event is damage, and so is a time further out than the next
_FURTHEST = 1e18
LONG_CALL = 50_000.0  # µs; see phases.COLD_CALL

_HOST, _OPERATOR, _CALL, _KERNEL, _FILL, _COPY, _RANGE, _IGNORED = range(8)
_ROLES = (
    (event_names.OPERATORS, _OPERATOR),
    (event_names.CALLS, _CALL),
    (event_names.KERNELS, _KERNEL),
    (event_names.FILLS, _FILL),
    (event_names.COPIES, _COPY),
    (event_names.RANGES, _RANGE),
    (event_names.ENVELOPES | event_names.ECHOES, _IGNORED),
)
_NO_ARGS = EventArgs()

# A row of GPU work is at `place` 4 · device + one of these.
KERNEL, FILL, COPY = range(3)
# A row of the host at 2 · thread + one of these.
OPERATOR, MODULE = range(2)


class TraceStore:
    """Gathers a trace, batch by batch; to be used as a context, since rows may lie in temporary files.

    `work` are kernels, fills and copies, `calls` those of the CUDA or HIP API; a call and what it put on the GPU have
    the same `key`. `operators` are those of the framework and the modules around them. `links` are the kernels (place:
    their device) by the id of the operator that started them, which is that operator's `key`.
    """

    def __init__(self, damage: DamagedEvents, files: Sequence[IO[bytes] | None] = (None, None, None, None)) -> None:
        self.damage = damage
        self.counts = TraceCounts()
        self.work, self.calls, self.operators, self.links = (Spool(file) for file in files)
        self.kernel_names, self.call_names, self.device_names, self.thread_names = (NameTable() for _ in range(4))
        self.operator_names = MarkedNameTable()
        self._roles: dict[str | None, int] = {}
        self._marks = HostMarkCache()
        self._open = ExitStack()
        self._takers: dict[int, Callable[[list[TraceEvent], Floats, Floats], None]] = {
            _HOST: self._take_host,
            _OPERATOR: self._take_operators,
            _CALL: self._take_calls,
            _KERNEL: self._take_kernels,
            _FILL: self._take_fills,
            _COPY: self._take_copies,
        }

    def __enter__(self) -> Self:
        for spool in (self.work, self.calls, self.operators, self.links):
            self._open.enter_context(spool)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def kept(self) -> int:
        return len(self.work) + len(self.calls) + len(self.operators) + len(self.links)

    def add(self, batch: Iterable[TraceEvent]) -> None:
        """Takes in the complete events (phase X) of `batch`; flows, counters and metadata are passed over."""
        groups: defaultdict[str | None, list[TraceEvent]] = defaultdict(list)
        # Events of a kind often follow one another. This loop and the lists below are most of what a trace costs.
        last: str | None = None
        take = groups[None].append
        for event in batch:
            if event.ph == "X":
                if event.cat != last:
                    last = event.cat
                    take = groups[last].append
                take(event)
        for category, events in groups.items():
            role = self._roles.get(category)
            if role is None:
                role = self._role(category)
            if events and role != _IGNORED:
                self._take(role, events)

    def _take(self, role: int, events: list[TraceEvent]) -> None:
        ts = np.array([event.ts for event in events], np.float64)  # None becomes NaN
        dur = np.array([event.dur for event in events], np.float64)
        # NaN is in no range, and makes both ends of this one NaN.
        if not (dur.min() >= 0 and dur.max() <= _LONGEST and ts.min() >= -_FURTHEST and ts.max() <= _FURTHEST):
            good = (dur >= 0) & (dur <= _LONGEST) & (np.abs(ts) <= _FURTHEST)
            for index in np.flatnonzero(~good):
                self._refuse(events[index], role)
            events = [events[index] for index in np.flatnonzero(good)]
            ts, dur = ts[good], dur[good]
        if events:
            self.counts.timed += len(events)
            self.counts.span.take(len(events), float(ts.min()), float((ts + dur).max()))
            if role == _RANGE:
                self.counts.ranges += len(events)
            else:
                self._takers[role](events, ts, dur)

    def _refuse(self, event: TraceEvent, role: int) -> None:
        """An operator still open when the profiler stopped has no duration and is no damage; GPU work without is."""
        if role not in {_HOST, _OPERATOR} or event.ts is None or event.dur is not None:
            self.damage.add(
                f"{event.cat or 'an event'} {event.name or ''!r} has the time {event.ts} and the duration {event.dur}"
            )

    def _role(self, category: str | None) -> int:
        lower = (category or "").lower()
        found = next((role for names, role in _ROLES if lower in names), _HOST)
        if len(self._roles) < MAX_NAMES:
            self._roles[category] = found
        return found

    def _take_host(self, events: list[TraceEvent], ts: Floats, dur: Floats) -> None:
        known = map(self._marks.__getitem__, [event.name for event in events])
        marked = [(index, mark) for index, mark in enumerate(known) if mark]
        for index, mark in marked:
            self._note(mark, events[index].name or "", float(ts[index]), float(dur[index]))
        modules = [index for index, mark in marked if mark == HostMark.LAYER]
        if modules:
            labels = [self.operator_names.number(layer_class(events[index].name or "")) for index in modules]
            threads = self.thread_names.of([events[index].tid for index in modules])
            self.operators.add(ts[modules], dur[modules], np.array(labels, np.int32), 2 * threads + MODULE)

    def _note(self, mark: HostMark, name: str, ts: float, dur: float) -> None:
        if mark == HostMark.STEP:
            self.counts.note_step(name, ts, ts + dur)
        elif mark == HostMark.LAYER:
            self.counts.note_layer(clean(name, 120), 1, dur)
        elif len(self.counts.compiles) < _MAX_MARKED:
            self.counts.compiles.append((ts, ts + dur))
        else:
            self.counts.clipped += 1

    def _take_operators(self, events: list[TraceEvent], ts: Floats, dur: Floats) -> None:
        codes = self.operator_names.of([event.name for event in events])
        marked = np.flatnonzero(codes & 1)
        if len(marked):
            self._take_host([events[at] for at in marked.tolist()], ts[marked], dur[marked])
        threads = self.thread_names.of_few([event.tid for event in events])
        ids = _ids([event.args or _NO_ARGS for event in events])
        self.operators.add(ts, dur, codes >> 1, 2 * threads + OPERATOR, ids)

    def _take_calls(self, events: list[TraceEvent], ts: Floats, dur: Floats) -> None:
        args = [event.args or _NO_ARGS for event in events]
        labels = self.call_names.of([event.name for event in events])
        self.calls.add(ts, dur, labels, 0, _numbers([arg.correlation for arg in args]))
        self.counts.called.take(len(events), float(ts.min()), float((ts + dur).max()))
        for index in np.flatnonzero(dur >= LONG_CALL):
            if len(self.counts.long_calls) < _MAX_MARKED:
                start, name = float(ts[index]), self.call_names[events[index].name]
                long = (start, start + float(dur[index]), self.call_names.listed[name])
                self.counts.long_calls.append(long)
            else:
                self.counts.clipped += 1
        for at in [at for at, arg in enumerate(args) if arg.result is not None or arg.old_result is not None]:
            self._note_result(
                events[at].name or "", args[at].old_result if args[at].result is None else args[at].result
            )

    def _note_result(self, name: str, result: int | str | None) -> None:
        self.counts.results += 1
        if result is not None and event_names.is_failure(result):
            self.counts.note_failure(clean(f"{name}: {result}", 120))

    def _take_kernels(self, events: list[TraceEvent], ts: Floats, dur: Floats) -> None:
        args = [event.args or _NO_ARGS for event in events]
        devices = self._devices(args)
        labels = self.kernel_names.of([event.name for event in events])
        self.work.add(ts, dur, labels, 4 * devices + KERNEL, _numbers([arg.correlation for arg in args]))
        ids = _ids(args)
        known = ids != NO_KEY
        if known.all():
            self.links.add(ids, dur, 0, devices)
        else:
            self.links.add(ids[known], dur[known], 0, devices[known])
        self._note_devices(devices, ts, ts + dur, kernels=True)

    def _take_fills(self, events: list[TraceEvent], ts: Floats, dur: Floats) -> None:
        devices = self._devices([event.args or _NO_ARGS for event in events])
        self.work.add(ts, dur, 0, 4 * devices + FILL)
        self._note_devices(devices, ts, ts + dur)

    def _take_copies(self, events: list[TraceEvent], ts: Floats, dur: Floats) -> None:
        args = [event.args or _NO_ARGS for event in events]
        devices = self._devices(args)
        self.work.add(ts, dur, 0, 4 * devices + COPY)
        self._note_devices(devices, ts, ts + dur)
        for event, arg, device, time in zip(events, args, devices.tolist(), dur.tolist(), strict=True):
            size = arg.size
            label = _copy_label(event.name or "", self.device_names.listed[device])
            known = self.counts.copies.setdefault(label, CopyCounts())
            known.take(1, None if size is None or not 0 <= size <= _LARGEST_COPY else size, time)

    def _devices(self, args: Sequence[EventArgs]) -> Numbers:
        numbers = self.device_names.of_few([arg.device for arg in args])
        return np.minimum(numbers, _MAX_DEVICES)

    def _note_devices(self, devices: Numbers, starts: Floats, ends: Floats, *, kernels: bool = False) -> None:
        for device in np.unique(devices).tolist():
            own = devices == device
            extent = (int(own.sum()), float(starts[own].min()), float(ends[own].max()))
            known = self.counts.devices.setdefault(self.device_names.listed[device], DeviceWork())
            known.work.take(*extent)
            if kernels:
                known.kernels.take(*extent)


def _ids(args: Sequence[EventArgs]) -> Floats:
    """The ids by which operators and kernels belong together; NO_KEY where there is none."""
    return _numbers([arg.link if arg.link is not None else arg.old_link for arg in args])


def _numbers(ids: Sequence[object]) -> Floats:
    """`ids` as keys; NO_KEY for what is no number of zero or more."""
    try:
        found = np.fromiter(ids, np.float64, len(ids))
    except (TypeError, ValueError, OverflowError):  # something else than numbers
        found = np.array([float(one) if isinstance(one, int) and abs(one) < 2**53 else nan for one in ids])
    found[~(found >= 0) | (found == inf)] = NO_KEY
    return found


@lru_cache(maxsize=MAX_NAMES)
def _copy_label(name: str, device: str) -> str:
    return str(CopyLabel(device, event_names.direction_of_copy(name), event_names.host_memory_of_copy(name)))
