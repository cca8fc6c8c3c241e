"""How long kernels take from their launch: apart where the GPU had nothing else to do, and where it was at work.

A kernel that was launched while earlier work still ran waits for that work, however quick launching is. Only one that
found the GPU idle tells what a launch itself costs until the kernel begins.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

import numpy as np

from latdoctor.collect.torch_trace import summary
from latdoctor.collect.torch_trace.columns import KERNEL
from latdoctor.collect.torch_trace.spool import NO_KEY

if TYPE_CHECKING:
    from latdoctor.collect.torch_trace.intervals import Floats
    from latdoctor.collect.torch_trace.sweep import Rows

# Launches whose kernel has not come yet. A GPU takes about a thousand at once; what is older was not recorded.
_MOST_OPEN = 1 << 17
_SHORTEST, _LONGEST = 1e-8, 1e5  # s
_STEP = log(1.02)
_BINS = int(log(_LONGEST / _SHORTEST) / _STEP) + 2
ENOUGH, ENOUGH_FOR_P99 = 10, 100


class Spread:
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


class Delays:
    """Takes the GPU's work and the launches window by window, in order of time."""

    def __init__(self) -> None:
        self._idle, self._behind = Spread(), Spread()
        self._reach = -np.inf  # until when the work so far runs
        self._keys, self._starts = np.zeros(0), np.zeros(0)  # of launches whose kernel has not come

    def take(self, work: Rows, launches: Rows) -> None:
        """`work` is that of the device judged. Of a graph the first kernel counts, which the others follow."""
        reach = np.maximum.accumulate(np.concatenate(([self._reach], work.ends)))
        self._reach = float(reach[-1])
        told = launches.key != NO_KEY
        keys = np.concatenate((self._keys, launches.key[told]))
        starts = np.concatenate((self._starts, launches.starts[told]))
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

    def found(self) -> summary.Delays | None:
        """None where no kernel is linked to its launch."""
        count = self._idle.count + self._behind.count
        if not count:
            return None
        return summary.Delays(
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
