"""The host's side of a sweep: the calls of the CUDA or HIP API, by kind, against what the GPU did meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import TYPE_CHECKING

import numpy as np

from latdoctor.collectors.torch_trace import summary
from latdoctor.collectors.torch_trace.disk_spill import NO_KEY
from latdoctor.collectors.torch_trace.event_names import CallKind, kind_of_call
from latdoctor.collectors.torch_trace.event_store import KERNEL
from latdoctor.collectors.torch_trace.intervals import Cover, Intervals
from latdoctor.collectors.torch_trace.phases import LongCall, TracePhases
from latdoctor.collectors.torch_trace.sweep import SweepWindow, WindowRows

if TYPE_CHECKING:
    from latdoctor.collectors.torch_trace.intervals import Floats
    from latdoctor.collectors.torch_trace.sweep import Mask


FIRST_LAUNCHES = 100
# What the host was in while the GPU stood idle; calls of several threads may count in two of them.
GROUPS: Mapping[str, frozenset[str]] = {
    "synchronise": frozenset({CallKind.SYNCHRONISE}),
    "allocate": frozenset({CallKind.ALLOCATE, CallKind.FREE}),
    "copy": frozenset({CallKind.COPY}),
    "launch": frozenset({CallKind.LAUNCH}),
}
NO_CALL = "none"


class HostCallSweep:
    """Sums over the calls. Where `when` is None there was no GPU work to compare with."""

    def __init__(self, names: tuple[str, ...], when: TracePhases | None, first: float, last: float) -> None:
        self.names = names
        self._kinds = [kind_of_call(name) for name in names] or [CallKind.OTHER]
        self.counts = np.zeros(len(self._kinds), np.int64)
        self.steady_counts = np.zeros(len(self._kinds), np.int64)
        self.sync_counts = np.zeros(len(self._kinds), np.int64)
        self.inside = dict.fromkeys(GROUPS, 0.0)  # time in these calls within the kernels' span
        self.idle = dict.fromkeys((*GROUPS, NO_CALL), 0.0)  # the same while the GPU stood idle
        self.sync_busy = 0.0  # in synchronisation calls while the GPU worked
        self.copy_waits = 0.0  # in copy calls while kernels ran
        self.launch_time = 0.0  # summed
        self.longest_launch = LongCall(0.0, 0.0, "")  # of the first 100
        self.context = LongCall(0.0, 0.0, "")
        self.warm_up, self.steady, self.start = Cover(), Cover(), Cover()
        self._groups = {name: (self._of(*kinds), Cover()) for name, kinds in GROUPS.items()}
        self._any = Cover()
        self._when, self._first, self._last = when, first, last
        self._launches = 0

    def _of(self, *kinds: str) -> Mask:
        """For each name, is it of one of these kinds?"""
        return np.array([kind in kinds for kind in self._kinds], dtype=bool)

    def by_name(self, *kinds: str, steady: bool = False) -> Mapping[str, int]:
        counts = self.steady_counts if steady else self.counts
        chosen = self._of(*kinds)
        found = {name: int(count) for name, count, own in zip(self.names, counts, chosen, strict=False) if own}
        return {name: count for name, count in sorted(found.items()) if count}

    def synchronised(self) -> Mapping[str, int]:
        """The blocking calls within the kernels' span."""
        pairs = zip(self.names, self.sync_counts.tolist(), strict=False)
        return {name: count for name, count in sorted(pairs) if count}

    def take(self, view: SweepWindow, compute: Intervals, active: Intervals) -> Intervals:
        """The calls of one window; what the synchronisation calls cover of it, within the kernels' span."""
        calls = view.calls
        self.counts += np.bincount(calls.label, minlength=len(self.counts))
        if self._when is None:
            return Intervals(np.zeros(0), np.zeros(0))
        self._take_phases(calls, view, self._when)
        self._take_launches(calls.where(self._groups["launch"][0][calls.label]))
        syncs = calls.where(self._groups["synchronise"][0][calls.label])
        within = syncs.where((syncs.starts < self._last) & (syncs.ends > self._first))
        self.sync_counts += np.bincount(within.label, minlength=len(self.counts))
        covered = {}
        for name, (kinds, cover) in self._groups.items():
            own = calls.where(kinds[calls.label])
            found = cover.take(own.starts, own.ends, view.low, view.high).clipped(self._first, self._last)
            self.inside[name] += found.length
            covered[name] = found
        self.sync_busy += active.shared_with(covered["synchronise"])
        self.copy_waits += compute.shared_with(covered["copy"])
        self._covered = (covered, self._any.take(calls.starts, calls.ends, view.low, view.high))
        return covered["synchronise"]

    def take_idle(self, idle: Intervals) -> None:
        """What the host did in the idle pieces of the window taken last."""
        if self._when is None or not len(idle.starts):
            return
        covered, every = self._covered
        for name, calls in covered.items():
            self.idle[name] += calls.shared_with(idle)
        self.idle[NO_CALL] += idle.length - every.shared_with(idle)

    def _take_launches(self, launches: WindowRows) -> None:
        self.launches = launches
        self.launch_time += float((launches.ends - launches.starts).sum())
        if self._launches < FIRST_LAUNCHES and len(launches):
            first = slice(FIRST_LAUNCHES - self._launches)
            self.longest_launch = self._longest(launches, first, self.longest_launch)
            self._launches += len(launches)

    def _take_phases(self, calls: WindowRows, view: SweepWindow, when: TracePhases) -> None:
        early = calls.starts < when.steady
        self.steady_counts += np.bincount(calls.label[~early], minlength=len(self.counts))
        cold = self._are_cold(calls, when)
        others = calls.where(self._of(CallKind.OTHER, CallKind.LOAD, CallKind.FREE)[calls.label] & (cold | early))
        if len(others):
            self.context = self._longest(others, slice(None), self.context)
        handles = self._of(CallKind.ALLOCATE, CallKind.FREE)[calls.label]
        # Where nothing can be said about a steady state, everything is warm-up.
        limit = np.inf if when.why_not else when.steady
        # Allocations belong to the start only while it goes on; later ones may be a storm from the first request on.
        until = -np.inf if not when.cold else np.inf if when.why_not else max(call.end for call in when.cold)
        for cover, chosen in (
            (self.warm_up, handles & ~cold & (calls.starts < limit)),
            (self.steady, handles & ~cold & (calls.starts >= limit)),
            (self.start, cold | (handles & (calls.starts < until))),
        ):
            own = calls.where(chosen)
            cover.take(own.starts, own.ends, view.low, view.high)

    def _are_cold(self, calls: WindowRows, when: TracePhases) -> Mask:
        found = np.zeros(len(calls), bool)
        if not when.cold or not len(calls):
            return found
        known = {(call.start, call.name) for call in when.cold}
        shortest = min(call.duration for call in when.cold)
        for index in np.flatnonzero(calls.ends - calls.starts >= 0.999 * shortest).tolist():
            found[index] = (float(calls.starts[index]), self.names[int(calls.label[index])]) in known
        return found

    def _longest(self, calls: WindowRows, which: slice, known: LongCall) -> LongCall:
        starts, ends = calls.starts[which], calls.ends[which]
        index = int(np.argmax(ends - starts))
        found = LongCall(float(starts[index]), float(ends[index]), self.names[int(calls.label[which][index])])
        return found if not known.name or found.duration > known.duration else known


