"""One pass over the rows of a trace in order of time, window by window, into sums that are exact for the whole.

What a window needs to know of those before it is little: how far each union of intervals reaches, and whether the GPU
stood idle at its beginning. So memory is bounded by the window, however long the trace is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from latdoctor.collectors.torch_trace.disk_spill import swept
from latdoctor.collectors.torch_trace.event_store import COPY, KERNEL, TraceStore
from latdoctor.collectors.torch_trace.intervals import Cover, Intervals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from latdoctor.collectors.torch_trace.disk_spill import Numbers, Rows
    from latdoctor.collectors.torch_trace.intervals import Floats

    Mask = NDArray[np.bool_]


class WindowRows(Struct, frozen=True):
    """Rows of one window sorted by start; times in seconds since the trace began."""

    starts: Floats
    ends: Floats
    label: Numbers
    place: Numbers
    key: Floats

    def __len__(self) -> int:
        return len(self.starts)

    def where(self, chosen: Mask) -> WindowRows:
        times = self.starts[chosen], self.ends[chosen]
        return WindowRows(*times, self.label[chosen], self.place[chosen], self.key[chosen])


class SweepWindow(Struct, frozen=True):
    """One window: what starts in [low, high)."""

    low: float
    high: float
    work: WindowRows
    calls: WindowRows

    def work_of(self, device: int) -> WindowRows:
        own = self.work.place >> 2 == device
        return self.work if own.all() else self.work.where(own)


def views(columns: TraceStore, *, calls: bool = True) -> Iterator[SweepWindow]:
    """The windows of a trace in order; without `calls` the GPU's work alone."""
    origin = columns.counts.span.first
    for low, high, rows in swept([columns.work, columns.calls] if calls else [columns.work]):
        work = _seconds(rows[0], origin)
        called = _seconds(rows[1] if calls else rows[0][:0], origin)
        yield SweepWindow((low - origin) * 1e-6, (high - origin) * 1e-6, work, called)


def _seconds(rows: Rows, origin: float) -> WindowRows:
    starts = (rows["start"] - origin) * 1e-6
    return WindowRows(starts, starts + rows["dur"] * 1e-6, rows["label"], rows["place"], rows["key"])


class KernelSweep:
    """Of one device: its kernels counted, `compute` the time with a kernel or a fill, `active` with a copy as well."""

    def __init__(self, names: int, first: float, last: float, tiny: float, steps: tuple[float, float]) -> None:
        self.first, self.last = first, last  # of the kernels
        self.count = self.tiny = self.in_steps = 0
        self.duration = 0.0
        self.by_name = np.zeros(names)  # seconds
        self.counts_by_name = np.zeros(names, np.int64)
        self.busy = 0.0  # of `compute`, within first to last
        self.compute, self.active = Cover(), Cover()
        self._tiny, self._steps = tiny, steps

    def take(self, view: SweepWindow, own: WindowRows) -> tuple[Intervals, Intervals]:
        """What is covered in this window by kernels and fills, and by all work; `own` is the device's work in it."""
        kernels = own.where(own.place & 3 == KERNEL)
        durations = kernels.ends - kernels.starts
        self.count += len(kernels)
        self.tiny += int((durations < self._tiny).sum())
        self.duration += float(durations.sum())
        self.in_steps += int(((kernels.starts >= self._steps[0]) & (kernels.starts < self._steps[1])).sum())
        self.by_name += np.bincount(kernels.label, durations, len(self.by_name))
        self.counts_by_name += np.bincount(kernels.label, minlength=len(self.by_name))
        copies = own.place & 3 == COPY
        active = self.active.take(own.starts, own.ends, view.low, view.high)
        computing = own.where(~copies) if copies.any() else own
        compute = self.compute.take(computing.starts, computing.ends, view.low, view.high)
        self.busy += compute.clipped(self.first, self.last).length
        return compute, active


class IdleSweep:
    """The gaps between GPU work within the kernels' span. A gap goes on where the window before ended in one."""

    INSTANT = 1e-6  # s

    def __init__(self, first: float, last: float) -> None:
        self.length = self.longest = 0.0
        self.drained = 0.0  # in gaps that began while the host was in a synchronisation call
        self.count = 0
        self._first, self._last = first, last
        self._open = 0.0  # length so far of the gap in which the last window ended
        self._touched = False

    def take(self, view: SweepWindow, active: Intervals, waiting: Intervals) -> Intervals:
        """The idle pieces of this window; `waiting` is the host in synchronisation calls."""
        low, high = max(view.low, self._first), min(view.high, self._last)
        if low >= high:
            return Intervals(np.zeros(0), np.zeros(0))
        inside = active.clipped(low, high)
        starts, ends = np.concatenate(([low], inside.ends)), np.concatenate((inside.starts, [high]))
        pieces = Intervals(starts[ends > starts], ends[ends > starts])
        self._count(pieces, waiting, low, high)
        return pieces

    def _count(self, pieces: Intervals, waiting: Intervals, low: float, high: float) -> None:
        lengths = pieces.ends - pieces.starts
        if not len(lengths) or pieces.starts[0] > low:
            self._open = 0.0
        if not len(lengths):
            return
        touched = waiting.within(pieces.starts, np.minimum(pieces.ends, pieces.starts + self.INSTANT)) > 0
        goes_on = self._open > 0
        if goes_on:
            touched[0] = self._touched
        self.count += len(lengths) - goes_on
        self.length += float(lengths.sum())
        self.drained += float(lengths[touched].sum())
        whole = lengths.copy()
        whole[0] += self._open
        self.longest = max(self.longest, float(whole.max()))
        self._open = float(whole[-1]) if pieces.ends[-1] >= high else 0.0
        self._touched = bool(touched[-1])


class KernelStartTimes:
    """When the kernels of one device began (phases.KernelStarts), looked up in the rows only if asked."""

    def __init__(self, columns: TraceStore, device: int, count: int) -> None:
        self._columns, self._device, self._count = columns, device, count
        self._middle: float | None = None

    def middle(self) -> float:
        if self._middle is None:
            self._middle = self._found()
        return self._middle

    def count_from(self, time: float) -> int:
        return sum(int((starts >= time).sum()) for starts in self._windows())

    def _found(self) -> float:
        left = self._count // 2
        for starts in self._windows():
            if left < len(starts):
                return float(starts[left])
            left -= len(starts)
        raise AssertionError("there are as many kernels as were counted")

    def _windows(self) -> Iterator[Floats]:
        for view in views(self._columns, calls=False):
            yield view.work.starts[view.work.place == 4 * self._device + KERNEL]


def busy_in(columns: TraceStore, device: int, starts: Floats, ends: Floats) -> Floats:
    """How long the device was at work in each of the intervals given (seconds since the trace began)."""
    found = np.zeros(len(starts))
    active = Cover()
    for view in views(columns, calls=False):
        own = view.work_of(device)
        covered = active.take(own.starts, own.ends, view.low, view.high)
        found += covered.within(np.clip(starts, view.low, view.high), np.clip(ends, view.low, view.high))
    return found