# Launches whose kernel has not come yet. A GPU takes about a thousand at once; what is older was not recorded.
_MOST_OPEN = 1 << 17
_SHORTEST, _LONGEST = 1e-8, 1e5  # s
_STEP = log(1.02)
_BINS = int(log(_LONGEST / _SHORTEST) / _STEP) + 2
ENOUGH, ENOUGH_FOR_P99 = 10, 100


class DurationHistogram:
    """Durations counted in bins of 2 %, so that quantiles of however many are right to 1 %."""

    def __init__(self) -> None:
        self._bins = np.zeros(_BINS, np.int64)

    def take(self, durations: Floats) -> None:
        """Adds durations in seconds; what is shorter than 10 ns counts as nothing."""
        bins = 1 + np.floor(np.log(np.maximum(durations, 1e-12) / _SHORTEST) / _STEP)
        self._bins += np.bincount(np.clip(bins, 0, _BINS - 1).astype(np.int64), minlength=_BINS)

    @property
    def count(self) -> int:
        return int(self._bins.sum())

    def quantile(self, share: float, enough: int) -> float | None:
        """The smallest that `share` of them do not exceed; None where there are fewer than `enough`."""
        if self.count < enough:
            return None
        found = int(np.searchsorted(np.cumsum(self._bins), share * self.count))
        return _SHORTEST * float(np.exp((found - 0.5) * _STEP)) if found else 0.0


class LaunchDelaySweep:
    """Takes the GPU's work and the launches window by window, in order of time."""

    def __init__(self) -> None:
        self._idle, self._behind = DurationHistogram(), DurationHistogram()
        self._reach = -np.inf  # until when the work so far runs
        self._keys, self._starts = np.zeros(0), np.zeros(0)  # of launches whose kernel has not come

    def take(self, work: WindowRows, launches: WindowRows) -> None:
        """`work` is that of the device judged. Of a graph the first kernel counts, which the others follow."""
        reach = np.maximum.accumulate(np.concatenate(([self._reach], work.ends)))
        self._reach = float(reach[-1])
        known = launches.key != NO_KEY
        keys = np.concatenate((self._keys, launches.key[known]))
        starts = np.concatenate((self._starts, launches.starts[known]))
        order = np.argsort(keys, kind="stable")
        keys, starts = keys[order], starts[order]
        kernels = np.flatnonzero((work.place & 3 == KERNEL) & (work.key != NO_KEY))
        found = np.searchsorted(keys, work.key[kernels])
        linked = found < len(keys)
        linked[linked] = keys[found[linked]] == work.key[kernels[linked]]
        first = np.full(len(keys), -1)
        first[found[linked][::-1]] = kernels[linked][::-1]  # the last one written is the first that ran
        came = first >= 0
        self._count(work.starts[first[came]], starts[came], reach[first[came]])
        self._keys, self._starts = _latest(keys[~came], starts[~came])

    def _count(self, began: Floats, launched: Floats, busy_until: Floats) -> None:
        idle = busy_until <= launched
        delays = began - launched
        self._idle.take(delays[idle])
        self._behind.take(delays[~idle])

    def found(self) -> summary.LaunchDelays | None:
        """None where no kernel is linked to its launch."""
        count = self._idle.count + self._behind.count
        if not count:
            return None
        return summary.LaunchDelays(
            launches=count,
            idle=self._idle.count,
            median=self._idle.quantile(0.5, ENOUGH),
            p99=self._idle.quantile(0.99, ENOUGH_FOR_P99),
            wait=self._behind.quantile(0.5, ENOUGH),
        )


def _latest(keys: Floats, starts: Floats) -> tuple[Floats, Floats]:
    if len(keys) <= _MOST_OPEN:
        return keys, starts
    kept = np.sort(np.argsort(starts, kind="stable")[-_MOST_OPEN:])
    return keys[kept], starts[kept]
